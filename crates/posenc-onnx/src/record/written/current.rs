//! What a graph computes at its attention sites and outputs, as digests.

use std::collections::BTreeMap;

use posenc_ir::diff::Digests;
use posenc_ir::{DType, Graph, Model, NodeId, ValueId};

use super::data::{Reading, Written, WrittenOutput, WrittenSite, short};
use crate::attention::Site;
use crate::detect::Found;
use crate::graph::dataflow::Class;

/// Constants that content meets count with all their bytes up to this many.
const WHOLE: usize = 1 << 20;

/// A site as the graph has it.
#[derive(Clone, Debug)]
pub(crate) struct Anchor<'a> {
    /// The softmax, or the fused operator.
    pub(crate) node: NodeId,
    /// What detection reads there; `None` where it reads no attention.
    pub(crate) read: Option<(&'a Site, Reading)>,
}

/// The sites of all branches, each node once.
pub(crate) fn anchors<'a>(branches: impl IntoIterator<Item = &'a Found>) -> Vec<Anchor<'a>> {
    let mut all: Vec<Anchor<'_>> = vec![];
    for found in branches {
        for (index, site) in found.attention.iter().enumerate() {
            if all.iter().all(|a| a.node != site.node) {
                all.push(Anchor {
                    node: site.node,
                    read: Some((site, Reading::of(found, index))),
                });
            }
        }
    }
    all
}

/// The nodes that weight values with the result of a softmax: those of two computed inputs, past
/// whatever only changes the layout or the type. None for a fused operator.
fn weighted(graph: &Graph, node: NodeId) -> Vec<NodeId> {
    if !graph.node(node).is("Softmax") {
        return vec![];
    }
    let mut found = vec![];
    let mut open: Vec<ValueId> = graph
        .node(node)
        .outputs()
        .iter()
        .flatten()
        .copied()
        .collect();
    let computed = |v: &&Option<ValueId>| v.is_some_and(|v| graph.stored(v).is_none());
    while let Some(value) = open.pop() {
        for at in graph.uses(value) {
            let reader = graph.node(at.node);
            if reader.inputs().iter().filter(computed).count() < 2 {
                open.extend(reader.outputs().iter().flatten());
            } else if !found.contains(&at.node) {
                found.push(at.node);
            }
        }
    }
    found
}

/// The nodes after a site that belong to it: those that weight values, and the projections of these.
fn after(graph: &Graph, node: NodeId) -> [Vec<NodeId>; 2] {
    let weighted = weighted(graph, node);
    let projections = match weighted[..] {
        [] => projections(graph, &[node]),
        _ => projections(graph, &weighted),
    };
    [weighted, projections]
}

/// Labels of a site: its own, then those of the nodes after it.
const LABELS: usize = 1 << 12;

/// The most nodes after a site that are told apart, of either kind.
const PARTS: usize = 1 << 10;

/// The label of each site and of each node after one, in whose place digests of what is computed from
/// them have it. `digest` tells the nodes after one site apart.
fn labels(
    sites: &[Option<NodeId>],
    parts: &[[Vec<NodeId>; 2]],
    digest: impl Fn(NodeId) -> u128,
) -> BTreeMap<NodeId, usize> {
    let mut labels = BTreeMap::new();
    for (i, (site, parts)) in sites.iter().zip(parts).enumerate() {
        labels.extend(site.map(|site| (site, LABELS * i)));
        for (kind, nodes) in parts.iter().enumerate() {
            let mut all: Vec<u128> = nodes.iter().map(|id| digest(*id)).collect();
            all.sort_unstable();
            all.dedup();
            for id in nodes {
                let place = all.binary_search(&digest(*id)).unwrap_or(0);
                let own = LABELS * i + PARTS * (kind + 1) + place.min(PARTS - 1);
                labels.entry(*id).or_insert(own);
            }
        }
    }
    labels
}

/// How far the projection of the weighted values is looked for.
const NEAR: usize = 24;

/// The nodes that multiply weighted values with a matrix of weights.
fn projections(graph: &Graph, weighted: &[NodeId]) -> Vec<NodeId> {
    let is_matrix = |v: &ValueId| {
        let stored = graph.stored(*v);
        stored.is_some_and(|s| s.dims.len() > 1 && s.dtype.is_some_and(DType::is_float))
    };
    let (mut open, mut seen, mut found) = (weighted.to_vec(), vec![], vec![]);
    while let Some(node) = open.pop().filter(|_| seen.len() < NEAR) {
        for value in graph.node(node).outputs().iter().flatten() {
            for at in graph.uses(*value) {
                if seen.contains(&at.node) {
                    continue;
                }
                seen.push(at.node);
                if graph.node(at.node).inputs().iter().flatten().any(is_matrix) {
                    found.push(at.node);
                } else {
                    open.push(at.node);
                }
            }
        }
    }
    found
}

/// The digests of sites and outputs.
pub(crate) struct Current {
    pub(crate) sites: Vec<Option<String>>,
    pub(crate) outputs: Vec<WrittenOutput>,
}

