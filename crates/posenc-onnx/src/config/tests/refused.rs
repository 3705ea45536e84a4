//! Configurations that cannot say what was done.

use posenc_encodings::kind::Kind;
use posenc_encodings::laws::LawName;
use serde_json::json;

use super::{change, change_of, fixture, fourfold, scale, with};
use crate::error::RefusalKind;
use crate::request::Request;

const LLAMA: &str = "llama/torchscript";
const GEMMA: &str = "gemma3-text/dynamo";

#[test]
fn a_config_that_does_not_fit_the_model_is_refused() {
    let refused = |changes| {
        let config = with(LLAMA, changes);
        change_of(LLAMA, scale(LawName::Yarn, fourfold()), &config).unwrap_err()
    };
    for (changes, want) in [
        (json!({"head_dim": 32}), "is it that of this model?"),
        (
            json!({"partial_rotary_factor": 0.5}),
            "is it that of this model?",
        ),
        (
            json!({"no_rope_layers": [1, 0]}),
            "layer 1 rotates in the model and not in the config",
        ),
        (
            json!({"rope_theta": "large"}),
            "rope_theta must be a number",
        ),
        (
            json!({"max_position_embeddings": "64"}),
            "max_position_embeddings must be a whole number",
        ),
        (
            json!({"rope_scaling": {"rope_type": "yran", "factor": 2}}),
            "must be one of",
        ),
        (
            json!({"rope_scaling": {"rope_type": "default", "mrope_section": [2, 3, 3]}}),
            "multimodal positions",
        ),
        (
            json!({"rope_scaling": {"rope_type": "linear", "factor": 2.0},
                   "rope_parameters": {"rope_type": "linear", "factor": 3.0}}),
            "contradict each other",
        ),
        (
            json!({"layer_types": ["full_attention"]}),
            "none for layer 1",
        ),
    ] {
        let why = refused(changes);
        assert!(why.contains(want), "{why}");
    }
}

/// Transformers multiplies scores of latent attention by a number that the graph does not have.
#[test]
fn a_config_whose_scores_have_another_factor_is_refused() {
    let config = with(LLAMA, json!({"kv_lora_rank": 8}));
    let mut parameters = fourfold();
    let law = [("mscale", 1.0), ("mscale-all-dim", 1.0)];
    let number = |(name, value)| (name, posenc_encodings::param::Value::Number(value));
    parameters.law = law.map(number).into_iter().collect();
    let yarn = scale(LawName::Yarn, parameters);
    let why = change_of(LLAMA, yarn.clone(), &config).unwrap_err();
    assert!(
        why.contains("would be read as another rotation at layer 0"),
        "{why}"
    );
    assert!(change(LLAMA, yarn).is_ok(), "control");
}

#[test]
fn layers_that_differ_have_no_place_in_a_config_with_one_law() {
    let mut config = with(GEMMA, json!({"rope_theta": 1e4}));
    for key in [
        "rope_local_base_freq",
        "layer_types",
        "_sliding_window_pattern",
    ] {
        config.as_object_mut().unwrap().shift_remove(key);
    }
    let linear = || scale(LawName::Linear, fourfold());
    let why = change_of(GEMMA, linear(), &config).unwrap_err();
    let want =
        "layers 0 and 1 rotate differently now, and the config has one rope_scaling for both";
    assert_eq!(why, want);
    // Layers with a window have a base of their own there, and nothing else.
    let why = change(GEMMA, linear()).unwrap_err();
    assert!(
        why.contains("a base of its own in the config (rope_local_base_freq)"),
        "{why}"
    );
}

#[test]
fn another_encoding_is_refused_before_and_after() {
    let request = Request {
        to: Some(Kind::Alibi),
        ..Request::default()
    };
    let why = change(LLAMA, request.clone()).unwrap_err();
    assert_eq!(why, "a config has no key for another encoding");
    let mut asked = request;
    asked.allowances.write_config = true;
    let (model, config) = fixture(LLAMA);
    let error = model.plan(asked.clone()).unwrap_err();
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.kind(), &RefusalKind::NoEffect("write-config"));
    // A model that has it already is not changed.
    let (bloom, _) = fixture("bloom/dynamo");
    let done = bloom.plan(asked).unwrap().apply().unwrap();
    assert!(done.config(&config).unwrap().changes().is_empty());
}

#[test]
fn json_that_is_no_object_is_refused() {
    for wrong in [json!([]), json!("config"), json!(null), json!([{}])] {
        let why = change_of(LLAMA, scale(LawName::Yarn, fourfold()), &wrong).unwrap_err();
        assert_eq!(why, "the config must be a JSON object");
    }
}
