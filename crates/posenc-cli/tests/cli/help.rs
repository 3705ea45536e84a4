//! Help texts.

use crate::run::run;

#[test]
fn help_teaches() {
    let commands = [
        "",
        "inspect",
        "rewrite",
        "verify",
        "print",
        "diff",
        "table",
        "runtime",
        "completions",
    ];
    for command in commands {
        let words = [command, "--help"];
        let ran = run(words.into_iter().filter(|w| !w.is_empty()));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{command}");
        assert!(
            ran.out.contains("Examples:\n"),
            "{command} shows no example"
        );
        let name = if command.is_empty() { "main" } else { command };
        insta::with_settings!({snapshot_suffix => name}, {
            insta::assert_snapshot!("help", ran.out);
        });
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let ran = run(["--version"]);
    assert_eq!(
        ran.out,
        concat!("posenc-onnx ", env!("CARGO_PKG_VERSION"), "\n")
    );
}
