//! Rules of transformers 4.57, key by key.

#[path = "../../../../posenc-encodings/src/laws/golden.rs"]
mod golden;
mod lengths;
mod nested;
mod refusals;

use serde_json::{Value, json};

use super::*;
use posenc_encodings::laws::{
    Alpha, Dynamic, Linear, Llama3, LongRope, LongRopeAttention, Ntk, Proportional, RampBounds,
    Yarn,
};

const ONES: [u32; 8] = [1; 8];
const TWOS: [f64; 8] = [2.0; 8];

fn config(value: Value) -> HfConfig {
    HfConfig::from_value(value).unwrap()
}

fn request(value: Value) -> RopeRequest {
    config(value).rope_for(0).unwrap().unwrap()
}

fn scaled(dict: Value) -> Value {
    json!({"head_dim": 16, "max_position_embeddings": 256, "rope_scaling": dict})
}

#[test]
fn configs_of_the_golden_vectors_give_hugging_face_bits() {
    for case in golden::cases() {
        let request = request(case.config.clone());
        assert_eq!(request.scaling, case.scaling, "{}", case.name);
        assert_eq!(request.rope(2, 2).unwrap(), case.rope, "{}", case.name);
        for run in &case.runs {
            let got = request.scaling.frequencies_hf(&case.rope, run.length);
            assert_eq!(
                got.inv_freq, run.inv_freq,
                "{} at {}",
                case.name, run.length
            );
            assert_eq!(got.attention_factor, run.attention_factor, "{}", case.name);
        }
    }
}

#[test]
fn another_theta_in_the_config_gives_other_bits() {
    let case = golden::cases()
        .into_iter()
        .find(|case| case.name == "llama yarn")
        .unwrap();
    let mut wrong = case.config.clone();
    wrong["rope_theta"] = json!(10_001.0);
    let request = request(wrong);
    let rope = request.rope(2, 2).unwrap();
    let got = request.scaling.frequencies_hf(&rope, 20);
    assert_ne!(got.inv_freq, case.runs[0].inv_freq);
}

#[test]
fn every_scaling_dict_is_read_by_its_rules() {
    let yarn = Yarn::new(4.0, 64).unwrap();
    let lists = |original_length, attention| {
        let (short_factor, long_factor) = (vec![1.0; 8], vec![2.0; 8]);
        Scaling::LongRope(LongRope {
            short_factor,
            long_factor,
            original_length,
            attention,
        })
    };

    let cases = [
        ("null", Value::Null, Scaling::None),
        ("empty", json!({}), Scaling::None),
        ("default", json!({"rope_type": "default"}), Scaling::None),
        (
            "default left out",
            json!({"rope_theta": 5e5}),
            Scaling::None,
        ),
        (
            "an integer factor",
            json!({"type": "linear", "factor": 4}),
            Scaling::Linear(Linear { factor: 4.0 }),
        ),
        (
            "both names",
            json!({"type": "linear", "rope_type": "linear", "factor": 4}),
            Scaling::Linear(Linear { factor: 4.0 }),
        ),
        (
            "ntk",
            json!({"type": "ntk", "factor": 4}),
            Scaling::Ntk(Ntk { factor: 4.0 }),
        ),
        (
            "dynamic scales from the model's length",
            json!({"type": "dynamic", "factor": 2, "original_max_position_embeddings": 64}),
            Scaling::Dynamic(Dynamic {
                factor: 2.0,
                max_position: 256,
            }),
        ),
        (
            "alpha is fixed",
            json!({"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}),
            Scaling::Alpha(Alpha { alpha: 1000.0 }),
        ),
        (
            "dynamic with an alpha of 0, which counts as absent",
            json!({"type": "dynamic", "factor": 2, "alpha": 0.0}),
            Scaling::Dynamic(Dynamic {
                factor: 2.0,
                max_position: 256,
            }),
        ),
        (
            "yarn",
            json!({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 64}),
            Scaling::Yarn(yarn),
        ),
        (
            "yarn from the model's length",
            json!({"rope_type": "yarn", "factor": 4.0}),
            Scaling::Yarn(Yarn {
                original_length: 256,
                ..yarn
            }),
        ),
        (
            "yarn in full",
            json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 8, "beta_slow": 2,
            "attention_factor": 1.25, "mscale": 0.7, "mscale_all_dim": 0.7, "truncate": false}),
            Scaling::Yarn(Yarn {
                beta_fast: 8.0,
                beta_slow: 2.0,
                bounds: RampBounds::Exact,
                attention_factor: Some(1.25),
                mscale: Some(0.7),
                mscale_all_dim: Some(0.7),
                ..yarn
            }),
        ),
        (
            "yarn with nulls and zeros",
            json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 0, "beta_slow": null, "attention_factor": null, "truncate": null}),
            Scaling::Yarn(yarn),
        ),
        (
            "llama3",
            json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}),
            Scaling::Llama3(Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_length: 64,
            }),
        ),
        (
            "longrope without a length",
            json!({"type": "longrope", "short_factor": ONES, "long_factor": TWOS, "factor": 4.0}),
            lists(256, LongRopeAttention::Extension(4.0)),
        ),
        (
            "longrope with a length inside",
            json!({"type": "longrope", "short_factor": ONES, "long_factor": TWOS, "original_max_position_embeddings": 64}),
            lists(64, LongRopeAttention::Extension(4.0)),
        ),
        (
            "su",
            json!({"type": "su", "short_factor": ONES, "long_factor": TWOS, "factor": 4.0}),
            lists(256, LongRopeAttention::Extension(4.0)),
        ),
        (
            "yarn with lists",
            json!({"type": "yarn", "short_factor": ONES, "long_factor": TWOS, "factor": 4.0}),
            lists(256, LongRopeAttention::Extension(4.0)),
        ),
        (
            "longrope with a factor given",
            json!({"type": "longrope", "short_factor": ONES, "long_factor": TWOS, "attention_factor": 1.3}),
            lists(256, LongRopeAttention::Explicit(1.3)),
        ),
        (
            "longrope that switches its factor",
            json!({"type": "longrope", "short_factor": ONES, "long_factor": TWOS, "short_mscale": 1.1, "long_mscale": 1.2}),
            lists(
                256,
                LongRopeAttention::Switched {
                    short: 1.1,
                    long: 1.2,
                },
            ),
        ),
        (
            "proportional",
            json!({"rope_type": "proportional", "partial_rotary_factor": 0.25}),
            Scaling::Proportional(Proportional {
                share: 0.25,
                factor: 1.0,
            }),
        ),
    ];
    for (name, dict, want) in cases {
        assert_eq!(request(scaled(dict.clone())).scaling, want, "{name}");
        // The spelling of version 5.
        let mut other = scaled(Value::Null);
        other["rope_parameters"] = dict;
        assert_eq!(request(other).scaling, want, "{name} as rope_parameters");
    }
}

