//! Biases that are one operator of ONNX Runtime, in plain operators.
//!
//! No runtime computes these operators on a processor, and none of their numbers can be divided.

use posenc_encodings::kind::{Form, Kind};
use posenc_ir::{Model, NodeId};
use serde_json::{Value, json};

use super::rewritten::Rewritten;
use super::summary::{Changed, edits};
use crate::attention::Site;
use crate::detect::branches::{Branch, branches};
use crate::detect::finding::Encoding;
use crate::detect::{Found, Options};
use crate::error::{Refusal, RewriteError};
use crate::inspect::entries;
use crate::report::Guarantee;
use crate::request::{Request, Target};
use crate::spelling::{is_bias_operator, with_plain_buckets};

/// Differences between the numbers of both that count, as a share of the largest.
const NEAR: f64 = 1e-6;

/// The model with plain operators in place of one that the request does not leave, and what is found in it; `None`
/// where nothing is replaced.
///
/// # Errors
/// Where the numbers of a bias are others then.
pub(super) fn in_plain_operators(
    model: &Model,
    before: &[Branch],
    options: &Options,
    request: &Request,
) -> Result<Option<(Model, Vec<Branch>)>, RewriteError> {
    let is_wanted = request.scale.is_some() || is_asked(request);
    let for_processor = request.target == Some(Target::OrtCpu);
    let made = is_wanted.then(|| with_plain_buckets(model, &options.roles, for_processor));
    let Some(made) = made.flatten() else {
        return Ok(None);
    };
    let after = branches(&made, options);
    for (before, after) in before.iter().zip(&after) {
        let (before, after) = (&before.found.attention, &after.found.attention);
        if let Some(site) = first_other(before, after) {
            let why = "RelativePositionBias in plain operators has other numbers here";
            return Err(Refusal::unsupported(why).at(site).into());
        }
    }
    Ok(Some((made, after)))
}

/// Whether the request names the form of operators, or a runtime that lacks this one.
fn is_asked(request: &Request) -> bool {
    request.wants_plain_operators() || request.form == Some(Form::Onnx)
}

/// The first site whose bias differs, by its name.
fn first_other(before: &[Site], after: &[Site]) -> Option<String> {
    let numbers = |site: &Site| site.bias.as_ref().map(|plane| plane.bias.clone());
    let is_other = |(old, new): &(&Site, &Site)| match (numbers(old), numbers(new)) {
        (Some(old), Some(new)) => {
            let finite = old.iter().filter(|x| x.is_finite());
            let largest = finite.fold(0.0f64, |most, x| most.max(x.abs()));
            let is_near = |a: f64, b: f64| a == b || (a - b).abs() <= NEAR * largest;
            let mut pairs = old.iter().zip(&new);
            old.dim() != new.dim() || !pairs.all(|(a, b)| is_near(*a, *b))
        }
        (None, _) => false,
        (Some(_), None) => true,
    };
    let mut pairs = before.iter().zip(after);
    let other = pairs.find(is_other).map(|(site, _)| site.name.clone());
    let is_less = before.len() != after.len();
    other.or_else(|| {
        before
            .first()
            .filter(|_| is_less)
            .map(|site| site.name.clone())
    })
}

/// Whether a bias that is one operator in the model that was read is plain ones in another.
fn is_replaced(read: &Model, by: &Model) -> bool {
    let mut nodes = read.graph().nodes();
    nodes.any(|(id, node)| is_bias_operator(node) && by.graph().is_removed(id))
}

/// The sites, of those that were found, whose bias is one operator in the model that was read, and asked to be plain
/// ones in what is edited.
pub(super) fn unfolded_sites(
    [read, edited]: [&Model; 2],
    request: &Request,
    found: &Found,
) -> Vec<usize> {
    match is_asked(request) && is_replaced(read, edited) {
        true => biased(found),
        false => vec![],
    }
}

/// Tells of biases that were one operator in the model that was read, and are plain ones in the edited model.
pub(super) fn tell(done: &mut Rewritten, request: &Request, read: &Model) {
    let is_told = !done.report.edits.is_empty() || is_asked(request);
    if !is_told || !is_replaced(read, &done.model) {
        return;
    }
    let (before, after) = (read.graph(), done.model.graph());
    let is_gone = |id: NodeId| after.is_removed(id);
    let all = entries(&done.model, &done.found);
    let is_new = |id: NodeId| id.index() >= before.node_count();
    let is_first = done.report.edits.is_empty();
    let count = |counted: usize| if is_first { counted } else { 0 };
    let changed = Changed {
        sites: biased(&done.found)
            .into_iter()
            .map(|site| (site, None))
            .collect(),
        nodes_added: count(after.nodes().filter(|(id, _)| is_new(*id)).count()),
        nodes_removed: count(before.nodes().filter(|(id, _)| is_gone(*id)).count()),
        constants: 0,
    };
    for mut edit in edits(&done.found, &[changed], &all, &all, &|_| None) {
        let mut known = done.report.edits.iter_mut();
        let known = known.find(|known| known.site == edit.site);
        let is_new = known.is_none();
        let told = known.unwrap_or(&mut edit);
        unfolded(&mut told.from, &mut told.to);
        if is_new {
            done.report.edits.push(edit);
        }
    }
    if !done.report.edits.is_empty() {
        done.report.guarantee = done.report.guarantee.max(Guarantee::Rounding);
    }
}

/// The sites with a bias of buckets.
fn biased(found: &Found) -> Vec<usize> {
    let is_biased = |encoding: &Encoding| matches!(encoding, Encoding::ScoreBias(Kind::T5Bias, _));
    let findings = found.findings.iter();
    let own = findings.filter(move |finding| is_biased(&finding.encoding));
    let mut sites: Vec<usize> = own.flat_map(|finding| finding.sites.clone()).collect();
    sites.sort_unstable();
    sites.dedup();
    sites
}

/// Puts both forms into the descriptions of a bias of buckets before and after.
pub(crate) fn unfolded(from: &mut Value, to: &mut Value) {
    name(from, Form::Contrib);
    name(to, Form::Ops);
}

/// Puts a form into the description of a bias of buckets, among other encodings or alone.
fn name(described: &mut Value, form: Form) {
    match described {
        Value::Array(all) => all.iter_mut().for_each(|one| name(one, form)),
        Value::Object(_) if described["kind"] == "t5-bias" => described["form"] = json!(form),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::sketch::Sketch;

    /// A site whose scores get a bias that grows by this much with the distance, or none.
    fn site(slope: Option<f64>) -> Vec<Site> {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [mut scores, v] = s.scored(&x, &x);
        if let Some(slope) = slope {
            let d = s.distance();
            let d = s.cast(&d, posenc_ir::DType::F32);
            let slope = s.float(slope);
            let bias = s.op("Mul", &[&d, &slope]);
            scores = s.op("Add", &[&scores, &bias]);
        }
        let weights = s.op("Softmax", &[&scores]);
        let y = s.op("MatMul", &[&weights, &v]);
        let found = crate::detect::detect(&s.model(17, &[&y]), &Options::default());
        found.attention
    }

    #[test]
    fn a_bias_with_other_numbers_is_seen() {
        let own = site(Some(0.5));
        assert_eq!(first_other(&own, &site(Some(0.5))), None);
        for other in [site(Some(0.500_01)), site(None), vec![]] {
            assert_eq!(first_other(&own, &other), Some(own[0].name.clone()));
        }
    }
}
