//! `rewrite --write-config`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::run::{Folder, Ran, run};
use crate::split::{YARN, constants, decoded};

/// A folder with the model and the config of a fixture, and an empty folder `out`.
fn folder(fixture: &str) -> Folder {
    let folder = Folder::new();
    for name in ["model.onnx", "config.json"] {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
        let bytes = fs::read(format!("{fixtures}/{fixture}/{name}")).unwrap();
        folder.file(name, bytes);
    }
    fs::create_dir(folder.path().join("out")).unwrap();
    folder
}

fn llama() -> Folder {
    folder("llama/torchscript")
}

/// `rewrite --write-config` to `out/long.onnx`.
fn rewrite(folder: &Folder, words: &[&str]) -> Ran {
    let [model, output] = ["model.onnx", "out/long.onnx"].map(|name| folder.place(name));
    let own = ["rewrite", &model, "-o", &output, "--write-config"];
    run(own.into_iter().chain(words.iter().copied()))
}

fn yarn(more: &[&'static str]) -> Vec<&'static str> {
    YARN.iter().chain(more).copied().collect()
}

fn json(path: impl AsRef<Path>) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The report of a run that succeeded.
fn report(ran: &Ran) -> Value {
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    serde_json::from_str(&ran.out).unwrap()
}

fn names(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.path().join("out")).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_config_of_the_model_is_written_next_to_the_output() {
    let folder = llama();
    let input = fs::read(folder.place("config.json")).unwrap();
    let report = report(&rewrite(&folder, &yarn(&["--json"])));
    let path = folder.place("out/config.json");
    let law = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64});
    let changes = json!({"max_position_embeddings": [64, 256], "rope_scaling": [null, law]});
    assert_eq!(
        report["configs"],
        json!([{"path": path, "changes": changes}])
    );
    assert_eq!(names(&folder), ["config.json", "long.onnx"]);
    assert_eq!(fs::read(folder.place("config.json")).unwrap(), input);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("{\n  \"architectures\": [\n"), "{text}");
    assert!(text.ends_with("\n}\n"), "{text}");
    assert_eq!(json(&path)["max_position_embeddings"], 256);
}

#[test]
fn the_original_model_becomes_the_same_by_the_config() {
    let folder = llama();
    report(&rewrite(&folder, &yarn(&["--json"])));
    let config = folder.place("out/config.json");
    let follow = |config: &str| {
        let [model, again] = ["model.onnx", "out/again.onnx"].map(|name| folder.place(name));
        let words = ["rewrite", &model, "-o", &again, "--hf-config", config, "-q"];
        let ran = run(words);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        let same = decoded(&again).graph == decoded(&folder.place("out/long.onnx")).graph;
        same && constants(&again) == constants(&folder.place("out/long.onnx"))
    };
    assert!(follow(&config));
    let mut other = json(&config);
    other["rope_scaling"]["factor"] = json!(4.001);
    assert!(
        !follow(&folder.file("other.json", other.to_string())),
        "control"
    );
}

/// The model records the length that it was trained for, which the config then no longer says.
#[test]
fn a_rewrite_in_place_may_be_repeated() {
    let folder = llama();
    let model = folder.place("model.onnx");
    let law = ["--scale", "linear", "--factor", "4"];
    let words = ["rewrite", &model, "--in-place", "--write-config", "--json"];
    let again = || report(&run(words.into_iter().chain(law)));
    assert_eq!(
        again()["configs"][0]["changes"]["max_position_embeddings"],
        json!([64, 256])
    );
    let config = fs::read(folder.place("config.json")).unwrap();
    for _ in 0..2 {
        let said = again();
        assert_eq!(said.get("configs"), None);
        let source = &said["inferred"][0];
        assert_eq!(source["value"], 64, "{source}");
    }
    assert!(fs::read(folder.place("config.json")).unwrap() == config);
}

