//! Configs that cannot be applied, with their messages.

use serde_json::{Value, json};

use super::{ONES, config, scaled};
use crate::request::hf_config::{HfConfig, HfConfigError};

fn error(value: Value) -> String {
    config(value).rope_for(0).unwrap_err().to_string()
}

#[test]
fn what_cannot_be_applied_is_refused_by_name() {
    let yarn = |key: &str, value: Value| {
        let mut dict =
            json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64});
        dict[key] = value;
        scaled(dict)
    };
    let cases = [
        (
            "unknown key",
            scaled(json!({"rope_type": "linear", "factor": 4.0, "fctor": 2.0})),
            "rope_scaling.fctor is not a key of linear scaling, which knows factor, rope_type, type, rope_theta, partial_rotary_factor",
        ),
        (
            "a key of another type",
            scaled(json!({"rope_type": "linear", "factor": 4.0, "beta_fast": 2.0})),
            "rope_scaling.beta_fast is not a key of linear scaling, which knows factor, rope_type, type, rope_theta, partial_rotary_factor",
        ),
        (
            "unknown type",
            scaled(json!({"rope_type": "warp", "factor": 4.0})),
            "rope_scaling.rope_type must be one of default, linear, ntk, dynamic, yarn, longrope, su, llama3, proportional, alpha, got warp",
        ),
        (
            "an impossible alpha",
            scaled(json!({"rope_type": "dynamic", "factor": 4.0, "alpha": 0.5})),
            "the config's rotary embedding is impossible: alpha must be a finite number of at least 1, got 0.5",
        ),
        (
            "no type",
            scaled(json!({"factor": 4.0})),
            "a scaling needs rope_scaling.rope_type, which is missing",
        ),
        (
            "no factor",
            scaled(json!({"rope_type": "yarn"})),
            "yarn scaling needs rope_scaling.factor, which is missing",
        ),
        (
            "no factor",
            scaled(json!({"rope_type": "linear"})),
            "linear scaling needs rope_scaling.factor, which is missing",
        ),
        (
            "no ratio",
            scaled(json!({"rope_type": "longrope", "short_factor": ONES, "long_factor": ONES})),
            "longrope scaling needs rope_scaling.factor, which is missing",
        ),
        (
            "no length",
            json!({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}),
            "yarn scaling needs rope_scaling.original_max_position_embeddings, which is missing",
        ),
        (
            "no length",
            json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
            "dynamic scaling needs max_position_embeddings, which is missing",
        ),
        (
            "two original lengths",
            json!({"original_max_position_embeddings": 32, "rope_scaling":
                {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}}),
            "rope_scaling.original_max_position_embeddings and original_max_position_embeddings contradict each \
             other, keep one",
        ),
        (
            "half of llama3",
            scaled(
                json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 64}),
            ),
            "llama3 scaling needs rope_scaling.high_freq_factor, which is missing",
        ),
        (
            "factor below one",
            scaled(json!({"rope_type": "linear", "factor": 0.5})),
            "the config's rotary embedding is impossible: factor must be a finite number of at least 1, got 0.5",
        ),
        (
            "words for numbers",
            yarn("factor", json!("4")),
            "rope_scaling.factor must be a number, got \"4\"",
        ),
        (
            "betas",
            yarn("beta_fast", json!(0.5)),
            "the config's rotary embedding is impossible: beta_fast must be at least beta_slow, got 0.5 and 1",
        ),
        (
            "short list",
            scaled(
                json!({"rope_type": "longrope", "factor": 4.0, "short_factor": [1, 2], "long_factor": ONES}),
            ),
            "the config's rotary embedding is impossible: short_factor must have one entry per rotated pair (8), got 2",
        ),
        (
            "two factors",
            scaled(
                json!({"rope_type": "longrope", "attention_factor": 1.0, "long_mscale": 1.0, "short_factor": ONES, "long_factor": ONES}),
            ),
            "rope_scaling.attention_factor and rope_scaling.long_mscale contradict each other, keep one",
        ),
        (
            "two dicts",
            json!({"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"type": "linear", "factor": 4}}),
            "rope_scaling and rope_parameters contradict each other, keep one",
        ),
        (
            "two types",
            scaled(json!({"type": "linear", "rope_type": "yarn", "factor": 4.0})),
            "rope_scaling.type and rope_scaling.rope_type contradict each other, keep one",
        ),
        (
            "a type that nobody knows",
            scaled(json!({"type": "warp", "rope_type": "linear", "factor": 4.0})),
            "rope_scaling.type and rope_scaling.rope_type contradict each other, keep one",
        ),
        (
            "a share and a width",
            json!({"head_dim": 16, "partial_rotary_factor": 0.5, "rotary_dim": 4}),
            "partial_rotary_factor and rotary_dim contradict each other, keep one",
        ),
        (
            "mrope",
            scaled(json!({"type": "mrope", "mrope_section": [2, 3, 3]})),
            "rope_scaling.mrope_section means multimodal positions (mRoPE), which is not supported yet",
        ),
        (
            "mrope as default",
            scaled(json!({"rope_type": "default", "mrope_section": [2, 3, 3]})),
            "rope_scaling.mrope_section means multimodal positions (mRoPE), which is not supported yet",
        ),
        (
            "queries by position",
            yarn("llama_4_scaling_beta", json!(0.1)),
            "rope_scaling.llama_4_scaling_beta means queries scaled by position, which is not supported yet",
        ),
        (
            "a list for a dict",
            scaled(json!([1])),
            "rope_scaling must be an object, got [1]",
        ),
        (
            "odd width",
            json!({"head_dim": 10, "partial_rotary_factor": 0.5}),
            "the config's rotary embedding is impossible: rotary width must be even, above 0 and at most the head size 10, got 5",
        ),
        (
            "share",
            json!({"head_dim": 16, "rotary_pct": 2.0}),
            "the config's rotary embedding is impossible: partial_rotary_factor must be between 0 and 1, got 2",
        ),
        (
            "zero heads",
            json!({"hidden_size": 64, "num_attention_heads": 0, "rope_theta": "x"}),
            "rope_theta must be a number, got \"x\"",
        ),
        (
            "layer list",
            json!({"no_rope_layers": [2]}),
            "no_rope_layers must be a list of 0 and 1, got 2",
        ),
    ];
    for (name, value, want) in cases {
        assert_eq!(error(value), want, "{name}");
    }
    assert_eq!(
        HfConfig::parse("[]").unwrap_err(),
        HfConfigError::NotAnObject
    );
    assert!(matches!(HfConfig::parse("{"), Err(HfConfigError::Json(_))));
}

#[test]
fn what_is_said_twice_and_alike_is_read() {
    let both = |types: [&str; 2]| json!({"type": types[0], "rope_type": types[1], "factor": 4.0});
    let twice = json!({"short_factor": ONES, "long_factor": ONES, "type": "su", "rope_type": "longrope", "factor": 4.0});
    for value in [
        scaled(both(["linear", "linear"])),
        scaled(twice),
        json!({"rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e6}}),
        json!({"head_dim": 16, "partial_rotary_factor": 0.5, "rotary_dim": 8}),
        // Only the graph has the width of a head.
        json!({"partial_rotary_factor": 0.5, "rotary_dim": 4}),
    ] {
        let read = config(value.clone()).rope_for(0);
        assert!(read.is_ok(), "{value}: {read:?}");
    }
    // The base of another type of layer is no contradiction.
    let layers = json!({"rope_theta": 1e6, "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {"sliding_attention": {"rope_theta": 1e4}, "full_attention": {"rope_theta": 1e6}}});
    let layers = config(layers);
    assert_eq!(layers.rope_for(0).unwrap().unwrap().theta, 1e4);
    assert_eq!(layers.rope_for(1).unwrap().unwrap().theta, 1e6);
}
