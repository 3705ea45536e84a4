//! Which numbers are linear biases, and which requests they answer.

use ndarray::Array3;

use super::*;
use crate::param::Value;

fn scores(heads: usize, past: usize, of: impl Fn(usize, i64, i64) -> f64) -> Scores {
    let cell = |(h, i, j): (usize, usize, usize)| of(h, (i + past) as i64, j as i64);
    Scores {
        values: Array3::from_shape_fn((heads, 9, 9 + past), cell),
        origin: past as i64,
        tolerance: 1e-6,
        has_sink: false,
    }
}

fn causal(of: impl Fn(usize, f64) -> f64) -> Scores {
    scores(3, 2, |h, i, j| {
        if j > i {
            f64::NEG_INFINITY
        } else {
            of(h, (j - i) as f64)
        }
    })
}

fn read(scores: &Scores) -> Result<(Vec<f64>, Option<bool>), String> {
    let found = Alibi::of_scores(scores).map_err(|miss| miss.to_string())?;
    Ok((found.0.slopes, found.0.symmetric))
}

const SLOPES: [f64; 3] = [0.25, 0.0, 0.0625];

#[test]
fn lines_are_read_whatever_constant_each_query_adds() {
    let want = |symmetric| Ok((SLOPES.to_vec(), symmetric));
    assert_eq!(read(&causal(|h, d| SLOPES[h] * d)), want(None));
    let by_key = scores(3, 2, |h, i, j| {
        if j > i {
            f64::NEG_INFINITY
        } else {
            SLOPES[h] * j as f64 + (i * i) as f64
        }
    });
    assert_eq!(read(&by_key), want(None));
    let beside_sinks = Scores {
        has_sink: true,
        ..by_key
    };
    let why = read(&beside_sinks).unwrap_err();
    assert!(why.starts_with("a line leaves residuals"), "{why}");
    let by_distance = Scores {
        has_sink: true,
        ..causal(|h, d| SLOPES[h] * d)
    };
    assert_eq!(read(&by_distance), want(None));
    let onward = scores(3, 0, |h, i, j| SLOPES[h] * (j - i) as f64);
    assert_eq!(read(&onward), want(Some(false)));
    let symmetric = scores(3, 0, |h, i, j| -SLOPES[h] * (j - i).abs() as f64);
    assert_eq!(read(&symmetric), want(Some(true)));
}

#[test]
fn the_reference_gives_what_is_read() {
    for symmetric in [None, Some(true), Some(false)] {
        let alibi = Alibi {
            heads: 3,
            slopes: vec![0.7, -0.1, 0.3],
            symmetric,
        };
        let cell = |h, i: i64, j: i64| {
            if symmetric.is_none() && j > i {
                f64::NEG_INFINITY
            } else {
                alibi.at_distance(h, j - i)
            }
        };
        let (found, error) = Alibi::of_scores(&scores(3, 0, cell)).unwrap();
        assert_eq!(found, alibi);
        assert!(error < 1e-12);
    }
}

#[test]
fn a_found_bias_is_what_a_plan_asks_for_where_the_site_shows_no_difference() {
    let planned = |causal: bool, asked: Option<bool>| {
        let site = SiteShape {
            heads: Some(3),
            causal,
            ..SiteShape::default()
        };
        let mut given = Given::default();
        given.set(&super::SLOPES, Value::Numbers(SLOPES.to_vec()));
        if let Some(asked) = asked {
            given.set(&BIDIRECTIONAL, Value::Bool(asked));
        }
        Alibi::plan(&site, &given, &GivenTensors::default()).unwrap()
    };
    let found = |symmetric, slopes: [f64; 3]| Alibi {
        heads: 3,
        slopes: slopes.to_vec(),
        symmetric,
    };
    let same = |found: Alibi, causal, asked| {
        found.is_as_planned(&planned(causal, asked), FAMILY.params, &Given::default())
    };
    for (symmetric, causal, asked, want) in [
        (None, true, None, true),
        (None, true, Some(false), true),
        (None, true, Some(true), true),
        (Some(true), false, None, true),
        (Some(true), false, Some(true), true),
        (Some(true), false, Some(false), false),
        (Some(false), false, Some(false), true),
        (Some(false), false, Some(true), false),
        (Some(false), false, None, false),
    ] {
        let case = format!("{symmetric:?} {causal} {asked:?}");
        let got = same(found(symmetric, SLOPES), causal, asked);
        assert_eq!(got, want, "{case}");
        let steeper = found(symmetric, [0.25, 0.0, 0.125]);
        assert!(!same(steeper, causal, asked), "{case}");
    }
    let line = planned(false, Some(false));
    assert!(line.is_straight() && line.is_up_to_a_constant());
    assert!(!planned(false, None).is_up_to_a_constant());
}

#[test]
fn other_slopes_are_other_slopes() {
    let changed = |h: usize| match h {
        0 => -0.25,
        2 => 0.0625 * 1.01,
        _ => 0.0,
    };
    let (slopes, _) = read(&causal(|h, d| changed(h) * d)).unwrap();
    assert_eq!(slopes, [-0.25, 0.0, 0.063125]);
    let (slopes, _) = read(&causal(|h, d| SLOPES[2 - h] * d)).unwrap();
    assert_eq!(slopes, [0.0625, 0.0, 0.25]);
}

#[test]
fn what_is_no_line_is_refused() {
    let hidden = f64::NEG_INFINITY;
    let cases: [(&str, Scores); 9] = [
        ("a bent line", causal(|h, d| SLOPES[h] * d - 1e-3 * d * d)),
        ("a clipped line", causal(|h, d| SLOPES[h] * d.max(-6.0))),
        ("a logarithm", causal(|h, d| -SLOPES[h] * (1.0 - d).ln())),
        (
            "one number off",
            causal(|h, d| SLOPES[h] * d + if d == -3.0 { 0.01 } else { 0.0 }),
        ),
        ("steps", causal(|h, d| SLOPES[h] * (d / 2.0).floor())),
        (
            "one head bent",
            causal(|h, d| if h == 1 { d * d } else { d }),
        ),
        (
            "other slopes after the query",
            scores(3, 0, |_, i, j| {
                if j > i {
                    -0.5 * (j - i) as f64
                } else {
                    0.2 * (j - i) as f64
                }
            }),
        ),
        (
            "heads that see one direction each",
            scores(2, 0, |h, i, j| {
                if (h == 0) == (j > i) && i != j {
                    hidden
                } else {
                    -(i - j).abs() as f64
                }
            }),
        ),
        (
            "a step at the query",
            scores(1, 0, |_, i, j| {
                (j - i) as f64 + if j > i { 1.0 } else { 0.0 }
            }),
        ),
    ];
    let reasons = [
        "a line leaves residuals",
        "a line leaves residuals",
        "a line leaves residuals",
        "a line leaves residuals",
        "a line leaves residuals",
        "a line leaves residuals",
        "slopes [0.2000",
        "too few keys are seen",
        "slopes [1.0000]",
    ];
    for ((name, scores), reason) in cases.into_iter().zip(reasons) {
        let why = read(&scores).unwrap_err();
        assert!(why.starts_with(reason), "{name}: {why}");
    }
}
