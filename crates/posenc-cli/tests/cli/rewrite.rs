//! `rewrite`.

#[cfg(feature = "tract")]
use posenc_ir::{Attr, DType, Model, Tensor};

use crate::run::{Folder, addition, bytes, run};
use crate::split::{self, YARN};

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
        (&"-".to_owned(), "not written to stdout"),
        (&inside, "no folder"),
    ] {
        let ran = run(["rewrite", &model, "--scale", "yarn", "-o", output]);
        ran.failed(2, want);
        assert!(ran.err.contains(want), "{}", ran.err);
    }
    assert_eq!(folder.names(), ["m.onnx"]);
}

#[test]
fn in_place_beside_another_output_is_exit_2() {
    let folder = Folder::new();
    let model = folder.file("m.onnx", "no model");
    let other = folder.place("other.onnx");
    let words = ["rewrite", &model, "--scale", "yarn", "--in-place", "-o"];
    let ran = run(words.into_iter().chain([&*other]));
    ran.failed(2, "--in-place has no effect");
    assert!(ran.err.contains("--in-place has no effect"), "{}", ran.err);
    // Onto the model itself, the model is read.
    run(words.into_iter().chain([&*model])).failed(3, "text");
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

#[test]
fn a_factor_out_of_range_is_exit_2_in_a_few_words() {
    let folder = Folder::new();
    let model = llama(&folder);
    let (nines, above_zero) = ("9".repeat(300), "it must be a finite number above 0");
    for (factor, want) in [
        ("nan", above_zero),
        ("inf", above_zero),
        ("-4", above_zero),
        ("-inf", "unexpected argument"),
        ("1e999", above_zero),
        ("1e300", "--factor must be at most 1e9, got 1e300"),
        (&nines, "--factor must be at most 1e9, got 1e300"),
        (
            "0.5",
            "--factor must be a finite number of at least 1, got 0.5",
        ),
    ] {
        for law in ["linear", "ntk", "yarn", "llama3"] {
            let words = ["rewrite", &model, "--scale", law, "--factor", factor];
            let ran = run(words.into_iter().chain(["--original-length", "64"]));
            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{law} {factor}");
            assert!(ran.err.contains(want), "{law} {factor}: {}", ran.err);
        }
    }
    assert_eq!(folder.names(), ["m.onnx"]);
}

#[test]
fn a_model_in_the_ort_format_is_exit_3_and_named() {
    let folder = Folder::new();
    let model = folder.file("m.ort", b"\x18\0\0\0ORTM\0\0\0\0more");
    for words in [
        &["inspect", &model][..],
        &["rewrite", &model, "--to", "none"],
    ] {
        let ran = run(words.iter().copied());
        ran.failed(3, "ort");
        assert!(
            ran.err
                .contains("in the ORT format, which is not supported"),
            "{}",
            ran.err
        );
    }
    // Another file with these letters is no such model.
    let other = folder.file("other.onnx", b"xxxxORTM");
    let ran = run(["inspect", &other]);
    ran.failed(3, "letters");
    assert!(!ran.err.contains("ORT format"), "{}", ran.err);
}

/// A decoder with rotary positions that was trained on 64 positions, in a folder without config.
fn llama(folder: &Folder) -> String {
    folder.file("m.onnx", split::llama())
}

#[test]
fn a_rescaled_model_is_written_next_to_the_input_under_a_descriptive_name() {
    let folder = Folder::new();
    let model = llama(&folder);
    let before = std::fs::read(&model).unwrap();
    let ran = run(["rewrite", &model].into_iter().chain(YARN));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert_eq!(folder.names(), ["m.onnx", "m.rope-yarn.onnx"]);
    assert_eq!(std::fs::read(&model).unwrap(), before, "the input changed");
    let output = folder.path().join("m.rope-yarn.onnx").display().to_string();
    let found = json(&["inspect", &output, "--json"]);
    let rope = &found["encodings"][0];
    assert_eq!(rope["kind"], "rope");
    assert_eq!(rope["params"]["scaling"]["type"], "yarn");
    assert_eq!(rope["params"]["scaling"]["factor"], 4.0);
    let plain = json(&["inspect", &model, "--json"]);
    assert!(plain["encodings"][0]["params"]["scaling"].is_null());
}

#[test]
fn the_report_names_both_files_by_their_fingerprints() {
    let folder = Folder::new();
    let model = llama(&folder);
    let output = folder.path().join("out.onnx").display().to_string();
    let words = ["rewrite", &model, "-o", &output, "--json"];
    let words: Vec<&str> = words.into_iter().chain(YARN).collect();
    let report = json(&words);
    for (end, path) in [("input", &model), ("output", &output)] {
        let fingerprint = &json(&["inspect", path, "--json"])["model"]["fingerprint"];
        assert_eq!(report[end]["path"], path.as_str());
        assert_eq!(&report[end]["fingerprint"], fingerprint);
    }
    assert_ne!(
        report["input"]["fingerprint"],
        report["output"]["fingerprint"]
    );
    assert_eq!(report["guarantee"], "new-function");
    assert!(!report["edits"].as_array().unwrap().is_empty());
}

#[test]
fn a_dry_run_writes_nothing_and_a_diff_shows_the_graph() {
    let folder = Folder::new();
    let model = llama(&folder);
    let ran = run(["rewrite", &model, "--dry-run", "--diff", "-q"]
        .into_iter()
        .chain(YARN));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(
        ran.out.starts_with(&format!("--- {model}\n+++ ")),
        "{}",
        ran.out
    );
    assert!(
        ran.out
            .lines()
            .any(|line| line.starts_with('+') && !line.starts_with("+++"))
    );
    assert_eq!(folder.names(), ["m.onnx"]);
}

#[test]
fn a_flag_without_effect_is_exit_2_and_named() {
    let folder = Folder::new();
    let model = llama(&folder);
    let config = folder.file("config.json", "{}");
    let cases: [(&str, &[&str]); 8] = [
        ("--add-position-ids", &["--scale=linear"]),
        ("--beta-fast=8", &["--scale=linear"]),
        ("--factor=4", &["--scale=none"]),
        ("--factor=4", &["--to=rope"]),
        ("--factor=4", &["--to=alibi"]),
        ("--original-length=64", &["--scale=alpha", "--alpha=8"]),
        ("--slopes=0.5", &["--to=rope", "--layout=interleaved"]),
        ("--theta=5000", &["--to=rope", "--hf-config", &config]),
    ];
    for (flag, rest) in cases {
        let ran = run(["rewrite", &model, flag]
            .into_iter()
            .chain(rest.iter().copied()));
        ran.failed(2, flag);
        let name = flag.split('=').next().unwrap();
        let want = format!("{name} has no effect on ");
        assert!(ran.err.contains(&want), "{flag}: {}", ran.err);
    }
    assert_eq!(folder.names(), ["config.json", "m.onnx"]);
}

#[test]
fn a_form_that_the_target_excludes_is_exit_2_and_named() {
    let folder = Folder::new();
    let model = llama(&folder);
    let ran = run(["rewrite", &model, "--target=portable", "--form=contrib"]
        .into_iter()
        .chain(YARN));
    ran.failed(2, "--form contrib");
    assert!(ran.err.contains("not portable"), "{}", ran.err);
    assert_eq!(folder.names(), ["m.onnx"]);
}

#[test]
fn in_place_replaces_what_a_link_leads_to() {
    let folder = Folder::new();
    let model = llama(&folder);
    let before = std::fs::read(&model).unwrap();
    let link = folder.path().join("link.onnx");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&model, &link).unwrap();
    #[cfg(not(unix))]
    std::fs::copy(&model, &link).unwrap();
    let link = link.display().to_string();
    let ran = run(["rewrite", &link, "--in-place"].into_iter().chain(YARN));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(folder.names(), ["link.onnx", "m.onnx"]);
    assert_ne!(std::fs::read(&link).unwrap(), before);
    #[cfg(unix)]
    assert_ne!(std::fs::read(&model).unwrap(), before);
}

