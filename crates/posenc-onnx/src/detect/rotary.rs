//! Rotations of queries and keys.

mod cache;
pub(crate) mod columns;
mod longer;
pub(crate) mod matrices;
pub(crate) mod projected;
pub(crate) mod quantized;
pub(crate) mod read;
pub(crate) mod rows;
pub(crate) mod site;
pub(crate) mod source;
mod streams;
pub(crate) mod switch;
mod unexplained;
pub(crate) mod unrounded;

use ndarray::{Array2, s};
use posenc_ir::{Model, Node, NodeId, Use, ValueId};

use crate::attention::frontier::{Frontier, OperandPath};
use crate::attention::{Operand, Site};
use crate::detect::finding::{Encoding, Finding};
use crate::detect::found::{Found, Refused};
use crate::graph::dataflow::Class;
use crate::graph::region::{Inside, Region};
pub(crate) use cache::entering;
use cache::{RotationCache, form};
use posenc_encodings::families::rope::Rope;
use read::rotate_alike;
use site::{AxialSite, RotaryOperand};
use unexplained::unexplained;
use unrounded::unrounded;

/// Frequencies and factors of queries and keys may differ by this share.
pub(crate) const TOLERANCE: f64 = 1e-3;

pub(crate) fn find(model: &Model, found: &mut Found) {
    let unrounded = unrounded(model, &found.trace);
    let rounded = model;
    let mut all = [RotationCache::default(), RotationCache::default()];
    for site in found.attention.clone() {
        let node = model.graph().node(site.node);
        if projects_and_rotates(node) {
            found.not_rotary.push(Refused {
                site: site.index,
                node: site.node,
                why: "an Attention that rotates queries and keys itself is not read with this mask, cache, opset or these \
                      widths"
                    .to_owned(),
            });
            continue;
        }
        let [known, known_unrounded] = &mut all;
        let (mut model, mut known) = (rounded, known);
        let mut sides = read_sides(model, found, known, &site);
        // What rounding hides may be seen without it.
        let is_open = |side: &SideReading| {
            matches!(
                side,
                SideReading::Refused(..) | SideReading::UnknownRotation(..)
            )
        };
        if let Some(exact) = unrounded.as_ref().filter(|_| sides.iter().any(is_open)) {
            let others = read_sides(exact, found, known_unrounded, &site);
            if let [SideReading::Rotation(_), SideReading::Rotation(_)] = others {
                (model, known, sides) = (exact, known_unrounded, others);
            }
        }
        let [query, key] = sides;
        let apart = match (&query, &key) {
            (SideReading::Rotation(query), SideReading::Rotation(key)) => {
                apart(found, &site, query, key)
            }
            _ => None,
        };
        let mut refuse = |node, why: String| {
            found.not_rotary.push(Refused {
                site: site.index,
                node,
                why,
            });
        };
        match (query, key) {
            (SideReading::Nothing, SideReading::Nothing) => {
                if let Some((node, why)) = unexplained(model, found, &site) {
                    found.not_rotary.push(Refused {
                        site: site.index,
                        node,
                        why,
                    });
                }
            }
            (SideReading::OnGrid(query), SideReading::OnGrid(key))
                if query.0.encoding == key.0.encoding =>
            {
                let (finding, region) = *query;
                found.axial.push(AxialSite {
                    finding,
                    regions: [region, key.1],
                });
            }
            (SideReading::Rotation(query), SideReading::Rotation(key)) => {
                let why = difference(&query, &key).or(apart);
                // It is known what rotates, but an edit would have to keep the scale.
                let plain = match &why {
                    Some(_) => scale_in_factor(&query, &key),
                    None => Some((*query).clone()),
                };
                if let Some(why) = why {
                    refuse(query.region.entries[0].node, why);
                }
                let Some(query) = plain else { continue };
                let read = known.site(model, found, site.index, query, *key);
                let halves = [&read.query, &read.key];
                let departs = (halves.iter().filter(|_| read.switch.is_none()))
                    .find_map(|half| known.departs(model, found, half));
                let [query_streams, key_streams] =
                    halves.map(|half| known.streams(model, found, half));
                let is_alike = query_streams == key_streams;
                let apart = (!is_alike).then(|| APART.to_owned());
                match departs.or(apart) {
                    None => found.rotary.push(read),
                    Some(why) => {
                        found.not_rotary.push(Refused {
                            site: site.index,
                            node: read.node,
                            why,
                        });
                        // Where the same numbers enter both, they are rotated alike at any length.
                        if is_alike
                            && entering(model, &read.query.region)
                                == entering(model, &read.key.region)
                        {
                            let both = [read.query.region, read.key.region];
                            found.unfitted_rotations.push((site.index, both));
                        }
                    }
                }
            }
            (query, key) => {
                for (side, other) in [(&query, &key), (&key, &query)] {
                    match side {
                        SideReading::Refused(node, why) => refuse(*node, why.clone()),
                        SideReading::UnknownRotation(region, why) => {
                            refuse(region.entries[0].node, why.clone());
                        }
                        SideReading::Rotation(half) if matches!(other, SideReading::Nothing) => {
                            let why = "only one of queries and keys is rotated".to_owned();
                            refuse(half.region.entries[0].node, why);
                        }
                        SideReading::OnGrid(half) => {
                            let why =
                                "queries and keys are rotated differently on a grid".to_owned();
                            refuse(half.0.entries[0].node, why);
                        }
                        SideReading::Rotation(_) | SideReading::Nothing => {}
                    }
                }
                if let (SideReading::UnknownRotation(q, _), SideReading::UnknownRotation(k, _)) =
                    (query, key)
                    && rotate_alike(model, &found.trace, [&q, &k])
                {
                    found.unfitted_rotations.push((site.index, [*q, *k]));
                }
            }
        }
    }
}

