//! What the layers of a graph compute, compared with what a configuration says of them.

use serde_json::{Map, Value};

use posenc_encodings::families::rope::Rope as Rotation;
use posenc_encodings::laws::{IdentifiedScaling, Rope, Scaling};

use super::section;
use crate::detect::identified::{KnownLaws, precision};
use crate::detect::{Found, RotarySite, Switch};
use crate::plan::rescale::Target;
use crate::request::hf_config::RopeRequest;

/// How exactly a graph computes a base that grows.
const GROWN: f64 = 1e-5;

/// A share of a number that no way to store it explains.
const ROUGHLY: f64 = 1e-3;

/// The rotation of a layer as the graph computes it, before a rewrite.
#[derive(Clone, Debug)]
pub(super) struct Computed {
    rotation: Rotation,
    switch: Option<Switch>,
    /// The base; `None` where the numbers do not fix it.
    theta: Option<f64>,
    /// Its law, as far as its numbers fix it; `None` for plain RoPE.
    law: Option<IdentifiedScaling>,
    /// How exact its numbers are, as a share of each.
    precision: f64,
}

impl Computed {
    /// The rotation of a site, whose law is known to `laws`.
    pub(super) fn of<'a>(found: &'a Found, site: &'a RotarySite, laws: &mut KnownLaws<'a>) -> Self {
        let known = laws.law(site);
        Self {
            rotation: site.query.rotation.rope.clone(),
            switch: site.switch.clone(),
            theta: known.theta,
            law: known.scaling.clone(),
            precision: precision(found, site),
        }
    }

    /// Elements of a head that rotate, and all.
    pub(super) fn widths(&self) -> [usize; 2] {
        [self.rotation.rotary_dim, self.rotation.head_dim]
    }

    /// Whether its numbers are those of a scaling.
    pub(super) fn is_scaled(&self) -> bool {
        self.law.is_some()
    }

    /// The same, as exact as a difference has to be that cannot come from how numbers are stored.
    pub(super) fn roughly(&self) -> Self {
        Self {
            precision: self.precision.max(ROUGHLY),
            ..self.clone()
        }
    }

    /// Up to which share of each other numbers are these.
    pub(super) fn tolerance(&self) -> f64 {
        self.precision
    }

    /// Whether these are its numbers. A graph of one length has those of that length.
    pub(super) fn is(&self, target: &Target) -> bool {
        let at = |rotation, length| self.is_at(rotation, target, length);
        match (&self.switch, target.scaling.depends_on_length()) {
            (None, false) => at(&self.rotation, 1),
            (None, true) => {
                let original = target.scaling.original_length();
                let beyond = original.map_or(1, |length| length.saturating_add(1));
                at(&self.rotation, 1) || at(&self.rotation, beyond)
            }
            (Some(switch), true) => {
                let mut beyond = switch.beyond.iter();
                target.scaling.original_length() == Some(switch.original_length)
                    && at(&self.rotation, 1)
                    && beyond.all(|(length, rotation)| at(rotation, *length))
            }
            (Some(_), false) => false,
        }
    }

    fn is_at(&self, rotation: &Rotation, target: &Target, length: usize) -> bool {
        let tolerance = match target.scaling {
            Scaling::Dynamic(_) => self.precision.max(GROWN),
            _ => self.precision,
        };
        let near = |a: f64, b: f64| (a - b).abs() <= tolerance * b.abs();
        let mut want = target.scaling.frequencies(&target.rope, length);
        want.inv_freq.retain(|f| *f != 0.0);
        let mut pairs = rotation.inv_freq.iter().zip(&want.inv_freq);
        rotation.inv_freq.len() == want.inv_freq.len()
            && near(rotation.attention_factor, want.attention_factor)
            && pairs.all(|(a, b)| near(*a, *b))
    }

    /// Whether a config says these numbers. A base that no key says is that of the graph, since the class
    /// of a model may have one of its own.
    pub(super) fn is_said_by(&self, read: &RopeRequest) -> bool {
        let Some(rope) = self.rope(read) else {
            return false;
        };
        self.is(&Target {
            rope,
            scaling: read.scaling.clone(),
            softmax_factor: read.softmax_factor,
        })
    }

    /// The embedding that a config means for this graph.
    fn rope(&self, read: &RopeRequest) -> Option<Rope> {
        let [rotary, head] = self.widths();
        let theta = self.theta.filter(|_| !read.states_theta());
        let theta = theta.unwrap_or(read.theta);
        let read = RopeRequest {
            theta,
            ..read.clone()
        };
        read.rope(rotary, head).ok()
    }

    /// Whether another layer has these numbers.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= self.precision.max(other.precision) * b.abs();
        let [a, b] = [self, other].map(|computed| &computed.rotation);
        let mut pairs = a.inv_freq.iter().zip(&b.inv_freq);
        self.switch.is_some() == other.switch.is_some()
            && a.inv_freq.len() == b.inv_freq.len()
            && near(a.attention_factor, b.attention_factor)
            && pairs.all(|(a, b)| near(*a, *b))
    }

    /// In what the widths of a config, which holds `keys`, differ from the graph's, in words; `None` where
    /// they do not.
    pub(super) fn widths_differ(
        &self,
        read: &RopeRequest,
        keys: &Map<String, Value>,
    ) -> Option<String> {
        let [rotary, head] = self.widths();
        let width = read.width_of(head).unwrap_or(rotary);
        // Of a latent head, the config names the rotated part alone.
        let is_latent = keys.contains_key("qk_rope_head_dim");
        let all = read.head_dim.filter(|_| !is_latent).unwrap_or(head);
        // A law over the whole head has its own way to say how many pairs rotate.
        let differs = all != head || width != rotary && !read.scaling.spans_head();
        differs.then(|| {
            format!(
                "rotates {width} of {all} features of a head in the config and {rotary} of {head} in the \
                 graph"
            )
        })
    }

    /// In what the base of a config differs from the graph's, in words; `None` where it does not, or one of
    /// them does not say.
    pub(super) fn base_differs(&self, read: &RopeRequest) -> Option<String> {
        let graph = self.theta.filter(|_| read.states_theta())?;
        let is_same = (graph - read.theta).abs() <= self.precision.max(GROWN) * read.theta.abs();
        (!is_same).then(|| {
            let [own, graph] = [read.theta, graph].map(short);
            let mut sources = read.inferred.iter().filter(|value| value.name == "theta");
            let key = sources.next().map_or("", |value| &value.source);
            format!("has the base {own} in the config ({key}) and {graph} in the graph")
        })
    }

    /// In what the law of a config, which holds `keys`, differs from the graph's, in words.
    pub(super) fn law_differs(&self, read: &RopeRequest, keys: &Map<String, Value>) -> String {
        let factor = |law: Value| law.get("factor").and_then(Value::as_f64);
        let own = factor(read.scaling.to_json());
        let own = words(read.scaling.name(), own);
        let name = self.law.as_ref().map_or("none", |law| law.name());
        let graph = self.law.as_ref().and_then(IdentifiedScaling::factor);
        let graph = words(name, graph);
        let key = section::name(keys);
        match own == graph {
            true => format!("is {own} of other parameters in the config ({key}) than in the graph"),
            false => format!("is {own} in the config ({key}) and {graph} in the graph"),
        }
    }
}

/// A law and how far it stretches.
fn words(law: &str, factor: Option<f64>) -> String {
    match (law, factor) {
        ("none", _) => "plain RoPE".to_owned(),
        (law, Some(factor)) => format!("{law} × {}", short(factor)),
        (law, None) => law.to_owned(),
    }
}

/// A number in the digits that the precision of a graph gives.
fn short(x: f64) -> String {
    let rounded = format!("{x:.4e}").parse::<f64>();
    rounded.unwrap_or(x).to_string()
}
