//! Properties of all scaling laws of rotary embeddings.

use proptest::prelude::*;

use super::law::Law;
use super::{
    Dynamic, Linear, Llama3, LongRope, LongRopeAttention, Ntk, Proportional, RampBounds, Rope,
    Scaling, Yarn,
};

fn ropes() -> impl Strategy<Value = Rope> {
    (2.0..16.0_f64, 2..80_usize, 0..3_usize).prop_map(|(log_theta, pairs, rest)| {
        Rope::new(log_theta.exp(), 2 * pairs, 2 * pairs + 8 * rest).unwrap()
    })
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![1..64_usize, 64..200_000_usize]
}

/// Every law that must be plain RoPE at factor 1.
fn without_effect(rope: &Rope, original: usize) -> Vec<Scaling> {
    let ones = vec![1.0; rope.pairs()];
    let yarn = Yarn::new(1.0, original).unwrap();
    vec![
        Scaling::Linear(Linear::new(1.0).unwrap()),
        Scaling::Ntk(Ntk::new(1.0).unwrap()),
        Scaling::Yarn(yarn),
        Scaling::Yarn(Yarn {
            bounds: RampBounds::Exact,
            mscale: Some(1.0),
            ..yarn
        }),
        Scaling::Llama3(Llama3::new(1.0, 1.0, 4.0, original).unwrap()),
        Scaling::LongRope(LongRope {
            short_factor: ones.clone(),
            long_factor: ones,
            original_length: original.max(2),
            attention: LongRopeAttention::Extension(1.0),
        }),
    ]
}

