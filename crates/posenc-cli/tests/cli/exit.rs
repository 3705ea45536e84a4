//! Exit codes and sentences.

use crate::run::{Folder, Ran, addition, binary, bytes, ran, run};

const READING: [&str; 2] = ["inspect", "print"];

#[test]
fn a_file_that_is_no_model_is_exit_3_and_named() {
    let folder = Folder::new();
    let whole = bytes(&addition());
    let mut two_names = addition();
    let node = two_names.graph.as_ref().unwrap().node[0].clone();
    two_names.graph.as_mut().unwrap().node.push(node);
    let cases = [
        (
            "missing",
            folder.path().join("absent.onnx").display().to_string(),
        ),
        ("empty", folder.file("empty.onnx", "")),
        ("text", folder.file("page.onnx", "<!doctype html><html>")),
        (
            "cut off",
            folder.file("cut.onnx", &whole[..whole.len() / 2]),
        ),
        (
            "a name given twice",
            folder.file("twice.onnx", bytes(&two_names)),
        ),
    ];
    for (what, path) in &cases {
        for command in READING {
            let what = format!("{command}: {what}");
            let ran = run([command, path]);
            ran.failed(3, &what);
            assert!(ran.err.contains(path.as_str()), "{what}: {}", ran.err);
        }
    }
    // `inspect` reads every model of a folder, and says what it could not read.
    let path = folder.path().display().to_string();
    run(["print", &path]).failed(3, "print: a folder");
    let ran = run(["inspect", &path, "--json"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    for (what, path) in &cases[1..] {
        assert!(ran.out.contains(path.as_str()), "{what}: {}", ran.out);
    }
}

#[test]
fn a_model_without_encodings_is_exit_0() {
    let folder = Folder::new();
    let model = folder.file("m.onnx", bytes(&addition()));
    for command in READING {
        let ran = run([command, &model]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{command}");
        assert!(!ran.out.is_empty(), "{command}");
    }
}

#[test]
fn a_wrong_command_line_is_exit_2_with_the_nearest_word() {
    let cases: [(&[&str], &str); 7] = [
        (&[], "Usage"),
        (&["inspct", "m.onnx"], "'inspect'"),
        (&["inspect"], "<MODEL>"),
        (&["inspect", "m.onnx", "--jsn"], "'--json'"),
        (&["print", "m.onnx", "--weights", "hsh"], "'hash'"),
        (
            &["table", "--scale", "yran", "--rotary-dim", "64"],
            "'yarn'",
        ),
        (&["inspect", "m.onnx", "--color", "sometimes"], "always"),
    ];
    for (words, want) in cases {
        let Ran { code, out, err } = run(words.iter().copied());
        assert_eq!(code, 2, "{words:?}");
        assert_eq!(out, "", "{words:?}");
        assert!(err.contains(want), "{words:?}: {err}");
    }
}

#[test]
fn quiet_says_nothing_but_data() {
    let table = ["table", "--scale", "linear", "--rotary-dim", "8"];
    let loud = run(table);
    let quiet = run(table.into_iter().chain(["-q"]));
    assert!(loud.err.contains("factor 4: the default"), "{}", loud.err);
    assert_eq!(quiet.err, "");
    assert_eq!(loud.out, quiet.out);
}

#[test]
fn colors_are_for_those_who_want_them() {
    let folder = Folder::new();
    let model = folder.file("m.onnx", bytes(&addition()));
    let colored = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = binary();
        command.args(words).envs(variables.iter().copied());
        ran(command.output().unwrap()).out.contains('\x1b')
    };
    let inspect = ["inspect", &model];
    let always = ["inspect", &model, "--color", "always"];
    let never = ["inspect", &model, "--color=never"];
    assert!(!colored(&inspect, &[]));
    assert!(colored(&inspect, &[("CLICOLOR_FORCE", "1")]));
    assert!(!colored(
        &inspect,
        &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]
    ));
    assert!(colored(&always, &[("NO_COLOR", "1")]));
    assert!(!colored(&never, &[("CLICOLOR_FORCE", "1")]));
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_error() {
    let mut command = binary();
    command.args(["completions", "bash"]);
    command.stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let ran = ran(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}