const APART: &str = "queries and keys rotate by other streams of positions";

enum SideReading {
    Nothing,
    Rotation(Box<RotaryOperand>),
    OnGrid(Box<(Finding, Region)>),
    /// It rotates, but not as any known rotation.
    UnknownRotation(Box<Region>, String),
    Refused(NodeId, String),
}

/// What acts on the queries and on the keys of a site.
fn read_sides(
    model: &Model,
    found: &Found,
    known: &mut RotationCache,
    site: &Site,
) -> [SideReading; 2] {
    [&site.query, &site.key].map(|operand| read_side(model, found, known, site, operand))
}

fn read_side(
    model: &Model,
    found: &Found,
    known: &mut RotationCache,
    site: &Site,
    operand: &Operand,
) -> SideReading {
    let graph = model.graph();
    // Queries that are learned are no content that could turn.
    if !found.classes.of_value(operand.value).has(Class::CONTENT) {
        return SideReading::Nothing;
    }
    let mut path = None;
    let mut region = match inside(model, found, site, operand) {
        Some(region) => region,
        // An operator that projects by itself shows no queries and keys.
        None if operand.lane.feature.is_none() => return SideReading::Nothing,
        None => {
            let path = path.insert(OperandPath::of(
                graph,
                &found.classes,
                &found.trace,
                operand,
            ));
            match path.region(graph, &found.classes, &found.trace) {
                Frontier::Nothing => match before_projection(model, found, site, path) {
                    Some(region) => region,
                    None => return SideReading::Nothing,
                },
                Frontier::Region(region) => *region,
                Frontier::Scattered(node) => {
                    let why = "position enters at several nodes that share no operand";
                    return SideReading::Refused(node, why.to_owned());
                }
            }
        }
    };
    let node = region.entries[0].node;
    if let Some(value) = absent(model, found, &region) {
        let why = format!(
            "the numbers of {} are not at hand: they may be fed, absent external data, or too many for \
             a trial run",
            graph.name(value)
        );
        return SideReading::Refused(node, why);
    }
    let dims = found.trace.get(region.output).dims.as_deref();
    let width = dims.and_then(|dims| region.output_lane.width(dims));
    let Some(head_dim) = site.head_dim.or(width) else {
        return SideReading::Refused(node, "the width of a head is unknown".to_owned());
    };
    region.gather_features(graph, &found.trace, width.unwrap_or(head_dim));
    region.align_features(&found.trace, head_dim);
    match known.rotation(model, found, &region, head_dim) {
        Ok(rotation) => SideReading::Rotation(Box::new(RotaryOperand {
            basis: path.and_then(|path| path.basis_after(graph, &found.trace, region.output)),
            region,
            rotation,
        })),
        Err(why) => match known.axial(model, found, &region, head_dim, why) {
            Some((axial, fit)) => {
                let finding = Finding {
                    encoding: Encoding::Axial(axial),
                    sites: vec![site.index],
                    table: None,
                    form: form(model, &region),
                    entries: region.entries.clone(),
                    fit_error: Some(fit),
                    max_length: None,
                    lead: 0,
                    evidence: vec![],
                };
                SideReading::OnGrid(Box::new((finding, region)))
            }
            None if known.rotates(model, found, &region) => {
                SideReading::UnknownRotation(Box::new(region), why.to_string())
            }
            None => SideReading::Refused(node, why.to_string()),
        },
    }
}

