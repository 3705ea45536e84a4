//! Models with external data.

use std::fs;
use std::time::{Duration, Instant};

use crate::run::{Folder, Ran, binary, ran, run};
use crate::split::{Out, YARN, constants, llama, split};

fn rewrite(model: &str, output: &str, mode: &str) -> Ran {
    let words = [
        "rewrite",
        model,
        "-o",
        output,
        "--external-data",
        mode,
        "-q",
    ];
    run(words.into_iter().chain(YARN))
}

/// The constants of the decoder after a rewrite that never was apart.
fn whole() -> Vec<(String, String)> {
    let folder = Folder::new();
    let model = folder.file("m.onnx", llama());
    let output = folder.place("out.onnx");
    let ran = rewrite(&model, &output, "auto");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    constants(&output).0
}

#[test]
fn every_mode_gives_the_model_that_never_was_apart() {
    let want = whole();
    for out in [Out::Weights, Out::All] {
        for (mode, output, names) in [
            (
                "auto",
                "out.onnx",
                ["away", "m.data", "m.onnx", "out.onnx"].as_slice(),
            ),
            (
                "keep",
                "out.onnx",
                &["away", "m.data", "m.onnx", "out.onnx"],
            ),
            (
                "inline",
                "out.onnx",
                &["away", "m.data", "m.onnx", "out.onnx"],
            ),
            (
                "copy",
                "out.onnx",
                &["away", "m.data", "m.onnx", "out.onnx", "out.onnx.data"],
            ),
            (
                "link",
                "out.onnx",
                &["away", "m.data", "m.onnx", "out.onnx", "out.onnx.data"],
            ),
            ("auto", "away/out.onnx", &["away", "m.data", "m.onnx"]),
            ("copy", "away/out.onnx", &["away", "m.data", "m.onnx"]),
            ("link", "away/out.onnx", &["away", "m.data", "m.onnx"]),
            ("inline", "away/out.onnx", &["away", "m.data", "m.onnx"]),
        ] {
            let what = format!("{mode} to {output}, {out:?} apart");
            let folder = Folder::new();
            let model = split(&folder, "m.data", out);
            fs::create_dir(folder.path().join("away")).unwrap();
            let output = folder.place(output);
            let ran = rewrite(&model, &output, mode);
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{what}");
            assert_eq!(folder.names(), names, "{what}");
            if output.contains("away") {
                let mut away: Vec<_> = fs::read_dir(folder.path().join("away")).unwrap().collect();
                let data = usize::from(mode != "inline");
                assert_eq!(away.drain(..).count(), 1 + data, "{what}");
            }
            let (got, elsewhere) = constants(&output);
            assert!(got == want, "{what}");
            // What the rewrite gave other values is stored in the model now.
            let (_, before) = constants(&model);
            let least = if mode == "inline" { 0 } else { 1 };
            assert!(elsewhere >= least, "{what}: {elsewhere}");
            match (mode, out) {
                ("inline", _) => assert_eq!(elsewhere, 0, "{what}"),
                (_, Out::Weights) => assert_eq!(elsewhere, before, "{what}"),
                (_, Out::All) => assert!(elsewhere < before, "{what}"),
            }
        }
    }
}

#[test]
fn data_in_a_folder_below_keeps_its_path() {
    let folder = Folder::new();
    let model = split(&folder, "data/inner/w.bin", Out::Weights);
    fs::create_dir(folder.path().join("away")).unwrap();
    let output = folder.place("away/out.onnx");
    let ran = rewrite(&model, &output, "copy");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let [there, here] = ["away/data/inner/w.bin", "data/inner/w.bin"];
    let read = |path| fs::read(folder.path().join(path)).unwrap();
    assert!(read(there) == read(here));
    assert!(constants(&output).0 == whole());
}

#[test]
fn data_of_another_model_at_the_same_path_is_left_alone() {
    let folder = Folder::new();
    let model = split(&folder, "m.data", Out::Weights);
    fs::create_dir(folder.path().join("away")).unwrap();
    let other = folder.file("away/m.data", "data of another model");
    let output = folder.place("away/out.onnx");
    for _ in 0..2 {
        let ran = rewrite(&model, &output, "auto");
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        assert_eq!(fs::read(&other).unwrap(), b"data of another model");
        assert!(constants(&output).0 == whole());
    }
    let before = fs::read(&output).unwrap();
    // It may be a second name of the model's own data.
    fs::remove_file(folder.place("away/out.onnx.data")).unwrap();
    let own = folder.file("away/out.onnx.data", "and of one more");
    rewrite(&model, &output, "auto").failed(2, "both names taken");
    assert_eq!(fs::read(&own).unwrap(), b"and of one more");
    assert!(fs::read(&output).unwrap() == before);
}

#[test]
fn data_that_nothing_reads_may_be_absent() {
    let folder = Folder::new();
    let model = split(&folder, "m.data", Out::Weights);
    fs::remove_file(folder.path().join("m.data")).unwrap();
    let output = folder.place("out.onnx");
    for words in [["inspect", &model], ["print", &model]] {
        let ran = run(words);
        assert_eq!(ran.code, 0, "{words:?}: {}", ran.err);
    }
    assert!(
        run(["inspect", &model])
            .out
            .contains("external data not found: m.data")
    );
    assert_eq!(rewrite(&model, &output, "keep").code, 0);
    for mode in ["inline", "copy", "link"] {
        let ran = rewrite(&model, &output, mode);
        ran.failed(3, mode);
        assert!(ran.err.contains("m.data"), "{}", ran.err);
    }
    assert_eq!(folder.names(), ["m.onnx", "out.onnx"]);
}

