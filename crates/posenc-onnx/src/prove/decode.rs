//! Prefill against decode: the last row of n tokens at once equals that of one token after n − 1
//! tokens in the cache.

use posenc_ir::{Tensor, ValueId};
use posenc_runtime::{Optimization, Session};

use super::VerifyError;
use super::feeds::{Padding, feeds};
use super::lengths::{is_affordable, supports};
use super::noise::noise;
use super::row::Judge;
use super::run::{Outputs, RuntimeTarget, run};
use super::subject::Subject;
use crate::attention::Site;
use crate::detect::Found;
use crate::graph::caches::{changed, cut, present};
use crate::graph::ports::{Lengths, Port, Role};
use crate::report::Run;

/// Tokens of the run that is compared first.
const FIRST: usize = 16;

/// Tokens of further runs: what depends on the length of the cache may begin behind more tokens.
const LONGER: [usize; 2] = [65, 129];

/// What a comparison of prefill with decode found.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    pub(crate) rows: Vec<Run>,
    /// Why longer caches were not compared, one sentence each.
    pub(crate) left_out: Vec<String>,
}

/// Compares prefill with decode at several lengths of two or more, one token beyond `longest` at the most; a row for
/// every output that has one row per token. Nothing for a model without a cache.
///
/// # Errors
/// When the output that contains a cache after a run cannot be identified, or the runtime fails at the first length.
pub(crate) fn decode(
    subject: &Subject<'_>,
    longest: usize,
    target: &RuntimeTarget<'_>,
) -> Result<Decoded, VerifyError> {
    let ports = subject.ports();
    let mut decoded = Decoded::default();
    let first = longest.min(FIRST);
    if !ports.has_past() || ports.fixed_sequence().is_some() || first < 2 {
        return Ok(decoded);
    }
    if let Some(site) = sees_empty_slots(subject.found) {
        let why = format!(
            "prefill was not compared with decode: the mask of {} is not known to hide the slots of its cache behind \
             each token",
            site.name
        );
        decoded.left_out.push(why);
        return Ok(decoded);
    }
    let optimization = Optimization::On;
    let Some(mut session) = subject.load(target, optimization)? else {
        return Ok(decoded);
    };
    let session = session.as_mut();
    decoded.rows = decode_at(subject, session, first, target)?;
    for length in LONGER
        .into_iter()
        .filter(|n| *n <= longest + 1 && runs(subject, *n))
    {
        match decode_at(subject, session, length, target) {
            Ok(rows) => decoded.rows.extend(rows),
            Err(error) => {
                let why =
                    format!("prefill was not compared with decode at length {length}: {error}");
                decoded.left_out.push(why);
            }
        }
    }
    Ok(decoded)
}

/// The first attention to slots of a cache whose mask was not read as causal: what is in empty slots, and in those of
/// later tokens, counts there.
fn sees_empty_slots(found: &Found) -> Option<&Site> {
    let mut sites = found.attention.iter();
    sites.find(|site| site.buffer.is_some() && site.mask.causal != Some(true))
}

/// Whether prefill and decode are the same at a length, and can be run: frequencies that change with the length leave
/// the keys of a cache as they were.
fn runs(subject: &Subject<'_>, length: usize) -> bool {
    let (model, found) = (subject.model, subject.found);
    let at = subject.ports().fit(Lengths {
        batch: 2,
        sequence: length,
        past: 0,
    });
    let mut switches = found.rotary.iter().filter_map(|site| site.switch.as_ref());
    switches.all(|switch| length <= switch.original_length)
        && supports(model, found, at)
        && is_affordable(model, found, at)
}

/// Compares prefill with decode at one length.
fn decode_at(
    subject: &Subject<'_>,
    session: &mut dyn Session,
    length: usize,
    target: &RuntimeTarget<'_>,
) -> Result<Vec<Run>, VerifyError> {
    let ports = subject.ports();
    let optimization = Optimization::On;
    let name = target.setting(optimization);
    let whole = ports.fit(Lengths {
        batch: 2,
        sequence: length,
        past: 0,
    });
    let noise = noise(subject, session, whole);
    let at_once = step(subject, session, whole, &[], &name)?;
    let shorter = Lengths {
        sequence: length - 1,
        ..whole
    };
    let before = step(subject, session, shorter, &[], &name)?;
    let last = Lengths {
        sequence: 1,
        past: length - 1,
        ..whole
    };
    let cache = cache(subject, &before, last)?;
    let stepped = step(subject, session, last, &cache, &name)?;
    let judge = Judge {
        tolerance: subject.tolerance,
        noise: Some(&noise),
        vocabulary: subject.vocabulary,
    };
    let compared = at_once.iter().filter_map(|(name, all)| {
        let (_, one) = stepped.iter().find(|(n, _)| n == name)?;
        let rows = [one, all].map(|tensor| tensor.dims().get(1).copied());
        let want = (rows == [Some(1), Some(length)]).then(|| last_row(all))??;
        let row = judge.row(name, one, &want);
        let output = format!("{name} (prefill = decode)");
        Some(target.row(optimization, (whole, Padding::None), output, row))
    });
    Ok(compared.collect())
}

