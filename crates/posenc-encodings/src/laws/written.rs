//! What laws write into a config, read again.

use serde_json::{Map, Value, json};

use super::golden;
use super::{
    Alpha, Dynamic, EVERYWHERE, Linear, Llama3, LongRope, LongRopeAttention, Ntk, Proportional,
    RampBounds, Rope, Scaling, Yarn, scaling_of_config,
};
use crate::hf::{Dict, Writer};

/// The config that a law writes, for a model of that length.
fn config(written: &Writer, max_length: usize) -> Map<String, Value> {
    let mut section = written.section.clone();
    section.insert("rope_type".into(), json!(written.rope_type));
    let mut config = written.outside.clone();
    config
        .entry("max_position_embeddings")
        .or_insert_with(|| max_length.into());
    config.insert("rope_scaling".into(), section.into());
    config
}

fn read(config: &Map<String, Value>) -> Scaling {
    let Some(Value::Object(section)) = config.get("rope_scaling") else {
        panic!("a dict was written");
    };
    let section = Dict::new(section, "rope_scaling");
    scaling_of_config(&Dict::new(config, ""), &section, &mut vec![]).unwrap()
}

/// Whether two laws are the same function, at lengths around those at which laws change.
fn are_equal(a: (&Scaling, &Rope), b: (&Scaling, &Rope)) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-14 * b.abs();
    [1, 64, 65, 256, 257, 4096].into_iter().all(|length| {
        let [a, b] = [a, b].map(|(scaling, rope)| scaling.frequencies(rope, length));
        near(a.attention_factor, b.attention_factor)
            && a.inv_freq.len() == b.inv_freq.len()
            && a.inv_freq
                .iter()
                .zip(&b.inv_freq)
                .all(|(a, b)| near(*a, *b))
    })
}

/// One of each law with every parameter, and their variants.
fn laws() -> Vec<Scaling> {
    let yarn = Yarn::new(4.0, 64).unwrap();
    let longrope = |attention| {
        Scaling::LongRope(LongRope {
            short_factor: vec![1.0, 1.5, 1.25, 1.0],
            long_factor: vec![2.0, 4.0, 1.080_000_042_915_344_2, 8.0],
            original_length: 64,
            attention,
        })
    };
    vec![
        Scaling::None,
        Scaling::Linear(Linear { factor: 4.0 }),
        Scaling::Ntk(Ntk { factor: 2.5 }),
        Scaling::Alpha(Alpha { alpha: 1000.0 }),
        Scaling::Dynamic(Dynamic::new(2.0, 64).unwrap()),
        Scaling::Yarn(yarn),
        Scaling::Yarn(Yarn {
            beta_fast: 16.0,
            beta_slow: 2.0,
            attention_factor: Some(1.2),
            bounds: RampBounds::Exact,
            ..yarn
        }),
        Scaling::Yarn(Yarn {
            mscale: Some(0.7),
            mscale_all_dim: Some(0.5),
            ..yarn
        }),
        longrope(LongRopeAttention::Explicit(1.5)),
        longrope(LongRopeAttention::Extension(4.0)),
        longrope(LongRopeAttention::Extension(3.0)),
        longrope(LongRopeAttention::Extension(1.0)),
        longrope(LongRopeAttention::Switched {
            short: 1.0,
            long: 1.1,
        }),
        Scaling::Llama3(Llama3::new(8.0, 1.0, 4.0, 64).unwrap()),
        Scaling::Proportional(Proportional::new(0.5, 2.0).unwrap()),
    ]
}

#[test]
fn every_law_reads_back_as_the_same_function() {
    let rope = Rope::new(10_000.0, 8, 8).unwrap();
    for scaling in laws() {
        for is_parameters in [false, true] {
            let written = scaling.to_hf(&rope, Some(256), is_parameters);
            let base = Rope {
                theta: written.theta,
                ..rope
            };
            let again = match written.rope_type {
                None => Scaling::None,
                Some(_) => read(&config(&written, 256)),
            };
            assert_eq!(again.softmax_factor(), scaling.softmax_factor());
            assert!(
                are_equal((&again, &base), (&scaling, &rope)),
                "{scaling:?} {written:?}"
            );
            let wrong = Rope {
                theta: base.theta * 1.001,
                ..base
            };
            assert!(!are_equal((&again, &wrong), (&scaling, &rope)), "control");
        }
    }
}

#[test]
fn the_keys_are_those_that_the_law_reads() {
    let rope = Rope::new(10_000.0, 8, 8).unwrap();
    for scaling in laws() {
        let written = scaling.to_hf(&rope, Some(256), false);
        let (Some(law), Some(word)) = (scaling.law_name(), written.rope_type) else {
            assert!(written.section.is_empty(), "{scaling:?}");
            continue;
        };
        let facts = law.facts();
        assert!(facts.hf_types.iter().any(|hf| hf.word == word), "{word}");
        for key in written.section.keys() {
            let is_known = |keys: &[&str]| keys.contains(&key.as_str());
            assert!(is_known(facts.hf_keys) || is_known(&EVERYWHERE), "{key}");
        }
    }
}

/// The configs from which transformers computed the golden numbers.
#[test]
fn what_transformers_read_is_written_with_the_same_meaning() {
    let mut longropes = 0;
    for case in golden::cases() {
        let length = |key: &str| case.config[key].as_u64().map(|n| n as usize);
        let max = length("max_position_embeddings").unwrap();
        let written = case.scaling.to_hf(&case.rope, Some(max), false);
        if written.rope_type.is_none() {
            assert!(case.config["rope_scaling"].is_null(), "{}", case.name);
            continue;
        }
        let again = read(&config(&written, max));
        let same = are_equal((&again, &case.rope), (&case.scaling, &case.rope));
        assert!(same, "{}: {written:?}", case.name);
        // Phi-3 takes three keys and no other.
        let is_outer = length("original_max_position_embeddings").is_some();
        if is_outer && written.rope_type == Some("longrope") {
            longropes += 1;
            let keys: Vec<&String> = written.section.keys().collect();
            assert_eq!(keys, ["short_factor", "long_factor"], "{}", case.name);
        }
    }
    assert!(longropes > 0);
}
