//! What was read of rotations so far: equal layers are read once.

use posenc_encodings::families::axial::Axial;
use posenc_encodings::families::rope::Unread;
use posenc_encodings::kind::Form;
use posenc_ir::{Model, ValueId};
use rustc_hash::FxHashMap;

use super::read::{read, read_axial, rotates_pairs};
use super::site::{RotaryOperand, RotarySite, Rotation, Streams, Switch};
use super::{longer, streams, switch};
use crate::detect::found::Found;
use crate::graph::operators::position_sections;
use crate::graph::region::{Aspect, Region};
use crate::graph::signature::Signatures;

/// What was read so far: equal layers are read once.
#[derive(Default)]
pub(super) struct RotationCache {
    signatures: Signatures,
    rotations: FxHashMap<(usize, usize), Result<Rotation, Unread>>,
    switches: FxHashMap<RotationKey, Option<Switch>>,
    streams: FxHashMap<RotationKey, Option<Streams>>,
    departing: FxHashMap<RotationKey, Option<String>>,
    axial: FxHashMap<(usize, usize), Option<(Axial, f64)>>,
    rotating: FxHashMap<usize, bool>,
}

/// The values that enter a rotation, the features that it rotates, and how these are shared out among streams of
/// positions.
type RotationKey = (
    Vec<Option<ValueId>>,
    Vec<(usize, usize)>,
    Option<(Vec<i64>, bool)>,
);

impl RotationCache {
    pub(super) fn rotation(
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
        let signature = self.signature(model, found, region);
        let known = self.rotations.entry((signature, head_dim));
        known.or_insert_with(read).clone()
    }

    /// The number of a region by what it computes.
    fn signature(&mut self, model: &Model, found: &Found, region: &Region) -> usize {
        let aspects = region.aspects(model.graph(), &found.classes, Aspect::Numbers);
        self.signatures
            .region(model.graph(), region, &found.trace, aspects)
    }

    /// A region whose angles do not grow with the position, as a rotation on a grid.
    pub(super) fn axial(
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
        let signature = self.signature(model, found, region);
        let known = self.axial.entry((signature, head_dim));
        let read = || read_axial(model, &found.trace, region, head_dim).ok();
        known.or_insert_with(read).clone()
    }

    /// Whether a region that is no known rotation rotates pairs all the same.
    pub(super) fn rotates(&mut self, model: &Model, found: &Found, region: &Region) -> bool {
        if region.inside.is_some() {
            return true;
        }
        let signature = self.signature(model, found, region);
        let read = || rotates_pairs(model, &found.trace, region);
        *self.rotating.entry(signature).or_insert_with(read)
    }

    /// The site of these rotations.
    pub(super) fn site(
        &mut self,
        model: &Model,
        found: &Found,
        site: usize,
        query: RotaryOperand,
        key: RotaryOperand,
    ) -> RotarySite {
        RotarySite {
            site,
            switch: self.switch(model, found, &query),
            streams: self
                .streams(model, found, &query)
                .filter(|own| own.sections.len() > 1),
            form: form(model, &query.region),
            node: query.region.entries[0].node,
            query,
            key,
        }
    }

    fn switch(&mut self, model: &Model, found: &Found, half: &RotaryOperand) -> Option<Switch> {
        let known = self.switches.entry(rotation_key(model, half));
        known
            .or_insert_with(|| switch::find(model, found, half))
            .clone()
    }

    /// Why a rotation is another one in longer sequences, if it is.
    pub(super) fn departs(
        &mut self,
        model: &Model,
        found: &Found,
        half: &RotaryOperand,
    ) -> Option<String> {
        let known = self.departing.entry(rotation_key(model, half));
        known
            .or_insert_with(|| longer::departs(model, found, half))
            .clone()
    }

    /// The streams of positions that a rotation reads, of several that the model has.
    pub(super) fn streams(
        &mut self,
        model: &Model,
        found: &Found,
        half: &RotaryOperand,
    ) -> Option<Streams> {
        let known = self.streams.entry(rotation_key(model, half));
        known
            .or_insert_with(|| streams::find(model, found, half))
            .clone()
    }
}

fn rotation_key(model: &Model, half: &RotaryOperand) -> RotationKey {
    let node = model.graph().node(half.region.entries[0].node);
    let sections = position_sections(node).map(|(all, in_turns)| (all.to_vec(), in_turns));
    (
        entering(model, &half.region),
        half.rotation.rope.pairs.clone(),
        sections,
    )
}

/// The values that enter a region.
pub(crate) fn entering(model: &Model, region: &Region) -> Vec<Option<ValueId>> {
    let graph = model.graph();
    let entries = region.entries.iter();
    entries
        .map(|u| graph.node(u.node).input(u.slot()))
        .collect()
}

/// Plain operators or a fused one.
pub(super) fn form(model: &Model, region: &Region) -> Form {
    let node = model.graph().node(region.entries[0].node);
    match (node.domain(), node.op()) {
        ("", "RotaryEmbedding") => Form::Onnx,
        ("com.microsoft", _) => Form::Contrib,
        _ => Form::Ops,
    }
}