#[test]
fn the_base_is_read_from_the_first_key_that_has_it() {
    let cases = [
        ("none", json!({}), 10_000.0),
        ("rope_theta", json!({"rope_theta": 500_000}), 5e5),
        (
            "rope_theta wins",
            json!({"rope_theta": 1e6, "rotary_emb_base": 1e4}),
            1e6,
        ),
        (
            "rotary_emb_base",
            json!({"rotary_emb_base": 25_000}),
            25_000.0,
        ),
        (
            "inside wins",
            json!({"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
            1e6,
        ),
        (
            "nested text_config",
            json!({"rope_theta": 1.0, "text_config": {"rope_theta": 2e6}}),
            2e6,
        ),
    ];
    for (name, value, want) in cases {
        assert_eq!(request(value).theta, want, "{name}");
    }
}

#[test]
fn the_rotary_width_is_read_from_the_first_key_that_has_it() {
    let cases = [
        ("nothing", json!({}), None, None),
        (
            "computed head",
            json!({"hidden_size": 64, "num_attention_heads": 4}),
            Some(16),
            Some(16),
        ),
        (
            "head_dim wins",
            json!({"hidden_size": 64, "num_attention_heads": 4, "head_dim": 32}),
            Some(32),
            Some(32),
        ),
        (
            "null head_dim",
            json!({"hidden_size": 64, "num_attention_heads": 4, "head_dim": null}),
            Some(16),
            Some(16),
        ),
        (
            "partial",
            json!({"head_dim": 80, "partial_rotary_factor": 0.4}),
            Some(32),
            Some(80),
        ),
        (
            "rotary_pct",
            json!({"head_dim": 16, "rotary_pct": 0.5}),
            Some(8),
            Some(16),
        ),
        (
            "partial inside",
            json!({"head_dim": 16, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}}),
            Some(4),
            Some(16),
        ),
        (
            "rotary_dim",
            json!({"n_embd": 64, "n_head": 4, "rotary_dim": 8}),
            Some(8),
            Some(16),
        ),
        (
            "latent attention",
            json!({"hidden_size": 64, "num_attention_heads": 4, "head_dim": 32, "qk_rope_head_dim": 8}),
            Some(8),
            Some(8),
        ),
        (
            "proportional spans the head",
            json!({"head_dim": 16, "rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.25}}),
            Some(16),
            Some(16),
        ),
    ];
    for (name, value, rotary, head) in cases {
        let request = request(value);
        assert_eq!(
            (request.rotary_dim, request.head_dim),
            (rotary, head),
            "{name}"
        );
    }
}

#[test]
fn sliding_layers_with_a_base_of_their_own_are_not_scaled() {
    let gemma = |more: Value| {
        let mut value = json!({"num_hidden_layers": 12, "head_dim": 16, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0}});
        value
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        config(value)
    };
    let cases = [
        ("pattern left out", gemma(json!({})), 5),
        ("pattern", gemma(json!({"sliding_window_pattern": 3})), 2),
        (
            "types win",
            gemma(
                json!({"sliding_window_pattern": 3, "layer_types": ["full_attention", "sliding_attention"]}),
            ),
            0,
        ),
    ];
    for (name, config, full) in cases {
        for layer in 0..2.max(full + 1) {
            let request = config.rope_for(layer).unwrap().unwrap();
            let want = if layer == full {
                let linear = Scaling::Linear(Linear { factor: 8.0 });
                (LayerKind::Full, 1e6, linear)
            } else {
                (LayerKind::Sliding, 1e4, Scaling::None)
            };
            assert_eq!(
                (request.kind, request.theta, request.scaling),
                want,
                "{name} layer {layer}"
            );
        }
    }
}

#[test]
fn dicts_per_layer_type_apply_to_their_layers() {
    let config = config(json!({
        "head_dim": 16, "layer_types": ["sliding_attention", "full_attention", "chunked_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    }));
    let (sliding, full) = (
        config.rope_for(0).unwrap().unwrap(),
        config.rope_for(1).unwrap().unwrap(),
    );
    assert_eq!((sliding.theta, sliding.scaling), (1e4, Scaling::None));
    assert_eq!(full.theta, 1e6);
    assert_eq!(
        full.scaling,
        Scaling::Proportional(Proportional {
            share: 0.25,
            factor: 1.0
        })
    );
    let errors = [
        (
            2,
            "a layer of that type needs rope_parameters.chunked_attention, which is missing",
        ),
        (3, "layer_types has 3 entries and none for layer 3"),
    ];
    for (layer, want) in errors {
        assert_eq!(config.rope_for(layer).unwrap_err().to_string(), want);
    }
}

#[test]
fn layers_without_rotation_are_the_zeros_of_a_list_with_a_misleading_name() {
    let cases = [
        (
            "list",
            json!({"no_rope_layers": [1, 0, 1, 1], "no_rope_layer_interval": 4}),
            [true, false, true, true],
        ),
        (
            "interval",
            json!({"no_rope_layers": null, "no_rope_layer_interval": 4}),
            [true, true, true, false],
        ),
        (
            "empty list",
            json!({"no_rope_layers": [], "no_rope_layer_interval": 2}),
            [true, false, true, false],
        ),
        ("neither", json!({}), [true; 4]),
    ];
    for (name, value, want) in cases {
        let config = config(value);
        let got = std::array::from_fn(|layer| config.rope_for(layer).unwrap().is_some());
        assert_eq!(got, want, "{name}");
    }
}

#[test]
fn deepseeks_correction_needs_the_keys_of_latent_attention() {
    let yarn = json!({"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 1.0});
    let m = 0.1 * 40.0_f64.ln() + 1.0;
    let cases = [
        (
            "latent",
            json!({"qk_rope_head_dim": 64, "kv_lora_rank": 512, "rope_scaling": yarn}),
            m * m,
        ),
        (
            "plain attention",
            json!({"head_dim": 64, "rope_scaling": yarn}),
            1.0,
        ),
        (
            "name alone",
            json!({"model_type": "deepseek_v3", "head_dim": 64, "rope_scaling": yarn}),
            1.0,
        ),
        (
            "no mscale_all_dim",
            json!({"qk_rope_head_dim": 64, "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}}),
            1.0,
        ),
        (
            "not yarn",
            json!({"qk_rope_head_dim": 64, "rope_scaling": null}),
            1.0,
        ),
    ];
    for (name, value, want) in cases {
        let request = request(value);
        assert_eq!(request.softmax_factor, want, "{name}");
    }
}

#[test]
fn every_value_is_described_with_its_key() {
    let config = config(json!({
        "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "rope_local_base_freq": 1e4,
        "rope_theta": 1e6, "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
    }));
    let described: Vec<_> = config
        .describe()
        .unwrap()
        .into_iter()
        .map(|i| (i.name, i.value, i.source))
        .collect();
    let want = [
        ("theta", json!(1e4), "rope_local_base_freq"),
        ("rotary-dim", json!(16), "hidden_size / num_attention_heads"),
        ("theta", json!(1e6), "rope_theta"),
        ("factor", json!(4.0), "rope_scaling.factor"),
        ("original-length", json!(128), "max_position_embeddings"),
    ];
    let want: Vec<_> = want
        .into_iter()
        .map(|(name, value, source)| (name.to_owned(), value, source.to_owned()))
        .collect();
    assert_eq!(described, want);
}
