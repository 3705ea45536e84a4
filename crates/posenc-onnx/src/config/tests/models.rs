//! Configurations of other models, and layers that stay.

use posenc_encodings::laws::LawName;
use serde_json::{Value, json};

use super::{change_of, fixture, fourfold, scale, with};
use crate::request::{Layers, Parameters, Request};

const LLAMA: &str = "llama/torchscript";
const GEMMA: &str = "gemma3-text/dynamo";
const GPTJ: &str = "gptj/dynamo";
const NEOX: &str = "gpt_neox/dynamo";

/// Longer tables with the same frequencies.
fn longer() -> Request {
    Request {
        parameters: Parameters {
            max_length: Some(128),
            ..Parameters::default()
        },
        ..Request::default()
    }
}

/// Nothing but an order of the nodes.
fn sorted() -> Request {
    let mut request = Request::default();
    request.allowances.sort = true;
    request
}

fn linear(layers: Option<Layers>) -> Request {
    Request {
        layers,
        ..scale(LawName::Linear, fourfold())
    }
}

/// The config of a fixture without these keys.
fn without(name: &str, keys: &[&str]) -> Value {
    let (_, mut config) = fixture(name);
    let map = config.as_object_mut().unwrap();
    keys.iter().for_each(|key| drop(map.shift_remove(*key)));
    config
}

#[test]
fn the_config_of_another_model_is_refused() {
    let base = |key: &str| {
        format!(
            "layer 0 has the base 500000 in the config ({key}) and 10000 in the graph; is it that of this \
             model?"
        )
    };
    let widths = |own: &str, graph: &str| {
        format!(
            "layer 0 rotates {own} features of a head in the config and {graph} in the graph; is it that \
             of this model?"
        )
    };
    let half = json!({"head_dim": 8, "partial_rotary_factor": 1.0, "rotary_pct": 1.0});
    let law = json!({"rope_scaling": {"rope_type": "linear", "factor": 2.0}});
    let other = "layer 0 is linear × 2 in the config (rope_scaling) and plain RoPE in the graph; is it that of this \
         model?";
    let cases = [
        (
            LLAMA,
            linear(None),
            json!({"rope_theta": 5e5}),
            base("rope_theta"),
        ),
        (
            LLAMA,
            sorted(),
            json!({"rope_theta": 5e5}),
            base("rope_theta"),
        ),
        (LLAMA, sorted(), law.clone(), other.to_owned()),
        (
            GPTJ,
            longer(),
            json!({"rope_theta": 5e5}),
            base("rope_theta"),
        ),
        (GPTJ, longer(), law, other.to_owned()),
        (
            LLAMA,
            linear(None),
            json!({"head_dim": 32}),
            widths("32 of 32", "16 of 16"),
        ),
        (NEOX, linear(None), half, widths("8 of 8", "8 of 16")),
    ];
    for (name, request, changes, want) in cases {
        let why = change_of(name, request.clone(), &with(name, changes)).unwrap_err();
        assert_eq!(why, want);
        let (_, own) = fixture(name);
        assert!(change_of(name, request, &own).is_ok(), "control");
    }
}

#[test]
fn a_base_that_no_key_says_is_that_of_the_graph() {
    let config = without(GEMMA, &["rope_theta"]);
    let full = linear(Some(Layers::of([1])));
    let done = change_of(GEMMA, full, &config).unwrap();
    assert_eq!(done.value()["rope_theta"], 1e6);
    let stays = change_of(GEMMA, sorted(), &config).unwrap();
    assert!(stays.changes().is_empty());
}

#[test]
fn layers_that_stay_are_compared() {
    let full = || linear(Some(Layers::of([1])));
    let config = with(GEMMA, json!({"rope_local_base_freq": 2e4}));
    let why = change_of(GEMMA, full(), &config).unwrap_err();
    let want = "layer 0 has the base 20000 in the config (rope_local_base_freq) and 10000 in the graph; \
                is it that of this model?";
    assert_eq!(why, want);
    // One law for both, of which one layer stays.
    let kinds = [
        "rope_local_base_freq",
        "layer_types",
        "_sliding_window_pattern",
    ];
    let mut config = without(GEMMA, &kinds);
    config["rope_theta"] = json!(1e4);
    let why = change_of(GEMMA, full(), &config).unwrap_err();
    let want =
        "layers 0 and 1 rotate differently now, and the config has one rope_scaling for both";
    assert_eq!(why, want);
}