proptest! {
    #[test]
    fn factor_one_is_plain_bit_for_bit(rope in ropes(), original in lengths(), length in lengths()) {
        for scaling in without_effect(&rope, original) {
            scaling.check(&rope).unwrap();
            prop_assert!(scaling.is_identity(&rope), "{}", scaling.name());
            let plain = Scaling::None.frequencies(&rope, length);
            prop_assert_eq!(scaling.frequencies(&rope, length), plain, "{}", scaling.name());
            let plain = Scaling::None.frequencies_hf(&rope, length);
            prop_assert_eq!(scaling.frequencies_hf(&rope, length), plain, "{}", scaling.name());
        }
    }

    #[test]
    fn dynamic_changes_nothing_up_to_its_length_and_slows_every_pair_but_the_first_beyond(
        rope in ropes(), max in 2..100_000_usize, factor in 1.0..40.0_f64, more in 1..100_000_usize
    ) {
        let scaling = Scaling::Dynamic(Dynamic::new(factor, max).unwrap());
        prop_assert_eq!(scaling.frequencies(&rope, max), Scaling::None.frequencies(&rope, max));
        prop_assert_eq!(scaling.frequencies_hf(&rope, max), Scaling::None.frequencies_hf(&rope, max));
        let beyond = scaling.frequencies(&rope, max + more).inv_freq;
        let plain = Scaling::None.frequencies(&rope, max).inv_freq;
        prop_assert_eq!(beyond[0], 1.0);
        prop_assert!(beyond.iter().zip(&plain).skip(1).all(|(b, p)| b < p));
    }

    #[test]
    fn longrope_with_equal_lists_does_not_switch(rope in ropes(), original in 2..100_000_usize) {
        let list: Vec<f64> = (0..rope.pairs()).map(|i| 1.0 + i as f64 / 7.0).collect();
        let attention = LongRopeAttention::Extension(4.0);
        let mut longrope =
            LongRope { short_factor: list.clone(), long_factor: list, original_length: original, attention };
        let same = Scaling::LongRope(longrope.clone());
        prop_assert!(!same.depends_on_length());
        prop_assert_eq!(same.frequencies(&rope, original), same.frequencies(&rope, original + 1));
        longrope.long_factor[0] = 2.0;
        let other = Scaling::LongRope(longrope);
        prop_assert!(other.depends_on_length());
        prop_assert_ne!(other.frequencies(&rope, original), other.frequencies(&rope, original + 1));
    }

    #[test]
    fn proportional_of_all_pairs_is_plain_and_of_none_is_still(theta in 2.0..1e7_f64, pairs in 1..80_usize) {
        let rope = Rope::new(theta, 2 * pairs, 2 * pairs).unwrap();
        let share = |share| Scaling::Proportional(Proportional::new(share, 1.0).unwrap());
        prop_assert!(share(1.0).is_identity(&rope));
        prop_assert_eq!(share(1.0).frequencies(&rope, 1), Scaling::None.frequencies(&rope, 1));
        prop_assert_eq!(share(1.0).frequencies_hf(&rope, 1), Scaling::None.frequencies_hf(&rope, 1));
        prop_assert!(share(0.0).frequencies(&rope, 1).inv_freq.iter().all(|&f| f == 0.0));
    }

    #[test]
    fn scaled_frequencies_are_between_interpolated_and_plain(
        rope in ropes(), factor in 1.0..64.0_f64, original in 8..200_000_usize
    ) {
        let plain = Scaling::None.frequencies(&rope, 1).inv_freq;
        let laws = [
            Scaling::Linear(Linear::new(factor).unwrap()),
            Scaling::Ntk(Ntk::new(factor).unwrap()),
            Scaling::Yarn(Yarn::new(factor, original).unwrap()),
            Scaling::Llama3(Llama3::new(factor, 1.0, 4.0, original).unwrap()),
        ];
        for scaling in laws {
            let scaled = scaling.frequencies(&rope, 1).inv_freq;
            for (f, p) in scaled.iter().zip(&plain) {
                let ratio = f / p;
                let fits = (1.0 / factor - 1e-9..=1.0 + 1e-9).contains(&ratio);
                prop_assert!(fits, "{}: {ratio}", scaling.name());
            }
        }
    }

    #[test]
    fn no_parameter_makes_a_panic(
        theta in any::<f64>(), dim in 0..9_usize, head in 0..9_usize, factor in any::<f64>(),
        other in any::<f64>(), length in any::<usize>(), original in any::<usize>()
    ) {
        let rope = Rope { theta, rotary_dim: dim, head_dim: head };
        let yarn = Yarn {
            factor, original_length: original, beta_fast: other, beta_slow: factor,
            bounds: RampBounds::Truncated, attention_factor: None, mscale: Some(other),
            mscale_all_dim: Some(factor),
        };
        let longrope = LongRope {
            short_factor: vec![factor], long_factor: vec![],
            original_length: original, attention: LongRopeAttention::Extension(other),
        };
        let laws = [
            Scaling::None,
            Scaling::Linear(Linear { factor }),
            Scaling::Ntk(Ntk { factor }),
            Scaling::Dynamic(Dynamic { factor, max_position: original }),
            Scaling::Yarn(yarn),
            Scaling::LongRope(longrope),
            Scaling::Llama3(Llama3 { factor, low_freq_factor: other, high_freq_factor: factor, original_length: original }),
            Scaling::Proportional(Proportional { share: other, factor }),
        ];
        for scaling in laws {
            let _ = scaling.check(&rope);
            let pairs = scaling.frequencies(&rope, length).inv_freq.len();
            prop_assert_eq!(pairs, scaling.frequencies_hf(&rope, length).inv_freq.len());
        }
    }
}

#[test]
fn ntk_interpolates_the_last_pair_by_exactly_the_factor() {
    for (dim, theta) in [(4, 10_000.0), (16, 10_000.0), (64, 500_000.0), (128, 1e6)] {
        let rope = Rope::new(theta, dim, dim).unwrap();
        let plain = Scaling::None.frequencies(&rope, 1).inv_freq;
        let scaled = Scaling::Ntk(Ntk::new(4.0).unwrap())
            .frequencies(&rope, 1)
            .inv_freq;
        let last = dim / 2 - 1;
        assert_eq!(scaled[0], 1.0);
        assert!(
            (plain[last] / scaled[last] - 4.0).abs() < 1e-9,
            "{dim} {theta}"
        );
    }
}

#[test]
fn mscale_counts_only_with_mscale_all_dim() {
    let yarn = Yarn::new(40.0, 4096).unwrap();
    let m = 0.1 * 40.0_f64.ln() + 1.0;
    let half = 0.1 * 0.5 * 40.0_f64.ln() + 1.0;
    let cases = [
        ("neither", None, None, m, 1.0),
        ("mscale alone", Some(0.5), None, m, 1.0),
        ("equal", Some(1.0), Some(1.0), 1.0, m * m),
        ("ratio", Some(1.0), Some(0.5), m / half, half * half),
        ("zero is absent", Some(1.0), Some(0.0), m, 1.0),
    ];
    for (name, mscale, mscale_all_dim, attention, softmax) in cases {
        let yarn = Yarn {
            mscale,
            mscale_all_dim,
            ..yarn
        };
        assert_eq!(yarn.attention_factor(1), attention, "{name}");
        assert_eq!(yarn.softmax_factor(), softmax, "{name}");
    }
    assert_eq!(
        Yarn {
            attention_factor: Some(1.25),
            ..yarn
        }
        .attention_factor(1),
        1.25
    );
}