/// A decoder with rotations, and with the number of each token added to its output.
#[cfg(feature = "tract")]
fn numbered(folder: &Folder) -> String {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
    let model = Model::open(format!("{fixtures}/mini/rope/model.onnx")).unwrap();
    let graph = model.graph();
    let logits = graph.scope(graph.main()).outputs()[0];
    let mut out = graph.emitter(graph.main(), "planted");
    let [zero, one] = [0, 1].map(|n| out.constant("n", Tensor::from_i64(&[], &[n])));
    let shape = out.op("Shape", &[logits]);
    let count = out.op_with("Gather", &[shape, one], &[("axis", Attr::Int(0))]);
    let range = out.op("Range", &[zero, count, one]);
    let range = out.cast(range, DType::F32);
    let axes = out.ints("axes", &[0, 2]);
    let rows = out.op("Unsqueeze", &[range, axes]);
    let sum = out.op("Add", &[logits, rows]);
    out.redirect(logits, sum).unwrap();
    let (numbered, _) = model.clone().with_patch(out.finish()).unwrap();
    folder.file("m.onnx", numbered.to_bytes().unwrap())
}

#[test]
#[cfg(feature = "tract")]
fn a_position_in_an_output_is_exit_4_or_recorded() {
    let folder = Folder::new();
    let model = numbered(&folder);
    let output = folder.place("out.onnx");
    let words = ["rewrite", &model, "--to", "none", "-o", &output];
    let ran = run(words);
    ran.failed(4, "a position is left");
    let left = "main_graph/planted/add_0: without the encodings that were found, the numbers \
                planted/unsqueeze_0 of different tokens still differ";
    assert!(ran.err.contains(left), "{}", ran.err);
    assert!(ran.err.contains("--allow-unread"), "{}", ran.err);
    assert_eq!(folder.names(), ["m.onnx"]);

    assert_eq!(run(words.into_iter().chain(["--allow-unread"])).code, 0);
    let recorded = Model::open(&output).unwrap();
    let recorded = recorded.metadata("posenc.unread").unwrap();
    assert!(recorded.contains(left), "{recorded}");
    for words in [["verify", &output], ["inspect", &output]] {
        let ran = run(words);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let said = "not read when the model was rewritten";
        assert!(ran.out.contains(said), "{}", ran.out);
    }
}

#[test]
#[cfg(feature = "tract")]
fn a_model_without_a_position_records_none() {
    let folder = Folder::new();
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
    let model = format!("{fixtures}/mini/rope/model.onnx");
    let output = folder.place("out.onnx");
    for words in [&[][..], &["--allow-unread"]] {
        let all = ["rewrite", &model, "--to", "none", "-o", &output].into_iter();
        assert_eq!(run(all.chain(words.iter().copied())).code, 0);
        let written = Model::open(&output).unwrap();
        assert_eq!(written.metadata("posenc.unread"), None);
    }
}

fn json(words: &[&str]) -> serde_json::Value {
    let ran = run(words.iter().copied());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}");
    serde_json::from_str(&ran.out).unwrap()
}
