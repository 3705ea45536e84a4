//! What the record of a swap says: the encodings of the sites, and which constants of the graph hold
//! their learned numbers.
//!
//! A constant is told by its numbers in the graph of the proof, where tables of zeros have random
//! ones; the constant of the result is the one that the same node reads.

use ndarray::{ArrayD, Axis, Ix2};
use posenc_encodings::family::Entry;
use posenc_encodings::kind::Kind;
use posenc_ir::{Applied, Model, NodeId, ValueId};

use crate::detect::context::Context;
use crate::edit::remove::remove;
use crate::plan::numbers::Numbers;
use crate::plan::swap::Group;
use crate::plan::swap::spec::EncodingSpec;
use crate::prove::bound::ROUNDINGS;
use crate::prove::inserted::{entries, found_kinds};
use crate::prove::swap::Proof;
use crate::record::swap::{BranchRecord, GroupRecord, LearnedRecord};

/// The graphs of a swap: the result, and that of the proof.
pub(super) struct Graphs<'a> {
    /// The result.
    pub(super) next: &'a Model,
    /// What was inserted into it.
    pub(super) inserted: &'a Applied,
    /// What was inserted into the graph of the proof.
    pub(super) proven: &'a Applied,
}

/// The record of one branch.
pub(super) fn record(branch: usize, proof: &Proof, graphs: &Graphs<'_>) -> BranchRecord {
    let plan = &proof.plan;
    let joins_scores = |g: &Group| {
        matches!(
            g.new,
            EncodingSpec::ScoreBias(_) | EncodingSpec::ScoreTerm(_)
        )
    };
    let removable = plan.groups.iter().any(joins_scores) && is_removable(proof);
    let group = |group: &Group| GroupRecord {
        sites: group.sites.clone(),
        params: group.new.encoding().params(),
        tensors: learned(proof, graphs, group),
        read: read(proof, group, plan.kind),
        removable,
        entries: added(proof, group, plan.kind),
    };
    BranchRecord {
        branch,
        sites: plan.sites.clone(),
        groups: plan.groups.iter().map(group).collect(),
    }
}

/// The kind that detection reads at every site: that of the plan, or else the one that is no encoding
/// of a whole stack; `None` where it differs.
fn read(proof: &Proof, group: &Group, kind: Kind) -> Option<Kind> {
    let found = &proof.swapped.1;
    let at = |site: usize| {
        let kinds = found_kinds(found, site);
        let other = || kinds.iter().find(|k| !k.is_absolute());
        kinds.iter().find(|k| **k == kind).or_else(other).copied()
    };
    let mut all = group.sites.iter().map(|site| at(*site));
    let first = all.next()?;
    all.all(|kind| kind == first).then_some(first)?
}

/// How often what is added to the embeddings is added.
fn added(proof: &Proof, group: &Group, kind: Kind) -> Option<usize> {
    let first = group.sites.first().filter(|_| kind.is_absolute())?;
    Some(entries(&proof.swapped.1, *first, kind))
}

/// Whether what was inserted into scores can be taken out again.
fn is_removable(proof: &Proof) -> bool {
    let (model, found) = &proof.swapped;
    let bare = proof.plan.with(vec![]);
    let mut out = model.graph().emitter(model.graph().main(), "posenc");
    remove(&mut out, &Context { model, found }, &bare).is_ok()
}

/// The constants that hold the learned numbers of a group.
fn learned(proof: &Proof, graphs: &Graphs<'_>, group: &Group) -> Vec<LearnedRecord> {
    let tensors = tensors(proof, group);
    let graph = proof.swapped.0.graph();
    let mut all: Vec<LearnedRecord> = vec![];
    for constant in &graphs.proven.constants {
        let Some(stored) = graph.constant(*constant).filter(|c| c.dtype().is_float()) else {
            continue;
        };
        let epsilon = stored.dtype().epsilon().unwrap_or(0.0);
        let Some(numbers) = stored.to_f64s() else {
            continue;
        };
        for (name, given, values) in &tensors {
            let Some(form) = form(values, &numbers, epsilon) else {
                continue;
            };
            let Some(value) = same_in_result(proof, graphs, *constant) else {
                continue;
            };
            all.push(LearnedRecord {
                name: (*name).to_owned(),
                given: given.clone(),
                dims: values.shape().to_vec(),
                constant: graphs.next.graph().name(value).to_owned(),
                factor: form.factor,
                transposed: form.transposed,
            });
        }
    }
    all
}

