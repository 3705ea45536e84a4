//! Environment variables, and the places where ONNX Runtime may be installed.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use posenc_runtime::Places;
use posenc_runtime::discover::{System, upwards};

/// Finds out from Python where a package is, without importing it.
const FIND: &str = "\
import importlib.util as u
s = u.find_spec('onnxruntime')
print(s.submodule_search_locations[0] if s and s.submodule_search_locations else '')";

/// An environment variable that is set and not empty.
#[allow(
    clippy::disallowed_methods,
    reason = "the binary gathers its environment here"
)]
pub(crate) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Where ONNX Runtime is looked for, besides `ORT_DYLIB_PATH`, which comes first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// In the folders of the project, the active Python environment and the system.
    #[default]
    Machine,
    /// In the Python environment that this process runs in: the folder of its package `onnxruntime`,
    /// where it has one.
    Python(Option<PathBuf>),
}

/// The places to search.
pub(crate) fn gather(search: &Search) -> Places {
    let set = |name: &str| variable(name).map(PathBuf::from);
    if let Some(explicit) = set("ORT_DYLIB_PATH") {
        return Places {
            explicit: Some(explicit),
            ..Places::default()
        };
    }
    if let Search::Python(package) = search {
        return Places {
            python: package.iter().cloned().collect(),
            ..Places::default()
        };
    }
    let mut project = env::current_dir().map_or_else(|_| vec![], |here| upwards(&here));
    // The binary of a checkout is in its target folder.
    let binary = env::current_exe()
        .ok()
        .and_then(|exe| exe.canonicalize().ok());
    project.extend(
        binary
            .as_deref()
            .and_then(Path::parent)
            .map(upwards)
            .unwrap_or_default(),
    );
    let mut python: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(set)
        .collect();
    python.extend(package());
    Places {
        explicit: None,
        project,
        python,
        system: System::Included,
    }
}

/// The folder of the package `onnxruntime` of the active Python.
fn package() -> Option<PathBuf> {
    let names = if cfg!(windows) {
        ["python", "py"]
    } else {
        ["python3", "python"]
    };
    let answer = names.into_iter().find_map(|python| {
        let output = Command::new(python)
            .args(["-c", FIND])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        output.ok().filter(|o| o.status.success())
    })?;
    let path = String::from_utf8(answer.stdout).ok()?;
    let path = path.trim();
    (!path.is_empty()).then(|| PathBuf::from(path))
}
