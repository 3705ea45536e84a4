//! `print`.

use crate::run::{Folder, addition, bytes, run};

#[test]
fn a_model_is_printed_as_text() {
    let folder = Folder::new();
    let model = folder.file("m.onnx", bytes(&addition()));
    for how in ["hash", "full", "none"] {
        let ran = run(["print", &model, "--weights", how]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{how}");
        insta::with_settings!({snapshot_suffix => how}, {
            insta::assert_snapshot!("print", ran.out);
        });
    }
    assert_eq!(
        run(["print", &model]).out,
        run(["print", &model, "--weights", "hash"]).out
    );
}

#[test]
fn what_the_text_does_not_say_is_a_warning() {
    let folder = Folder::new();
    let mut model = addition();
    for node in &mut model.graph.as_mut().unwrap().node {
        node.doc_string = Some("x".into());
    }
    let model = folder.file("m.onnx", bytes(&model));
    let want = "documentation of nodes is omitted (g/sum)";
    let ran = run(["print", &model, "--weights", "full"]);
    assert_eq!((ran.code, ran.err), (0, format!("warning: {want}\n")));
    assert!(ran.out.starts_with(&format!("# {want}\n")), "{}", ran.out);
    assert_eq!(run(["print", &model, "-q"]).err, "");
}