/// A learned tensor: its name in the family, that in a file, and its values.
type Named = (&'static str, Option<String>, ArrayD<f64>);

/// The learned tensors of a group, as the graph of the proof has them.
fn tensors(proof: &Proof, group: &Group) -> Vec<Named> {
    let family = Kind::of(group.new.encoding().word()).family();
    let Some(family) = family.filter(|family| !matches!(family.entry, Entry::FoundOnly)) else {
        return vec![];
    };
    let values: Vec<Option<ArrayD<f64>>> = match &group.new {
        EncodingSpec::Rotation(_) => vec![],
        EncodingSpec::ScoreBias(spec) => {
            let values = spec.values().unwrap_or_default();
            values.into_iter().map(Some).collect()
        }
        EncodingSpec::ScoreTerm(spec) => (0..spec.tensors.len())
            .map(|i| spec.values(i).ok().flatten())
            .collect(),
        EncodingSpec::InputTerm(spec) => {
            let added = group.sites.first().and_then(|site| proof.added(*site));
            let trace = &proof.swapped.1.trace;
            let dims = added.and_then(|(content, _)| trace.get(content).dims.as_ref());
            let values = dims.and_then(|dims| spec.values(*dims.last()?).ok());
            values.unwrap_or_default().into_iter().map(Some).collect()
        }
    };
    let numbers: Vec<Option<&Numbers>> = match &group.new {
        EncodingSpec::Rotation(_) => vec![],
        EncodingSpec::ScoreBias(spec) => spec.tensors.iter().map(Some).collect(),
        EncodingSpec::ScoreTerm(spec) => spec.tensors.iter().map(Option::as_ref).collect(),
        EncodingSpec::InputTerm(spec) => spec.tensors.iter().map(Some).collect(),
    };
    let given = numbers.into_iter().map(|numbers| match numbers {
        Some(Numbers::Given { name, .. }) => Some(name.clone()),
        _ => None,
    });
    let named = family.tensors.iter().zip(given).zip(values);
    named
        .filter_map(|((learned, given), v)| Some((learned.name, given, v?)))
        .collect()
}

/// How a constant holds numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Form {
    factor: f64,
    transposed: bool,
}

/// How a constant holds the numbers of a tensor; `None` where it does not.
fn form(values: &ArrayD<f64>, constant: &[f64], epsilon: f64) -> Option<Form> {
    let plain = values.iter().copied().collect::<Vec<f64>>();
    if let Some(factor) = factor(&plain, constant, epsilon) {
        return Some(Form {
            factor,
            transposed: false,
        });
    }
    let table = values.view().into_dimensionality::<Ix2>().ok()?;
    let turned: Vec<f64> = table
        .lanes(Axis(0))
        .into_iter()
        .flatten()
        .copied()
        .collect();
    let factor = factor(&turned, constant, epsilon)?;
    Some(Form {
        factor,
        transposed: true,
    })
}

/// The factor between two lists; a single number may have lost its sign, and has none.
fn factor(values: &[f64], constant: &[f64], epsilon: f64) -> Option<f64> {
    if values.len() != constant.len() || values.iter().all(|v| *v == 0.0) {
        return None;
    }
    let most = values.iter().fold(0f64, |most, v| most.max(v.abs()));
    let near = |factor: f64| {
        let mut pairs = values.iter().zip(constant);
        // The smallest numbers of half precision are rounded to a multiple of the least one.
        let bound = |v: f64| ROUNDINGS * epsilon * factor.abs() * (v.abs() + epsilon * most);
        pairs.all(|(v, c)| (c - factor * v).abs() <= bound(*v))
    };
    if near(1.0) || matches!((values, constant), ([v], [c]) if v.abs() == c.abs()) {
        return Some(1.0);
    }
    let dot: f64 = values.iter().zip(constant).map(|(v, c)| v * c).sum();
    let square: f64 = values.iter().map(|v| v * v).sum();
    let factor = dot / square;
    (values.len() > 1 && factor != 0.0 && near(factor)).then_some(factor)
}

/// The constant of the result that is read where the graph of the proof reads this one; `None` if
/// there are several.
fn same_in_result(proof: &Proof, graphs: &Graphs<'_>, constant: ValueId) -> Option<ValueId> {
    let (proven, next) = (proof.swapped.0.graph(), graphs.next.graph());
    let place = |node: NodeId| graphs.proven.added.iter().position(|n| *n == node);
    let mut uses = proven.uses(constant).iter().map(|at| {
        let node = graphs.inserted.added.get(place(at.node)?)?;
        next.node(*node).input(at.slot())
    });
    let first = uses.next()??;
    uses.all(|value| value == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPSILON: f64 = f32::EPSILON as f64;

    fn table(values: &[f64]) -> ArrayD<f64> {
        ArrayD::from_shape_vec(vec![2, values.len() / 2], values.to_vec()).unwrap()
    }

    #[test]
    fn a_constant_holds_numbers_times_a_factor_or_with_rows_for_columns() {
        let values = table(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let of =
            |constant: &[f64]| form(&values, constant, EPSILON).map(|f| (f.factor, f.transposed));
        assert_eq!(of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), Some((1.0, false)));
        assert_eq!(of(&[0.5, 1.0, 1.5, 2.0, 2.5, 3.0]), Some((0.5, false)));
        assert_eq!(of(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]), Some((1.0, true)));
        for other in [
            &[1.0, 2.0, 3.0, 4.0, 5.0, 7.0][..],
            &[0.0; 6],
            &[1.0, 2.0, 3.0],
            &[6.0, 5.0, 4.0, 3.0, 2.0, 1.0],
        ] {
            assert_eq!(of(other), None, "{other:?}");
        }
        assert_eq!(
            form(&table(&[0.0; 4]), &[0.0; 4], EPSILON),
            None,
            "zeros are anywhere"
        );
    }

    #[test]
    fn a_single_number_has_no_factor() {
        let one = ArrayD::from_elem(vec![1], -512.0);
        let of = |c: f64| form(&one, &[c], EPSILON).map(|f| f.factor);
        assert_eq!(of(512.0), Some(1.0));
        assert_eq!(of(256.0), None);
    }
}
