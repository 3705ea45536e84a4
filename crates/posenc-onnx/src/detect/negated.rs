//! What a model computes where an `If` without known attention takes its other branch.
//!
//! The trial run takes one branch, by its lengths. The other one is seen by running the model with the
//! condition negated: it may not encode position, or mix tokens, in places where the first does not.

use ndarray::ArrayD;
use posenc_encodings::kind::Kind;
use posenc_ir::eval::{Value, probe};
use posenc_ir::{Graph, Model, NodeId, ScopeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::found::Found;
use super::rotary::site::RotarySite;
use super::runs::BUDGET;
use crate::graph::mixing::Mixing;
use crate::graph::operators::{is_copy, is_layout};

/// The most conditions that are negated.
const MOST: usize = 16;

/// Frequencies that differ by less are equal.
const NEAR: f64 = 1e-6;

/// A copy of a model in which conditions of `If`s are negated.
#[derive(Debug)]
pub(crate) struct Negated {
    /// The first of the `If`s.
    pub(crate) node: NodeId,
    pub(crate) model: Model,
}

/// Copies of a model in which one condition is negated, up to [`MOST`], and one in which all of them
/// are. What is known of the values of the model holds for those of the copies but what an `If`
/// decides.
pub(crate) fn negated<'a>(
    model: &'a Model,
    found: &'a Found,
) -> impl Iterator<Item = Negated> + use<'a> {
    let mut choices = choices(model.graph(), found);
    choices.sort_by_key(|choice| choice.condition);
    let groups = choices.chunk_by(|a, b| a.condition == b.condition);
    let mut groups: Vec<Vec<Choice>> = groups.map(<[Choice]>::to_vec).collect();
    let fits = |choice: &Choice| choice.of_content || differs(model, found, &[*choice]).is_some();
    let all: Vec<Choice> = choices.iter().copied().filter(fits).collect();
    let is_new = groups.iter().all(|group| group.len() < all.len());
    groups.sort_by_key(|group| !has_content(group));
    groups.truncate(MOST);
    groups.extend(is_new.then_some(all));
    groups.retain(|group| has_content(group) || differs(model, found, group) == Some(true));
    groups.into_iter().filter_map(|group| {
        let node = group[0].node;
        let model = negate(model, &group)?;
        Some(Negated { node, model })
    })
}

/// What the other branches do otherwise, as `detect` finds it, one sentence each.
pub(super) fn unread(
    model: &Model,
    found: &Found,
    detect: impl Fn(&Model) -> Found,
) -> Vec<String> {
    let graph = model.graph();
    let mut all = vec![];
    for Negated { node, model } in negated(model, found) {
        let other = detect(&model);
        if !covers(found, &other) {
            let place = graph.place(node);
            all.push(format!(
                "{place}: one branch of this If encodes position, or mixes tokens, differently from the \
                 one that was read"
            ));
        }
    }
    let of_content = choices(graph, found).into_iter();
    let conditions: FxHashSet<ValueId> = of_content
        .filter(|choice| choice.of_content)
        .map(|choice| choice.condition)
        .collect();
    let rest = conditions.len().saturating_sub(MOST);
    if rest > 0 {
        all.push(format!(
            "Ifs with {rest} conditions choose between computations of content, and only one branch of \
             each was read"
        ));
    }
    all
}

/// An `If` whose branches may compute different numbers.
#[derive(Clone, Copy, Debug)]
struct Choice {
    node: NodeId,
    condition: ValueId,
    /// Whether content is computed in a branch.
    of_content: bool,
}

/// The `If`s without a known attention site in their branches, which are examined one by one, and with
/// more in them than changes of shape.
fn choices(graph: &Graph, found: &Found) -> Vec<Choice> {
    let sites: FxHashSet<NodeId> = found.attention.iter().map(|site| site.node).collect();
    let ifs = graph.nodes().filter(|(_, node)| node.is("If"));
    let choices = ifs.filter_map(|(id, node)| {
        let bodies: Vec<ScopeId> = node.bodies().map(|b| b.1).collect();
        Some(Choice {
            node: id,
            condition: node.input(0)?,
            of_content: computes_content(graph, found, &sites, bodies)?,
        })
    });
    choices.collect()
}

fn has_content(group: &[Choice]) -> bool {
    group.iter().any(|choice| choice.of_content)
}

