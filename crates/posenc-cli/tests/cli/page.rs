//! Pages of `--report`.

use crate::run::{Folder, Ran, binary, ran};

const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../fixtures/mini/rope/model.onnx"
);

/// A folder with a model.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.file("m.onnx", std::fs::read(MODEL).unwrap());
    folder
}

#[test]
fn a_page_says_when_it_was_made_as_reproducible_builds_ask_for() {
    let folder = folder();
    let at = |seconds: &str| {
        let words = ["inspect", "m.onnx", "--report", "m.html"];
        let run = binary()
            .current_dir(folder.path())
            .env("SOURCE_DATE_EPOCH", seconds)
            .args(words)
            .output();
        let page = || std::fs::read_to_string(folder.place("m.html")).unwrap();
        (ran(run.unwrap()), page)
    };
    let (first, page) = at("951782400");
    assert_eq!(first.code, 0, "{}", first.err);
    let text = page();
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        text.contains(&format!("posenc-onnx {version} · 2000-02-29 00:00 UTC")),
        "{text}"
    );
    assert!(
        text.contains("opset 20") && text.contains("attention sites"),
        "{text}"
    );
    let (again, page) = at("951782400");
    assert_eq!((again.code, page()), (0, text));
    let (wrong, _) = at("yesterday");
    wrong.failed(2, "no time");
    assert!(
        wrong.err.contains("SOURCE_DATE_EPOCH is yesterday"),
        "{}",
        wrong.err
    );
}

#[test]
fn the_lengths_of_longrope_are_marked() {
    let folder = folder();
    let run = |words: &[&str]| -> Ran {
        let mut command = binary();
        let ran = ran(command
            .current_dir(folder.path())
            .args(words)
            .output()
            .unwrap());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran
    };
    let lengths = ["--original-length", "64", "--max-length", "256"];
    let factors = ["--short-factor", "1,1,1,1", "--long-factor", "1,2,3,4"];
    let rewrite = [
        "rewrite",
        "m.onnx",
        "-o",
        "long.onnx",
        "--scale",
        "longrope",
    ];
    run(&[&rewrite[..], &lengths, &factors].concat());
    let verify = ["verify", "m.onnx", "long.onnx", "--provider", "tract"];
    run(&[&verify[..], &["--lengths", "8", "--report", "p.html"]].concat());
    let text = std::fs::read_to_string(folder.place("p.html")).unwrap();
    for part in [
        "original length 64",
        "new length 256",
        "2π / new length 256",
        "long.onnx, 256 tokens",
    ] {
        assert!(text.contains(part), "{part}");
    }
}
