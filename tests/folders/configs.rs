//! Configurations that say something else than the models beside them.

use super::*;

const LENGTHS: [&str; 4] = ["--provider", "tract", "--lengths", "8"];

/// Changes a key of a configuration.
fn set(config: &Path, key: &str, value: Value) {
    let mut changed = json(config);
    changed[key] = value;
    fs::write(config, changed.to_string()).unwrap();
}

fn scaling(law: &str, factor: f64) -> Value {
    serde_json::json!({"rope_type": law, "factor": factor, "original_max_position_embeddings": 64})
}

#[test]
fn a_config_that_contradicts_its_models_fails_and_warns() {
    let site = Site::of_llama();
    assert_eq!(site.rewrite(&YARN).code, 0);
    let [input, output] = [site.input(), site.output()].map(|folder| folder.display().to_string());
    let config = site.output().join("config.json");
    let verify = |folders: &[&str]| {
        let words = [&["verify"][..], folders, &LENGTHS].concat();
        binary::run(words)
    };
    let inspect = || binary::run(["inspect", &output]);
    let own = json(&config);
    assert_eq!(verify(&[&input, &output]).code, 0);
    assert_eq!(verify(&[&output]).code, 0);
    assert!(
        !inspect().stdout.contains("in the config"),
        "{}",
        inspect().stdout
    );
    let cases = [
        (
            "rope_scaling",
            scaling("yarn", 8.0),
            "layer 0 is yarn × 8 in the config (rope_scaling) and yarn × 4 in the graph",
        ),
        (
            "rope_scaling",
            Value::Null,
            "layer 0 is plain RoPE in the config (rope_scaling) and yarn × 4 in the graph",
        ),
        (
            "rope_theta",
            5e5.into(),
            "layer 0 has the base 500000 in the config (rope_theta) and 10000 in the graph",
        ),
    ];
    for (key, value, want) in cases {
        fs::write(&config, own.to_string()).unwrap();
        set(&config, key, value);
        let sentence = format!(
            "{}: {want}; is it the config of onnx/model.onnx?",
            config.display()
        );
        for folders in [&[&*input, &*output][..], &[&*output]] {
            let ran = verify(folders);
            assert_eq!(ran.code, 1, "{want}: {}", ran.stderr);
            assert!(ran.stdout.contains(&sentence), "{want}: {}", ran.stdout);
        }
        let found = inspect();
        assert_eq!(found.code, 0, "{want}: {}", found.stderr);
        assert!(found.stdout.contains(&sentence), "{want}: {}", found.stdout);
    }
    let found = verify(&[&*output, "--json"]);
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    let checks = found["models"][0]["report"]["sites"].as_array().unwrap();
    let failed: Vec<&Value> = checks.iter().filter(|check| check["ok"] == false).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["quantity"], "config");
    // What cannot be compared is no failure, and is said.
    fs::write(&config, "{").unwrap();
    let ran = verify(&[&output]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    for said in [ran.stdout, inspect().stdout] {
        assert!(said.contains("the config is not JSON"), "{said}");
    }
}

#[test]
fn a_rewrite_replaces_no_law_that_the_graph_does_not_have() {
    let site = Site::of_llama();
    let config = site.input().join("config.json");
    let why = "layer 0 is linear × 2 in the config (rope_scaling) and plain RoPE in the graph";
    let linear = serde_json::json!({"rope_type": "linear", "factor": 2.0});
    set(&config, "rope_scaling", linear);
    let flags = [&YARN[..], &["--original-length", "64"]].concat();
    site.refuses(&flags, 2, why);
    // One that says what the models become is theirs.
    set(&config, "rope_scaling", scaling("yarn", 4.0));
    let ran = site.rewrite(&flags);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(
        json(&site.output().join("config.json"))["rope_scaling"],
        scaling("yarn", 4.0)
    );
}

#[test]
fn a_model_that_one_folder_lacks_is_a_difference() {
    let site = Site::of_llama();
    let output = site.output().display().to_string();
    let dropped = [&YARN[..], &["--drop", "*_fp16*"]].concat();
    assert_eq!(site.rewrite(&dropped).code, 0);
    let flags = [&[&*output][..], &LENGTHS].concat();
    let missing = |ran: &Ran| {
        assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
        let why = "--except 'onnx/model_fp16.onnx' skips a model that was left out on purpose";
        assert!(ran.stdout.contains(why), "{}", ran.stdout);
    };
    missing(&site.run("verify", &flags));
    let except = [&flags[..], &["--except", "*_fp16*"]].concat();
    let ran = site.run("verify", &except);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    // The other way round.
    let (input, fp16) = (site.input(), "onnx/model_fp16.onnx");
    let more = fs::read(input.join(fp16)).unwrap();
    fs::write(site.output().join(fp16), more).unwrap();
    fs::remove_file(input.join(fp16)).unwrap();
    missing(&site.run("verify", &flags));
    assert_eq!(site.run("verify", &except).code, 0);
    let none = [&flags[..], &["--except", "no*"]].concat();
    let ran = site.run("verify", &none);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("matches none of its models"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_folder_in_place_of_a_config_is_named() {
    let site = Site::new();
    site.model("model.onnx", "llama/torchscript");
    site.put("config.json/x", "");
    let why = "config.json: is a folder, and has the name of a configuration; rename it";
    site.refuses(&[&YARN[..], &["--original-length", "64"]].concat(), 2, why);
    for command in ["inspect", "verify"] {
        let flags = if command == "verify" {
            &LENGTHS[..]
        } else {
            &[]
        };
        let ran = site.run(command, flags);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stdout.contains(why), "{command}: {}", ran.stdout);
    }
}
