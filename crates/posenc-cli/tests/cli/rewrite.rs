//! `rewrite`.

use crate::run::{Folder, addition, bytes, run};

#[test]
fn a_model_without_attention_is_exit_1_and_writes_nothing() {
    let folder = Folder::new();
    let model = folder.file("m.onnx", bytes(&addition()));
    for words in [["--to", "alibi"], ["--scale", "yarn"]] {
        let ran = run(["rewrite", &model].into_iter().chain(words));
        ran.failed(1, words[1]);
        assert!(ran.err.contains(&model), "{}", ran.err);
    }
    assert_eq!(folder.names(), ["m.onnx"]);
}

#[test]
fn an_output_that_cannot_be_is_exit_2_before_the_model_is_read() {
    let folder = Folder::new();
    let model = folder.file("m.onnx", "no model");
    let here = folder.path().display().to_string();
    let inside = format!("{here}/absent/out.onnx");
    for (output, want) in [
        (&model, "--in-place"),
        (&here, "folder"),
        (&inside, "no folder"),
    ] {
        let ran = run(["rewrite", &model, "--scale", "yarn", "-o", output]);
        ran.failed(2, want);
        assert!(ran.err.contains(want), "{}", ran.err);
    }
    assert_eq!(folder.names(), ["m.onnx"]);
}

#[test]
fn a_broken_model_is_exit_3_and_writes_nothing() {
    let folder = Folder::new();
    let model = folder.file("m.onnx", "no model");
    run(["rewrite", &model, "--to", "none"]).failed(3, "text");
    assert_eq!(folder.names(), ["m.onnx"]);
}

#[test]
fn wrong_values_are_exit_2_with_the_nearest_word() {
    for (words, want) in [
        (["--to", "alibbi"], "'alibi'"),
        (["--scale", "longrop"], "'longrope'"),
        (["--layers", "5-3"], "smaller layer first"),
        (["--short-factor", "absent.json"], "no such file"),
        (["--target", "ort"], "'ort-cpu'"),
    ] {
        let ran = run(["rewrite", "m.onnx"].into_iter().chain(words));
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{words:?}");
        assert!(ran.err.contains(want), "{words:?}: {}", ran.err);
    }
}
