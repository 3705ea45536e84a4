//! Frequencies that transformers 4.57.6 computed, bit for bit.

use serde_json::Value;

use posenc_encodings::laws::{
    Dynamic, Linear, Llama3, LongRope, LongRopeAttention, RampBounds, Rope, Scaling, Yarn,
};

/// One configuration with what Hugging Face made of it at several lengths.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) config: Value,
    pub(crate) rope: Rope,
    pub(crate) scaling: Scaling,
    pub(crate) runs: Vec<Run>,
}

pub(crate) struct Run {
    pub(crate) length: usize,
    pub(crate) inv_freq: Vec<f32>,
    pub(crate) attention_factor: f64,
}

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_f64().unwrap())
        .collect()
}

fn scaling(config: &Value) -> Scaling {
    let dict = &config["rope_scaling"];
    let Some(kind) = dict["rope_type"].as_str() else {
        return Scaling::None;
    };
    let get = |key: &str| dict[key].as_f64();
    let max_position = config["max_position_embeddings"].as_u64().unwrap() as usize;
    let original = |value: &Value| value.as_u64().map(|n| n as usize);
    let inner = original(&dict["original_max_position_embeddings"]);
    let factor = get("factor").unwrap();
    match kind {
        "linear" => Scaling::Linear(Linear::new(factor).unwrap()),
        "dynamic" => Scaling::Dynamic(Dynamic::new(factor, max_position).unwrap()),
        "yarn" => Scaling::Yarn(Yarn {
            beta_fast: get("beta_fast").unwrap_or(32.0),
            beta_slow: get("beta_slow").unwrap_or(1.0),
            bounds: match dict["truncate"].as_bool() {
                Some(false) => RampBounds::Exact,
                _ => RampBounds::Truncated,
            },
            attention_factor: get("attention_factor"),
            ..Yarn::new(factor, inner.unwrap()).unwrap()
        }),
        "llama3" => {
            let (low, high) = (
                get("low_freq_factor").unwrap(),
                get("high_freq_factor").unwrap(),
            );
            Scaling::Llama3(Llama3::new(factor, low, high, inner.unwrap()).unwrap())
        }
        "longrope" => {
            let outer = original(&config["original_max_position_embeddings"]);
            let ratio = outer.map(|n| max_position as f64 / n as f64);
            Scaling::LongRope(LongRope {
                short_factor: numbers(&dict["short_factor"]),
                long_factor: numbers(&dict["long_factor"]),
                original_length: outer.unwrap_or(max_position),
                attention: LongRopeAttention::Extension(ratio.unwrap_or(factor)),
            })
        }
        other => panic!("no such law: {other}"),
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let all: Vec<Value> = serde_json::from_str(include_str!("golden.json")).unwrap();
    let case = |value: Value| {
        let config = value["config"].clone();
        let head_dim = config["head_dim"].as_u64().unwrap() as usize;
        let share = config["partial_rotary_factor"].as_f64().unwrap();
        let rotary_dim = (head_dim as f64 * share) as usize;
        let run = |run: &Value| Run {
            length: run["length"].as_u64().unwrap() as usize,
            inv_freq: numbers(&run["inv_freq"])
                .into_iter()
                .map(|x| x as f32)
                .collect(),
            attention_factor: run["attention_factor"].as_f64().unwrap(),
        };
        Case {
            name: value["name"].as_str().unwrap().to_owned(),
            rope: Rope::new(config["rope_theta"].as_f64().unwrap(), rotary_dim, head_dim).unwrap(),
            scaling: scaling(&config),
            runs: value["runs"].as_array().unwrap().iter().map(run).collect(),
            config,
        }
    };
    all.into_iter().map(case).collect()
}

#[test]
fn hugging_face_order_gives_hugging_face_bits() {
    let cases = cases();
    assert_eq!(cases.len(), 27);
    for case in &cases {
        case.scaling.check(&case.rope).unwrap();
        for run in &case.runs {
            let got = case.scaling.frequencies_hf(&case.rope, run.length);
            let at = format!("{} at {}", case.name, run.length);
            assert_eq!(got.inv_freq, run.inv_freq, "{at}");
            assert_eq!(got.attention_factor, run.attention_factor, "{at}");
        }
    }
}

#[test]
fn the_formula_in_f64_equals_hugging_face_up_to_f32_rounding() {
    for case in cases() {
        for run in &case.runs {
            let got = case.scaling.frequencies(&case.rope, run.length);
            for (got, &want) in got.inv_freq.iter().zip(&run.inv_freq) {
                let error = (got / f64::from(want) - 1.0).abs();
                assert!(error < 1e-6, "{} at {}: {error:e}", case.name, run.length);
            }
            assert_eq!(got.attention_factor, run.attention_factor, "{}", case.name);
        }
    }
}

#[test]
fn a_wrong_parameter_is_not_within_rounding() {
    let rope = Rope::new(10_000.0, 16, 16).unwrap();
    let yarn = Yarn::new(4.0, 64).unwrap();
    let want = cases()
        .into_iter()
        .find(|case| case.name == "llama yarn")
        .unwrap();
    let want = &want.runs[0].inv_freq;
    let wrong = [
        (
            "theta",
            Rope {
                theta: 10_100.0,
                ..rope
            },
            yarn,
        ),
        (
            "factor",
            rope,
            Yarn {
                factor: 4.01,
                ..yarn
            },
        ),
        (
            "bounds",
            rope,
            Yarn {
                bounds: RampBounds::Exact,
                ..yarn
            },
        ),
        (
            "beta_slow",
            rope,
            Yarn {
                beta_slow: 0.1,
                ..yarn
            },
        ),
        (
            "original length",
            rope,
            Yarn {
                original_length: 256,
                ..yarn
            },
        ),
    ];
    let off = |rope: &Rope, yarn: Yarn| {
        let got = Scaling::Yarn(yarn).frequencies(rope, 1).inv_freq;
        let errors = got
            .iter()
            .zip(want)
            .map(|(g, &w)| (g / f64::from(w) - 1.0).abs());
        errors.fold(0.0, f64::max)
    };
    assert!(off(&rope, yarn) < 1e-6);
    for (name, rope, yarn) in wrong {
        assert!(off(&rope, yarn) > 1e-3, "{name} went unnoticed");
    }
}
