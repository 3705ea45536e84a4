//! Permutation equivariance: where nothing encodes positions and no mask depends on the order of tokens, outputs
//! move with their tokens. What was recognized decides whether this is checked, and has no part in the comparison.

use posenc_ir::eval::Budget;
use posenc_ir::{DType, Model, NodeId, Tensor, ValueId};
use posenc_runtime::Optimization;

use super::VerifyError;
use super::feeds::{Padding, different_tokens, order};
use super::lengths::supports;
use super::row::Judge;
use super::run::{Outputs, RuntimeTarget, run};
use super::subject::{Subject, coarsest};
use crate::attention::scores::plane;
use crate::detect::{Found, run_at};
use crate::graph::mixing::Mixing;
use crate::graph::ports::{Lengths, place};
use crate::plan::unread;
use crate::report::Run;

/// A run: of a number of tokens that no width has.
const AT: Lengths = Lengths {
    batch: 1,
    sequence: 23,
    past: 0,
};

/// Elements of a mask of as many tokens.
const BUDGET: Budget = Budget { elements: 1 << 20 };

/// A row for every output of tokens, in the order of the inputs and in another one. Empty for a model in which
/// order matters, or whose tokens cannot be put in another order.
///
/// # Errors
/// When the runtime fails.
pub(super) fn permuted(
    subject: &Subject<'_>,
    target: &RuntimeTarget<'_>,
) -> Result<Vec<Run>, VerifyError> {
    match has_no_order(subject) {
        true => compared(subject, target),
        false => Ok(vec![]),
    }
}

/// Whether everything was read, and nothing in the model depends on the order of tokens.
fn has_no_order(subject: &Subject<'_>) -> bool {
    let (model, found) = (subject.model, subject.found);
    let is_coarse = subject.is_quantized || coarsest(model, found) == DType::BF16;
    let mut mixers = found.mixers.iter();
    !is_coarse
        && found.has_no_encoding()
        && !found.attention.is_empty()
        && found.attention.iter().all(|site| !site.hides_keys())
        && mixers
            .all(|mixer| mixer.mixing == Mixing::Pooling && !pools_some(model, found, mixer.node))
        && unread::of_branch(model, found).is_empty()
        && !hides_keys(subject)
}

/// Whether a pooling is of some neighbours each, and not of all tokens at once.
fn pools_some(model: &Model, found: &Found, node: NodeId) -> bool {
    let node = model.graph().node(node);
    let elements = |value: Option<ValueId>| found.trace.get(value?).elements();
    let is_reduction = node.op().starts_with("Reduce") || node.op().ends_with("Pool");
    match (elements(node.input(0)), elements(node.output(0))) {
        (Some(from), Some(to)) if is_reduction => to * found.lengths.sequence > from,
        _ => false,
    }
}

/// Whether a mask hides keys of so many tokens, which may be more than those that were read.
fn hides_keys(subject: &Subject<'_>) -> bool {
    let (model, found) = (subject.model, subject.found);
    let Some(run) = run_at(model, found, AT, &BUDGET) else {
        return false;
    };
    let planes = found.attention.iter();
    let mut planes = planes.filter_map(|site| plane(model, &found.classes, &run, site));
    planes.any(|plane| plane.bias.iter().any(|v| *v == f64::NEG_INFINITY))
}

/// A row for every output of tokens, with tokens in two orders.
fn compared(subject: &Subject<'_>, target: &RuntimeTarget<'_>) -> Result<Vec<Run>, VerifyError> {
    let (graph, ports) = (subject.model.graph(), subject.ports());
    let at = ports.fit(AT);
    if at.sequence < 3 || !supports(subject.model, subject.found, at) {
        return Ok(vec![]);
    }
    let fed = |is_moved| different_tokens(graph, ports, at, is_moved);
    let (Some(first), Some(second)) = (fed(false)?, fed(true)?) else {
        return Ok(vec![]);
    };
    let optimization = Optimization::On;
    let Some(mut session) = subject.load(target, optimization)? else {
        return Ok(vec![]);
    };
    let site = format!("tokens in another order, {}", target.setting(optimization));
    let first = run(session.as_mut(), &first, &site)?;
    let second = run(session.as_mut(), &second, &site)?;
    let judge = Judge {
        tolerance: subject.tolerance,
        noise: None,
        vocabulary: subject.vocabulary,
    };
    let rows = pairs(&first, &second, at).into_iter();
    let rows = rows.map(|(name, want, got)| {
        let row = judge.row(&name, &got, &want);
        let output = format!("{name} (tokens in another order)");
        target.row(optimization, (at, Padding::None), output, row)
    });
    Ok(rows.collect())
}

