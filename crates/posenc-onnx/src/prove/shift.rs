//! Shift invariance: a model whose encodings depend on distances alone computes the same of tokens wherever
//! they are. What was recognized decides whether this is checked, and has no part in the comparison.

mod changed;

use ndarray::ArrayD;
use posenc_encodings::bias::{At, ScoreBias};
use posenc_ir::eval::Budget;
use posenc_ir::{DType, NodeId, Tensor};
use posenc_runtime::Optimization;

use super::VerifyError;
use super::expected::expectations;
use super::feeds::{Padding, feeds};
use super::lengths::supports;
use super::points::takes_left_padding;
use super::row::{Judge, uncompared};
use super::run::{Outputs, RuntimeTarget, run};
use super::subject::{Subject, coarsest};
use super::tolerance::Tolerance;
use crate::attention::Site;
use crate::attention::scores::plane;
use crate::detect::finding::Encoding;
use crate::detect::{run_at, scaled};
use crate::graph::ports::{Lengths, Port, Role, decides_mask, place};
use crate::plan::unread::beside;
use crate::report::Run;
use changed::changed_after_rotation;

/// The most tokens of a run, those before the first that counts included.
const TOKENS: usize = 24;

/// The share of the usual magnitude of an output by which it may change: rotations by other angles are rounded
/// in other ways, and attention multiplies that by the size of its scores.
const SHARE: f64 = 1e-2;

/// Room for the mask of so many tokens.
const BUDGET: Budget = Budget { elements: 1 << 20 };

/// How tokens get other positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// An input holds their positions.
    Positions,
    /// Padding is put before them.
    Padding,
}

/// Tokens of a run that gets other positions.
#[derive(Clone, Copy, Debug)]
struct Shift {
    means: Means,
    /// How many tokens count.
    tokens: usize,
    /// By how much they are moved.
    by: usize,
}

/// A row for every output of tokens, at positions from 0 on and at later ones. Empty for a model that has another
/// encoding, or whose tokens cannot be moved.
///
/// # Errors
/// When the runtime fails, when positions scale content or decide which keys are hidden, when the model computes no
/// numbers behind padding, or when its metadata names an invalid scaling.
pub(super) fn shift(
    subject: &Subject<'_>,
    longest: usize,
    target: &RuntimeTarget<'_>,
) -> Result<Vec<Run>, VerifyError> {
    let Some(shift) = planned(subject, longest)? else {
        return Ok(vec![]);
    };
    let refuse = |node, why| {
        let place = subject.model.graph().place(node);
        Err(VerifyError::unsupported(place, why))
    };
    if let Some(node) = scaled::by_places(subject.model, subject.found) {
        let why = "positions or the length scale content here, beside the encoding";
        return refuse(node, why);
    }
    if let Some(node) = changed_after_rotation(subject.model.graph(), subject.found) {
        let why = "queries or keys are changed here after their rotation, feature by feature";
        return refuse(node, why);
    }
    if let Some(node) = hides_by_place(subject, shift.tokens + shift.by) {
        return refuse(
            node,
            "which keys the mask hides depends on more than distances",
        );
    }
    moved(subject, shift, target)
}

/// A row for every output of tokens, at their first positions and moved.
fn moved(
    subject: &Subject<'_>,
    shift: Shift,
    target: &RuntimeTarget<'_>,
) -> Result<Vec<Run>, VerifyError> {
    let optimization = Optimization::On;
    let Some(mut session) = subject.load(target, optimization)? else {
        return Ok(vec![]);
    };
    let site = format!("shift by {}, {}", shift.by, target.setting(optimization));
    let [first, moved] = [false, true].map(|is_moved| {
        let fed = fed(subject, shift, is_moved)?;
        run(session.as_mut(), &fed, &site)
    });
    let usual = subject.tolerance;
    let judge = Judge {
        tolerance: Tolerance {
            share: usual.share.max(SHARE),
            ..usual
        },
        noise: None,
        vocabulary: subject.vocabulary,
    };
    let of = (lengths(shift.tokens), Padding::None);
    let pairs = pairs(&first?, &moved?, shift);
    // Rows in which everything is masked may be no numbers.
    let is_empty = |(_, first, moved): &(String, Tensor, Tensor)| {
        uncompared(moved).nan > 0 && uncompared(first).nan == 0
    };
    if shift.means == Means::Padding && pairs.iter().any(is_empty) {
        let why = "the model computes no numbers there";
        return Err(VerifyError::unsupported("tokens behind padding", why));
    }
    let rows = pairs.into_iter();
    let rows = rows.map(|(name, want, got)| {
        let row = judge.row(&name, &got, &want);
        let output = format!("{name} (moved by {})", shift.by);
        target.row(optimization, of, output, row)
    });
    Ok(rows.collect())
}

