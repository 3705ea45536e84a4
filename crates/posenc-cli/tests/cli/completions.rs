//! Completion scripts.

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
