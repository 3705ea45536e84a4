//! Runs of the command line.

use std::ffi::OsStr;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::shared::root;

/// The output and the exit code of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The exit code.
    pub code: i32,
    /// What it printed as data.
    pub stdout: String,
    /// What it printed for people.
    pub stderr: String,
}

impl Ran {
    /// The printed JSON of a successful run.
    ///
    /// # Panics
    /// When the run failed or printed something else.
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.stderr);
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }
}

/// The binary of the same build as the tests.
///
/// # Panics
/// When it has not been built.
pub fn path() -> PathBuf {
    let test = std::env::current_exe().expect("a test runs from a file");
    let folder = test.parent().and_then(Path::parent);
    let folder = folder.expect("a test is in target/<profile>/deps");
    let binary = folder.join(format!("posenc-onnx{}", std::env::consts::EXE_SUFFIX));
    assert!(
        binary.is_file(),
        "{} is missing: the whole workspace has to be built, as `cargo xtask test` does",
        binary.display()
    );
    binary
}

/// Runs the binary in the workspace, so that it finds the ONNX Runtime of the tests there.
pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    run_in(root(), &[], arguments)
}

/// Runs the binary in a folder, with these environment variables.
///
/// # Panics
/// When it cannot be started.
pub fn run_in<S: AsRef<OsStr>>(
    folder: &Path,
    variables: &[(&str, &str)],
    arguments: impl IntoIterator<Item = S>,
) -> Ran {
    let mut command = command(arguments);
    command.current_dir(folder).envs(variables.iter().copied());
    ran(&command.output().expect("the binary starts"))
}

/// The same as [`run`]; `None` where the run did not end within `limit`.
///
/// # Panics
/// When it cannot be started.
pub fn run_within<S: AsRef<OsStr>>(
    limit: Duration,
    arguments: impl IntoIterator<Item = S>,
) -> Option<Ran> {
    // Files, not pipes: a run that prints much must not wait for a reader.
    let files = [tempfile::tempfile(), tempfile::tempfile()].map(|f| f.expect("temporary files"));
    let out = files.each_ref().map(|f| f.try_clone().expect("a handle"));
    let [stdout, stderr] = out;
    let mut command = command(arguments);
    let mut child = command
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .expect("the binary starts");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("the status of a child can be read") {
            break status;
        }
        if start.elapsed() > limit {
            child.kill().expect("a child can be killed");
            child.wait().expect("a child can be waited for");
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let [stdout, stderr] = files.map(|mut file| {
        let mut bytes = vec![];
        file.rewind().expect("a file");
        file.read_to_end(&mut bytes).expect("a file");
        bytes
    });
    Some(ran(&Output {
        status,
        stdout,
        stderr,
    }))
}

fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(path());
    command
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::null())
        .env("NO_COLOR", "1");
    command
}

fn ran(done: &Output) -> Ran {
    Ran {
        code: done.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&done.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&done.stderr).into_owned(),
    }
}