#[test]
fn rotations_that_are_not_read_are_a_warning_where_nothing_changes() {
    let mrope = json!({"rope_scaling": {"rope_type": "default", "mrope_section": [2, 3, 3]}});
    let done = change_of(LLAMA, sorted(), &with(LLAMA, mrope)).unwrap();
    assert!(done.changes().is_empty());
    let want =
        "the rotations of the config are not compared with the graph's: rope_scaling.mrope_section";
    assert!(
        done.warnings()[0].starts_with(want),
        "{:?}",
        done.warnings()
    );
}

#[test]
fn a_length_that_the_graph_does_not_have_is_a_warning() {
    for name in ["gpt2/dynamo", GPTJ] {
        for length in [64, 128] {
            let config = with(name, json!({"n_positions": length}));
            let done = change_of(name, sorted(), &config).unwrap();
            assert!(done.changes().is_empty());
            let want = format!("n_positions of the config is {length}, and the graph ends at 64");
            let want = [want].into_iter().filter(|_| length != 64);
            assert_eq!(done.warnings(), Vec::from_iter(want), "{name}");
        }
    }
    // Buffers may be longer than the config says, a table may not.
    let short = |name| change_of(name, sorted(), &with(name, json!({"n_positions": 32}))).unwrap();
    assert_eq!(short(GPTJ).warnings(), [""; 0]);
    let want = "n_positions of the config is 32, and the graph ends at 64";
    assert_eq!(short("gpt2/dynamo").warnings(), [want]);
}

#[test]
fn both_dicts_say_the_same_afterwards() {
    let linear = json!({"rope_type": "linear", "factor": 2.0});
    let yarn = || scale(LawName::Yarn, fourfold());
    let mut config = without(LLAMA, &["rope_theta"]);
    config["rope_scaling"] = linear.clone();
    config["rope_parameters"] = linear.clone();
    let done = change_of(LLAMA, yarn(), &config).unwrap();
    assert_eq!(done.value()["rope_scaling"]["rope_type"], "yarn");
    assert_eq!(
        done.value()["rope_scaling"],
        done.value()["rope_parameters"]
    );
    // A dict without keys says nothing.
    config["rope_scaling"] = json!({"type": "linear", "factor": 2.0});
    config["rope_parameters"] = json!({});
    let done = change_of(LLAMA, yarn(), &config).unwrap();
    assert_eq!(done.value()["rope_scaling"]["type"], "yarn");
    assert_eq!(done.value()["rope_parameters"], json!({}));
}

#[test]
fn every_key_of_the_base_is_written() {
    let request = Request {
        parameters: Parameters {
            theta: Some(5e5),
            ..Parameters::default()
        },
        ..Request::default()
    };
    let (_, config) = fixture(NEOX);
    let done = change_of(NEOX, request, &config).unwrap();
    let both = json!([10000, 500_000]);
    let want = json!({"rope_theta": both, "rotary_emb_base": both});
    assert_eq!(json!(done.changes()), want);
}

/// transformers 4.57 and 5 check the dict of Phi-3 by rules of its own.
#[test]
fn a_scaling_that_phi3_does_not_take_is_refused() {
    let config = with(LLAMA, json!({"model_type": "phi3"}));
    for law in [LawName::Linear, LawName::Yarn, LawName::Llama3] {
        let why = change_of(LLAMA, scale(law, fourfold()), &config).unwrap_err();
        let want = "transformers would refuse the config: that of phi3 takes no other rope_scaling than \
                    longrope with short_factor and long_factor";
        assert_eq!(why, want);
    }
    let longrope = |factor| {
        let mut parameters = super::rotations::lists();
        parameters.factor = Some(factor);
        change_of(LLAMA, scale(LawName::LongRope, parameters), &config)
    };
    let dict = longrope(4.0).unwrap().value()["rope_scaling"].clone();
    let keys: Vec<&String> = dict.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["type", "short_factor", "long_factor"]);
    assert!(change_of(LLAMA, scale(LawName::Ntk, fourfold()), &config).is_ok());
}

#[test]
fn the_length_of_an_encoder_alone_is_that_of_its_input() {
    let longer = |rows| {
        let parameters = Parameters {
            max_length: Some(rows),
            ..Parameters::default()
        };
        scale(LawName::Linear, parameters)
    };
    for (name, rows, key) in [
        ("mini-encoder/learned", 40, "max_source_positions"),
        ("gpt2/dynamo", 64, "max_target_positions"),
    ] {
        let config = json!({"max_source_positions": rows, "max_target_positions": rows});
        let done = change_of(name, longer(2 * rows), &config).unwrap();
        let mut want = json!({});
        want[key] = json!([rows, 2 * rows]);
        assert_eq!(json!(done.changes()), want, "{name}");
    }
}
