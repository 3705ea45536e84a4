//! Networks that are read, emitted and planned, and numbers that no network of them makes.

use std::sync::Arc;

use ndarray::IxDyn;

use super::*;
use crate::bias::Run;
use crate::emitted::Tokens;

/// A network of 8 hidden units, four of which bend where distances are.
fn network(c: f64, threshold: f64) -> (Fire, Vec<ArrayD<f64>>) {
    let fire = Fire {
        heads: 2,
        width: Some(8),
        c: None,
        threshold: None,
    };
    let values = [
        vec![1.0, -1.5, 0.5, 2.0, -0.7, 0.9, -1.2, 0.3],
        vec![-0.3, 0.8, 0.2, -1.1, -0.2, 0.4, 1.5, -0.9],
        (0..16).map(|n| (1.7 * n as f64).sin()).collect(),
        vec![0.25, -0.5],
        vec![c],
        vec![threshold],
    ];
    let dims = fire.tensors();
    let tensors = dims.iter().zip(values);
    let tensors = tensors.map(|(dims, values)| ArrayD::from_shape_vec(IxDyn(dims), values));
    let tensors = tensors.collect::<Result<_, _>>().unwrap();
    (fire, tensors)
}

fn tokens(queries: usize) -> Tokens {
    Tokens::causal(queries)
}

fn read(run: &Run) -> Result<(f64, Option<f64>), Miss> {
    let fit = Fire::identify(&Samples::of(run))?;
    Ok((fit.bias.c.unwrap(), fit.bias.threshold))
}

fn near(found: f64, want: f64) -> bool {
    (found - want).abs() <= 1e-3 * want
}

#[test]
fn c_and_the_threshold_are_read_where_the_numbers_show_them() {
    for (c, threshold) in [(0.1, 40.0), (1.0, 25.5), (0.02, 60.0), (5.0, 12.0)] {
        let (fire, tensors) = network(c, threshold);
        for past in [0, 5] {
            for causal in [true, false] {
                let tokens = Tokens {
                    queries: 100,
                    past,
                    causal,
                };
                let (found, l) = read(&tokens.of(&fire, &tensors)).unwrap();
                assert!(near(found, c), "{found} {c}");
                assert!(l.is_some_and(|l| near(l, threshold)), "{l:?} {threshold}");
            }
        }
    }
}

#[test]
fn what_is_emitted_is_read_again() {
    let (fire, tensors) = network(0.5, 20.0);
    for (opset, past) in [(13, 0), (17, 7)] {
        let tokens = Tokens { past, ..tokens(64) };
        let (c, l) = read(&tokens.emitted(opset, &fire, &tensors)).unwrap();
        assert!(
            near(c, 0.5) && l.is_some_and(|l| near(l, 20.0)),
            "{c} {l:?}"
        );
    }
}

#[test]
fn a_threshold_with_all_queries_on_one_side_is_unknown() {
    let (fire, tensors) = network(0.1, 512.0);
    let (c, l) = read(&tokens(90).of(&fire, &tensors)).unwrap();
    assert!(near(c, 0.1), "{c}");
    assert_eq!(l, None);
    let (fire, tensors) = network(0.1, 0.5);
    let (c, l) = read(&tokens(90).of(&fire, &tensors)).unwrap();
    assert!(near(c, 0.1) && l.is_none(), "{c} {l:?}");
}

#[test]
fn a_constant_for_each_query_is_nothing_to_a_softmax() {
    let (fire, tensors) = network(0.1, 40.0);
    let run =
        tokens(90).run(|h, at| fire.reference(&tensors, h, at).value + (at.query as f64).sin());
    assert!(near(read(&run).unwrap().0, 0.1));
}

#[test]
fn the_sign_of_c_and_the_threshold_has_no_effect() {
    let ((fire, one), (_, other)) = (network(0.1, 40.0), network(-0.1, -40.0));
    let at = At {
        query: 50,
        key: 20,
        keys: 60,
    };
    assert_eq!(fire.reference(&one, 1, at), fire.reference(&other, 1, at));
}

