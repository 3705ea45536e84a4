//! Rotations of queries and keys.

pub mod matrices;
pub mod read;
pub mod site;
pub mod source;
mod streams;
mod switch;

use posenc_ir::{Model, NodeId, Use, ValueId};
use rustc_hash::FxHashMap;

use crate::attention::frontier::{Frontier, OperandPath};
use crate::attention::{Operand, Site};
use crate::detect::finding::{Encoding, Finding};
use crate::detect::found::{Found, Refused};
use crate::graph::region::{Aspect, Inside, Region};
use crate::graph::signature::Signatures;
use posenc_encodings::families::axial::Axial;
use posenc_encodings::families::rope::Unread;
use posenc_encodings::kind::Form;
use read::{is_turning, read, read_axial};
use site::{AxialSite, RotaryOperand, RotarySite, Rotation, Streams, Switch};

/// Frequencies and factors of queries and keys may differ by this share.
const ALIKE: f64 = 1e-3;

pub(crate) fn find(model: &Model, found: &mut Found) {
    let mut known = Known::default();
    for site in found.attention.clone() {
        let query = half(model, found, &mut known, &site, &site.query);
        let key = half(model, found, &mut known, &site, &site.key);
        let mut refuse = |node, why: String| {
            found.unknown.push(Refused {
                site: site.index,
                node,
                why,
            });
        };
        let mut regions = vec![];
        match (query, key) {
            (Read::Nothing, Read::Nothing) => {}
            (Read::OnGrid(query), Read::OnGrid(key)) if query.0.encoding == key.0.encoding => {
                let (finding, region) = *query;
                found.axial.push(AxialSite {
                    finding,
                    regions: [region, key.1],
                });
            }
            (Read::Turns(query), Read::Turns(key)) => {
                let node = query.region.entries[0].node;
                match unlike(&query.rotation, &key.rotation) {
                    Some(why) => {
                        refuse(node, why);
                        regions.extend([query.region, key.region]);
                    }
                    None => found.rotary.push(RotarySite {
                        site: site.index,
                        switch: known.switch(model, found, &query),
                        streams: known.streams(model, found, &query),
                        form: form(model, &query.region),
                        query: *query,
                        key: *key,
                        node,
                    }),
                }
            }
            (query, key) => {
                regions = [&query, &key]
                    .into_iter()
                    .filter_map(Read::region)
                    .cloned()
                    .collect();
                for (side, other) in [(&query, &key), (&key, &query)] {
                    match side {
                        Read::Refused(node, why) => {
                            regions.clear();
                            refuse(*node, why.clone());
                        }
                        Read::Odd(region, why) => {
                            refuse(region.entries[0].node, why.clone());
                        }
                        Read::Turns(half) if matches!(other, Read::Nothing) => {
                            let why = "only one of queries and keys turns".to_owned();
                            refuse(half.region.entries[0].node, why);
                        }
                        Read::OnGrid(half) => {
                            let why = "queries and keys turn otherwise on a grid".to_owned();
                            refuse(half.0.entries[0].node, why);
                        }
                        Read::Turns(_) | Read::Nothing => {}
                    }
                }
            }
        }
        if !regions.is_empty() {
            found.unknown_rotations.push((site.index, regions));
        }
    }
}

enum Read {
    Nothing,
    Turns(Box<RotaryOperand>),
    OnGrid(Box<(Finding, Region)>),
    /// It turns, but not as any rotation that is known.
    Odd(Box<Region>, String),
    Refused(NodeId, String),
}

impl Read {
    /// Where it turns.
    fn region(&self) -> Option<&Region> {
        match self {
            Self::Turns(half) => Some(&half.region),
            Self::OnGrid(found) => Some(&found.1),
            Self::Odd(region, _) => Some(region),
            Self::Nothing | Self::Refused(..) => None,
        }
    }
}

/// What was read already: layers that are alike are read once.
#[derive(Default)]
struct Known {
    signatures: Signatures,
    rotations: FxHashMap<(usize, usize), Result<Rotation, Unread>>,
    switches: FxHashMap<Turned, Option<Switch>>,
    streams: FxHashMap<Turned, Option<Streams>>,
    axial: FxHashMap<(usize, usize), Option<(Axial, f64)>>,
    odd: FxHashMap<usize, bool>,
}

