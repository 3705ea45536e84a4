//! Numbers of no law.

use super::{F16, F32, grid};
use crate::laws::{IdentifiedScaling, Rope, Scaling, identify};

/// Numbers in (0, 1) from a fixed sequence.
fn noise(seed: u64) -> impl Iterator<Item = f64> {
    let step = |state: u64| {
        state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407)
    };
    std::iter::successors(Some(step(seed)), move |&s| Some(step(s)))
        .map(|s| ((s >> 11) as f64 + 0.5) / (1_u64 << 53) as f64)
}

#[test]
fn random_frequencies_have_no_name() {
    for dim in [4, 6, 8, 16, 64, 128] {
        for seed in 0..60 {
            let mut list: Vec<f64> = noise(seed * 1000 + dim as u64).take(dim / 2).collect();
            for sorted in [false, true] {
                for tolerance in [F32, F16] {
                    let found = identify(&list, 1.0, dim, dim, tolerance);
                    let name = found
                        .scaling
                        .as_ref()
                        .map_or("none", IdentifiedScaling::name);
                    assert_eq!(name, "custom", "{dim} {seed} {sorted} {tolerance} {list:?}");
                }
                list.sort_by(|a, b| b.total_cmp(a));
            }
        }
    }
}

#[test]
fn a_random_list_that_starts_at_one_has_no_name() {
    for dim in [8, 16, 64, 128] {
        for seed in 0..60 {
            let mut list: Vec<f64> = noise(seed * 777 + dim as u64).take(dim / 2).collect();
            list[0] = 1.0;
            list.sort_by(|a, b| b.total_cmp(a));
            for tolerance in [F32, F16] {
                let found = identify(&list, 1.0, dim, dim, tolerance);
                let name = found
                    .scaling
                    .as_ref()
                    .map_or("none", IdentifiedScaling::name);
                assert_eq!(
                    name, "custom",
                    "{dim} {seed} {tolerance} {list:?} {found:?}"
                );
            }
        }
    }
}

#[test]
fn one_frequency_off_by_a_percent_has_no_name() {
    for (rope, scaling) in grid() {
        // Two lengths and two bases are enough here.
        if scaling
            .original_length()
            .is_some_and(|n| ![1024, 8192].contains(&n))
            || ![1e4, 5e5].contains(&rope.theta)
        {
            continue;
        }
        let made = scaling.frequencies(&rope, 1);
        for at in [0, 1, rope.pairs() / 2, rope.pairs() - 1] {
            for off in [0.99, 1.01] {
                let mut list = made.inv_freq.clone();
                list[at] *= off;
                let found = identify(
                    &list,
                    made.attention_factor,
                    rope.rotary_dim,
                    rope.head_dim,
                    F32,
                );
                let name = found
                    .scaling
                    .as_ref()
                    .map_or("none", IdentifiedScaling::name);
                assert_eq!(
                    name, "custom",
                    "{rope:?} {scaling:?} pair {at} · {off}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn what_no_rotary_embedding_has_is_custom() {
    let plain = Scaling::None
        .frequencies(&Rope::new(1e4, 16, 16).unwrap(), 1)
        .inv_freq;
    let with = |at: usize, x: f64| {
        let mut list = plain.clone();
        list[at] = x;
        list
    };
    let reversed: Vec<f64> = plain.iter().rev().copied().collect();
    let faster: Vec<f64> = plain.iter().map(|f| 2.0 * f).collect();
    let cases: [(&str, Vec<f64>, f64, usize); 15] = [
        ("empty", vec![], 1.0, 16),
        ("no dims", vec![], 1.0, 0),
        ("odd dims", vec![1.0], 1.0, 1),
        ("more pairs than dims", plain.clone(), 1.0, 8),
        ("reversed", reversed, 1.0, 16),
        ("faster", faster, 1.0, 16),
        ("nan", with(3, f64::NAN), 1.0, 16),
        ("infinite", with(3, f64::INFINITY), 1.0, 16),
        ("negative", with(3, -0.1), 1.0, 16),
        ("zero within", with(3, 0.0), 1.0, 16),
        ("all zero", vec![0.0; 8], 1.0, 16),
        ("constant", vec![1.0; 8], 1.0, 16),
        ("nan factor", plain.clone(), f64::NAN, 16),
        ("a factor on plain frequencies", plain.clone(), 1.2, 16),
        ("one odd pair", vec![0.37], 1.0, 2),
    ];
    for (name, list, m, dim) in cases {
        for tolerance in [F32, F16, 0.0, f64::NAN] {
            let found = identify(&list, m, dim, dim, tolerance);
            let kind = found
                .scaling
                .as_ref()
                .map_or("none", IdentifiedScaling::name);
            assert_eq!(kind, "custom", "{name} at {tolerance}");
        }
    }
    assert_eq!(identify(&plain, 1.2, 16, 16, F32).theta, Some(1e4));
    let one = identify(&[1.0], 1.0, 2, 2, F32);
    assert_eq!((one.theta, one.scaling), (None, None));
}

#[test]
fn a_slow_pair_that_is_off_is_no_ramp_of_round_parameters() {
    // As far off as YaRN's factors 2, 50 and 100 would put it on some ramp.
    let cases = [(256, 0.99), (10, 0.98 / 1.5), (16, 1.0 - 0.5 * 0.98)];
    for (dim, ratio) in cases {
        let rope = Rope::new(1e4, dim, dim).unwrap();
        let mut list = Scaling::None.frequencies(&rope, 1).inv_freq;
        list[dim / 2 - 1] *= ratio;
        let found = identify(&list, 1.0, dim, dim, F32);
        let name = found
            .scaling
            .as_ref()
            .map_or("none", IdentifiedScaling::name);
        assert_ne!(name, "yarn", "{dim} {ratio}: {found:?}");
    }
}
