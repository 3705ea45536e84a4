//! Configurations that say something else than a graph.

use std::fs;

use posenc_encodings::laws::LawName;
use serde_json::{Value, json};

use super::{fixture, fourfold, scale, with};
use crate::facade::Model;

const LLAMA: &str = "llama/torchscript";
const YARN: &str = "llama-yarn/torchscript";
const GEMMA: &str = "gemma3-text/dynamo";
const GPT2: &str = "gpt2/dynamo";

fn contradiction(name: &str, changes: Value) -> Option<String> {
    let (model, _) = fixture(name);
    model.contradiction(&with(name, changes))
}

fn yarn(factor: f64) -> Value {
    json!({"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": 64})
}

#[test]
fn no_fixture_contradicts_its_own_config() {
    let root = format!("{}/../../fixtures", env!("CARGO_MANIFEST_DIR"));
    let folders = |path: &str| {
        let entries = fs::read_dir(path).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path().display().to_string());
        Vec::from_iter(paths.filter(|path| fs::metadata(path).unwrap().is_dir()))
    };
    let mut count = 0;
    for folder in folders(&root).iter().flat_map(|family| folders(family)) {
        let Ok(config) = fs::read_to_string(format!("{folder}/config.json")) else {
            continue;
        };
        let config = serde_json::from_str(&config).unwrap();
        let model = Model::open(format!("{folder}/model.onnx")).unwrap();
        assert_eq!(model.contradiction(&config), None, "{folder}");
        count += 1;
    }
    assert!(count > 40, "{count}");
}

#[test]
fn what_differs_is_named_with_both_values() {
    let linear = json!({"rope_type": "linear", "factor": 2.0});
    let longer =
        json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096});
    let cases = [
        (
            YARN,
            json!({"rope_scaling": yarn(8.0)}),
            "layer 0 is yarn × 8 in the config (rope_scaling) and yarn × 4 in the graph",
        ),
        (
            YARN,
            json!({"rope_scaling": longer}),
            "layer 0 is yarn × 4 of other parameters in the config (rope_scaling) than in the graph",
        ),
        (
            YARN,
            json!({"rope_scaling": null}),
            "layer 0 is plain RoPE in the config (rope_scaling) and yarn × 4 in the graph",
        ),
        (
            LLAMA,
            json!({"rope_scaling": linear}),
            "layer 0 is linear × 2 in the config (rope_scaling) and plain RoPE in the graph",
        ),
        (
            LLAMA,
            json!({"rope_theta": 5e5}),
            "layer 0 has the base 500000 in the config (rope_theta) and 10000 in the graph",
        ),
        (
            LLAMA,
            json!({"head_dim": 32}),
            "layer 0 rotates 32 of 32 features of a head in the config and 16 of 16 in the graph",
        ),
        (
            GEMMA,
            json!({"rope_local_base_freq": 2e4}),
            "layer 0 has the base 20000 in the config (rope_local_base_freq) and 10000 in the graph",
        ),
        (
            GPT2,
            json!({"n_positions": 1024}),
            "n_positions of the config is 1024, and the table of the graph has 64 positions",
        ),
        (
            GPT2,
            json!({"n_positions": 32}),
            "n_positions of the config is 32, and the table of the graph has 64 positions",
        ),
    ];
    for (name, changes, want) in cases {
        let said = format!("{name} {changes}");
        assert_eq!(
            contradiction(name, changes).as_deref(),
            Some(want),
            "{said}"
        );
    }
}