/// What enters a rotation, and the features that it turns.
type Turned = (Vec<Option<ValueId>>, Vec<(usize, usize)>);

impl Known {
    fn rotation(
        &mut self,
        model: &Model,
        found: &Found,
        region: &Region,
        head_dim: usize,
    ) -> Result<Rotation, Unread> {
        let none = FxHashMap::default();
        let read = || read(model, &found.trace, &none, region, head_dim);
        if region.inside.is_some() {
            return read();
        }
        let alike = self.alike(model, found, region);
        let known = self.rotations.entry((alike, head_dim));
        known.or_insert_with(read).clone()
    }

    /// The number of a region by what it computes.
    fn alike(&mut self, model: &Model, found: &Found, region: &Region) -> usize {
        let counts = region.counts(model.graph(), &found.classes, Aspect::Numbers);
        self.signatures
            .region(model.graph(), region, &found.trace, counts)
    }

    /// A region whose angles do not grow with the position, as a rotation on a grid.
    fn axial(
        &mut self,
        model: &Model,
        found: &Found,
        region: &Region,
        head_dim: usize,
        why: Unread,
    ) -> Option<(Axial, f64)> {
        if why != Unread::NotProportional || region.inside.is_some() {
            return None;
        }
        let alike = self.alike(model, found, region);
        let known = self.axial.entry((alike, head_dim));
        let read = || read_axial(model, &found.trace, region, head_dim).ok();
        known.or_insert_with(read).clone()
    }

    /// Whether a region that is no known rotation turns all the same.
    fn turns(&mut self, model: &Model, found: &Found, region: &Region) -> bool {
        if region.inside.is_some() {
            return true;
        }
        let alike = self.alike(model, found, region);
        let read = || is_turning(model, &found.trace, region);
        *self.odd.entry(alike).or_insert_with(read)
    }

    fn switch(&mut self, model: &Model, found: &Found, half: &RotaryOperand) -> Option<Switch> {
        let known = self.switches.entry(turned(model, half));
        known
            .or_insert_with(|| switch::find(model, found, half))
            .clone()
    }

    fn streams(&mut self, model: &Model, found: &Found, half: &RotaryOperand) -> Option<Streams> {
        let known = self.streams.entry(turned(model, half));
        known
            .or_insert_with(|| streams::find(model, found, half))
            .clone()
    }
}

fn turned(model: &Model, half: &RotaryOperand) -> Turned {
    let graph = model.graph();
    let entries = half.region.entries.iter();
    let entering = entries
        .map(|u| graph.node(u.node).input(u.slot()))
        .collect();
    (entering, half.rotation.rope.pairs.clone())
}

fn half(model: &Model, found: &Found, known: &mut Known, site: &Site, operand: &Operand) -> Read {
    let graph = model.graph();
    let mut region = match inside(model, found, site, operand) {
        Some(region) => region,
        // An operator that projects by itself shows no queries and keys.
        None if operand.lane.feature.is_none() => return Read::Nothing,
        None => {
            let path = OperandPath::of(graph, &found.classes, &found.trace, operand);
            match path.region(graph, &found.classes, &found.trace) {
                Frontier::Nothing => match before_projection(model, found, site, &path) {
                    Some(region) => region,
                    None => return Read::Nothing,
                },
                Frontier::Region(region) => *region,
                Frontier::Scattered(node) => {
                    let why = "position enters at several places that share no operand";
                    return Read::Refused(node, why.to_owned());
                }
            }
        }
    };
    let node = region.entries[0].node;
    let dims = found.trace.get(region.output).dims.as_deref();
    let width = dims.and_then(|dims| region.output_lane.width(dims));
    let Some(head_dim) = site.head_dim.or(width) else {
        return Read::Refused(node, "the width of a head is not known".to_owned());
    };
    region.gather_features(graph, &found.trace, width.unwrap_or(head_dim));
    match known.rotation(model, found, &region, head_dim) {
        Ok(rotation) => Read::Turns(Box::new(RotaryOperand { region, rotation })),
        Err(why) => match known.axial(model, found, &region, head_dim, why) {
            Some((axial, fit)) => {
                let finding = Finding {
                    encoding: Encoding::Axial(axial),
                    sites: vec![site.index],
                    form: form(model, &region),
                    entries: region.entries.clone(),
                    fit_error: Some(fit),
                    max_length: None,
                    evidence: vec![],
                };
                Read::OnGrid(Box::new((finding, region)))
            }
            None if known.turns(model, found, &region) => {
                Read::Odd(Box::new(region), why.to_string())
            }
            None => Read::Refused(node, why.to_string()),
        },
    }
}