/// The first value that enters a region and has no numbers.
fn absent(model: &Model, found: &Found, region: &Region) -> Option<ValueId> {
    let mut entering = entering(model, region).into_iter().flatten();
    entering.find(|value| found.trace.get(*value).data.is_none())
}

/// The rotation of the input of the projection of queries or keys, if there is one.
fn before_projection(
    model: &Model,
    found: &Found,
    site: &Site,
    path: &OperandPath,
) -> Option<Region> {
    let (graph, classes, trace) = (model.graph(), &found.classes, &found.trace);
    let before = path.before(graph, classes, trace, site.head_dim?)?;
    if !before.is_rotated(graph, classes, trace) {
        return None;
    }
    match before.region(graph, classes, trace) {
        Frontier::Region(region) => Some(*region),
        Frontier::Nothing | Frontier::Scattered(_) => None,
    }
}

/// Whether an operator of attention rotates queries and keys itself.
pub(crate) fn rotates(node: &Node) -> bool {
    node.domain() == "com.microsoft" && node.int("do_rotary") == Ok(Some(1))
}

/// Whether this is such an operator that projects its input too, which is read where a spelling replaces it alone.
pub(crate) fn projects_and_rotates(node: &Node) -> bool {
    node.op() == "Attention" && rotates(node)
}