/// One run with the given caches.
fn step(
    subject: &Subject<'_>,
    session: &mut dyn Session,
    at: Lengths,
    cache: &[(String, Tensor)],
    target: &str,
) -> Result<Outputs, VerifyError> {
    let mut fed = feeds(subject.model.graph(), subject.ports(), at, Padding::None)?;
    for (name, tensor) in cache {
        if let Some(feed) = fed.iter_mut().find(|(n, _)| n == name) {
            feed.1 = tensor.clone();
        }
    }
    let site = format!("decode after {}, {target}", at.past);
    run(session, &fed, &site).map_err(|error| error.of_model(subject.name))
}

/// The caches to feed to a run after one with these outputs.
fn cache(
    subject: &Subject<'_>,
    outputs: &Outputs,
    at: Lengths,
) -> Result<Vec<(String, Tensor)>, VerifyError> {
    let graph = subject.model.graph();
    let past = subject.ports().iter().filter(|p| p.role == Role::Past);
    let kept = past.map(|port| {
        let name = graph.name(port.value);
        let given = |output: ValueId| {
            let found = outputs.iter().find(|(name, _)| name == graph.name(output));
            found.map(|(_, tensor)| tensor.clone())
        };
        let whole = present(graph, port.value).and_then(given);
        let last = || cut(graph, port.value).and_then(given);
        let last = || last().filter(|last| fills_windows(subject, port, last));
        let other = || changed(graph, port.value).and_then(given);
        let is_fitting = |other: &Tensor| subject.ports().dims(port, at) == other.dims();
        let other = || other().filter(is_fitting);
        let tensor = whole.or_else(last).or_else(other).ok_or_else(|| {
            let why = "cannot identify the output that contains this cache after a run";
            VerifyError::unsupported(name, why)
        })?;
        Ok((name.to_owned(), tensor))
    });
    kept.collect()
}

/// Whether the tokens that are kept of a cache are all that a mask with a window lets a next token see.
fn fills_windows(subject: &Subject<'_>, port: &Port, kept: &Tensor) -> bool {
    let ports = subject.ports();
    let dims = |past: usize| {
        let at = Lengths {
            batch: 2,
            sequence: 1,
            past,
        };
        ports.dims(port, at)
    };
    let axis = dims(1).iter().zip(&dims(2)).position(|(a, b)| a != b);
    let tokens = axis.and_then(|axis| kept.dims().get(axis));
    let windows = subject
        .found
        .attention
        .iter()
        .filter_map(|site| site.mask.window);
    let seen = windows.max().and_then(|window| window.checked_sub(1));
    seen.zip(tokens)
        .is_some_and(|(seen, tokens)| *tokens >= seen)
}

/// Whether some output contains a part of a cache alone.
pub(super) fn is_cut(subject: &Subject<'_>) -> bool {
    let graph = subject.model.graph();
    let mut past = subject
        .ports()
        .iter()
        .filter(|port| port.role == Role::Past);
    past.any(|port| cut(graph, port.value).is_some())
}

/// The last row along axis 1, which keeps length 1.
fn last_row(tensor: &Tensor) -> Option<Tensor> {
    let mut dims = tensor.dims().to_vec();
    let below: usize = dims[2..].iter().product();
    let length = dims[1];
    let values = tensor.to_f64s()?;
    let rows = values.chunks(length * below);
    let last: Vec<f64> = rows
        .flat_map(|r| r[(length - 1) * below..].to_vec())
        .collect();
    dims[1] = 1;
    let is_float = tensor.dtype().is_float();
    is_float.then(|| Tensor::from_f64(tensor.dtype(), &dims, &last))
}

#[cfg(test)]
mod tests {
    use posenc_ir::DType;

    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{A, Sketch};
    use crate::prove::options::VerifyOptions;
    use crate::prove::testing::{Chosen, Evaluator, fixture};

