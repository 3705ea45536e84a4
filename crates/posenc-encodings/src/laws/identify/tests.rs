//! Numbers of every law.

mod refusals;

use serde_json::json;

use super::found::IdentifiedScaling;
use super::*;
use crate::laws::golden;
use crate::laws::{Dynamic, Linear, Llama3, Ntk, Proportional, RampBounds, Rope, Scaling, Yarn};
use crate::laws::{identify_growth, identify_lists};

const F32: f64 = 1e-6;
const F16: f64 = 1e-3;

fn to_half(x: f64) -> f64 {
    half::f16::from_f64(x).to_f64()
}

fn read(scaling: &Scaling, rope: &Rope, tolerance: f64, round: impl Fn(f64) -> f64) -> Identified {
    let made = scaling.frequencies(rope, 1);
    let inv_freq: Vec<f64> = made.inv_freq.into_iter().map(&round).collect();
    identify(
        &inv_freq,
        round(made.attention_factor),
        rope.rotary_dim,
        rope.head_dim,
        tolerance,
    )
}

/// Dims from one quad of pairs to a Llama head, the usual bases.
fn ropes() -> impl Iterator<Item = Rope> {
    let thetas = [1e4, 1.5e5, 5e5, 2e6];
    let dims = [8, 16, 64, 96, 128];
    dims.into_iter()
        .flat_map(move |dim| thetas.map(|theta| Rope::new(theta, dim, dim).unwrap()))
}

const FACTORS: [f64; 3] = [2.0, 8.0, 40.0];
const LENGTHS: [usize; 5] = [64, 1024, 4096, 8192, 131_072];

/// Whether a scaling has any effect on these pairs.
fn shows(scaling: &Scaling, rope: &Rope) -> bool {
    scaling.frequencies(rope, 1).inv_freq != Scaling::None.frequencies(rope, 1).inv_freq
}

fn grid() -> Vec<(Rope, Scaling)> {
    let mut all = Vec::new();
    for rope in ropes() {
        all.push((rope, Scaling::None));
        for factor in FACTORS {
            all.push((rope, Scaling::Linear(Linear::new(factor).unwrap())));
            for length in LENGTHS {
                all.push((rope, Scaling::Yarn(Yarn::new(factor, length).unwrap())));
                let llama3 = Llama3::new(factor, 1.0, 4.0, length).unwrap();
                all.push((rope, Scaling::Llama3(llama3)));
            }
        }
    }
    all.retain(|(rope, scaling)| matches!(scaling, Scaling::None) || shows(scaling, rope));
    all
}

/// The original lengths that give these numbers.
fn range(found: &IdentifiedScaling) -> Option<[usize; 2]> {
    serde_json::from_value(found.get("original_length_range").clone()).ok()
}

fn compare(found: &Identified, rope: &Rope, scaling: &Scaling) -> Result<(), String> {
    let name = found
        .scaling
        .as_ref()
        .map_or("none", IdentifiedScaling::name);
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-3;
    if name != scaling.name() {
        return Err(format!("is called {name}"));
    }
    if !found.theta.is_some_and(|theta| near(theta, rope.theta)) {
        return Err(format!("theta {:?}", found.theta));
    }
    let (want, length) = match scaling {
        Scaling::Linear(linear) => (Some(linear.factor), None),
        Scaling::Yarn(yarn) => (Some(yarn.factor), Some(yarn.original_length)),
        Scaling::Llama3(llama3) => (Some(llama3.factor), Some(llama3.original_length)),
        _ => (None, None),
    };
    let range = found.scaling.as_ref().and_then(range);
    let factor = found.scaling.as_ref().and_then(IdentifiedScaling::factor);
    if let (Some(want), Some(factor)) = (want, factor)
        && !near(factor, want)
    {
        return Err(format!("factor {factor} for {want}"));
    }
    if let (Some([first, last]), Some(length)) = (range, length)
        && !(first..=last).contains(&length)
    {
        return Err(format!("original length {first} to {last}, not {length}"));
    }
    Ok(())
}

