//! Rotations in a configuration: the law of every layer is written, then read back and compared.

use serde_json::{Map, Value};

use posenc_encodings::laws::{Rope, Scaling};

use super::lengths::{Lengths, Span};
use super::section;
use crate::error::Refusal;
use crate::plan::rescale::Target;
use crate::report::{Limit, LimitCause, Limits};
use crate::request::hf_config::{HfConfig, HfConfigError, LayerKind, RopeRequest};

/// Differences of frequencies up to this share are those of a θ that is kept.
const TOLERANCE: f64 = 2e-6;

/// What a rescale makes of rotations.
#[derive(Clone, Debug)]
pub(crate) struct Rotations {
    /// Every layer that rotates.
    pub(super) layers: Vec<Layer>,
    /// The length that the request or the law names.
    pub(super) max_length: Option<usize>,
    /// The length that the model was trained for.
    pub(super) original: Option<usize>,
    /// Whether frequencies stay, and only tables get more rows.
    pub(super) keeps: bool,
}

/// A layer that rotates.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    /// Its number within its stack.
    pub(super) number: usize,
    /// What it gets; `None` where it stays.
    pub(super) target: Option<Target>,
    /// Elements of a head that rotate, and all.
    pub(super) widths: [usize; 2],
}

/// A config whose lengths are to be edited before its rotations.
#[derive(Debug)]
pub(super) struct Planned<'a> {
    rotations: &'a Rotations,
    /// What each layer is to read as; `None` where it does not rotate for the config.
    wanted: Vec<Option<(LayerKind, Target)>>,
    /// What becomes of lengths.
    pub(super) lengths: Lengths,
    /// What a user should know.
    pub(super) warnings: Vec<String>,
}

impl Rotations {
    /// What the layers are to read as, and the lengths: `old` is the config before.
    ///
    /// # Errors
    /// When the rotations of the config cannot be read, or a layer that rotates has none there.
    pub(super) fn planned(&self, old: &Value, limits: &Limits) -> Result<Planned<'_>, Refusal> {
        let config = HfConfig::from_value(old.clone()).map_err(refuse)?;
        let mut wanted = vec![];
        for layer in &self.layers {
            wanted.push(self.wanted(layer, &config)?);
        }
        let (lengths, warnings) = self.lengths(&config, limits)?;
        Ok(Planned {
            rotations: self,
            wanted,
            lengths,
            warnings,
        })
    }

    fn wanted(
        &self,
        layer: &Layer,
        config: &HfConfig,
    ) -> Result<Option<(LayerKind, Target)>, Refusal> {
        let now = config.rope_for(layer.number).map_err(refuse)?;
        let target = layer.target.clone().filter(|_| !self.keeps);
        let (now, target) = match (now, target) {
            (None, None) => return Ok(None),
            (None, Some(_)) => {
                let why = format!(
                    "layer {} rotates in the model and not in the config",
                    layer.number
                );
                return Err(Refusal::invalid(why));
            }
            (Some(now), target) => (now, target),
        };
        let target = match target {
            Some(target) => target,
            None => {
                let [rotary, head] = layer.widths;
                Target {
                    rope: now.rope(rotary, head).map_err(|e| refuse(e.into()))?,
                    scaling: now.scaling,
                    softmax_factor: now.softmax_factor,
                }
            }
        };
        Ok(Some((now.kind, target)))
    }

    /// The lengths before and after. A law that stretches RoPE says how far; nothing in the graph may
    /// end before.
    fn lengths(
        &self,
        config: &HfConfig,
        limits: &Limits,
    ) -> Result<(Lengths, Vec<String>), Refusal> {
        let [before, after] = [&limits.before, &limits.after].map(|limits| shortest(limits));
        let mut warnings = vec![];
        let target = self.layers.iter().find(|layer| layer.target.is_some());
        let (Some((layer, law)), false) = (
            target.and_then(|layer| Some((layer, &layer.target.as_ref()?.scaling))),
            self.keeps,
        ) else {
            let changed = before.zip(after).filter(|(old, new)| old != new);
            let spans = changed.map(|(old, new)| Span::of_model(old, new));
            let lengths = Lengths {
                spans: spans.into_iter().collect(),
                kept: vec![],
            };
            return Ok((lengths, warnings));
        };
        let now = config.rope_for(layer.number).map_err(refuse)?;
        let max = config.max_position().map_err(refuse)?;
        let scaled = now.and_then(|now| {
            let original = now.scaling.original_length()?;
            Some((original, now.scaling.extended(original)))
        });
        let original = self.original.or(law.original_length());
        let original = original.or(scaled.map(|(original, _)| original)).or(max);
        let new = original.and_then(|length| law.extended(length));
        let Some(mut new) = self.max_length.or(new) else {
            return Ok((Lengths::default(), warnings));
        };
        if let Some(after) = after.filter(|after| *after < new) {
            if self.max_length.is_none() {
                warnings.push(format!(
                    "the graph still ends at {after}, below the {new} positions that the law is \
                     for, and so do the lengths of the config"
                ));
            }
            new = after;
        }
        let mut old: Vec<usize> = [self.original, law.original_length(), before]
            .into_iter()
            .flatten()
            .collect();
        if let Some((original, extended)) = scaled {
            old.extend([Some(original), extended, max].into_iter().flatten());
        } else if old.is_empty() {
            old.extend(max);
        }
        old.sort_unstable();
        old.dedup();
        let spans = old.into_iter().filter(|old| *old != new);
        let spans = spans.map(|old| Span::of_model(old, new)).collect();
        let kept = vec![];
        Ok((Lengths { spans, kept }, warnings))
    }
}

