//! Completion scripts and manual pages.

use crate::run::run;

#[test]
fn every_shell_gets_a_script_that_knows_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = run(["completions", shell]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{shell}");
        for word in ["posenc-onnx", "inspect", "rotary-dim", "longrope"] {
            assert!(ran.out.contains(word), "{shell} misses {word}");
        }
    }
    let ran = run(["completions", "tcsh"]);
    assert_eq!(ran.code, 2);
}

#[test]
fn the_program_and_every_command_have_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man");
    let ran = run(["man", pages.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap();
    assert!(page("posenc-onnx.1").contains("verify"));
    let rewrite = page("posenc-onnx-rewrite.1");
    for word in ["longrope", "rotary", "alibi"] {
        assert!(rewrite.contains(word), "{word}");
    }
    // A control: a file in the place of the folder.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let ran = run(["man", file.to_str().unwrap()]);
    assert!(
        ran.code == 3 && ran.err.contains("file"),
        "{} {}",
        ran.code,
        ran.err
    );
}
