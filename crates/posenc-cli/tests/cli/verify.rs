//! `verify`.

use crate::run::{Folder, addition, bytes, run};

#[test]
fn a_provider_that_is_not_available_is_exit_5() {
    let folder = Folder::new();
    let model = folder.file("m.onnx", bytes(&addition()));
    let ran = run(["verify", &model, "--provider", "NoSuchExecutionProvider"]);
    ran.failed(5, "an unknown provider");
}

#[test]
fn a_flag_that_is_not_supported_is_exit_4_and_named() {
    let ran = run(["verify", "m.onnx", "--inputs=a.npz"]);
    ran.failed(4, "--inputs");
    let want = "--inputs is not supported yet";
    assert!(ran.err.contains(want), "{}", ran.err);
}

#[test]
fn a_model_or_all_must_be_named() {
    let cases: [&[&str]; 3] = [
        &["verify"],
        &["verify", "--all", "m.onnx"],
        &["verify", "m.onnx", "--lengths", "0"],
    ];
    for words in cases {
        let ran = run(words.iter().copied());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{words:?}");
    }
}