impl Planned<'_> {
    /// Whether a law grows from the length of the config, which has to stay then.
    pub(super) fn needs_length(&self) -> bool {
        let mut wanted = self.wanted.iter().flatten();
        wanted.any(|(_, target)| matches!(target.scaling, Scaling::Dynamic(_)))
    }

    /// Writes the laws that the config does not say, where rotations are read.
    ///
    /// # Errors
    /// Where the config has no place for them, or would be read as something else.
    pub(super) fn edit(&self, config: &mut Map<String, Value>) -> Result<(), Refusal> {
        for (layer, wanted) in self.layers() {
            let read = read(config)?.rope_for(layer.number).map_err(refuse)?;
            let (kind, target) = wanted;
            if read.is_some_and(|read| says(&read, target)) {
                continue;
            }
            let max_length = config.get("max_position_embeddings");
            let max_length = max_length.and_then(|length| usize::try_from(length.as_u64()?).ok());
            let is_parameters = section::is_parameters(config);
            let law = target
                .scaling
                .to_hf(&target.rope, max_length, is_parameters);
            match section::local(config, kind) {
                None => section::write(config, kind, &law),
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
        self.check(config)
    }

    /// Compares what the config is read as with the model.
    fn check(&self, config: &Map<String, Value>) -> Result<(), Refusal> {
        let read = read(config)?;
        for (layer, (kind, target)) in self.layers() {
            let now = read.rope_for(layer.number).map_err(refuse)?;
            if now.is_some_and(|now| says(&now, target)) {
                continue;
            }
            let differs = |(_, (other, law)): &(&Layer, &(LayerKind, Target))| {
                let shares = other == kind || !section::is_per_kind(config);
                shares && section::local(config, other).is_none() && !is_same(law, target)
            };
            let why = match self.layers().find(differs) {
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
                    target.scaling.name(),
                    layer.number
                ),
            };
            return Err(Refusal::invalid(why));
        }
        Ok(())
    }

    fn layers(&self) -> impl Iterator<Item = (&Layer, &(LayerKind, Target))> {
        let wanted = self.rotations.layers.iter().zip(&self.wanted);
        wanted.filter_map(|(layer, wanted)| Some((layer, wanted.as_ref()?)))
    }
}

fn read(config: &Map<String, Value>) -> Result<HfConfig, Refusal> {
    // Rotations are read in this object, wherever it is.
    HfConfig::from_value(Value::Object(config.clone())).map_err(refuse)
}

fn refuse(why: HfConfigError) -> Refusal {
    Refusal::invalid(why.to_string())
}

/// The length at which a graph ends.
pub(super) fn shortest(limits: &[Limit]) -> Option<usize> {
    let of_graph = limits.iter().filter(|l| l.cause != LimitCause::Runtime);
    of_graph.map(|limit| limit.length).min()
}

/// Whether a config says these frequencies, at every length.
fn says(read: &RopeRequest, target: &Target) -> bool {
    let Ok(rope) = read.rope(target.rope.rotary_dim, target.rope.head_dim) else {
        return false;
    };
    let read = Target {
        rope,
        scaling: read.scaling.clone(),
        softmax_factor: read.softmax_factor,
    };
    is_same(&read, target)
}

/// Whether two laws give the same frequencies, at every length.
fn is_same(a: &Target, b: &Target) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= TOLERANCE * b.abs();
    let originals = [a, b].map(|target| target.scaling.original_length());
    let lengths = originals.into_iter().flatten();
    let around = lengths.flat_map(|n| [n, n.saturating_add(1), n.saturating_mul(4)]);
    let rotating = |scaling: &Scaling, rope: &Rope, length| {
        let mut all = scaling.frequencies(rope, length);
        all.inv_freq.retain(|f| *f != 0.0);
        all
    };
    near(a.softmax_factor, b.softmax_factor)
        && [1].into_iter().chain(around).all(|length| {
            let [a, b] = [a, b].map(|target| rotating(&target.scaling, &target.rope, length));
            let mut pairs = a.inv_freq.iter().zip(&b.inv_freq);
            near(a.attention_factor, b.attention_factor)
                && a.inv_freq.len() == b.inv_freq.len()
                && pairs.all(|(a, b)| near(*a, *b))
        })
}