impl Current {
    /// `None` if the graph has a cycle. `sites` are the softmaxes or fused operators.
    pub(crate) fn of(model: &Model, found: &Found, sites: &[Option<NodeId>]) -> Option<Self> {
        let graph = model.graph();
        let parts: Vec<[Vec<NodeId>; 2]> = sites
            .iter()
            .map(|site| site.map_or(Default::default(), |site| after(graph, site)))
            .collect();
        let of = |labels| Digests::of(model, &labels, |v| is_whole(graph, found, v)).ok();
        let mut digests = of(labels(sites, &parts, |_| 0))?;
        let several = |parts: &[Vec<NodeId>; 2]| parts.iter().any(|nodes| nodes.len() > 1);
        if parts.iter().any(several) {
            digests = of(labels(sites, &parts, |id| digests.node(id)))?;
        }
        let of_site = |(site, parts): (&Option<NodeId>, &[Vec<NodeId>; 2])| {
            let mut parts: Vec<u128> = parts.iter().flatten().map(|p| digests.node(*p)).collect();
            parts.sort_unstable();
            let parts: String = parts.into_iter().map(short).collect();
            site.map(|site| short(digests.node(site)) + &parts)
        };
        let outputs = digests
            .outputs()
            .iter()
            .map(|(name, digest)| WrittenOutput {
                name: name.clone(),
                digest: short(*digest),
            });
        Some(Self {
            sites: sites.iter().zip(&parts).map(of_site).collect(),
            outputs: outputs.collect(),
        })
    }
}

/// Whether a constant counts with all its bytes: small ones, and those that no content meets.
fn is_whole(graph: &Graph, found: &Found, value: ValueId) -> bool {
    let bytes = graph
        .stored(value)
        .and_then(|s| s.dtype?.payload(s.elements()?));
    let met = graph.uses(value).iter().any(|at| {
        let outputs = graph.node(at.node).outputs().iter().flatten();
        let mut classes = outputs.map(|v| found.classes.of_value(*v));
        classes.any(|class| class.has(Class::CONTENT))
    });
    bytes.is_some_and(|bytes| bytes <= WHOLE) || !met
}

/// Tells the constants of a model apart: the name, and how many of that name come before in other bodies.
pub(crate) type ConstantName<'a> = (&'a str, usize);

/// The constants of which a digest has samples alone.
pub(crate) fn large<'a>(
    graph: &'a Graph,
    found: &Found,
) -> impl Iterator<Item = (ConstantName<'a>, ValueId)> {
    constants(graph)
        .into_iter()
        .filter(|(_, v)| !graph.uses(*v).is_empty() && !is_whole(graph, found, *v))
}

/// Every constant.
pub(crate) fn constants(graph: &Graph) -> BTreeMap<ConstantName<'_>, ValueId> {
    let mut before: BTreeMap<&str, usize> = BTreeMap::new();
    let stored = graph.values().filter(|v| graph.stored(*v).is_some());
    let named = stored.map(|value| {
        let name = graph.name(value);
        let count = before.entry(name).or_default();
        *count += 1;
        ((name, *count - 1), value)
    });
    named.collect()
}

/// Where each recorded site is in the attention of the first branch; those that are no longer read are nowhere.
pub(crate) fn places(graph: &Graph, written: &Written, first: &Found) -> Vec<Option<usize>> {
    let anchored = anchored(graph, written, &anchors([first]));
    let place = |anchor: Option<Anchor<'_>>| {
        let node = anchor?.node;
        first.attention.iter().position(|site| site.node == node)
    };
    anchored.into_iter().map(place).collect()
}

/// The recorded sites in the graph: by the names of their values, or else by their order. Bodies may
/// have values of one name, which are told apart by their order.
pub(crate) fn anchored<'a>(
    graph: &Graph,
    written: &Written,
    now: &[Anchor<'a>],
) -> Vec<Option<Anchor<'a>>> {
    let mut named: BTreeMap<&str, Vec<NodeId>> = BTreeMap::new();
    let read = now.iter().map(|a| a.node);
    for id in read.chain(graph.nodes().map(|(id, _)| id)) {
        if let Some(value) = graph.node(id).output(0) {
            let all = named.entry(graph.name(value)).or_default();
            if !all.contains(&id) {
                all.push(id);
            }
        }
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let by_name = |site: &'_ WrittenSite| {
        let (name, all) = named.get_key_value(&*site.value)?;
        let at = seen.entry(name).or_default();
        let node = *all.get(*at)?;
        *at += 1;
        let read = now.iter().find(|a| a.node == node).cloned();
        Some(read.unwrap_or(Anchor { node, read: None }))
    };
    let found: Vec<Option<Anchor<'a>>> = written.sites.iter().map(by_name).collect();
    let read = |a: &Option<Anchor<'a>>| a.as_ref().is_some_and(|a| a.read.is_some());
    if !found.iter().all(read) && now.len() == written.sites.len() {
        return now.iter().cloned().map(Some).collect();
    }
    found
}

#[cfg(test)]
mod tests {
    use posenc_ir::Model;

    use super::*;

    #[test]
    fn constants_of_one_name_in_two_bodies_are_told_apart() {
        let text =
            "<ir_version: 8, opset_import: [\"\" : 17]> g (bool c, float[1] x) => (float[1] y)
            <float[1] w = {1}> {
            a = Mul (x, w)
            y = If (c) <then_branch = t () => (float[1] p) <float[1] v = {2}> { p = Mul (a, v) },
                        else_branch = e () => (float[1] q) <float[1] v = {3}> { q = Mul (a, v) }>
        }";
        let read = Model::parse(text).unwrap();
        let written = Model::from_bytes(read.to_bytes().unwrap()).unwrap();
        for model in [read, written] {
            let numbers = constants(model.graph()).into_iter().map(|(name, value)| {
                let constant = model.graph().constant(value).unwrap();
                (name, constant.to_f64s().unwrap()[0])
            });
            let want = [(("v", 0), 2.0), (("v", 1), 3.0), (("w", 0), 1.0)];
            assert_eq!(numbers.collect::<Vec<_>>(), want);
        }
    }
}
