//! Laws of RoPE, written and read back.

use posenc_encodings::laws::LawName;
use posenc_encodings::param::{Given, Value as Param};
use serde_json::{Value, json};

use super::{change, change_of, fixture, fourfold, scale, with};
use crate::request::hf_config::HfConfig;
use crate::request::{Config, Layers, Parameters, Request, ScaleType};

const LLAMA: &str = "llama/torchscript";
const GEMMA: &str = "gemma3-text/dynamo";

pub(super) fn lists() -> Parameters {
    let list = |from: f64| (0..8).map(|i| from + f64::from(i) * 0.125).collect();
    Parameters {
        law: Given::from_iter([
            ("short-factor", Param::Numbers(list(1.0))),
            ("long-factor", Param::Numbers(list(2.0))),
        ]),
        theta: Some(1e4),
        ..fourfold()
    }
}

#[test]
fn yarn_is_written_as_transformers_reads_it() {
    let done = change(LLAMA, scale(LawName::Yarn, fourfold())).unwrap();
    let law = json!({
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64
    });
    let want = json!({"max_position_embeddings": [64, 256], "rope_scaling": [null, law]});
    assert_eq!(json!(done.changes()), want);
    assert_eq!(done.warnings(), [""; 0]);
    // Everything else stays, in its order.
    let (_, mut config) = fixture(LLAMA);
    let keys = |config: &Value| Vec::from_iter(config.as_object().unwrap().keys().cloned());
    assert_eq!(keys(done.value()), keys(&config));
    config["max_position_embeddings"] = json!(256);
    config["rope_scaling"] = law;
    assert_eq!(done.value(), &config);
    assert!(
        done.to_text()
            .starts_with("{\n  \"architectures\": [\n    \"Llama")
    );
    assert!(done.to_text().ends_with("\"vocab_size\": 99\n}\n"));
}

#[test]
fn every_law_is_written_with_its_own_keys() {
    let base = |factor: f64| 1e4 * factor.powf(16.0 / 14.0);
    let lengths = json!([64, 256]);
    let alpha = Parameters {
        law: Given::from_iter([("alpha", Param::Number(8.0))]),
        ..Parameters::default()
    };
    let list = |key| lists().law.numbers(key).unwrap().to_vec();
    let short_and_long = json!({
        "rope_type": "longrope", "short_factor": list("short-factor"), "long_factor": list("long-factor")
    });
    let cases = [
        (
            LawName::Linear,
            fourfold(),
            json!({"max_position_embeddings": lengths,
                   "rope_scaling": [null, {"rope_type": "linear", "factor": 4.0}]}),
        ),
        (
            LawName::Llama3,
            fourfold(),
            json!({"max_position_embeddings": lengths,
                   "rope_scaling": [null, {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                                           "high_freq_factor": 4.0, "original_max_position_embeddings": 64}]}),
        ),
        // transformers has no law of that name, and the numbers are those of another base.
        (
            LawName::Ntk,
            fourfold(),
            json!({"max_position_embeddings": lengths, "rope_theta": [1e4, base(4.0)]}),
        ),
        (
            LawName::Alpha,
            alpha,
            json!({"rope_theta": [1e4, base(8.0)]}),
        ),
        // The length is the one from which it grows.
        (
            LawName::Dynamic,
            fourfold(),
            json!({"rope_scaling": [null, {"rope_type": "dynamic", "factor": 4.0}]}),
        ),
        (
            LawName::LongRope,
            lists(),
            json!({"max_position_embeddings": lengths, "rope_scaling": [null, short_and_long],
                   "original_max_position_embeddings": [null, 64]}),
        ),
    ];
    for (law, parameters, want) in cases {
        let done = change(LLAMA, scale(law, parameters)).unwrap();
        assert_eq!(json!(done.changes()), want, "{law:?}");
        let is_dynamic = law == LawName::Dynamic;
        assert_eq!(done.warnings().len(), usize::from(is_dynamic), "{law:?}");
        let again = HfConfig::from_value(done.value().clone()).unwrap();
        assert!(again.rope_for(0).unwrap().is_some(), "{law:?}");
    }
}

