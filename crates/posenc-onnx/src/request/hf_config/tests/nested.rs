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
fn a_part_beside_another_model_is_not_taken_for_the_language_model() {
    let plain = json!({"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 64});
    let with = |more: serde_json::Value| {
        let mut all = plain.clone();
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        all
    };
    let turned = with(json!({"rope_theta": 5e5}));
    let cases = [
        (
            with(json!({"draft_config": turned})),
            "draft_config has rotations, and the config around it describes a model without them",
        ),
        (
            json!({"num_hidden_layers": 40, "encoder": turned}),
            "encoder has rotations, and the config around it describes",
        ),
        (
            json!({"llm_config": plain, "vit_config": turned}),
            "vit_config has rotations, and llm_config describes",
        ),
        (
            json!({"llm_config": with(json!({"alibi": true})), "vit_config": turned}),
            "vit_config has rotations, and llm_config describes",
        ),
        (
            json!({"hidden_size": 64, "llm_config": {"hidden_size": 64}, "other": turned}),
            "other has rotations, and llm_config describes",
        ),
        (
            json!({"outer": with(json!({"inner": turned}))}),
            "inner has rotations, and outer describes",
        ),
        (
            json!({"text_config": {}, "rope_theta": 5e5}),
            "its text_config has no key of rotations, and rope_theta is around it",
        ),
        (
            json!({"text_config": plain, "rope_scaling": {"type": "linear", "factor": 8.0}}),
            "and rope_scaling is around it",
        ),
    ];
    for (value, want) in cases {
        let config = config(value.clone());
        let why = config.says_nothing().unwrap();
        assert!(
            why.starts_with(want) || why.contains(want),
            "{value}: {why}"
        );
        assert!(
            why.ends_with("give the config of the language model alone"),
            "{why}"
        );
        assert_eq!(config.doubt(), Some(&*why));
    }
    let seen = with(json!({"image_size": 224, "patch_size": 14}));
    for value in [
        json!({"llm_config": turned, "vision_config": plain, "projector": {"depth": 2}}),
        // Known by its keys, and a width that is copied from a part.
        json!({"llm_config": turned, "vit_config": seen}),
        json!({"hidden_size": 64, "llm_config": turned}),
        json!({"text_config": turned, "vit_config": plain, "rope_theta": 1e6}),
    ] {
        let config = config(value.clone());
        assert_eq!(config.says_nothing(), None, "{value}");
        assert_eq!(config.rope_for(0).unwrap().unwrap().theta, 5e5, "{value}");
    }
    let plain = config(json!({"text_config": plain}));
    assert_eq!(plain.says_nothing(), None);
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