#[test]
fn longrope_takes_its_factor_from_the_given_source() {
    let longrope = |attention| LongRope {
        short_factor: vec![1.0],
        long_factor: vec![2.0],
        original_length: 4096,
        attention,
    };
    let cases = [
        ("explicit", LongRopeAttention::Explicit(1.3), 1.3, 1.3),
        ("shorter", LongRopeAttention::Extension(0.5), 1.0, 1.0),
        (
            "switched",
            LongRopeAttention::Switched {
                short: 1.1,
                long: 1.2,
            },
            1.1,
            1.2,
        ),
    ];
    for (name, attention, short, long) in cases {
        let longrope = longrope(attention);
        assert_eq!(longrope.attention_factor(4096), short, "{name}");
        assert_eq!(longrope.attention_factor(4097), long, "{name}");
    }
    // Phi-3-mini-128k: sqrt(1 + ln 32 / ln 4096).
    let m = longrope(LongRopeAttention::Extension(32.0)).attention_factor(1);
    assert!((m - 1.190_238_071_423_808_5).abs() < 1e-12);
}

#[test]
fn bad_parameters_are_refused_in_one_sentence() {
    let rope = Rope::new(10_000.0, 8, 16).unwrap();
    let yarn = Yarn::new(4.0, 64).unwrap();
    let longrope = |short: usize| LongRope {
        short_factor: vec![1.0; short],
        long_factor: vec![1.0; 4],
        original_length: 64,
        attention: LongRopeAttention::Extension(4.0),
    };
    let cases = [
        (
            Scaling::Linear(Linear { factor: 0.5 }),
            "`factor` must be a finite number of at least 1, got 0.5",
        ),
        (
            Scaling::Ntk(Ntk { factor: f64::NAN }),
            "`factor` must be a finite number of at least 1, got NaN",
        ),
        (
            Scaling::Dynamic(Dynamic {
                factor: 2.0,
                max_position: 0,
            }),
            "`max_position_embeddings` must be at least 1, got 0",
        ),
        (
            Scaling::Yarn(Yarn {
                beta_fast: 1.0,
                beta_slow: 2.0,
                ..yarn
            }),
            "`beta_fast` must be at least `beta_slow`, got 1 and 2",
        ),
        (
            Scaling::Yarn(Yarn {
                attention_factor: Some(-1.0),
                ..yarn
            }),
            "`attention_factor` must be a finite number above 0, got -1",
        ),
        (
            Scaling::LongRope(longrope(3)),
            "`short_factor` must have one entry per rotated pair (4), got 3",
        ),
        (
            Scaling::Llama3(Llama3 {
                factor: 8.0,
                low_freq_factor: 4.0,
                high_freq_factor: 1.0,
                original_length: 64,
            }),
            "`high_freq_factor` must be greater than `low_freq_factor`, got 1 and 4",
        ),
        (
            Scaling::Proportional(Proportional {
                share: 1.5,
                factor: 1.0,
            }),
            "`partial_rotary_factor` must be between 0 and 1, got 1.5",
        ),
    ];
    for (scaling, want) in cases {
        assert_eq!(scaling.check(&rope).unwrap_err().to_string(), want);
    }
    Scaling::LongRope(longrope(4)).check(&rope).unwrap();
}

#[test]
fn impossible_widths_are_refused_in_one_sentence() {
    let one_pair = Rope::new(10_000.0, 2, 16).unwrap();
    let error = Scaling::Ntk(Ntk { factor: 2.0 })
        .check(&one_pair)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "ntk scaling needs a rotary width of at least 4, got 2"
    );
    for (theta, rotary, head) in [
        (0.0, 8, 8),
        (f64::INFINITY, 8, 8),
        (1e4, 0, 8),
        (1e4, 7, 8),
        (1e4, 16, 8),
    ] {
        let why = Rope::new(theta, rotary, head).unwrap_err().to_string();
        let parameter = if rotary == 8 && head == 8 {
            "`theta` must"
        } else {
            "rotary width must"
        };
        assert!(why.starts_with(parameter), "{why}");
    }
}