/// The length is written where that of the config is another.
#[test]
fn the_length_from_which_dynamic_scaling_grows_is_named() {
    for length in [64, 256] {
        let config = with(LLAMA, json!({"max_position_embeddings": length}));
        let done = change_of(LLAMA, scale(LawName::Dynamic, fourfold()), &config).unwrap();
        assert_eq!(done.value()["max_position_embeddings"], 64);
        let want = "max_position_embeddings of the config is 64, from where transformers lets the base of \
                    dynamic scaling grow; no key says how much longer sequences may be";
        assert_eq!(done.warnings(), [want]);
    }
}

#[test]
fn parameters_that_are_not_usual_are_written() {
    let law = Given::from_iter([
        ("beta-fast", Param::Number(16.0)),
        ("attention-factor", Param::Number(1.25)),
        ("no-truncate", Param::Bool(true)),
    ]);
    let parameters = Parameters { law, ..fourfold() };
    let done = change(LLAMA, scale(LawName::Yarn, parameters)).unwrap();
    let want = json!({
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16.0,
        "attention_factor": 1.25, "truncate": false
    });
    assert_eq!(done.value()["rope_scaling"], want);
}

#[test]
fn plain_rope_has_no_dict_and_the_original_length() {
    let mut request = scale(ScaleType::None, Parameters::default());
    request.allowances.allow_rescale = true;
    let config = with(
        "llama-yarn/torchscript",
        json!({"max_position_embeddings": 256}),
    );
    let done = change_of("llama-yarn/torchscript", request, &config).unwrap();
    let old = &config["rope_scaling"];
    let want = json!({"max_position_embeddings": [256, 64], "rope_scaling": [old, null]});
    assert_eq!(json!(done.changes()), want);
}

#[test]
fn another_base_is_written_where_it_is_read() {
    let theta = |theta| Request {
        parameters: Parameters {
            theta: Some(theta),
            ..Parameters::default()
        },
        ..Request::default()
    };
    let done = change(LLAMA, theta(5e5)).unwrap();
    assert_eq!(json!(done.changes()), json!({"rope_theta": [1e4, 5e5]}));
    let config = with(
        LLAMA,
        json!({"rope_parameters": {"rope_theta": 10000, "rope_type": "default"}}),
    );
    let done = change_of(LLAMA, theta(5e5), &config).unwrap();
    let want = json!({
        "rope_theta": [1e4, 5e5], "rope_parameters.rope_theta": [10000, 500_000]
    });
    assert_eq!(json!(done.changes()), want);
    let mut config = with(LLAMA, json!({"rotary_emb_base": 10000}));
    config.as_object_mut().unwrap().shift_remove("rope_theta");
    let done = change_of(LLAMA, theta(5e5), &config).unwrap();
    assert_eq!(
        json!(done.changes()),
        json!({"rotary_emb_base": [10000, 500_000]})
    );
    config
        .as_object_mut()
        .unwrap()
        .shift_remove("rotary_emb_base");
    let done = change_of(LLAMA, theta(5e5), &config).unwrap();
    assert_eq!(json!(done.changes()), json!({"rope_theta": [null, 5e5]}));
}

