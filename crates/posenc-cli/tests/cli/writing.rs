//! Outputs that appear complete or not at all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use posenc_ir::proto::TensorProto;
use prost::Message;

use crate::run::{Folder, binary, ran};
use crate::split::{Out, YARN, constants, decoded, llama, split};

fn rewrite(model: &str, output: &str) -> Command {
    let mut command = binary();
    command
        .args(["rewrite", model, "-o", output, "-q"])
        .args(YARN);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// The decoder with many megabytes that nothing reads; its path.
fn large(folder: &Folder) -> String {
    let model = folder.file("m.onnx", llama());
    let mut proto = decoded(&model);
    let graph = proto.graph.as_mut().unwrap();
    graph.initializer.push(unread(48 << 20));
    folder.file("m.onnx", proto.encode_to_vec())
}

/// A tensor of so many bytes that nothing reads.
fn unread(length: u32) -> TensorProto {
    let noise = |i: u32| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8;
    TensorProto {
        name: Some("unread".into()),
        dims: vec![length.into()],
        data_type: Some(2),
        raw_data: Some((0..length).map(noise).collect::<Vec<u8>>().into()),
        ..Default::default()
    }
}

/// Numbers that look random, the same ones in every run.
struct Seeded(u64);

impl Seeded {
    /// The next one from 0 up to 1.
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 40) as f64 / f64::from(1 << 24)
    }
}

