//! The layers of a graph that rotate, and what a configuration says of them.

use serde_json::{Map, Value};

use super::computed::Computed;
use crate::detect::branches::Branch;
use crate::detect::identified::KnownLaws;
use crate::error::Refusal;
use crate::plan::rescale::{Plan, Target};
use crate::request::Request;
use crate::request::hf_config::{HfConfig, HfConfigError, RopeRequest};

/// Every layer that rotates, in all branches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layers(pub(super) Vec<Layer>);

/// A layer that rotates.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// Its number within its stack.
    pub(super) number: usize,
    /// What it gets; `None` where it stays.
    pub(super) target: Option<Target>,
    /// What it is before.
    pub(super) computed: Computed,
    /// Whether no token sees later ones.
    pub(super) is_causal: bool,
}

impl Layers {
    /// Those of a model, with what plans make of them.
    pub(super) fn of(branches: &[Branch], plans: &[Option<Plan>], request: &Request) -> Self {
        let mut layers = vec![];
        for (i, Branch { found, .. }) in branches.iter().enumerate() {
            let plan = plans.get(i).and_then(Option::as_ref);
            let plan = plan.filter(|_| !request.keeps_frequencies());
            let mut laws = KnownLaws::of(found);
            for (at, rotary) in found.rotary.iter().enumerate() {
                let site = &found.attention[rotary.site];
                if !site.cross {
                    layers.push(Layer {
                        number: site.place.layer,
                        target: plan.and_then(|plan| plan.target(at).cloned()),
                        computed: Computed::of(found, rotary, &mut laws),
                        is_causal: site.mask.causal == Some(true),
                    });
                }
            }
        }
        Self(layers)
    }

    /// Whether a layer that changes is scaled already.
    pub(super) fn are_scaled(&self) -> bool {
        let mut changed = self.0.iter().filter(|layer| layer.target.is_some());
        changed.any(|layer| layer.computed.is_scaled())
    }

    /// Compares a config with layers that all stay; what a user should know where it cannot be read.
    ///
    /// # Errors
    /// The config of another model.
    pub(super) fn compare(&self, config: &Map<String, Value>) -> Result<Option<String>, Refusal> {
        let all = read(config)?;
        let mut said = vec![];
        for layer in &self.0 {
            match all.rope_for(layer.number) {
                Ok(now) => said.push((layer, now)),
                Err(why) => {
                    let warning = format!(
                        "the rotations of the config are not compared with the graph's: {why}"
                    );
                    return Ok(Some(warning));
                }
            }
        }
        for (layer, now) in said {
            if let Some(why) = layer.misfit(&layer.needed(now)?, text(config)) {
                return Err(Refusal::invalid(why));
            }
        }
        Ok(None)
    }
}

impl Layer {
    /// What a config says of it.
    ///
    /// # Errors
    /// Where it does not rotate for the config.
    pub(super) fn needed(&self, now: Option<RopeRequest>) -> Result<RopeRequest, Refusal> {
        now.ok_or_else(|| {
            let number = self.number;
            let why = format!("layer {number} rotates in the model and not in the config");
            Refusal::invalid(why)
        })
    }

    /// Why a config, which says this of the layer, is that of another model; `None` where it is not. A
    /// layer that changes may have another scaling there, from an earlier rewrite.
    pub(super) fn misfit(&self, now: &RopeRequest, keys: &Map<String, Value>) -> Option<String> {
        let why = self.difference(&self.computed, now, keys, self.target.is_none());
        let number = self.number;
        why.map(|why| format!("layer {number} {why}; is it that of this model?"))
    }

    /// In what a config, which says this of the layer, differs from what it is, by these numbers, and from
    /// what it gets; `None` where it does not. Another law of the same base counts where `is_law` says so.
    pub(super) fn difference(
        &self,
        computed: &Computed,
        now: &RopeRequest,
        keys: &Map<String, Value>,
        is_law: bool,
    ) -> Option<String> {
        let is_said = || {
            let near = |target: &Target| says_nearly(now, target, computed.tolerance());
            let is_target = self.target.as_ref().is_some_and(near);
            is_target || computed.is_said_by(now)
        };
        match computed.widths_differ(now, keys) {
            Some(why) => Some(why),
            None if is_said() => None,
            None => {
                let law = || is_law.then(|| computed.law_differs(now, keys));
                computed.base_differs(now).or_else(law)
            }
        }
    }
}

/// The object in which rotations are read.
pub(super) fn text(config: &Map<String, Value>) -> &Map<String, Value> {
    match config.get("text_config") {
        Some(Value::Object(text)) => text,
        _ => config,
    }
}

/// What is read of a config.
pub(super) fn read(config: &Map<String, Value>) -> Result<HfConfig, Refusal> {
    HfConfig::from_value(Value::Object(config.clone())).map_err(refuse)
}

/// Differences of frequencies up to this share are those of a θ that is kept.
const TOLERANCE: f64 = 2e-6;

/// Whether a config says these frequencies, at every length.
pub(super) fn says(read: &RopeRequest, target: &Target) -> bool {
    says_nearly(read, target, TOLERANCE)
}

/// The same up to this share of each.
fn says_nearly(read: &RopeRequest, target: &Target, tolerance: f64) -> bool {
    let Ok(rope) = read.rope(target.rope.rotary_dim, target.rope.head_dim) else {
        return false;
    };
    let read = Target {
        rope,
        scaling: read.scaling.clone(),
        softmax_factor: read.softmax_factor,
    };
    is_near((&read, target), tolerance)
}

/// Whether two laws give the same frequencies, at every length.
pub(super) fn is_same(a: &Target, b: &Target) -> bool {
    is_near((a, b), TOLERANCE)
}

fn is_near((a, b): (&Target, &Target), tolerance: f64) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= tolerance * b.abs();
    let originals = [a, b].map(|target| target.scaling.original_length());
    let lengths = originals.into_iter().flatten();
    let around = lengths.flat_map(|n| [n, n.saturating_add(1), n.saturating_mul(4)]);
    let rotating = |target: &Target, length| {
        let mut all = target.scaling.frequencies(&target.rope, length);
        all.inv_freq.retain(|f| *f != 0.0);
        all
    };
    near(a.softmax_factor, b.softmax_factor)
        && [1].into_iter().chain(around).all(|length| {
            let [a, b] = [a, b].map(|target| rotating(target, length));
            let mut pairs = a.inv_freq.iter().zip(&b.inv_freq);
            near(a.attention_factor, b.attention_factor)
                && a.inv_freq.len() == b.inv_freq.len()
                && pairs.all(|(a, b)| near(*a, *b))
        })
}

/// A config that cannot be read.
pub(super) fn refuse(why: HfConfigError) -> Refusal {
    Refusal::invalid(why.to_string())
}