#[test]
fn the_formula_by_hand() {
    let (fire, tensors) = network(1.0, 8.0);
    let at = |query, key| At {
        query,
        key,
        keys: 32,
    };
    let x = 4f64.ln() / 9f64.ln();
    let [w, b, v, o] = [0, 1, 2, 3].map(|i| &tensors[i]);
    let unit = |k: usize| v[[1, k]] * (w[[k, 0]] * x + b[[k]]).max(0.0);
    let want = o[[1]] + (0..8).map(unit).sum::<f64>();
    let got = fire.reference(&tensors, 1, at(5, 2)).value;
    assert!((got - want).abs() < 1e-12);
    // Beyond the threshold the same share gives the same number: ψ(15) = 2 ψ(3), ψ(255) = 2 ψ(15).
    let share = |query, key| fire.reference(&tensors, 0, at(query, key)).value;
    assert!((share(15, 12) - share(255, 240)).abs() < 1e-12);
    // Keys after the query count by their distance.
    assert_eq!(share(15, 12), share(15, 18));
    assert!(
        (share(15, 12) - share(16, 13)).abs() > 1e-6,
        "the position of the query counts"
    );
}

#[test]
fn numbers_that_no_network_makes_are_refused() {
    let (fire, tensors) = network(0.1, 40.0);
    let value = |h, at| fire.reference(&tensors, h, at).value;
    let far = |at: At| at.distance().unsigned_abs() as f64;
    let moved = |at: At, by: i64| At {
        query: at.query + by,
        key: at.key + by,
        ..at
    };
    let psi = |x: f64| (0.1 * x).ln_1p();
    let tokens = tokens(80);
    let cases: [(&str, Run); 14] = [
        ("nothing", tokens.run(|_, _| 0.0)),
        ("a line", tokens.run(|_, at| -far(at))),
        ("a parabola", tokens.run(|_, at| -far(at).powi(2))),
        ("a root", tokens.run(|_, at| -far(at).sqrt())),
        ("a wave", tokens.run(|_, at| far(at).sin())),
        ("steps", tokens.run(|_, at| (far(at) / 8.0).floor())),
        (
            "noise by distance",
            tokens.run(|_, at| (far(at) * 12.9898).sin() * 43758.5453 % 1.0),
        ),
        (
            "a share without a logarithm",
            tokens.run(|_, at| far(at) / (at.query as f64 + 1.0)),
        ),
        (
            "a share of another logarithm",
            tokens.run(|_, at| (psi(far(at)) / (1.0 + psi(at.query as f64))).powi(2)),
        ),
        (
            "queries counted from elsewhere",
            tokens.run(|h, at| value(h, moved(at, if at.query > 60 { 25 } else { 0 }))),
        ),
        (
            "a factor for each query",
            tokens.run(|h, at| value(h, at) * (1.0 + 0.01 * at.query as f64)),
        ),
        (
            "one number off",
            tokens.run(|h, at| {
                value(h, at)
                    + if (at.query, at.key) == (79, 40) {
                        0.1
                    } else {
                        0.0
                    }
            }),
        ),
        (
            "other numbers after the query",
            Tokens {
                causal: false,
                ..tokens
            }
            .run(|h, at| value(h, at) * if at.distance() > 0 { 0.5 } else { 1.0 }),
        ),
        (
            "too few tokens",
            Tokens {
                queries: 12,
                ..tokens
            }
            .of(&fire, &tensors),
        ),
    ];
    let reasons = [
        "no three distances",
        "no three distances",
        "no three distances",
        "no three distances",
        "no three distances",
        "no three distances",
        "no three distances",
        "no three distances",
        "no three distances",
        "lines of different queries are no multiples",
        "lines of different queries are no multiples",
        "lines of different queries bend",
        "keys before and after the query differ",
        "too few distances",
    ];
    for ((name, run), reason) in cases.into_iter().zip(reasons) {
        let why = read(&run).unwrap_err().why;
        assert!(why.starts_with(reason), "{name}: {why}");
    }
}

#[test]
fn files_give_the_width_and_have_to_be_positive() {
    let site = SiteShape {
        heads: Some(2),
        ..SiteShape::default()
    };
    let plan = |name: &str, dims: &[usize], value: f32| {
        let mut tensors = GivenTensors::default();
        let learned = FAMILY.tensors.iter().find(|t| t.name == name).unwrap();
        let tensor = Tensor::from_f32(dims, &vec![value; dims.iter().product()]);
        tensors.set(learned, name.to_owned(), Arc::new(tensor));
        Fire::plan(&site, &Given::default(), &tensors)
    };
    assert_eq!(
        plan("hidden_weight", &[16, 1], 0.5).unwrap().width,
        Some(16)
    );
    assert_eq!(plan("c", &[1], 0.5).unwrap().width, Some(WIDTH));
    let why = |name, dims: &[usize], value| plan(name, dims, value).unwrap_err().to_string();
    assert_eq!(why("c", &[1], 0.0), "c is 0 but must be positive");
    assert_eq!(
        why("threshold", &[2], 1.0),
        "threshold has shape [2], but the model needs [1]"
    );
}
