//! `table`.

use crate::run::{Folder, run};

const YARN: &[&str] = &[
    "table",
    "--scale",
    "yarn",
    "--theta",
    "1e4",
    "--rotary-dim",
    "16",
    "--original-length",
    "64",
    "--factor",
    "4",
];

fn yarn(format: &'static str) -> String {
    let ran = run(YARN.iter().copied().chain(["--format", format]));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{format}");
    ran.out
}

#[test]
fn every_format_has_one_row_per_pair() {
    assert_eq!(yarn("csv").lines().count(), 1 + 8);
    assert_eq!(yarn("table").lines().count(), 3 + 8);
    assert_eq!(yarn("plot").lines().count(), 3 + 8);
    let json: serde_json::Value = serde_json::from_str(&yarn("json")).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), 8);
    assert_eq!(json["scaling"], "yarn");
    // 0.1 ln 4 + 1
    let m = json["attention_factor"].as_f64().unwrap();
    assert!((m - 1.138_629_436_111_989).abs() < 1e-15, "{m}");
}

#[test]
fn a_missing_value_is_exit_2_and_names_its_flag() {
    let cases: [(&[&str], &str); 4] = [
        (&["table", "--scale", "yarn"], "--rotary-dim"),
        (
            &["table", "--scale", "yarn", "--rotary-dim", "8"],
            "--original-length",
        ),
        (
            &["table", "--scale", "tile", "--rotary-dim", "8"],
            "no scaling of RoPE",
        ),
        (&["table", "--hf-config", "absent.json"], "absent.json"),
    ];
    for (words, want) in cases {
        let ran = run(words.iter().copied());
        ran.failed(2, want);
        assert!(ran.err.contains(want), "{}", ran.err);
    }
}

#[test]
fn a_config_says_what_the_flags_would() {
    let folder = Folder::new();
    let config = folder.file(
        "config.json",
        r#"{"head_dim": 16, "rope_theta": 10000.0, "max_position_embeddings": 256,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                             "original_max_position_embeddings": 64}}"#,
    );
    let words = ["table", "--hf-config", &config, "--format", "csv", "-q"];
    let of_config = run(words);
    assert_eq!(of_config.code, 0, "{}", of_config.err);
    assert_eq!(of_config.out, yarn("csv"));
    let wrong = folder.file("wrong.json", r#"{"rope_scaling": {"rope_type": "yran"}}"#);
    run(["table", "--hf-config", &wrong]).failed(2, "an unknown type");
}
