//! Rotations in a configuration: the law of every layer is written, then read back and compared.

use serde_json::{Map, Value};

use posenc_encodings::laws::Scaling;

use super::layers::{Layer, Layers, is_same, read, refuse, says, text};
use super::lengths::Lengths;
use super::reach::{Reach, Said};
use super::section;
use crate::error::Refusal;
use crate::report::Limits;
use crate::request::hf_config::{HfConfig, RopeRequest};

/// What a rescale makes of rotations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotations<'a> {
    pub(super) layers: &'a Layers,
    pub(super) reach: &'a Reach,
}

/// A config whose lengths are to be edited before its rotations.
#[derive(Debug)]
pub(super) struct Planned<'a> {
    /// Each layer, with what the config says of it before.
    layers: Vec<(&'a Layer, RopeRequest)>,
    /// What becomes of lengths.
    pub(super) lengths: Lengths,
    /// What a user should know.
    pub(super) warnings: Vec<String>,
}

impl<'a> Rotations<'a> {
    /// What the layers are to read as, and the lengths: `old` is the config before.
    ///
    /// # Errors
    /// When the rotations of the config cannot be read, a layer that rotates has none there, or the
    /// config is that of another model.
    pub(super) fn planned(
        &self,
        old: &Map<String, Value>,
        limits: &Limits,
    ) -> Result<Planned<'a>, Refusal> {
        let config = read(old)?;
        let mut layers = vec![];
        for layer in &self.layers.0 {
            let now = config.rope_for(layer.number).map_err(refuse)?;
            layers.push((layer, layer.needed(now)?));
        }
        refuse_another_model(&layers, text(old))?;
        let (lengths, warnings) = self.lengths(&config, &layers, limits)?;
        let mut planned = Planned {
            layers,
            lengths,
            warnings,
        };
        planned.warnings.extend(planned.growth());
        Ok(planned)
    }

    /// The lengths before and after.
    fn lengths(
        &self,
        config: &HfConfig,
        layers: &[(&Layer, RopeRequest)],
        limits: &Limits,
    ) -> Result<(Lengths, Vec<String>), Refusal> {
        let max = config.max_position().map_err(refuse)?;
        let mut changed = layers
            .iter()
            .filter_map(|(layer, now)| Some((layer.target.as_ref()?, now)));
        let Some((target, now)) = changed.next() else {
            return Ok((Lengths::of_limits(limits), vec![]));
        };
        let said = Said {
            now,
            max,
            is_done: says(now, target),
        };
        Ok(self.reach.lengths(&target.scaling, &said, limits))
    }
}

/// Refuses a config that says another base or other widths than the graph has. One with a single place
/// for layers that differ in the graph says those of some of them, and is refused later if need be.
fn refuse_another_model(
    layers: &[(&Layer, RopeRequest)],
    keys: &Map<String, Value>,
) -> Result<(), Refusal> {
    let misfits = layers.iter().map(|(layer, now)| layer.misfit(now, keys));
    let misfits: Vec<Option<String>> = misfits.collect();
    for (i, why) in misfits.iter().enumerate() {
        let Some(why) = why else { continue };
        let kind = &layers[i].1.kind;
        let fits = |((_, now), why): (&(&Layer, RopeRequest), &Option<String>)| {
            why.is_none() && section::is_shared(keys, &now.kind, kind)
        };
        if !layers.iter().zip(&misfits).any(fits) {
            return Err(Refusal::invalid(why.clone()));
        }
    }
    Ok(())
}

impl Planned<'_> {
    /// The length from which the base of a layer grows, which the length of the config has to be.
    pub(super) fn needs_length(&self) -> Option<usize> {
        let mut laws = self.layers.iter().map(|(layer, now)| {
            let target = layer.target.as_ref();
            target.map_or(&now.scaling, |target| &target.scaling)
        });
        laws.find_map(|law| match law {
            Scaling::Dynamic(law) => Some(law.max_position),
            _ => None,
        })
    }

    /// What a user should know of a length that is not the longest of the model.
    fn growth(&self) -> Option<String> {
        let length = self.needs_length()?;
        let changes = self.layers.iter().any(|(layer, _)| layer.target.is_some());
        (changes || !self.lengths.spans.is_empty()).then(|| {
            format!(
                "max_position_embeddings of the config is {length}, from where transformers lets the base \
                 of dynamic scaling grow; no key says how much longer sequences may be"
            )
        })
    }

    /// Writes the laws that the config does not say, where rotations are read.
    ///
    /// # Errors
    /// Where the config has no place for them, or would be read as something else.
    pub(super) fn edit(&self, config: &mut Map<String, Value>) -> Result<(), Refusal> {
        let mut is_written = false;
        for (layer, now) in &self.layers {
            let Some(target) = &layer.target else {
                continue;
            };
            let said = read(config)?.rope_for(layer.number).map_err(refuse)?;
            if said.is_some_and(|said| says(&said, target)) {
                continue;
            }
            is_written = true;
            let max_length = config.get("max_position_embeddings");
            let max_length = max_length.and_then(|length| usize::try_from(length.as_u64()?).ok());
            let is_parameters = section::is_parameters(config);
            let law = target
                .scaling
                .to_hf(&target.rope, max_length, is_parameters);
            match section::local(config, &now.kind) {
                None => section::write(config, &now.kind, &law),
                Some(key) if law.rope_type.is_none() => {
                    section::write_local(config, key, law.theta);
                }
                Some(key) => {
                    let why = format!(
                        "layer {} has a base of its own in the config ({key}), which has no scaling \
                         for it; rescale the others alone with `layers`",
                        layer.number
                    );
                    return Err(Refusal::invalid(why));
                }
            }
        }
        if is_written {
            section::refuse_of_phi3(config)?;
        }
        self.check(config)
    }

    /// Compares what the config is read as with the model, at every layer.
    fn check(&self, config: &Map<String, Value>) -> Result<(), Refusal> {
        // Rotations are read in this object, wherever it is.
        let all = read(config)?;
        for (layer, now) in &self.layers {
            let again = all.rope_for(layer.number).map_err(refuse)?;
            let again = layer.needed(again)?;
            let is_said = match &layer.target {
                Some(target) => says(&again, target),
                None => layer.computed.is_said_by(&again),
            };
            if is_said {
                continue;
            }
            let differs = |(other, own): &&(&Layer, RopeRequest)| {
                section::is_shared(config, &own.kind, &now.kind) && !are_alike(layer, other)
            };
            let why = match self.layers.iter().find(differs) {
                Some((other, _)) => format!(
                    "layers {} and {} rotate differently now, and the config has one {} for both",
                    other.number.min(layer.number),
                    other.number.max(layer.number),
                    section::name(config)
                ),
                None => format!(
                    "with {} of {}, the config would be read as another rotation at layer {}; is it \
                     that of this model?",
                    section::name(config),
                    again.scaling.name(),
                    layer.number
                ),
            };
            return Err(Refusal::invalid(why));
        }
        Ok(())
    }
}

/// Whether two layers are the same afterwards, as far as that is known.
fn are_alike(a: &Layer, b: &Layer) -> bool {
    match (&a.target, &b.target) {
        (Some(a), Some(b)) => is_same(a, b),
        (Some(target), None) => b.computed.is(target),
        (None, Some(target)) => a.computed.is(target),
        (None, None) => a.computed.is_like(&b.computed),
    }
}