#[test]
fn the_report_has_a_line_for_each_change() {
    let folder = llama();
    let ran = rewrite(&folder, &["--scale=linear", "--factor=2"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let path = folder.place("out/config.json");
    for line in [
        format!("config  {path}: max_position_embeddings 64 → 128\n"),
        format!(
            "config  {path}: rope_scaling null → {{\"rope_type\":\"linear\",\"factor\":2.0}}\n"
        ),
    ] {
        assert!(ran.out.contains(&line), "{}", ran.out);
    }
}

#[test]
fn a_dry_run_says_what_it_would_write() {
    let folder = llama();
    let said = report(&rewrite(&folder, &yarn(&["--dry-run", "--json"])));
    assert_eq!(said["configs"][0]["path"], folder.place("out/config.json"));
    assert_eq!(names(&folder), [""; 0]);
    let ran = rewrite(&folder, &yarn(&["--dry-run"]));
    assert!(
        ran.out
            .contains("/out/config.json: max_position_embeddings 64 → 256")
    );
    assert!(ran.out.ends_with("nothing was written\n"), "{}", ran.out);
    let ran = rewrite(&folder, &yarn(&["--dry-run", "--diff"]));
    assert!(ran.out.starts_with("--- "), "{}", ran.out);
    assert!(
        ran.err
            .contains("config.json: max_position_embeddings 64 → 256"),
        "{}",
        ran.err
    );
    assert_eq!(names(&folder), [""; 0]);
}

#[test]
fn the_config_next_to_the_output_comes_first_and_the_others_follow() {
    let folder = llama();
    let mut own = json(folder.place("config.json"));
    own["_name_or_path"] = json!("own");
    folder.file("out/config.json", own.to_string());
    folder.file(
        "out/tokenizer_config.json",
        r#"{"model_max_length": 64, "a": 0.1}"#,
    );
    let genai =
        r#"{"model": {"context_length": 64, "type": "llama"}, "search": {"max_length": 50}}"#;
    folder.file("out/genai_config.json", genai);
    // Those of the model stay.
    folder.file("tokenizer_config.json", r#"{"model_max_length": 64}"#);
    let said = report(&rewrite(&folder, &yarn(&["--json"])));
    let paths = said["configs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["path"]);
    let all = ["config.json", "tokenizer_config.json", "genai_config.json"];
    let want = all.map(|name| json!(folder.place(&format!("out/{name}"))));
    assert_eq!(Vec::from_iter(paths.cloned()), want);
    assert_eq!(
        json(folder.place("out/config.json"))["_name_or_path"],
        "own"
    );
    let tokenizer = fs::read_to_string(folder.place("out/tokenizer_config.json")).unwrap();
    assert_eq!(
        tokenizer,
        "{\n  \"model_max_length\": 256,\n  \"a\": 0.1\n}\n"
    );
    let genai = json(folder.place("out/genai_config.json"));
    let want =
        json!({"model": {"context_length": 256, "type": "llama"}, "search": {"max_length": 50}});
    assert_eq!(genai, want);
    assert_eq!(
        json(folder.place("tokenizer_config.json"))["model_max_length"],
        64
    );
    // A second run finds nothing to change.
    let said = report(&rewrite(&folder, &yarn(&["--json"])));
    assert_eq!(said.get("configs"), None);
}

#[test]
fn in_place_changes_the_config_of_the_model() {
    let folder = llama();
    let model = folder.place("model.onnx");
    let words = ["rewrite", &model, "--in-place", "--write-config", "-q"];
    let ran = run(words.into_iter().chain(YARN));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let config = json(folder.place("config.json"));
    assert_eq!(config["rope_scaling"]["rope_type"], "yarn");
    assert_eq!(config["max_position_embeddings"], 256);
    assert_eq!(folder.names(), ["config.json", "model.onnx", "out"]);
}

#[test]
fn the_record_of_the_model_is_the_same_with_and_without() {
    let folder = llama();
    report(&rewrite(&folder, &yarn(&["--json"])));
    let with = fs::read(folder.place("out/long.onnx")).unwrap();
    let [model, output] = ["model.onnx", "out/long.onnx"].map(|name| folder.place(name));
    let words = ["rewrite", &model, "-o", &output, "-q"];
    assert_eq!(run(words.into_iter().chain(YARN)).code, 0);
    assert!(fs::read(output).unwrap() == with);
}

#[test]
fn tables_and_images_follow() {
    let bert = folder("bert/dynamo");
    let said = report(&rewrite(
        &bert,
        &["--scale=linear", "--max-length=128", "--json"],
    ));
    let changes = json!({"max_position_embeddings": [64, 128]});
    assert_eq!(said["configs"][0]["changes"], changes);
    let warnings = said["warnings"].to_string();
    assert!(
        warnings.contains("config.json has no key for a resized table (linear)"),
        "{warnings}"
    );
    let vit = folder("vit/dynamo");
    let said = report(&rewrite(&vit, &["--image-size=24x16", "--json"]));
    assert_eq!(
        said["configs"][0]["changes"],
        json!({"image_size": [32, [24, 16]]})
    );
}

#[test]
fn a_model_that_stays_gets_a_copy_of_its_config() {
    let folder = llama();
    let said = report(&rewrite(&folder, &["--scale=none", "--json"]));
    assert_eq!(said["edits"], json!([]));
    assert_eq!(said["configs"][0]["changes"], json!({}));
    let [old, new] = ["config.json", "out/config.json"].map(|name| folder.place(name));
    assert_eq!(
        fs::read_to_string(old).unwrap(),
        fs::read_to_string(new).unwrap()
    );
}

/// A run that is refused with exit code 2 and writes nothing.
fn refused(folder: &Folder, ran: &Ran, want: &str) {
    ran.failed(2, want);
    assert!(ran.err.contains(want), "{}", ran.err);
    let model = folder.path().join("out/long.onnx");
    assert!(!model.exists(), "{want}");
}

#[test]
fn the_config_of_the_input_stays() {
    let folder = llama();
    let model = folder.place("model.onnx");
    let other = folder.place("other.onnx");
    let names = folder.names();
    for words in [&[][..], &["-o", &other], &["-o", &other, "--dry-run"]] {
        let own = ["rewrite", &model, "--write-config"].into_iter();
        let ran = run(own.chain(YARN).chain(words.iter().copied()));
        refused(
            &folder,
            &ran,
            "give -o in another folder for --write-config",
        );
    }
    assert_eq!(folder.names(), names);
    assert!(json(folder.place("config.json"))["rope_scaling"].is_null());
}

#[test]
fn without_a_config_there_is_nothing_to_change() {
    let folder = llama();
    fs::remove_file(folder.path().join("config.json")).unwrap();
    folder.file("out/tokenizer_config.json", r#"{"model_max_length": 64}"#);
    let ran = rewrite(&folder, &yarn(&[]));
    refused(
        &folder,
        &ran,
        "there is no config.json next to it or next to",
    );
}

#[test]
fn another_encoding_has_no_key() {
    let folder = llama();
    let ran = rewrite(&folder, &["--to", "alibi"]);
    refused(
        &folder,
        &ran,
        "--write-config describes rescales, lengths and image sizes",
    );
    assert_eq!(names(&folder), [""; 0]);
}

#[test]
fn a_config_that_cannot_say_it_is_named_and_nothing_is_written() {
    for (config, want) in [
        ("[]", "config.json: the config must be a JSON object"),
        ("{", "config.json: the config is not JSON"),
        (
            r#"{"head_dim": 32, "max_position_embeddings": 64}"#,
            "layer 0 rotates 32 of 32 features of a head in the config and 16 of 16 in the graph",
        ),
        (
            r#"{"rope_scaling": {"type": "linear", "factor": 2, "new": 1}}"#,
            "new is not a key",
        ),
    ] {
        let folder = llama();
        folder.file("out/config.json", config);
        let ran = rewrite(&folder, &yarn(&[]));
        refused(&folder, &ran, want);
        assert!(ran.err.contains("out/config.json: "), "{}", ran.err);
        assert_eq!(names(&folder), ["config.json"]);
    }
    let folder = llama();
    folder.file("out/tokenizer_config.json", "[]");
    let ran = rewrite(&folder, &yarn(&[]));
    refused(
        &folder,
        &ran,
        "tokenizer_config.json: the config must be a JSON object",
    );
    let gemma = self::folder("gemma3-text/dynamo");
    let ran = rewrite(&gemma, &["--scale=linear"]);
    refused(&gemma, &ran, "rescale the others alone with --layers");
}

#[test]
fn what_cannot_be_written_is_refused_before_the_model_is() {
    let folder = llama();
    fs::create_dir(folder.path().join("out/config.json")).unwrap();
    let ran = rewrite(&folder, &yarn(&[]));
    refused(&folder, &ran, "out/config.json: is no regular file");
    fs::remove_dir(folder.path().join("out/config.json")).unwrap();
    let model = folder.place("model.onnx");
    let output = folder.place("out/config.json");
    let words = ["rewrite", &model, "-o", &output, "--write-config"];
    let ran = run(words.into_iter().chain(YARN));
    refused(&folder, &ran, "is the name of a config");
    assert_eq!(names(&folder), [""; 0]);
}

#[test]
fn a_config_that_the_command_reads_stays() {
    let folder = llama();
    let mut config = json(folder.place("config.json"));
    config["rope_scaling"] = json!({"rope_type": "linear", "factor": 2.0});
    let config = folder.file("out/config.json", config.to_string());
    let before = fs::read(&config).unwrap();
    let ran = rewrite(&folder, &["--hf-config", &config, "--max-length=128"]);
    refused(&folder, &ran, "is read by this command");
    assert_eq!(fs::read(&config).unwrap(), before);
}

#[cfg(unix)]
#[test]
fn a_link_to_the_config_of_the_model_is_replaced() {
    let folder = llama();
    let link = folder.path().join("out/config.json");
    std::os::unix::fs::symlink(folder.place("config.json"), &link).unwrap();
    report(&rewrite(&folder, &yarn(&["--json"])));
    assert!(!link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(json(&link)["max_position_embeddings"], 256);
    assert_eq!(
        json(folder.place("config.json"))["max_position_embeddings"],
        64
    );
}
