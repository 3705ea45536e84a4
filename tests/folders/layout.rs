//! Layouts of folders, and what becomes of the files that are no models.

use super::*;

#[test]
fn every_model_becomes_what_it_becomes_alone() {
    let site = Site::of_llama();
    let done = site.rewrite(&[&YARN[..], &["--json"]].concat()).json();
    assert_eq!(done["models"].as_array().unwrap().len(), 2);
    let alone = Site::new();
    alone.config("config.json", "llama/torchscript");
    for (at, name) in ["onnx/model.onnx", "onnx/model_fp16.onnx"]
        .iter()
        .enumerate()
    {
        let report = &done["models"][at];
        assert_eq!(report["check"]["ok"], true, "{name}");
        assert_eq!(report["edits"].as_array().unwrap().len(), 2, "{name}");
        alone.put("model.onnx", fs::read(site.input().join(name)).unwrap());
        let one = alone.input().join("model.onnx").display().to_string();
        let out = alone.0.path().join("one.onnx").display().to_string();
        let flags = ["rewrite", &one]
            .into_iter()
            .chain(YARN)
            .chain(["-o", &out]);
        assert_eq!(binary::run(flags).code, 0);
        let [got, want] =
            [site.output().join(name), out.into()].map(|path| fs::read(path).unwrap());
        assert_eq!(got, want, "{name}");
        let source = fs::read(site.input().join(name)).unwrap();
        assert_ne!(got, source, "{name} is a copy");
    }
}