#[test]
fn what_cannot_be_compared_is_no_contradiction() {
    let other = json!({"rope_theta": 5e5});
    let beside = |key: &str| json!({"rope_theta": 5e5, key: {"hidden_size": 8}});
    let cases = [
        // Neither is read.
        (
            LLAMA,
            json!({"rope_theta": 5e5, "rope_scaling": {"rope_type": "new"}}),
        ),
        (LLAMA, json!({"rope_theta": 5e5, "rope_ratio": 50})),
        // It may be the config of another model beside this one.
        (LLAMA, beside("depth_decoder_config")),
        (GPT2, json!({"n_positions": 1024, "vision_config": {}})),
        (
            GPT2,
            json!({"n_positions": 1024, "is_encoder_decoder": true}),
        ),
        // Rows that were not told from positions.
        (GPT2, json!({"n_positions": 62})),
        // Which kind a layer is of is not certain.
        (
            GEMMA,
            json!({"layer_types": ["full_attention", "sliding_attention"]}),
        ),
    ];
    for (name, changes) in cases {
        assert_eq!(
            contradiction(name, changes.clone()),
            None,
            "{name} {changes}"
        );
    }
    let (model, own) = fixture(LLAMA);
    for nothing in [
        json!([]),
        json!({}),
        json!({"model_type": "llama"}),
        json!({"rope_theta": "x"}),
    ] {
        assert_eq!(model.contradiction(&nothing), None, "{nothing}");
    }
    let of_images =
        |text: &Value| json!({"text_config": text, "vision_config": {"hidden_size": 8}});
    assert_eq!(model.contradiction(&of_images(&own)), None);
    // Control: the text of it is compared, and a quantized model is one alone.
    for config in [of_images(&other), beside("quantization_config")] {
        assert!(model.contradiction(&config).is_some(), "{config}");
    }
    // A model in which tokens see later ones may be that of the images.
    let (encoder, _) = fixture("mini-encoder/rope");
    assert_eq!(encoder.contradiction(&of_images(&other)), None);
    assert!(encoder.contradiction(&other).is_some(), "control");
}

#[test]
fn a_config_may_say_what_a_model_becomes() {
    let (model, _) = fixture(LLAMA);
    let done = model.plan(scale(LawName::Yarn, fourfold())).unwrap();
    let done = done.apply().unwrap();
    let said = |law| done.contradiction(&with(LLAMA, json!({"rope_scaling": law})));
    assert_eq!(said(Value::Null), None);
    assert_eq!(said(yarn(4.0)), None);
    let want = "layer 0 is yarn × 8 in the config (rope_scaling) and plain RoPE in the graph";
    assert_eq!(said(yarn(8.0)).as_deref(), Some(want));
    // Without the rewrite, only what it is.
    assert!(
        model
            .contradiction(&with(LLAMA, json!({"rope_scaling": yarn(4.0)})))
            .is_some()
    );
}

#[test]
fn a_graph_of_one_length_may_hold_a_part_of_the_table() {
    let model = |sequence: &str| {
        let numbers = (0..128).map(|i| ((i * 7 + i / 5) % 11).to_string());
        let table = numbers.collect::<Vec<_>>().join(", ");
        let weights = "1, 2, 0, 1, 0, 1, 1, 0, 1, 0, 2, 1, 0, 1, 0, 1";
        let text = format!(
            "<ir_version: 8, opset_import: [\"\" : 17]>\n\
             g (int64[2,{sequence}] input_ids) => (float[2,{sequence},4] y)\n\
             <float[4,4] words = {{{weights}}}, float[4,4] w = {{{weights}}}, float[32,4] table = {{{table}}},\n\
             int64 zero = {{0}}, int64 one = {{1}}> {{\n\
             e = Gather(words, input_ids) shape = Shape(input_ids) n = Gather(shape, one)\n\
             r = Range(zero, n, one) rows = Gather(table, r) x = Add(e, rows)\n\
             q = MatMul(x, w) k1 = MatMul(x, w) k = Transpose <perm = [0, 2, 1]> (k1) s = MatMul(q, k)\n\
             p = Softmax <axis = -1> (s) y = MatMul(p, x)\n}}"
        );
        Model::from_bytes(posenc_ir::Model::parse(&text).unwrap().to_bytes().unwrap()).unwrap()
    };
    let said = json!({"n_positions": 64});
    assert_eq!(model("32").contradiction(&said), None);
    let want = "n_positions of the config is 64, and the table of the graph has 32 positions";
    let control = model("sequence").contradiction(&said);
    assert_eq!(control.as_deref(), Some(want));
}