/// The outputs of tokens, `[batch, tokens, …]`: the first with its rows moved as the tokens of the second are, and
/// the second.
fn pairs(first: &Outputs, second: &Outputs, at: Lengths) -> Vec<(String, Tensor, Tensor)> {
    let order = order(at.sequence);
    let pair = |((name, own), (_, got)): (&(String, Tensor), &(String, Tensor))| {
        let dims = own.dims();
        let is_of_tokens = (2..=3).contains(&dims.len())
            && dims[..2] == [at.batch, at.sequence]
            && got.dims() == dims
            && own.dtype().is_float();
        let numbers = own.to_f64s().filter(|_| is_of_tokens)?;
        let width: usize = dims[2..].iter().product();
        let moved = |i: usize| {
            let to = place(i, dims, 1);
            numbers[i - to * width + order[to] * width]
        };
        let moved: Vec<f64> = (0..numbers.len()).map(moved).collect();
        let want = Tensor::from_f64(own.dtype(), dims, &moved);
        Some((name.clone(), want, got.clone()))
    };
    first.iter().zip(second).filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{A, Sketch};
    use crate::prove::options::VerifyOptions;
    use crate::prove::testing::{Evaluator, fixture};

    /// The rows of a fixture, also where the order of its tokens matters.
    fn rows(name: &str, backend: &Evaluator, is_forced: bool) -> Vec<Run> {
        let model = fixture(name);
        let found = detect(&model, &Options::default());
        let subject = Subject::new(&model, &found, &VerifyOptions::default()).unwrap();
        let target = backend.target();
        match is_forced {
            true => compared(&subject, &target).unwrap(),
            false => permuted(&subject, &target).unwrap(),
        }
    }

    #[test]
    fn without_an_encoding_outputs_move_with_their_tokens() {
        let rows = rows("mini-encoder/none", &Evaluator::default(), false);
        assert!(
            !rows.is_empty() && rows.iter().all(|row| row.ok),
            "{rows:#?}"
        );
    }

    #[test]
    fn a_pooling_of_some_neighbours_keeps_their_order() {
        let is_some = |tokens: i64| {
            let mut s = Sketch::default();
            let x = s.embedded();
            let x = s.attends(&x, &x);
            let groups = s.reshape(&x, &[0, tokens, -1, 12]);
            let axis = s.ints(&[2]);
            let y = s.op("ReduceMean", &[&groups, &axis]);
            let model = s.model(18, &[&y]);
            let found = detect(&model, &Options::default());
            let mut nodes = model.graph().nodes();
            let (id, _) = nodes.find(|(_, node)| node.is("ReduceMean")).unwrap();
            pools_some(&model, &found, id)
        };
        assert!(is_some(7), "pairs of 14 tokens");
        assert!(!is_some(1), "all tokens");
    }

    #[test]
    fn with_an_encoding_or_a_causal_mask_they_do_not_and_are_not_judged() {
        for name in ["mini-encoder/learned", "bert/dynamo", "mini/none"] {
            let backend = Evaluator::default();
            assert!(rows(name, &backend, false).is_empty(), "{name}");
            let forced = rows(name, &backend, true);
            assert!(forced.iter().any(|row| !row.ok), "{name}: {forced:#?}");
        }
    }

    #[test]
    fn masks_of_another_shape_are_not_judged_either() {
        // Each token sees those before it, and `ahead` after it.
        let judged = |ahead: f64| {
            let mut s = Sketch::default();
            let x = s.embedded();
            let [scores, v] = s.scored(&x, &x);
            let d = s.distance();
            let d = s.cast(&d, DType::F32);
            let [ahead, low, zero] = [ahead, -1e9, 0.0].map(|n| s.float(n));
            let hidden = s.op("Greater", &[&d, &ahead]);
            let mask = s.op("Where", &[&hidden, &low, &zero]);
            let scores = s.op("Add", &[&scores, &mask]);
            let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
            let y = s.op("MatMul", &[&weights, &v]);
            let y = s.merged(&y);
            let model = s.model(17, &[&y]);
            let found = detect(&model, &Options::default());
            assert_eq!(found.attention[0].mask.causal, Some(false));
            let subject = Subject::new(&model, &found, &VerifyOptions::default()).unwrap();
            has_no_order(&subject)
        };
        assert!(!judged(1.0) && !judged(5.0));
        // It hides nothing in the trial run, and something in this one.
        assert!(!judged(16.0));
        assert!(judged(1e4), "control: nothing is hidden");
    }

    #[test]
    fn what_depends_on_the_index_of_a_token_is_seen() {
        let faulty = Evaluator::adding_places();
        let all = rows("mini-encoder/none", &faulty, false);
        assert!(!all.is_empty() && all.iter().all(|row| !row.ok), "{all:#?}");
    }
}
