//! Models that belong together.

use super::*;

#[test]
fn inspect_says_which_models_encode_positions_alike() {
    let site = Site::of_llama();
    site.model("text/model.onnx", "bert/dynamo");
    let found = site.run("inspect", &["--json"]).json();
    let kinds: Vec<&str> = found["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["encodings"][0]["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["rope", "rope", "learned"]);
    let shared = found["shared"].as_array().unwrap();
    assert_eq!(shared.len(), 1);
    assert_eq!(shared[0].as_array().unwrap().len(), 2, "{shared:?}");
    assert_eq!(found["disagreements"], serde_json::json!([]));
    let text = site.run("inspect", &[]);
    assert_eq!(text.code, 0);
    let has = |line: &str| assert!(text.stdout.contains(line), "{line}: {}", text.stdout);
    has("onnx/model_fp16.onnx      2         rope (θ 10000");
    has("  onnx/model.onnx, onnx/model_fp16.onnx\n");
    let only = site
        .run("inspect", &["--json", "--except", "*_fp16*"])
        .json();
    assert_eq!(only["models"].as_array().unwrap().len(), 2);
}

#[test]
fn models_that_disagree_are_named_and_not_rewritten() {
    let site = Site::new();
    site.model("decoder_model.onnx", "llama-yarn/torchscript");
    site.model("decoder_with_past_model.onnx", "llama/optimum");
    site.config("config.json", "llama/torchscript");
    let found = site.run("inspect", &["--json"]).json();
    assert_eq!(found["shared"], serde_json::json!([]));
    let pair = &found["disagreements"][0]["encodings"];
    assert_eq!(pair[0]["params"]["scaling"]["type"], "yarn");
    assert!(pair[1]["params"]["scaling"].is_null());
    let text = site.run("inspect", &[]).stdout;
    assert!(
        text.contains("belong together and encode positions differently"),
        "{text}"
    );
    let flags = [
        "--scale",
        "linear",
        "--factor",
        "2",
        "--allow-rescale",
        "--original-length",
        "64",
    ];
    site.refuses(&flags, 4, "decoder_with_past_model.onnx belong together");
    // One of them can be rewritten all the same, and the other is named.
    let one = [
        "--scale",
        "yarn",
        "--original-length",
        "64",
        "--only",
        "*_with_past*",
        "--json",
    ];
    let done = site.rewrite(&one).json();
    assert_eq!(done["kept"][0]["why"], "not chosen");
    let said = done["warnings"][0].as_str().unwrap();
    assert!(
        said.contains("decoder_model.onnx stays as it is, and"),
        "{said}"
    );
    let name = "decoder_model.onnx";
    let [from, to] = [site.input(), site.output()].map(|f| fs::read(f.join(name)).unwrap());
    assert_eq!(from, to);
}

#[test]
fn one_model_that_is_refused_stops_all() {
    let cases = [
        ("broken.onnx", &b"no model"[..], 3, "broken.onnx: "),
        ("empty.onnx", b"", 3, "empty.onnx: "),
    ];
    for (name, bytes, code, said) in cases {
        let site = Site::of_llama();
        site.put(name, bytes);
        site.refuses(&YARN, code, said);
    }
    let site = Site::of_llama();
    site.model("other/model.onnx", "bert/dynamo");
    site.refuses(&YARN, 4, "other/model.onnx: ");
    let site = Site::of_llama();
    let lstm = posenc_tests::shared::root().join("fixtures/bad/rnn-lstm.onnx");
    site.put("lstm.onnx", fs::read(lstm).unwrap());
    site.refuses(&YARN, 1, "lstm.onnx: ");
    site.refuses(
        &YARN,
        1,
        "--except 'lstm.onnx' would leave this model as it is, and --drop 'lstm.onnx' would leave it out",
    );
    let done = site
        .rewrite(&[&YARN[..], &["--except", "lstm.onnx", "--json"]].concat())
        .json();
    assert_eq!(done["models"].as_array().unwrap().len(), 2);
    let [from, to] = [site.input(), site.output()].map(|f| fs::read(f.join("lstm.onnx")).unwrap());
    assert_eq!(from, to);
}

#[test]
fn a_graph_that_cannot_encode_positions_is_copied() {
    let site = Site::of_llama();
    let plain = posenc_tests::shared::root().join("fixtures/bad/passthrough.onnx");
    site.put("onnx/embed.onnx", fs::read(plain).unwrap());
    let done = site.rewrite(&[&YARN[..], &["--json"]].concat()).json();
    assert_eq!(done["kept"][0]["why"], "encodes no position");
    let name = "onnx/embed.onnx";
    let [from, to] = [site.input(), site.output()].map(|f| fs::read(f.join(name)).unwrap());
    assert_eq!(from, to);
    // Alone, there is nothing to do.
    let alone = Site::new();
    alone.put("embed.onnx", from);
    alone.refuses(&YARN, 1, "no model in this folder encodes positions");
}

#[test]
fn a_dry_run_writes_nothing_and_says_the_same() {
    let site = Site::of_llama();
    let dry = site
        .rewrite(&[&YARN[..], &["--json", "--dry-run"]].concat())
        .json();
    site.holds_the_input_alone();
    assert!(dry["output"].is_null());
    let done = site.rewrite(&[&YARN[..], &["--json"]].concat()).json();
    assert_eq!(dry["configs"], done["configs"]);
    let same = site.run("rewrite", &[&YARN[..], &["--dry-run"]].concat());
    assert_eq!(same.code, 0, "{}", same.stderr);
    assert!(
        same.stdout.ends_with("nothing was written\n"),
        "{}",
        same.stdout
    );
    for at in 0..2 {
        assert_eq!(dry["models"][at]["edits"], done["models"][at]["edits"]);
    }
}

#[test]
fn verify_compares_the_models_of_one_path() {
    let site = Site::of_llama();
    let output = site.output().display().to_string();
    assert_eq!(site.rewrite(&YARN).code, 0);
    let flags = [&output, "--provider", "tract", "--lengths", "8", "--json"];
    let ran = site.run("verify", &flags);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (ran.code, &found["ok"]),
        (0, &true.into()),
        "{}",
        ran.stderr
    );
    assert_eq!(found["models"].as_array().unwrap().len(), 2);
    let page = site.output().with_file_name("page.html");
    let words = page.display().to_string();
    for (command, more) in [("verify", &flags[..5]), ("inspect", &flags[..0])] {
        let ran = site.run(command, &[more, &["--report", &words]].concat());
        assert_eq!(ran.code, 0, "{command}: {}", ran.stderr);
        let text = fs::read_to_string(&page).unwrap();
        let chapters: Vec<&str> = text.split("<section").skip(1).collect();
        assert_eq!(chapters.len(), 2, "{command}");
        for chapter in chapters {
            assert!(
                chapter.contains("rope: wavelengths"),
                "{command}: {chapter}"
            );
        }
    }
    // Another model in the place of one, and one that is missing.
    fs::remove_file(site.output().join("onnx/model_fp16.onnx")).unwrap();
    let ran = site.run("verify", &flags);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(ran.code, 1);
    let why = found["models"][1]["error"].as_str().unwrap();
    assert!(why.contains("there is no model of this path"), "{why}");
}