/// The first self-attention whose mask hides a key at some distance from one query and not from another, in a sequence
/// of so many tokens.
fn hides_by_place(subject: &Subject<'_>, tokens: usize) -> Option<NodeId> {
    let (model, found) = (subject.model, subject.found);
    let longer = run_at(model, found, lengths(tokens), &BUDGET);
    let depends = |site: &&Site| {
        let longer = longer.as_ref();
        let longer = longer.and_then(|trace| plane(model, &found.classes, trace, site));
        let Some(plane) = longer.as_ref().or(site.bias.as_deref()) else {
            return false;
        };
        let mut pairs = plane.bias.indexed_iter();
        pairs.any(|((g, h, i, j), _)| {
            let before = i.checked_sub(1).zip(j.checked_sub(1));
            before.is_some_and(|(query, key)| {
                plane.is_hidden([g, h, i, j]) != plane.is_hidden([g, h, query, key])
            })
        })
    };
    let mut sites = found.attention.iter().filter(|site| !site.cross);
    sites.find(depends).map(|site| site.node)
}

/// How tokens can be moved.
fn planned(subject: &Subject<'_>, longest: usize) -> Result<Option<Shift>, VerifyError> {
    let (model, found) = (subject.model, subject.found);
    let is_coarse = subject.is_quantized || coarsest(model, found) == DType::BF16;
    if is_coarse || !depends_on_distances(subject) || subject.ports().fixed_sequence().is_some() {
        return Ok(None);
    }
    let expected = expectations(model, found)?;
    let changes = expected.iter().filter_map(|e| e.law.changes_at());
    let total = changes.chain([TOKENS, longest]).min().unwrap_or(0);
    let by = total / 3;
    let shift = means(subject).map(|means| Shift {
        means,
        tokens: total - by,
        by,
    });
    let runs = |at: usize| {
        let at = lengths(at);
        subject.ports().fit(at) == at && supports(model, found, at)
    };
    Ok(shift.filter(|_| by > 0 && runs(total)))
}

/// One sequence.
fn lengths(sequence: usize) -> Lengths {
    Lengths {
        batch: 1,
        sequence,
        past: 0,
    }
}

/// Whether everything that encodes positions was read, and depends on distances alone.
fn depends_on_distances(subject: &Subject<'_>) -> bool {
    let found = subject.found;
    let is_read = found.not_rotary.is_empty()
        && found.axial.is_empty()
        && found.misplaced.is_empty()
        && found.not_evaluated.is_empty()
        && found.no_attention.is_empty()
        && beside::met(subject.model, found).is_none();
    let relative = |encoding: &Encoding| match encoding {
        Encoding::ScoreBias(_, bias) => is_shift_invariant(&**bias),
        Encoding::Shaw(_) | Encoding::TransformerXl(_) | Encoding::Disentangled(_) => true,
        _ => false,
    };
    let is_any = !found.rotary.is_empty() || !found.findings.is_empty();
    is_read && is_any && found.findings.iter().all(|f| relative(&f.encoding))
}

/// Whether a bias is the same, up to a constant for each query, when queries and keys are moved.
fn is_shift_invariant(bias: &dyn ScoreBias) -> bool {
    const KEYS: i64 = 6;
    const BY: i64 = 5;
    let numbers = |dims: Vec<usize>| {
        let count = dims.iter().product::<usize>();
        let numbers = (0..count).map(|i| (i as f64 * 0.37).sin()).collect();
        ArrayD::from_shape_vec(dims, numbers).ok()
    };
    let Some(tensors) = bias
        .tensors()
        .into_iter()
        .map(numbers)
        .collect::<Option<Vec<_>>>()
    else {
        return false;
    };
    let value = |head: usize, query: i64, key: i64, by: i64| {
        let at = At {
            query: query + by,
            key: key + by,
            keys: (KEYS + by) as usize,
        };
        bias.reference(&tensors, head, at).value
    };
    let is_same = |head: usize, query: i64, key: i64| {
        let [own, moved] =
            [0, BY].map(|by| value(head, query, key, by) - value(head, query, 0, by));
        (own - moved).abs() <= 1e-9 * own.abs().max(1.0)
    };
    (0..bias.heads())
        .all(|head| (0..KEYS).all(|query| (0..=query).all(|key| is_same(head, query, key))))
}

