//! What a model computes where an `If` without attention takes its other branch.
//!
//! The trial run takes one branch, by its lengths. The other one is seen by running the model with the
//! condition negated: it may not encode position, or mix tokens, in places where the first does not.

use posenc_encodings::kind::Kind;
use posenc_ir::{Graph, Model, NodeId, ScopeId, Use};
use rustc_hash::FxHashSet;

use super::found::Found;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::mixing::Mixing;
use crate::graph::operators::{is_copy, is_layout, may_attend};

/// The most `If`s that are examined.
const MOST: usize = 16;

/// A copy of a model in which the condition of one `If` is negated.
#[derive(Debug)]
pub(crate) struct Negated {
    pub(crate) node: NodeId,
    pub(crate) model: Model,
}

/// A copy for each `If` whose bodies compute content other than attention, up to [`MOST`]. What is
/// known of the values of the model holds for those of the copies but what the `If` decides.
pub(crate) fn negated<'a>(
    model: &'a Model,
    classes: &'a Classes,
) -> impl Iterator<Item = Negated> + use<'a> {
    let all = choices(model.graph(), classes);
    all.take(MOST).filter_map(|node| {
        let model = negate(model, node)?;
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
    for Negated { node, model } in negated(model, &found.classes) {
        let other = detect(&model);
        if !covers(found, &other) {
            let place = graph.place(node);
            all.push(format!(
                "{place}: one branch of this If encodes position, or mixes tokens, differently from the \
                 one that was read"
            ));
        }
    }
    let rest = choices(graph, &found.classes).count().saturating_sub(MOST);
    if rest > 0 {
        all.push(format!(
            "{rest} Ifs choose between computations of content, and only one branch of each was read"
        ));
    }
    all
}

/// The `If`s that [`negated`] examines.
fn choices<'a>(graph: &'a Graph, classes: &'a Classes) -> impl Iterator<Item = NodeId> + use<'a> {
    let ifs = graph.nodes().filter(|(_, node)| node.is("If"));
    let ifs = ifs.filter(|(_, node)| {
        let bodies: Vec<ScopeId> = node.bodies().map(|b| b.1).collect();
        computes_content(graph, classes, bodies)
    });
    ifs.map(|(id, _)| id)
}

/// Whether bodies compute content otherwise than by moving it, and contain no attention.
fn computes_content(graph: &Graph, classes: &Classes, mut bodies: Vec<ScopeId>) -> bool {
    let mut computes = false;
    while let Some(body) = bodies.pop() {
        for id in graph.scope(body).nodes() {
            let node = graph.node(*id);
            if may_attend(node) {
                return false;
            }
            let moves = is_layout(node.op()) || is_copy(node.op());
            let mut outputs = node.outputs().iter().flatten();
            computes |= !moves && outputs.any(|v| classes.of_value(*v).has(Class::CONTENT));
            bodies.extend(node.bodies().map(|b| b.1));
        }
    }
    computes
}

/// The model with the condition of an `If` negated.
fn negate(model: &Model, id: NodeId) -> Option<Model> {
    let graph = model.graph();
    let node = graph.node(id);
    let condition = node.input(0)?;
    let mut out = graph.emitter(node.scope(), "negated");
    let negated = out.op("Not", &[condition]);
    out.redirect_use(condition, Use::new(id, 0), negated).ok()?;
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
