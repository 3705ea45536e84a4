//! What a configuration says otherwise than a graph, where that is certain.

use posenc_ir::Model;
use serde_json::{Map, Value};

use super::ends::Ends;
use super::layers::{Layer, Layers, read, text};
use crate::detect::Options;
use crate::detect::branches::branches;
use crate::request::Request;
use crate::request::hf_config::RopeRequest;
use crate::spelling;

/// The most layers of a config that are looked at.
const MOST_LAYERS: usize = 1024;

/// How the keys begin that say something of rotations.
const OF_ROTATIONS: [&str; 3] = ["rope", "rotary", "partial_rotary"];

/// Keys that change frequencies and are not read.
const UNREAD: [&str; 2] = ["rope_ratio", "rotary_scaling_factor"];

/// Inner objects that are not another model.
const OWN: [&str; 2] = ["text_config", "quantization_config"];

/// In what a config contradicts a graph; `None` where it does not, and where that cannot be compared.
pub(crate) fn contradiction(model: &Model, options: &Options, config: &Value) -> Option<String> {
    let config = config.as_object()?;
    if !says_rotations(text(config)) && !Ends::are_said(text(config)) {
        return None;
    }
    let (read, _) = spelling::as_read(model, &options.roles);
    let branches = branches(read.as_ref().unwrap_or(model), options);
    let layers = Layers::of(&branches, &[], &Request::default());
    let rotations = layers.contradiction(config);
    rotations.or_else(|| {
        let is_alone = branches.len() == 1 && !has_others(config);
        let ends = is_alone.then(|| Ends::of(&branches[0].found))?;
        ends.contradiction(text(config))
    })
}

impl Layers {
    /// In what a config contradicts rotations, before and after they change.
    ///
    /// Which layer of the config one of the graph is may not be known, as in a part of a model, and a class
    /// of models may have what its config leaves out. So a layer of the graph has to be like none of the
    /// config, and one of the config like none of the graph.
    pub(super) fn contradiction(&self, config: &Map<String, Value>) -> Option<String> {
        let keys = text(config);
        if self.0.is_empty() || !says_rotations(keys) || !self.are_those_of(config) {
            return None;
        }
        let said = self.said(config)?;
        let all: Vec<(&Layer, Vec<Option<String>>)> = self
            .0
            .iter()
            .map(|layer| {
                let computed = layer.computed.roughly();
                let differ = said
                    .iter()
                    .map(|(_, now)| layer.difference(&computed, now, keys, true));
                (layer, differ.collect())
            })
            .collect();
        let is_met = |at: &usize| all.iter().any(|(_, differ)| differ[*at].is_none());
        let unmet: Vec<usize> = (0..said.len()).filter(|at| !is_met(at)).collect();
        let (layer, differ) = all
            .iter()
            .find(|(_, differ)| differ.iter().all(Option::is_some))?;
        let is_own = |at: &&usize| said[**at].0.contains(&layer.number);
        let at = *unmet.iter().find(is_own).or(unmet.first())?;
        let why = differ[at].as_ref()?;
        Some(format!("layer {} {why}", layer.number))
    }

    /// Whether the config can be that of these layers: beside the text, it may be that of models of images
    /// or sound, in which tokens see later ones.
    fn are_those_of(&self, config: &Map<String, Value>) -> bool {
        !has_others(config)
            || config.contains_key("text_config") && self.0.iter().all(|layer| layer.is_causal)
    }

    /// Each rotation of the config, with the layers that it is of; `None` where one cannot be read.
    fn said(&self, config: &Map<String, Value>) -> Option<Vec<(Vec<usize>, RopeRequest)>> {
        let config = read(config).ok()?;
        let own = self.0.iter().map(|layer| layer.number + 1).max()?;
        let count = config.layers().ok()?.unwrap_or(own).min(MOST_LAYERS);
        let mut said: Vec<(Vec<usize>, RopeRequest)> = vec![];
        for number in 0..count {
            let Some(now) = config.rope_for(number).ok()? else {
                continue;
            };
            match said.iter_mut().find(|(_, other)| *other == now) {
                Some((numbers, _)) => numbers.push(number),
                None => said.push((vec![number], now)),
            }
        }
        Some(said)
    }
}

/// Whether a config says something of rotations, and nothing that is not read.
fn says_rotations(keys: &Map<String, Value>) -> bool {
    let is_set = |key: &&str| keys.get(*key).is_some_and(|value| !value.is_null());
    let is_of_them = |key: &String| OF_ROTATIONS.iter().any(|begin| key.starts_with(begin));
    keys.keys().any(is_of_them) && !UNREAD.iter().any(is_set)
}

/// Whether a config is that of other models too.
fn has_others(config: &Map<String, Value>) -> bool {
    config.iter().any(|(key, value)| {
        let is_model = key.ends_with("_config") || value.get("model_type").is_some();
        is_model && value.is_object() && !OWN.contains(&key.as_str())
    })
}