#[test]
fn every_law_is_read_back_from_f64_and_f32() {
    let mut wrong = Vec::new();
    let grid = grid();
    for (rope, scaling) in &grid {
        let exact = read(scaling, rope, F32, |x| x);
        let rounded = read(scaling, rope, F32, |x| f64::from(x as f32));
        let hf = scaling.frequencies_hf(rope, 1);
        let hf_list: Vec<f64> = hf.inv_freq.iter().map(|&x| f64::from(x)).collect();
        let hf = identify(
            &hf_list,
            hf.attention_factor,
            rope.rotary_dim,
            rope.head_dim,
            F32,
        );
        for (form, found) in [("f64", exact), ("f32", rounded), ("Hugging Face", hf)] {
            if let Err(why) = compare(&found, rope, scaling) {
                wrong.push(format!("{form} {rope:?} {scaling:?}: {why}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        3 * grid.len(),
        wrong.join("\n")
    );
}

#[test]
fn f16_never_makes_another_law() {
    let mut read_back = 0;
    let grid = grid();
    for (rope, scaling) in &grid {
        let found = read(scaling, rope, F16, to_half);
        let name = found
            .scaling
            .as_ref()
            .map_or("none", IdentifiedScaling::name);
        assert!(
            name == scaling.name() || name == "custom",
            "{rope:?} {scaling:?}: {found:?}"
        );
        read_back += usize::from(name == scaling.name());
    }
    // Not by calling everything custom.
    assert!(
        read_back * 4 > grid.len() * 3,
        "{read_back} of {}",
        grid.len()
    );
}

#[test]
fn hugging_faces_own_numbers_are_read_back() {
    for case in golden::cases() {
        let run = &case.runs[0];
        let inv_freq: Vec<f64> = run.inv_freq.iter().map(|&x| f64::from(x)).collect();
        let Rope {
            rotary_dim,
            head_dim,
            ..
        } = case.rope;
        let found = identify(&inv_freq, run.attention_factor, rotary_dim, head_dim, F32);
        let name = found
            .scaling
            .as_ref()
            .map_or("none", IdentifiedScaling::name);
        match &case.scaling {
            // Unchanged up to the original length.
            Scaling::Dynamic(_) => assert_eq!(name, "none", "{}", case.name),
            // One list out of two.
            Scaling::LongRope(_) => {
                assert_eq!(name, "custom", "{}", case.name);
                assert_eq!(found.theta, Some(case.rope.theta), "{}", case.name);
            }
            // One pair on a ramp of unknown ends could be anything.
            Scaling::Yarn(Yarn {
                bounds: RampBounds::Exact,
                ..
            }) if inv_freq.len() == 4 => {
                assert_eq!(name, "custom", "{}", case.name);
            }
            scaling => compare(&found, &case.rope, scaling)
                .unwrap_or_else(|why| panic!("{}: {why}", case.name)),
        }
        if let Some(scaling) = found.scaling(run.attention_factor) {
            let again = scaling.frequencies(&case.rope, 1).inv_freq;
            let off = again
                .iter()
                .zip(&inv_freq)
                .map(|(a, b)| (a / b - 1.0).abs());
            assert!(off.fold(0.0, f64::max) < F32, "{}", case.name);
        }
    }
}

#[test]
fn the_json_is_the_contracts_example() {
    let rope = Rope::new(1e4, 16, 16).unwrap();
    let found = read(
        &Scaling::Yarn(Yarn::new(4.0, 64).unwrap()),
        &rope,
        F32,
        |x| x,
    );
    assert_eq!(found.theta, Some(10_000.0));
    let json = serde_json::to_value(found.scaling.unwrap()).unwrap();
    let want = json!({
        "type": "yarn", "factor": 4.0, "original_length": 64, "original_length_range": [63, 198],
        "exact": false, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": true, "ramp": [0.0, 3.0],
    });
    assert_eq!(json, want);
}

#[test]
fn unusual_betas_and_bounds_are_reported() {
    let rope = Rope::new(5e5, 128, 128).unwrap();
    let yarn = Yarn::new(16.0, 8192).unwrap();
    let cases = [
        (
            "default",
            yarn,
            Some(8192),
            Some(32.0),
            Some(RampBounds::Truncated),
        ),
        (
            "exact bounds",
            Yarn {
                bounds: RampBounds::Exact,
                ..yarn
            },
            Some(8192),
            Some(32.0),
            Some(RampBounds::Exact),
        ),
        (
            "other betas",
            Yarn {
                beta_fast: 8.0,
                ..yarn
            },
            None,
            None,
            Some(RampBounds::Truncated),
        ),
        (
            "both",
            Yarn {
                beta_fast: 8.0,
                beta_slow: 2.0,
                bounds: RampBounds::Exact,
                ..yarn
            },
            None,
            None,
            Some(RampBounds::Exact),
        ),
    ];
    for (name, yarn, length, beta, bounds) in cases {
        let found = read(&Scaling::Yarn(yarn), &rope, F32, |x| f64::from(x as f32));
        let found = found.scaling.unwrap();
        assert_eq!(
            (found.name(), found.factor()),
            ("yarn", Some(16.0)),
            "{name}"
        );
        assert_eq!(found.get("beta_fast").as_f64(), beta, "{name}");
        let truncate = bounds.map(|bounds| bounds == RampBounds::Truncated);
        assert_eq!(found.get("truncate").as_bool(), truncate, "{name}");
        match length {
            Some(length) => {
                let [first, last] = range(&found).unwrap();
                assert!(
                    (first..=last).contains(&length),
                    "{name}: {first} to {last}"
                );
            }
            None => assert!(found.get("original_length").is_null(), "{name}"),
        }
    }
}

#[test]
fn bounds_that_are_not_rounded_are_read_from_f16_where_the_factor_speaks_for_them() {
    for (theta, dim, factor, length) in [
        (1.5e5, 32, 4.0, 1024),
        (1.5e5, 64, 32.0, 4096),
        (1e6, 128, 4.0, 32_768),
        (1e4, 64, 8.0, 2048),
    ] {
        let rope = Rope::new(theta, dim, dim).unwrap();
        let yarn = Yarn {
            bounds: RampBounds::Exact,
            ..Yarn::new(factor, length).unwrap()
        };
        let found = read(&Scaling::Yarn(yarn), &rope, 2.0 * F16, to_half);
        assert_eq!(found.theta, Some(theta), "{theta} {dim}");
        let scaling = found.scaling.unwrap();
        assert_eq!(
            (scaling.name(), scaling.factor()),
            ("yarn", Some(factor)),
            "{theta} {dim}"
        );
        let [first, last] = range(&scaling).unwrap();
        assert!((first..=last).contains(&length), "{first} to {last}");
        let silent = Yarn {
            mscale: Some(1.0),
            mscale_all_dim: Some(1.0),
            ..yarn
        };
        let found = read(&Scaling::Yarn(silent), &rope, 2.0 * F16, to_half);
        let is_named = |found: Identified| {
            let scaling = found.scaling.unwrap();
            (scaling.get("truncate").as_bool() == Some(false)).then_some(scaling)
        };
        assert!(is_named(found).is_none(), "{theta} {dim}: no factor");
        let made = Scaling::Yarn(yarn).frequencies(&rope, 1);
        for at in [1, dim / 8, dim / 4] {
            let mut off: Vec<f64> = made.inv_freq.iter().map(|f| to_half(*f)).collect();
            off[at] *= 1.03;
            let found = identify(&off, made.attention_factor, dim, dim, 2.0 * F16);
            assert!(is_named(found).is_none(), "{theta} {dim}: pair {at}");
        }
    }
}

#[test]
fn deepseeks_yarn_has_no_factor_on_cos_and_sin() {
    let rope = Rope::new(1e4, 64, 64).unwrap();
    let yarn = Yarn {
        mscale: Some(1.0),
        mscale_all_dim: Some(1.0),
        ..Yarn::new(40.0, 4096).unwrap()
    };
    compare(
        &read(&Scaling::Yarn(yarn), &rope, F32, |x| x),
        &rope,
        &Scaling::Yarn(yarn),
    )
    .unwrap();
}

#[test]
fn llama3_with_another_ratio_of_frequency_factors_shows_it() {
    let rope = Rope::new(5e5, 128, 128).unwrap();
    let scaling = Scaling::Llama3(Llama3::new(8.0, 1.0, 6.0, 8192).unwrap());
    let found = read(&scaling, &rope, F32, |x| f64::from(x as f32));
    compare(&found, &rope, &scaling).unwrap();
    assert_eq!(found.scaling.unwrap().get("high_freq_factor"), 6.0);
}

#[test]
fn ntk_reads_as_plain_of_its_base() {
    for rope in ropes() {
        let ntk = Ntk::new(4.0).unwrap();
        let found = read(&Scaling::Ntk(ntk), &rope, F32, |x| f64::from(x as f32));
        assert_eq!(found.scaling, None);
        assert!(
            (found.theta.unwrap() / ntk.base(&rope) - 1.0).abs() < 1e-3,
            "{rope:?}"
        );
    }
}

#[test]
fn proportional_shows_in_the_pairs_that_do_not_rotate() {
    let rope = Rope::new(1e6, 256, 256).unwrap();
    for (share, factor) in [(0.25, 1.0), (0.25, 8.0), (0.5, 1.0)] {
        let scaling = Scaling::Proportional(Proportional::new(share, factor).unwrap());
        let found = read(&scaling, &rope, F32, |x| f64::from(x as f32));
        let json = serde_json::to_string(&found.scaling).unwrap();
        let want = format!(
            r#"{{"type":"proportional","partial_rotary_factor":{share:?},"factor":{factor:?}}}"#
        );
        assert_eq!((found.theta, json), (Some(1e6), want));
    }
    // The same list in a narrower part of the head has another meaning.
    let scaling = Scaling::Proportional(Proportional::new(0.25, 1.0).unwrap());
    let list = scaling.frequencies(&rope, 1).inv_freq;
    assert_eq!(
        identify(&list, 1.0, 256, 512, F32).scaling.unwrap().name(),
        "custom"
    );
}

#[test]
fn growth_with_length_is_dynamic_ntk() {
    for rope in ropes() {
        for (factor, max) in [(1.0, 512), (2.0, 2048), (4.0, 64), (8.0, 4096)] {
            let scaling = Scaling::Dynamic(Dynamic::new(factor, max).unwrap());
            let at = |length| {
                let list = scaling.frequencies_hf(&rope, length).inv_freq;
                (
                    length,
                    list.into_iter().map(f64::from).collect::<Vec<f64>>(),
                )
            };
            let samples = [at(max / 2), at(max), at(2 * max), at(3 * max), at(8 * max)];
            let found = identify_growth(&samples, rope.rotary_dim, F32).unwrap();
            assert_eq!(found.theta, Some(rope.theta), "{rope:?} {factor} {max}");
            let want = json!({"type": "dynamic", "factor": factor, "original_length": max});
            assert_eq!(json!(found.scaling), want, "{rope:?}");
            assert_eq!(found.scaling(1.0), None, "chosen while a graph runs");
            let mut wrong = samples.clone();
            wrong[3] = at(4 * max);
            wrong[3].0 = 3 * max;
            assert_eq!(
                identify_growth(&wrong, rope.rotary_dim, F32),
                None,
                "{rope:?}"
            );
            assert_eq!(identify_growth(&samples[..2], rope.rotary_dim, F32), None);
            assert_eq!(identify_growth(&samples[1..], rope.rotary_dim, F32), None);
        }
    }
}

#[test]
fn two_lists_are_longrope_and_theta_is_read_from_their_decimals() {
    for case in golden::cases() {
        let Scaling::LongRope(longrope) = &case.scaling else {
            continue;
        };
        let list = |run: &golden::Run| {
            run.inv_freq
                .iter()
                .map(|&x| f64::from(x))
                .collect::<Vec<_>>()
        };
        let runs = |length| case.runs.iter().find(|run| run.length == length).unwrap();
        let (short, long) = (list(runs(20)), list(runs(160)));
        let found = identify_lists(&short, &long, 64, None, F32);
        assert_eq!(found.theta, Some(case.rope.theta), "{}", case.name);
        let want = json!({
            "type": "longrope",
            "short_factor": longrope.short_factor,
            "long_factor": longrope.long_factor,
            "original_length": 64,
        });
        assert_eq!(json!(found.scaling), want, "{}", case.name);
        assert_eq!(found.scaling(1.0), None, "chosen while a graph runs");
        // Divisors with no pattern leave θ open, unless it is known.
        let odd: Vec<f64> = long
            .iter()
            .enumerate()
            .map(|(i, f)| f / (1.0 + 0.012_345_67 * i as f64))
            .collect();
        let open = identify_lists(&odd, &odd, 64, None, F32);
        assert_eq!(open.theta, None, "{}", case.name);
        assert_eq!(
            identify_lists(&odd, &odd, 64, Some(1e4), F32).theta,
            Some(1e4)
        );
    }
}