/// Whether a process has a file open in `folder` that is not complete yet.
fn is_writing(child: &Child, folder: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", child.id()));
    let links = open.into_iter().flatten().flatten();
    links
        .filter_map(|e| fs::read_link(e.path()).ok())
        .any(|to| {
            let name = to
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            to.starts_with(folder)
                && (name.ends_with("(deleted)") || name.starts_with(".posenc-onnx-"))
        })
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_that_is_killed_leaves_the_old_output_or_the_new_one() {
    let folder = Folder::new();
    let model = large(&folder);
    let away = folder.path().join("away");
    fs::create_dir(&away).unwrap();
    let path = away.join("out.onnx");
    let output = path.to_str().unwrap();
    let started = Instant::now();
    assert!(rewrite(&model, output).status().unwrap().success());
    let takes = started.elapsed();
    let new = fs::read(&path).unwrap();
    let old = b"the old output".as_slice();
    let mut seeded = Seeded(7);
    let (mut killed, mut while_writing) = (0, 0);
    for round in 0..24 {
        fs::write(&path, old).unwrap();
        let mut child = rewrite(&model, output).spawn().unwrap();
        // One half anywhere, the other half while the file is written.
        if round % 2 == 0 {
            sleep(takes.mul_f64(seeded.next() * 1.1));
        } else {
            while child.try_wait().unwrap().is_none() && !is_writing(&child, &away) {
                sleep(Duration::from_micros(200));
            }
            sleep(Duration::from_secs_f64(seeded.next() * 0.03));
            while_writing += usize::from(is_writing(&child, &away));
        }
        child.kill().unwrap();
        let was_killed = child.wait().unwrap().code().is_none();
        killed += usize::from(was_killed);
        let got = fs::read(&path).unwrap();
        assert!(
            got == old || got == new,
            "round {round}: {} bytes",
            got.len()
        );
        assert!(was_killed || got == new, "round {round}: it had ended");
        for entry in fs::read_dir(&away).unwrap() {
            let left = entry.unwrap();
            if left.path() != path {
                let name = left.file_name().into_string().unwrap();
                assert!(name.starts_with(".posenc-onnx-"), "round {round}: {name}");
                // Between two names it is complete.
                assert!(
                    fs::read(left.path()).unwrap() == new,
                    "round {round}: {name}"
                );
                fs::remove_file(left.path()).unwrap();
            }
        }
    }
    assert!(
        killed > 0 && while_writing > 0,
        "{killed} killed, {while_writing} while writing"
    );
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_one_sentence_and_leaves_nothing() {
    let folder = Folder::new();
    let model = split(&folder, "m.data", Out::Weights);
    let whole = folder.file("whole.onnx", llama());
    fs::create_dir(folder.path().join("away")).unwrap();
    let names = folder.names();
    let limited = |blocks: &str, model: &str, output: &str, mode: &str| {
        let output = folder.place(output);
        let mut shell = Command::new("/bin/sh");
        // Files may grow to so many blocks of 512 bytes; what is more is an error, no signal.
        shell.args(["-c", r#"trap "" XFSZ; ulimit -f "$0"; exec "$@""#, blocks]);
        shell.arg(binary().get_program());
        shell.args([
            "rewrite",
            model,
            "-o",
            &output,
            "--external-data",
            mode,
            "-q",
        ]);
        shell.args(YARN).env_clear();
        ran(shell.output().unwrap())
    };
    for (model, output, mode) in [
        (&whole, "out.onnx", "auto"),
        (&whole, "away/out.onnx", "auto"),
        (&model, "away/out.onnx", "copy"),
        (&model, "out.onnx", "inline"),
    ] {
        let what = format!("{model} to {output} by {mode}");
        let ran = limited("64", model, output, mode);
        ran.failed(2, &what);
        assert_eq!(folder.names(), names, "{what}");
        let left = fs::read_dir(folder.path().join("away")).unwrap().count();
        assert_eq!(left, 0, "{what}");
    }
    let ran = limited("65536", &whole, "out.onnx", "auto");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    // The disk limit suffices for the data, but not for the model that is written after it.
    let data = fs::metadata(folder.path().join("m.data")).unwrap().len();
    let mut proto = decoded(&model);
    let unread = unread(u32::try_from(data).unwrap() + (1 << 16));
    proto.graph.as_mut().unwrap().initializer.push(unread);
    fs::write(&model, proto.encode_to_vec()).unwrap();
    let blocks = data.div_ceil(512);
    let names = folder.names();
    let ran = limited(&blocks.to_string(), &model, "away/out.onnx", "copy");
    ran.failed(2, "the model does not fit");
    assert_eq!(folder.names(), names);
    let left = fs::read_dir(folder.path().join("away")).unwrap().count();
    assert_eq!(left, 0, "the data went with it");
    let ran = limited("65536", &model, "away/out.onnx", "copy");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[test]
fn runs_at_the_same_time_do_not_disturb_each_other() {
    let folder = Folder::new();
    let model = split(&folder, "m.data", Out::Weights);
    for inner in ["same", "own"] {
        fs::create_dir(folder.path().join(inner)).unwrap();
    }
    let outputs: Vec<PathBuf> = (0..8)
        .map(|i| match i % 2 {
            0 => folder.path().join("same/out.onnx"),
            _ => folder.path().join(format!("own/{i}.onnx")),
        })
        .collect();
    let start = |output: &PathBuf| {
        let mut command = rewrite(&model, output.to_str().unwrap());
        command.args(["--external-data", "copy"]).spawn().unwrap()
    };
    let children: Vec<Child> = outputs.iter().map(start).collect();
    for child in children {
        let ran = ran(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    }
    let want = constants(outputs[0].to_str().unwrap());
    for output in &outputs {
        assert!(
            constants(output.to_str().unwrap()) == want,
            "{}",
            output.display()
        );
    }
    let count = |inner| fs::read_dir(folder.path().join(inner)).unwrap().count();
    assert_eq!((count("same"), count("own")), (2, 5));
}

#[cfg(unix)]
#[test]
fn permissions_follow_the_input() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let model = split(&folder, "m.data", Out::Weights);
    fs::create_dir(folder.path().join("away")).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for (name, set) in [("m.onnx", 0o640), ("m.data", 0o604)] {
        let path = folder.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(set)).unwrap();
    }
    let output = folder.place("away/out.onnx");
    let mut command = rewrite(&model, &output);
    assert!(
        command
            .args(["--external-data", "copy"])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(mode(Path::new(&output)), 0o640);
    assert_eq!(mode(&folder.path().join("away/m.data")), 0o604);
}