    /// The lengths that are compared, and those that fail, where some runs are wrong.
    fn compared(only: Chosen, longest: usize) -> [Vec<usize>; 2] {
        let model = fixture("llama/optimum");
        let found = detect(&model, &Options::default());
        let subject = Subject::new(&model, &found, &VerifyOptions::default()).unwrap();
        let backend = Evaluator {
            fault: Some(|y, _| y.iter_mut().for_each(|y| *y += 0.1)),
            only: Some(only),
            ..Evaluator::default()
        };
        let decoded = decode(&subject, longest, &backend.target()).unwrap();
        assert_eq!(decoded.left_out, [""; 0]);
        [true, false].map(|all| {
            let rows = decoded.rows.iter().filter(|row| all || !row.ok);
            let mut lengths: Vec<usize> = rows.map(|row| row.length).collect();
            lengths.dedup();
            lengths
        })
    }

    /// Whether a layer of slots counts as one that sees empty ones, with the mask of later slots or without one.
    fn sees_empty(is_masked: bool) -> bool {
        let mut s = Sketch::default();
        let cache =
            |s: &mut Sketch, name: &str| s.input(name, DType::F32, &["batch", "3", "40", "8"]);
        let caches = [
            cache(&mut s, "past_key_values.0.key"),
            cache(&mut s, "past_key_values.0.value"),
        ];
        let at = s.input("cache_position", DType::I64, &["sequence"]);
        let x = s.embedded();
        let q = s.headed(&x);
        let [k, v] = caches.map(|cache| {
            let new = s.headed(&x);
            let shape = s.op("Shape", &[&new]);
            let index = s.reshape(&at, &[1, 1, -1, 1]);
            let index = s.op("Expand", &[&index, &shape]);
            s.with(
                "ScatterElements",
                &[&cache, &index, &new],
                &[("axis", A::Int(2))],
            )
        });
        let turned = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &turned]);
        let slots = s.ints(&(0..40).collect::<Vec<i64>>());
        let own = s.unsqueeze(&at, &[1]);
        let last = s.ints(&[40]);
        let last = if is_masked { own } else { last };
        let later = s.op("Greater", &[&slots, &last]);
        let y = s.masked([&scores, &v], &later);
        let found = detect(&s.model(18, &[&y, &k, &v]), &Options::default());
        sees_empty_slots(&found).is_some()
    }

    #[test]
    fn slots_that_no_mask_hides_are_not_compared() {
        assert!(sees_empty(false));
        assert!(!sees_empty(true), "control");
    }

    /// Whether the rows of a layer are within bounds whose cache contains keys after this change.
    fn decodes(change: fn(&mut Sketch, &str) -> String) -> bool {
        let mut s = Sketch::default();
        let past = ["past_key_values.0.key", "past_key_values.0.value"];
        let past = past.map(|name| s.input(name, DType::F32, &["batch", "3", "past", "8"]));
        let x = s.embedded();
        let q = s.headed(&x);
        let [k, v] = past.map(|past| {
            let new = s.headed(&x);
            s.concat(&[&past, &new], 2)
        });
        let y = s.weighted(&q, &k, &v);
        let kept = change(&mut s, &k);
        let model = s.model(18, &[&y, &kept, &v]);
        let found = detect(&model, &Options::default());
        let subject = Subject::new(&model, &found, &VerifyOptions::default()).unwrap();
        let decoded = decode(&subject, 8, &Evaluator::default().target()).unwrap();
        assert!(!decoded.rows.is_empty());
        decoded.rows.iter().all(|row| row.ok)
    }

    #[test]
    fn keys_that_change_on_their_way_into_a_cache_are_compared() {
        assert!(decodes(|_, k| k.to_owned()), "control");
        assert!(decodes(|s, k| {
            let other = s.op("Neg", &[k]);
            s.op("Neg", &[&other])
        }));
        assert!(!decodes(|s, k| s.op("Add", &[k, k])));
    }

    /// How many tokens are in the cache of a run of one token.
    fn past(feeds: &[(&str, Tensor)]) -> usize {
        let tokens = |name: &str| feeds.iter().find(|(own, _)| *own == name);
        let [ids, mask] = ["input_ids", "attention_mask"].map(|n| tokens(n).unwrap().1.dims()[1]);
        if ids == 1 { mask - ids } else { 0 }
    }

    #[test]
    fn what_begins_behind_a_longer_cache_is_seen() {
        assert_eq!(
            compared(|_| false, 128),
            [vec![16, 65, 129], vec![]],
            "control"
        );
        assert_eq!(compared(|f| past(f) > 20, 128)[1], [65, 129]);
        assert_eq!(compared(|f| past(f) > 100, 128)[1], [129]);
        assert_eq!(compared(|f| past(f) > 128, 128)[1], [0; 0], "behind all");
    }

    #[test]
    fn no_more_than_the_lengths_that_are_asked_for_is_run() {
        assert_eq!(compared(|_| false, 9)[0], [9]);
        assert_eq!(compared(|_| false, 64)[0], [16, 65]);
    }
}