#[test]
fn data_that_is_absent_and_needed_is_named() {
    let folder = Folder::new();
    let model = split(&folder, "m.data", Out::All);
    fs::remove_file(folder.path().join("m.data")).unwrap();
    let ran = rewrite(&model, &folder.place("out.onnx"), "auto");
    assert_ne!(ran.code, 0);
    ran.failed(ran.code, "absent");
    assert!(
        ran.err.contains("external data not found: m.data"),
        "{}",
        ran.err
    );
    assert_eq!(folder.names(), ["m.onnx"]);
}

#[test]
fn a_result_too_large_for_a_file_is_refused_before_it_is_written() {
    let folder = Folder::new();
    let model = split(&folder, "m.data", Out::Weights);
    // Two gigabytes of zeros, which take no disk space.
    let mut proto = crate::split::decoded(&model);
    let length = (1u64 << 31).to_string();
    let graph = proto.graph.as_mut().unwrap();
    let tensor = graph
        .initializer
        .iter_mut()
        .find(|t| t.data_location == Some(1));
    let mut large = tensor.unwrap().clone();
    large.name = Some("large".into());
    large.dims = vec![1 << 31];
    large.data_type = Some(2);
    for entry in &mut large.external_data {
        match entry.key() {
            "location" => entry.value = Some("large.data".into()),
            "offset" => entry.value = Some("0".into()),
            _ => entry.value = Some(length.clone()),
        }
    }
    graph.initializer.push(large);
    fs::write(&model, prost::Message::encode_to_vec(&proto)).unwrap();
    let data = fs::File::create(folder.path().join("large.data")).unwrap();
    data.set_len(1 << 31).unwrap();
    let names = folder.names();
    let ran = rewrite(&model, &folder.place("out.onnx"), "inline");
    ran.failed(2, "inline");
    assert!(ran.err.contains("keep, link or copy"), "{}", ran.err);
    assert_eq!(folder.names(), names);
    assert_eq!(rewrite(&model, &folder.place("out.onnx"), "auto").code, 0);
}

/// The exit code and stderr of a run that has to end by itself.
fn ends(words: &[&str]) -> Ran {
    let mut command = binary();
    command.args(words);
    command.stdout(std::process::Stdio::null());
    command.stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("{words:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    ran(child.wait_with_output().unwrap())
}

#[cfg(unix)]
fn pipe(path: &std::path::Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

#[cfg(unix)]
#[test]
fn what_is_no_file_of_the_folder_is_neither_waited_for_nor_read() {
    use std::os::unix::fs::symlink;
    let elsewhere = Folder::new();
    for (what, location) in [
        ("nothing wrong", "m.data"),
        ("a pipe", "pipe"),
        ("a socket", "socket"),
        ("a folder", "inner"),
        ("a device", "/dev/zero"),
        ("a link to a device", "zero"),
        ("an absolute path", "/etc/passwd"),
        ("a link out", "link"),
        ("a link to a folder out", "out/w.data"),
        ("above", "../m.data"),
        ("above by a detour", "inner/../../m.data"),
    ] {
        let folder = Folder::new();
        let model = split(&folder, "m.data", Out::Weights);
        let proto = fs::read(&model).unwrap();
        let data = fs::read(folder.path().join("m.data")).unwrap();
        elsewhere.file("w.data", &data);
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("inner")).unwrap();
        pipe(&at("pipe"));
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        symlink(elsewhere.path().join("w.data"), at("link")).unwrap();
        symlink(elsewhere.path(), at("out")).unwrap();
        let mut moved = crate::split::decoded(&model);
        crate::split::relocate(&mut moved, location);
        let moved = prost::Message::encode_to_vec(&moved);
        assert_eq!(moved == proto, location == "m.data");
        fs::write(&model, moved).unwrap();
        let names = folder.names();
        let output = folder.place("inner/out.onnx");
        let rewrite = [
            "rewrite",
            &model,
            "-o",
            &output,
            "--external-data",
            "copy",
            "-q",
        ];
        let rewrite: Vec<&str> = rewrite.into_iter().chain(YARN).collect();
        for words in [&["inspect", &model][..], &["print", &model], &rewrite] {
            let ran = ends(words);
            let name = format!("{what}: {}", words[0]);
            match location {
                "m.data" => assert_eq!(ran.code, 0, "{name}: {}", ran.err),
                // It names data and reads none.
                _ if words[0] == "print" => assert_eq!(ran.code, 0, "{name}: {}", ran.err),
                _ => ran.failed(3, &name),
            }
        }
        assert_eq!(folder.names(), names, "{what}");
        let written = fs::read_dir(at("inner")).unwrap().count();
        assert_eq!(written, if location == "m.data" { 2 } else { 0 }, "{what}");
    }
}

#[cfg(unix)]
#[test]
fn a_model_that_is_no_file_is_exit_3_at_once() {
    let folder = Folder::new();
    let waits = folder.path().join("pipe");
    pipe(&waits);
    let link = folder.path().join("link.onnx");
    std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
    let output = folder.place("out.onnx");
    for path in [
        waits.to_str().unwrap(),
        link.to_str().unwrap(),
        "/dev/zero",
        "/dev/stdin",
    ] {
        let rewrite = ["rewrite", path, "--to", "none", "-o", &output];
        for words in [&["inspect", path][..], &["print", path], &rewrite] {
            let ran = ends(words);
            ran.failed(3, path);
            assert!(ran.err.contains("not a regular file"), "{}", ran.err);
        }
    }
    assert_eq!(folder.names(), ["link.onnx", "pipe"]);
}