/// Whether the other branches give other numbers, where they give no content; `None` where these have
/// other dimensions, or cannot be computed, as branches for inputs of another shape.
fn differs(model: &Model, found: &Found, group: &[Choice]) -> Option<bool> {
    let trace = &found.trace;
    let mut seeds = FxHashMap::default();
    for choice in group {
        let condition = trace.get(choice.condition);
        if let Some(taken) = condition.scalar_i64() {
            let dims = condition.dims.clone().unwrap_or_default();
            let other = Value::bool(ArrayD::from_elem(dims, taken == 0));
            seeds.insert(choice.condition, other);
        }
    }
    let of_numbers = group.iter().filter(|choice| !choice.of_content);
    let outputs = of_numbers.flat_map(|choice| model.graph().node(choice.node).outputs());
    let mut differs = false;
    for out in outputs.flatten() {
        let base = trace.get(*out);
        let got = probe(model, trace, &seeds, &[*out], &BUDGET).ok()?;
        let got = got.first().filter(|got| got.dims == base.dims)?;
        differs |= got.to_f64() != base.to_f64();
    }
    Some(differs)
}

/// Whether bodies compute content; `None` where they contain a known site, or change the shape of one
/// value alone.
fn computes_content(
    graph: &Graph,
    found: &Found,
    sites: &FxHashSet<NodeId>,
    mut bodies: Vec<ScopeId>,
) -> Option<bool> {
    let mut given = bodies.iter().map(|body| moved(graph, *body));
    let first = given.next();
    let mut computes = given.any(|other| Some(other) != first);
    let mut of_content = false;
    while let Some(body) = bodies.pop() {
        for id in graph.scope(body).nodes() {
            let node = graph.node(*id);
            if sites.contains(id) {
                return None;
            }
            bodies.extend(node.bodies().map(|b| b.1));
            if is_layout(node.op()) || is_copy(node.op()) || node.is("Constant") {
                continue;
            }
            computes = true;
            let mut outputs = node.outputs().iter().flatten();
            of_content |= outputs.any(|v| found.is_content(*v));
        }
    }
    computes.then_some(of_content)
}

/// What the outputs of a body are before changes of shape and type.
fn moved(graph: &Graph, body: ScopeId) -> Vec<ValueId> {
    let before = |mut value: ValueId| {
        while let Some((id, _)) = graph.producer(value) {
            let node = graph.node(id);
            match node.input(0) {
                Some(input) if is_layout(node.op()) || is_copy(node.op()) => value = input,
                _ => break,
            }
        }
        value
    };
    graph
        .scope(body)
        .outputs()
        .iter()
        .map(|v| before(*v))
        .collect()
}

/// The model with the condition of these `If`s negated.
fn negate(model: &Model, group: &[Choice]) -> Option<Model> {
    let graph = model.graph();
    let mut out = graph.emitter(graph.main(), "negated");
    for Choice {
        node, condition, ..
    } in group
    {
        out.set_scope(out.scope_of(*condition));
        let negated = out.op("Not", &[*condition]);
        out.redirect_use(*condition, Use::new(*node, 0), negated)
            .ok()?;
    }
    let (model, _) = model.clone().with_patch(out.finish()).ok()?;
    Some(model)
}

/// Whether one branch reads all that is found with the other: what is taken out of the first is then
/// taken out of both.
fn covers(first: &Found, other: &Found) -> bool {
    let nodes = |found: &Found| -> Vec<NodeId> { found.attention.iter().map(|s| s.node).collect() };
    let unread = |found: &Found| {
        let kinds = [&found.no_attention, &found.misplaced, &found.not_evaluated];
        kinds.map(Vec::len).iter().sum::<usize>() + found.not_rotary.len()
    };
    let mut mixers = other.mixers.iter();
    let known: FxHashSet<Place> = places(first).collect();
    nodes(first) == nodes(other)
        && unread(other) <= unread(first)
        && mixers.all(|m| m.mixing != Mixing::Other || first.mixers.contains(m))
        && places(other).all(|place| known.contains(&place))
        && other.rotary.iter().all(|site| rotates_alike(first, site))
}

/// What enters at a site, and where.
type Place = (Kind, usize, Use);

fn places(found: &Found) -> impl Iterator<Item = Place> {
    let rotations = found.rotary.iter().flat_map(|site| {
        let regions = [&site.query.region, &site.key.region];
        let entries = regions.into_iter().flat_map(|region| &region.entries);
        entries.map(|at| (Kind::Rope, site.site, *at))
    });
    let others = found.findings.iter().flat_map(|finding| {
        let at = |site: &usize| {
            finding
                .entries
                .iter()
                .map(|at| (*site, *at))
                .collect::<Vec<_>>()
        };
        let places = finding.sites.iter().flat_map(at);
        places.map(|(site, at)| (finding.encoding.kind(), site, at))
    });
    rotations.chain(others)
}

/// Whether a site rotates by the frequencies that were read, or by others that were read to come with
/// the length.
fn rotates_alike(first: &Found, other: &RotarySite) -> bool {
    let angles = |site: &RotarySite| site.query.rotation.rope.inv_freq.clone();
    let mut same = first.rotary.iter().filter(|site| site.site == other.site);
    same.any(|site| {
        let (a, b) = (angles(site), angles(other));
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= NEAR * a.abs();
        site.switch.is_some() || a.len() == b.len() && a.iter().zip(&b).all(near)
    })
}