/// How the tokens of a model can be moved.
fn means(subject: &Subject<'_>) -> Option<Means> {
    let (ports, found) = (subject.ports(), subject.found);
    let of = |role: Role| ports.iter().filter(move |port| port.role == role);
    if of(Role::Positions).next().is_some() {
        let graph = subject.model.graph();
        // A mask that follows from them would hide others.
        let is_plain =
            |port: &Port| port.dims.len() <= 2 && !port.turned && !decides_mask(graph, port.value);
        return of(Role::Positions)
            .all(is_plain)
            .then_some(Means::Positions);
    }
    let sequences = of(Role::Tokens).chain(of(Role::Content));
    let is_single = sequences.count() == 1 && of(Role::Padding).count() == 1;
    let hides_all = found
        .attention
        .iter()
        .all(|site| site.mask.padding && !site.cross);
    let pads = is_single && hides_all && found.mixers.is_empty() && takes_left_padding(subject);
    pads.then_some(Means::Padding)
}

/// The inputs of a run, with tokens at their first positions or moved.
fn fed(
    subject: &Subject<'_>,
    shift: Shift,
    is_moved: bool,
) -> Result<Vec<(String, Tensor)>, VerifyError> {
    let (graph, ports) = (subject.model.graph(), subject.ports());
    let tokens = shift.tokens;
    let first = feeds(graph, ports, lengths(tokens), Padding::None)?;
    if !is_moved {
        return Ok(first);
    }
    let mut all = match shift.means {
        Means::Positions => first.clone(),
        Means::Padding => feeds(graph, ports, lengths(tokens + shift.by), Padding::None)?,
    };
    for ((port, (_, moved)), (_, own)) in ports.iter().zip(&mut all).zip(&first) {
        let dims = moved.dims().to_vec();
        let (Some(numbers), Some(own)) = (moved.to_f64s(), own.to_f64s()) else {
            continue;
        };
        let axis = match port.role {
            Role::Content => usize::from(!port.turned),
            _ => port.token_axis(),
        };
        let stride: usize = dims.iter().skip(axis + 1).product();
        let token = |i: usize| place(i, &dims, axis);
        let number = |(i, number): (usize, f64)| match (shift.means, port.role) {
            (Means::Positions, Role::Positions) => number + shift.by as f64,
            (Means::Positions, _) => number,
            (Means::Padding, Role::Padding) => f64::from(u8::from(token(i) >= shift.by)),
            // One sequence: what is before an element does not depend on its length.
            (Means::Padding, Role::Tokens | Role::Content) if token(i) >= shift.by => {
                own[i - shift.by * stride]
            }
            (Means::Padding, _) => number,
        };
        let numbers: Vec<f64> = numbers.into_iter().enumerate().map(number).collect();
        *moved = Tensor::from_f64(moved.dtype(), &dims, &numbers);
    }
    Ok(all)
}