/// The rotation within a fused operator, if it has one.
fn inside(model: &Model, found: &Found, site: &Site, operand: &Operand) -> Option<Region> {
    let node = model.graph().node(site.node);
    let (cos, positions, ids) = match (node.domain(), node.op()) {
        ("com.microsoft", "GroupQueryAttention") => (7, Some(5), Some(9)),
        ("com.microsoft", "SparseAttention") => (9, None, None),
        // It counts the tokens of each sequence from where they begin.
        ("com.microsoft", "PagedAttention") => (8, None, None),
        _ => return None,
    };
    let flag = |name: &str| matches!(node.int(name), Ok(Some(n)) if n != 0);
    if !rotates(node) {
        return None;
    }
    let whole = |v| found.trace.get(v).to_i64()?.iter().next().copied();
    let dims = found.trace.get(operand.value).dims.as_deref()?;
    let length = *dims.get(operand.lane.sequence)?;
    let ids = ids.and_then(|slot| node.input(slot));
    let last = positions.and_then(|slot| node.input(slot));
    let first = match (ids.and_then(whole), last.and_then(whole)) {
        (Some(first), _) => usize::try_from(first).ok(),
        (None, Some(last)) => usize::try_from(last.checked_add(1)?)
            .ok()?
            .checked_sub(length),
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

/// How the rotations of queries and keys differ, if they do.
fn difference(query: &RotaryOperand, key: &RotaryOperand) -> Option<String> {
    let same = |(a, b): (&Array2<f64>, &Array2<f64>)| {
        a.dim() == b.dim() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= TOLERANCE)
    };
    if query.basis.is_some() != key.basis.is_some()
        || query
            .basis
            .as_ref()
            .zip(key.basis.as_ref())
            .is_some_and(|both| !same(both))
    {
        return Some("queries and keys are rotated, then brought to different bases".to_owned());
    }
    let (q, k) = (&query.rotation.rope, &key.rotation.rope);
    if q.pairs != k.pairs {
        return Some("queries and keys pair different features".to_owned());
    }
    let near = |a: f64, b: f64| (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()).max(1e-12);
    if !q
        .inv_freq
        .iter()
        .zip(&k.inv_freq)
        .all(|(a, b)| near(*a, *b))
    {
        return Some("queries and keys rotate at different frequencies".to_owned());
    }
    if !near(q.attention_factor, k.attention_factor) {
        return Some("queries and keys have different factors".to_owned());
    }
    None
}

/// Why queries and keys of a site of self-attention are not rotated alike at the first or the last places of both, by
/// the numbers that were probed; `None` where they are.
fn apart(found: &Found, site: &Site, query: &RotaryOperand, key: &RotaryOperand) -> Option<String> {
    /// Largest difference of cosines and sines that rounding explains.
    const NEAR: f64 = 5e-3;
    let (q, k) = (&query.rotation, &key.rotation);
    let count = q.cos.nrows().min(k.cos.nrows());
    let alike = |first: [usize; 2]| {
        let rows =
            |of: &Array2<f64>, first: usize| of.slice(s![first..first + count, ..]).to_owned();
        let near = |a: &Array2<f64>, b: &Array2<f64>| {
            let (a, b) = (rows(a, first[0]), rows(b, first[1]));
            a.dim() == b.dim() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= NEAR)
        };
        near(&q.cos, &k.cos) && near(&q.sin, &k.sin)
    };
    let last = [q.cos.nrows() - count, k.cos.nrows() - count];
    if site.cross || alike([0, 0]) || alike(last) {
        return None;
    }
    let tokens = |half: &RotaryOperand| {
        let dims = found.trace.get(half.region.input).dims.as_deref()?;
        dims.get(half.region.input_lane.sequence).copied()
    };
    let by_slot = site.buffer.is_some() && tokens(query) != tokens(key);
    Some(match by_slot {
        true => "keys are rotated by the slots of a cache that they were written into".to_owned(),
        false => "queries are rotated by other positions than their keys".to_owned(),
    })
}

/// The rotation of the queries without the scale of the scores, `1/√d`, where cos and sin of queries
/// or keys contain it and nothing else sets both apart.
fn scale_in_factor(query: &RotaryOperand, key: &RotaryOperand) -> Option<RotaryOperand> {
    let (q, k) = (&query.rotation.rope, &key.rotation.rope);
    let whole = |rope: &Rope| 2 * rope.pairs.len() == rope.head_dim;
    let scale = (q.head_dim as f64).sqrt().recip();
    let is_scale = |share: f64| (share / scale - 1.0).abs() <= TOLERANCE;
    let ratio = q.attention_factor / k.attention_factor;
    let factor = match (is_scale(ratio), is_scale(ratio.recip())) {
        (true, false) => k.attention_factor,
        (false, true) => q.attention_factor,
        _ => return None,
    };
    // Features that do not rotate would have to be scaled too.
    if !whole(q) || !whole(k) {
        return None;
    }
    let mut plain = query.clone();
    plain.rotation.rope.attention_factor = factor;
    let mut other = key.clone();
    other.rotation.rope.attention_factor = factor;
    difference(&plain, &other).is_none().then_some(plain)
}
