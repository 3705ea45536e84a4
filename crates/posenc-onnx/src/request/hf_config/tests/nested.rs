//! Configs of models with more parts than text.

use serde_json::json;

use super::{config, request};

#[test]
fn the_only_nested_config_with_rotations_is_read() {
    let scaled = json!({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}});
    for value in [
        json!({"llm_config": scaled, "vision_config": {"hidden_size": 8}}),
        json!({"thinker_config": {"text_config": scaled, "audio_config": scaled}}),
        json!({"text_config": scaled, "rope_theta": 1e6}),
    ] {
        assert_eq!(request(value.clone()).theta, 5e5, "{value}");
    }
    // Two, and one beside rotations of its own.
    let two = config(json!({"a": scaled, "b": scaled}));
    let why = two.says_nothing().unwrap();
    assert!(why.contains("(a, b)"), "{why}");
    // Those of pictures are not those of the language model.
    let seen = config(json!({"llm_config": {"n_layer": 2}, "vision_config": scaled}));
    assert!(seen.says_nothing().is_some());
    assert_eq!(request(json!({"a": scaled, "rope_theta": 1e6})).theta, 1e6);
}

#[test]
fn a_config_of_something_else_says_nothing() {
    for value in [
        json!({}),
        json!({"vocab_size": 8}),
        json!({"rope_scaling": null}),
    ] {
        assert!(config(value.clone()).says_nothing().is_some(), "{value}");
    }
    for value in [
        json!({"n_layer": 2}),
        json!({"rope_theta": 1e4}),
        json!({"alibi": false}),
    ] {
        assert!(config(value.clone()).says_nothing().is_none(), "{value}");
    }
}