/// The outputs of tokens, `[batch, tokens, …]`: at their first positions and moved. Caches contain rotated keys,
/// which are not the same.
fn pairs(first: &Outputs, moved: &Outputs, shift: Shift) -> Vec<(String, Tensor, Tensor)> {
    let before = match shift.means {
        Means::Positions => 0,
        Means::Padding => shift.by,
    };
    let pair = |((name, own), (_, moved)): (&(String, Tensor), &(String, Tensor))| {
        let (dims, others) = (own.dims(), moved.dims());
        let is_of_tokens = (2..=3).contains(&dims.len())
            && dims[..2] == [1, shift.tokens]
            && others.len() == dims.len()
            && others[1] == shift.tokens + before
            && others[2..] == dims[2..]
            && own.dtype().is_float();
        let numbers = moved.to_f64s().filter(|_| is_of_tokens)?;
        let width: usize = dims[2..].iter().product();
        let kept = Tensor::from_f64(moved.dtype(), dims, &numbers[before * width..]);
        Some((name.clone(), own.clone(), kept))
    };
    first.iter().zip(moved).filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::Sketch;
    use crate::prove::options::VerifyOptions;
    use crate::prove::testing::{Evaluator, fixture};
    use posenc_ir::Model;

    fn rows(model: &Model, backend: &Evaluator, forced: Option<Shift>) -> Vec<Run> {
        let found = detect(model, &Options::default());
        let subject = Subject::new(model, &found, &VerifyOptions::default()).unwrap();
        match forced {
            Some(by) => moved(&subject, by, &backend.target()).unwrap(),
            None => shift(&subject, 64, &backend.target()).unwrap(),
        }
    }

    #[test]
    fn tokens_at_other_positions_have_the_same_outputs() {
        for name in [
            "llama/optimum",
            "llama/torchscript",
            "mini/alibi",
            "mini/t5",
        ] {
            let model = fixture(name);
            let rows = rows(&model, &Evaluator::default(), None);
            assert!(rows.iter().all(|row| row.ok), "{name}: {rows:#?}");
            // A fault in later tokens alone is seen where padding moves them.
            let found = detect(&model, &Options::default());
            let subject = Subject::new(&model, &found, &VerifyOptions::default()).unwrap();
            assert_eq!(rows.is_empty(), means(&subject).is_none(), "{name}");
        }
    }

    #[test]
    fn an_absolute_encoding_is_not_invariant_and_not_judged() {
        for name in ["bert/dynamo", "mini/learned"] {
            let model = fixture(name);
            assert!(
                rows(&model, &Evaluator::default(), None).is_empty(),
                "{name}"
            );
        }
        let by = Shift {
            means: Means::Padding,
            tokens: 16,
            by: 8,
        };
        let rows = rows(&fixture("bert/dynamo"), &Evaluator::default(), Some(by));
        assert!(rows.iter().any(|row| !row.ok), "{rows:#?}");
    }

    #[test]
    fn positions_that_a_mask_compares_are_not_moved() {
        let means_of = |is_compared: bool| {
            let mut s = Sketch::default();
            let x = s.embedded();
            let at = s.input("position_ids", DType::I64, &["sequence"]);
            let [scores, v] = s.scored(&x, &x);
            let keys = s.range();
            let queries = s.unsqueeze(if is_compared { &at } else { &keys }, &[1]);
            let later = s.op("Greater", &[&keys, &queries]);
            let y = s.masked([&scores, &v], &later);
            let model = s.model(17, &[&y, &at]);
            let found = detect(&model, &Options::default());
            let subject = Subject::new(&model, &found, &VerifyOptions::default()).unwrap();
            means(&subject)
        };
        assert_eq!(means_of(true), None);
        assert_eq!(means_of(false), Some(Means::Positions), "control");
    }

    #[test]
    fn a_mask_that_follows_distances_alone_hides_by_no_place() {
        let hides = |seen_by_all: f64| {
            let mut s = Sketch::default();
            let x = s.embedded();
            let [scores, v] = s.scored(&x, &x);
            let (keys, d) = (s.range(), s.distance());
            let [keys, d] = [keys, d].map(|n| s.cast(&n, DType::F32));
            let [first, zero] = [seen_by_all, 0.0].map(|n| s.float(n));
            let later = s.op("Greater", &[&d, &zero]);
            let behind = s.op("GreaterOrEqual", &[&keys, &first]);
            let hidden = s.op("And", &[&later, &behind]);
            let y = s.masked([&scores, &v], &hidden);
            let model = s.model(17, &[&y]);
            let found = detect(&model, &Options::default());
            let subject = Subject::new(&model, &found, &VerifyOptions::default()).unwrap();
            hides_by_place(&subject, TOKENS).is_some()
        };
        assert!(hides(4.0), "a prefix that all see");
        assert!(hides(20.0), "a prefix behind the trial run");
        assert!(!hides(0.0), "causal");
    }

    #[test]
    fn rows_that_are_no_numbers_behind_padding_are_named_and_not_judged() {
        let empty = Evaluator {
            fault: Some(|y, dims| {
                let width = dims.iter().skip(2).product::<usize>().max(1);
                y[..width].fill(f64::NAN);
            }),
            only: Some(|feeds| {
                let is_padded = |(name, tensor): &(&str, Tensor)| {
                    *name == "attention_mask" && tensor.to_f64s().unwrap()[0] == 0.0
                };
                feeds.iter().any(is_padded)
            }),
            ..Evaluator::default()
        };
        let model = fixture("llama/torchscript");
        let found = detect(&model, &Options::default());
        let subject = Subject::new(&model, &found, &VerifyOptions::default()).unwrap();
        // The first rows are those of padding, which is no output of tokens.
        assert!(rows(&model, &empty, None).iter().all(|row| row.ok));
        let all = Evaluator {
            fault: Some(|y, _| y.fill(f64::NAN)),
            ..empty
        };
        let error = shift(&subject, 64, &all.target()).unwrap_err();
        let why = "tokens behind padding: the model computes no numbers there";
        assert_eq!(error.to_string(), why);
        // Numbers that are none without padding are a failure.
        let always = Evaluator {
            only: None,
            ..all.clone()
        };
        let rows = rows(&model, &always, None);
        assert!(
            !rows.is_empty() && rows.iter().all(|row| !row.ok),
            "{rows:#?}"
        );
    }

    #[test]
    fn what_depends_on_the_index_of_a_token_is_seen() {
        let faulty = Evaluator::adding_places();
        let all = rows(&fixture("llama/torchscript"), &faulty, None);
        assert!(!all.is_empty() && all.iter().all(|row| !row.ok), "{all:#?}");
    }
}