/// The rotation of what queries or keys are projected from, if there is one.
fn before_projection(
    model: &Model,
    found: &Found,
    site: &Site,
    path: &OperandPath,
) -> Option<Region> {
    let (graph, classes, trace) = (model.graph(), &found.classes, &found.trace);
    let before = path.before(graph, classes, trace, site.head_dim?)?;
    if !before.is_turned(graph, classes, trace) {
        return None;
    }
    match before.region(graph, classes, trace) {
        Frontier::Region(region) => Some(*region),
        Frontier::Nothing | Frontier::Scattered(_) => None,
    }
}

/// The rotation that a fused operator does itself, if it is to do one.
fn inside(model: &Model, found: &Found, site: &Site, operand: &Operand) -> Option<Region> {
    let node = model.graph().node(site.node);
    let (cos, positions, ids) = match (node.domain(), node.op()) {
        ("com.microsoft", "GroupQueryAttention") => (7, Some(5), Some(9)),
        ("com.microsoft", "SparseAttention") => (9, None, None),
        _ => return None,
    };
    let flag = |name: &str| matches!(node.int(name), Ok(Some(n)) if n != 0);
    if !flag("do_rotary") {
        return None;
    }
    let whole = |v| found.trace.get(v).to_i64()?.iter().next().copied();
    let dims = found.trace.get(operand.value).dims.as_deref()?;
    let length = *dims.get(operand.lane.sequence)?;
    let ids = ids.and_then(|slot| node.input(slot));
    let last = positions.and_then(|slot| node.input(slot));
    let first = match (ids.and_then(whole), last.and_then(whole)) {
        (Some(first), _) => usize::try_from(first).ok(),
        (None, Some(last)) => usize::try_from(last + 1).ok()?.checked_sub(length),
        (None, None) => None,
    };
    let entry = |slot| Use::new(site.node, slot);
    Some(Region {
        input: operand.value,
        input_lane: operand.lane,
        output: operand.value,
        output_lane: operand.lane,
        entries: vec![entry(cos), entry(cos + 1)],
        inside: Some(Inside {
            cos: node.input(cos)?,
            sin: node.input(cos + 1)?,
            interleaved: flag("rotary_interleaved"),
            width: site.head_dim?,
            first: first.unwrap_or(found.lengths.past),
            length,
            positions: ids.or(last),
        }),
    })
}

/// How queries and keys turn differently, if they do.
fn unlike(query: &Rotation, key: &Rotation) -> Option<String> {
    let (q, k) = (&query.rope, &key.rope);
    if q.pairs != k.pairs {
        return Some("queries and keys pair other features".to_owned());
    }
    let near = |a: f64, b: f64| (a - b).abs() <= ALIKE * a.abs().max(b.abs()).max(1e-12);
    if !q
        .inv_freq
        .iter()
        .zip(&k.inv_freq)
        .all(|(a, b)| near(*a, *b))
    {
        return Some("queries and keys turn at other frequencies".to_owned());
    }
    if !near(q.attention_factor, k.attention_factor) {
        return Some("queries and keys carry other factors".to_owned());
    }
    None
}

fn form(model: &Model, region: &Region) -> Form {
    let node = model.graph().node(region.entries[0].node);
    match (node.domain(), node.op()) {
        ("", "RotaryEmbedding") => Form::Onnx,
        ("com.microsoft", _) => Form::Contrib,
        _ => Form::Ops,
    }
}