#[test]
fn configurations_follow_and_other_files_stay() {
    let site = Site::of_llama();
    site.put("sub/empty/.keep", "");
    site.put(".cache/huggingface/download.metadata", "etag");
    site.put("sentence_bert_config.json", r#"{"max_seq_length": 50}"#);
    let done = site.rewrite(&[&YARN[..], &["--json"]].concat()).json();
    let out = site.output();
    let config = json(&out.join("config.json"));
    assert_eq!(config["max_position_embeddings"], 256);
    let scaling = config
        .get("rope_scaling")
        .or(config.get("rope_parameters"))
        .unwrap();
    assert_eq!(
        (&scaling["rope_type"], &scaling["factor"]),
        (&"yarn".into(), &4.0.into())
    );
    let generation = json(&out.join("generation_config.json"));
    assert_eq!(
        generation,
        serde_json::json!({"max_length": 256, "eos_token_id": 2})
    );
    assert_eq!(
        json(&out.join("tokenizer_config.json"))["model_max_length"],
        256
    );
    let changed: Vec<&str> = done["configs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|config| config["path"].as_str().unwrap().rsplit('/').next().unwrap())
        .collect();
    let want = [
        "config.json",
        "generation_config.json",
        "tokenizer_config.json",
    ];
    assert_eq!(changed, want);
    for name in [
        "README.md",
        "tokenizer.json",
        "sentence_bert_config.json",
        "sub/empty/.keep",
    ] {
        let [from, to] = [site.input(), out.clone()].map(|folder| fs::read(folder.join(name)));
        assert_eq!(from.unwrap(), to.unwrap(), "{name}");
    }
    assert!(
        !out.join(".cache").exists(),
        "it describes the files before"
    );
    assert!(done["left_out"][0].as_str().unwrap().ends_with(".cache"));
    assert_eq!(done["files"], 4);
    // Nothing else appeared.
    let mut names = super::names(&site.input());
    names.retain(|name| !name.starts_with(".cache"));
    assert_eq!(super::names(&out), names);
}

#[test]
fn a_genai_folder_says_its_length_itself() {
    let site = Site::new();
    site.model_with_data("model.onnx", "llama/torchscript", "model.onnx.data");
    let genai =
        r#"{"model": {"context_length": 64, "type": "llama"}, "search": {"max_length": 64}}"#;
    site.put("genai_config.json", genai);
    let done = site.rewrite(&[&YARN[..], &["--json"]].concat()).json();
    let inferred = done["models"][0]["inferred"].as_array().unwrap();
    let length = inferred
        .iter()
        .find(|i| i["name"] == "original-length")
        .unwrap();
    assert_eq!(length["value"], 64);
    assert!(
        length["source"]
            .as_str()
            .unwrap()
            .contains("genai_config.json"),
        "{length}"
    );
    let genai = json(&site.output().join("genai_config.json"));
    let want = serde_json::json!({"model": {"context_length": 256, "type": "llama"},
                                  "search": {"max_length": 256}});
    assert_eq!(genai, want);
    assert_eq!(done["warnings"], serde_json::json!([]));
}

#[test]
fn data_goes_with_the_models_that_read_it() {
    let site = Site::new();
    // Two models read the same file, and a third file has the name that data would get.
    site.model_with_data("model.onnx", "llama/torchscript", "weights.bin");
    site.put(
        "copy.onnx",
        fs::read(site.input().join("model.onnx")).unwrap(),
    );
    site.put("model.onnx.data", "not the data of any model");
    site.config("config.json", "llama/torchscript");
    let flags = [&YARN[..], &["--json"]].concat();
    let done = site.rewrite(&flags).json();
    assert_eq!(super::names(&site.output()), super::names(&site.input()));
    let [from, to] =
        [site.input(), site.output()].map(|f| fs::read(f.join("weights.bin")).unwrap());
    assert!(from == to, "the weights are others");
    assert_eq!(
        done["files"], 1,
        "config.json follows, and the data is written with its models"
    );
    // One of them stays: the data is still that of both.
    fs::remove_dir_all(site.output()).unwrap();
    let some = [&flags[..], &["--only", "copy.onnx"]].concat();
    site.rewrite(&some).json();
    assert_eq!(super::names(&site.output()), super::names(&site.input()));
    let verified = binary::run(["verify", site.output().join("copy.onnx").to_str().unwrap()]);
    assert_eq!(verified.code, 0, "{}", verified.stderr);
    // A model that is dropped takes its data with it, unless another one reads that.
    fs::remove_dir_all(site.output()).unwrap();
    site.model_with_data("other.onnx", "llama/dynamo", "other.bin");
    let dropped = [&flags[..], &["--drop", "other.onnx", "--drop", "copy.onnx"]].concat();
    let done = site.rewrite(&dropped).json();
    assert_eq!(done["left_out"].as_array().unwrap().len(), 2);
    let left = [
        "config.json",
        "model.onnx",
        "model.onnx.data",
        "weights.bin",
    ];
    assert_eq!(super::names(&site.output()), left);
    // Embedded weights leave no file behind that nothing reads.
    fs::remove_dir_all(site.output()).unwrap();
    let inline = [&dropped[..], &["--external-data", "inline"]].concat();
    site.rewrite(&inline).json();
    assert!(!site.output().join("weights.bin").exists());
}

#[cfg(unix)]
#[test]
fn a_snapshot_of_the_hub_cache_becomes_a_folder_of_files() {
    use std::os::unix::fs::symlink;
    let site = Site::new();
    site.model_with_data("blobs/aa", "llama/torchscript", "model.onnx_data");
    site.config("blobs/cc", "llama/torchscript");
    let cache = site.input();
    let snapshot = cache.join("snapshots/0123");
    fs::create_dir_all(snapshot.join("onnx")).unwrap();
    fs::rename(cache.join("blobs/model.onnx_data"), cache.join("blobs/bb")).unwrap();
    for (blob, name) in [("aa", "onnx/model.onnx"), ("bb", "onnx/model.onnx_data")] {
        symlink(format!("../../../blobs/{blob}"), snapshot.join(name)).unwrap();
    }
    symlink("../../blobs/cc", snapshot.join("config.json")).unwrap();
    let (input, output) = (snapshot.display().to_string(), site.output());
    let before = files(&site.input());
    let words = ["rewrite", &input, "-o", output.to_str().unwrap()];
    let ran = binary::run(words.into_iter().chain(YARN));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(files(&site.input()), before);
    assert_eq!(
        names(&output),
        ["config.json", "onnx/model.onnx", "onnx/model.onnx_data"]
    );
    for name in names(&output) {
        let file = output.join(&name).symlink_metadata().unwrap();
        assert!(file.is_file(), "{name} is a link");
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&file), 1, "{name}");
    }
    assert_eq!(
        json(&output.join("config.json"))["max_position_embeddings"],
        256
    );
}

#[test]
fn swaps_leave_the_configuration_unless_it_is_asked_for() {
    let site = Site::of_llama();
    let done = site.rewrite(&["--to", "alibi", "--json"]).json();
    assert_eq!(done["configs"], serde_json::json!([]));
    let said = done["warnings"][0].as_str().unwrap();
    assert!(said.contains("config.json stays as it is"), "{said}");
    let [from, to] =
        [site.input(), site.output()].map(|f| fs::read(f.join("config.json")).unwrap());
    assert_eq!(from, to);
    fs::remove_dir_all(site.output()).unwrap();
    site.refuses(
        &["--to", "alibi", "--write-config"],
        2,
        "no key for another encoding",
    );
}

#[test]
fn a_config_of_another_model_stops_all() {
    let site = Site::of_llama();
    let mut config = json(&site.input().join("config.json"));
    config["rope_theta"] = 5e5.into();
    config["rope_parameters"] = Value::Null;
    site.put("config.json", config.to_string());
    let ran = site.rewrite(&YARN);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("config.json"), "{}", ran.stderr);
    site.holds_the_input_alone();
}
