//! The registry: every family of biases is distinguished from all others by its numbers.

use ndarray::{ArrayD, IxDyn};

use super::*;
use crate::bias::{AnyFit, BiasFamily, Samples, ScoreBias};
use crate::emitted::{Tokens, apart};
use crate::encoding::{GivenTensors, SiteShape};
use crate::param::{Given, Value, Values};

/// Families of biases.
fn biases() -> impl Iterator<Item = (&'static Family, &'static BiasFamily)> {
    all().filter_map(|family| match &family.entry {
        Entry::ScoreBias(bias) => Some((family, bias)),
        _ => None,
    })
}

/// Every value of the parameters that are words, and counts that a short run shows.
fn settings(family: &Family) -> Vec<Given> {
    let mut all = vec![Given::default()];
    for param in family.params {
        let values: Vec<Value> = match param.values {
            Values::Word(words) => words.iter().map(|word| Value::Word(word)).collect(),
            Values::Count if param.name == "num-buckets" => {
                vec![8, 12].into_iter().map(Value::Count).collect()
            }
            Values::Count => vec![20, 30].into_iter().map(Value::Count).collect(),
            _ => continue,
        };
        let with = |given: &Given, value: &Value| {
            let mut given = given.clone();
            given.set(param, value.clone());
            given
        };
        all = all
            .iter()
            .flat_map(|given| values.iter().map(|value| with(given, value)))
            .collect();
    }
    all
}

/// Learned tensors: what they start from where that is no zero, else numbers without a pattern.
fn tensors(bias: &dyn ScoreBias, site: &SiteShape) -> Vec<ArrayD<f64>> {
    let mut n = 0.0f64;
    let mut noise = move || {
        n += 1.0;
        (n * 12.9898).sin() * 43758.5453 % 1.0
    };
    let dims = bias.tensors();
    let tensors = dims.iter().enumerate().map(|(i, dims)| {
        let start = bias.start(i, site).value;
        ArrayD::from_shape_fn(IxDyn(dims), |_| if start == 0.0 { noise() } else { start })
    });
    tensors.collect()
}

fn best(run: &crate::bias::Run) -> Option<(&'static str, AnyFit)> {
    let mut best: Option<(&'static str, AnyFit)> = None;
    for (family, bias) in biases() {
        let Ok(fit) = (bias.identify)(&Samples::of(run)) else {
            continue;
        };
        let is_better = |b: &(&str, AnyFit)| fit.is_better_than(&b.1, run.tolerance());
        if best.as_ref().is_none_or(is_better) {
            best = Some((family.word, fit));
        }
    }
    best
}

/// Calls a function with every bias that is planned at some setting, and a run of 70 tokens.
fn each(mut check: impl FnMut(&Family, &dyn ScoreBias, &[ArrayD<f64>], Tokens)) {
    for (family, functions) in biases() {
        for causal in [true, false] {
            for given in settings(family) {
                let site = SiteShape {
                    heads: Some(2),
                    head_dim: Some(8),
                    causal,
                };
                let bias = (functions.plan)(&site, &given, &GivenTensors::default()).unwrap();
                let tensors = tensors(&*bias, &site);
                let tokens = Tokens {
                    queries: 70,
                    past: 0,
                    causal,
                };
                check(family, &*bias, &tensors, tokens);
            }
        }
    }
}

#[test]
fn no_family_claims_the_numbers_of_another() {
    each(|family, bias, tensors, tokens| {
        let found = best(&tokens.of(bias, tensors));
        let found = found.map(|(word, _)| word);
        assert_eq!(found, Some(family.word), "{bias:?}");
    });
}

#[test]
fn what_is_emitted_is_the_formula() {
    each(|family, bias, tensors, tokens| {
        for (opset, past) in [(11, 0), (17, 3), (23, 0)] {
            let tokens = Tokens {
                queries: 40,
                past,
                ..tokens
            };
            let [got, want] = [
                tokens.emitted(opset, bias, tensors),
                tokens.of(bias, tensors),
            ];
            let finite = |run: &crate::bias::Run| -> Vec<f64> {
                let all = run.scores.values.iter().copied();
                all.filter(|v| v.is_finite()).collect()
            };
            let off = apart(&finite(&got), &finite(&want));
            assert!(off < 1e-5, "{} {opset} {past}: {off}", family.word);
        }
    });
}

#[test]
fn families_are_described_once() {
    let words: Vec<&str> = all().map(|family| family.word).collect();
    let mut slots: Vec<u64> = all().flat_map(|f| f.tensors).map(|t| t.slot).collect();
    let count = slots.len();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), count, "two tensors share a random stream");
    for (i, family) in all().enumerate() {
        assert!(!words[..i].contains(&family.word), "{}", family.word);
        assert!(!family.about.ends_with('.'), "{}", family.word);
        let written = !matches!(family.entry, Entry::FoundOnly);
        assert_eq!(written, !family.adds.is_empty(), "{}", family.word);
    }
}

/// The row of a family in the table of README.
fn row(family: &Family) -> String {
    let flag = |(name, default): (&str, &str)| match default {
        "" => format!("`--{name}`"),
        given => format!("`--{name}` ({given})"),
    };
    // Defaults that are no values are for the help.
    let is_value = |default: &str| !default.contains(' ');
    let own = family
        .params
        .iter()
        .map(|p| (p.name, Some(p.default).filter(|d| is_value(d))));
    let own = own.map(|(name, default)| (name, default.unwrap_or_default()));
    let flags: Vec<String> = family.common.iter().copied().chain(own).map(flag).collect();
    let tensor = |t: &crate::encoding::Learned| match t.about {
        "" => format!("`{} {}`", t.name, t.shape),
        about => format!("`{} {}`, {about}", t.name, t.shape),
    };
    let tensors: Vec<String> = family.tensors.iter().map(tensor).collect();
    let (flags, tensors) = (flags.join(", "), tensors.join(", "));
    let cells = [&flags, &tensors, family.starts[0], family.starts[1]];
    let cells = cells.map(|cell| {
        if cell.is_empty() {
            " |".into()
        } else {
            format!(" {cell} |")
        }
    });
    format!("| `{}` | {} |{}", family.word, family.adds, cells.concat())
}

#[test]
fn the_readme_has_a_row_for_each_family_that_can_be_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("| `--to` |"))
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("| `") && !line.starts_with("| `--to`"))
        .collect();
    let written = all().filter(|family| !family.adds.is_empty()).map(row);
    let want: Vec<String> = ["| `none` | nothing | | | | |".to_owned()]
        .into_iter()
        .chain(written)
        .collect();
    assert_eq!(
        rows,
        want,
        "README.md needs these rows:\n{}",
        want.join("\n")
    );
}
