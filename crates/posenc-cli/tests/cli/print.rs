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