#[test]
fn spellings_stay() {
    let yarn = || scale(LawName::Yarn, fourfold());
    let parameters = json!({"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}});
    let mut config = with(LLAMA, parameters);
    for key in ["rope_scaling", "rope_theta"] {
        config.as_object_mut().unwrap().shift_remove(key);
    }
    let done = change_of(LLAMA, yarn(), &config).unwrap();
    let want = json!({
        "rope_theta": 10000.0, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64
    });
    assert_eq!(done.value()["rope_parameters"], want);
    assert_eq!(done.value().get("rope_scaling"), None);
    let mut back = scale(ScaleType::None, Parameters::default());
    back.allowances.allow_rescale = true;
    let done = change_of("llama-yarn/torchscript", back, done.value()).unwrap();
    assert_eq!(done.value(), &config);
    // Older configs say `type`.
    let config = with(
        LLAMA,
        json!({"rope_scaling": {"type": "linear", "factor": 2}}),
    );
    let done = change_of(LLAMA, yarn(), &config).unwrap();
    let want = json!({
        "rope_scaling.type": ["linear", "yarn"], "rope_scaling.factor": [2, 4],
        "rope_scaling.original_max_position_embeddings": [null, 64],
        "max_position_embeddings": [64, 256]
    });
    assert_eq!(json!(done.changes()), want);
}

#[test]
fn the_inner_config_of_the_text_is_edited() {
    let (_, text) = fixture(LLAMA);
    let config = json!({"model_type": "llava", "text_config": text, "rope_theta": 3.0});
    let done = change_of(LLAMA, scale(LawName::Linear, fourfold()), &config).unwrap();
    let want = json!({
        "text_config.max_position_embeddings": [64, 256],
        "text_config.rope_scaling": [null, {"rope_type": "linear", "factor": 4.0}]
    });
    assert_eq!(json!(done.changes()), want);
}

#[test]
fn a_config_that_says_so_already_stays() {
    let done = change("llama-yarn/torchscript", scale(LawName::Yarn, fourfold())).unwrap();
    // Only its length does not match.
    let want = json!({"max_position_embeddings": [64, 256]});
    assert_eq!(json!(done.changes()), want);
    let config = done.value().clone();
    let done = change_of(
        "llama-yarn/torchscript",
        scale(LawName::Yarn, fourfold()),
        &config,
    );
    let done = done.unwrap();
    assert!(done.changes().is_empty());
    assert_eq!(done.warnings(), [""; 0]);
}

#[test]
fn the_law_of_a_config_is_followed() {
    let text = r#"{"rope_theta": 500000.0, "max_position_embeddings": 512, "head_dim": 16,
                   "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                    "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}"#;
    let request = Request {
        hf_config: Some(Config::from_text("new.json", text)),
        ..Request::default()
    };
    let done = change(LLAMA, request).unwrap();
    let new: Value = serde_json::from_str(text).unwrap();
    for key in ["rope_theta", "max_position_embeddings", "rope_scaling"] {
        assert_eq!(done.value()[key], new[key], "{key}");
    }
}

#[test]
fn layers_of_one_kind_are_scaled_where_the_config_tells_kinds_apart() {
    let full = |parameters| Request {
        layers: Some(Layers::of([1])),
        ..scale(LawName::Linear, parameters)
    };
    let done = change(GEMMA, full(fourfold())).unwrap();
    let law = json!({"rope_type": "linear", "factor": 4.0});
    assert_eq!(done.value()["rope_scaling"], law);
    assert_eq!(done.value()["rope_local_base_freq"], 10000.0);
    let mut config = with(
        GEMMA,
        json!({"rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
    );
    for key in ["rope_scaling", "rope_theta", "rope_local_base_freq"] {
        config.as_object_mut().unwrap().shift_remove(key);
    }
    let done = change_of(GEMMA, full(fourfold()), &config).unwrap();
    let want = json!({
        "max_position_embeddings": [64, 256],
        "rope_parameters.full_attention.rope_type": ["default", "linear"],
        "rope_parameters.full_attention.factor": [null, 4.0]
    });
    assert_eq!(json!(done.changes()), want);
    // Both kinds, each with its own dict.
    let done = change_of(GEMMA, scale(LawName::Linear, fourfold()), &config).unwrap();
    for (kind, theta) in [("full_attention", 1e6), ("sliding_attention", 1e4)] {
        let want = json!({"rope_type": "linear", "rope_theta": theta, "factor": 4.0});
        assert_eq!(done.value()["rope_parameters"][kind], want);
    }
}
