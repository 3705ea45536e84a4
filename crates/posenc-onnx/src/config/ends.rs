//! Lengths of a configuration that a rewrite does not change, compared with where the graph ends.

use serde_json::{Map, Value};

use super::layers::text;
use super::lengths::{KEYS, is_of_stack};
use crate::detect::Found;
use crate::detect::finding::Encoding;
use crate::report::{Limit, LimitCause};

/// The keys that are the rows of a learned table, whatever else a config says.
const ROWS: [&str; 2] = ["max_position_embeddings", "n_positions"];

/// How many rows a table may have that no position reads, and that were not told from the others.
const SPARE: usize = 8;

/// Where a graph ends, as far as a length of a config has to fit that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    /// Rows of tables that are added to the embeddings, without the reserved ones and with them.
    rows: Vec<usize>,
    /// Rows that no position reads, which a config may count.
    reserved: usize,
    /// Whether all of them are learned, so that there are no others.
    is_learned: bool,
    /// Whether the graph takes sequences of any length: one of a single length may hold a part of a table.
    is_open: bool,
    /// Whether a config has one length: the model has neither two stacks nor images.
    is_one: bool,
}

impl Ends {
    /// Those of a model.
    pub(super) fn of(found: &Found) -> Self {
        let mut sites = found.attention.iter();
        let mut ends = Self {
            is_learned: true,
            is_open: found.ports.fixed_sequence().is_none(),
            is_one: sites.all(|site| site.place.stack.is_none() && !site.cross),
            ..Self::default()
        };
        for finding in &found.findings {
            let (offset, is_image) = match &finding.encoding {
                Encoding::Learned(table) => (table.offset, table.grid.is_some()),
                Encoding::Sinusoidal(code) => (code.offset, code.image.is_some()),
                _ => continue,
            };
            ends.is_learned &= matches!(finding.encoding, Encoding::Learned(_));
            ends.is_one &= !is_image;
            ends.reserved = ends.reserved.max(offset);
            if let Some(rows) = finding.max_length {
                ends.rows.extend([rows, rows + offset]);
            }
        }
        ends
    }

    /// What a user should know of lengths in a config that are not those of the graph.
    pub(super) fn warnings(&self, config: &Map<String, Value>, limits: &[Limit]) -> Vec<String> {
        let of_positions = |limit: &&Limit| {
            let is_other = matches!(
                limit.cause,
                LimitCause::Cache | LimitCause::StaticShape | LimitCause::Runtime
            );
            !is_other
        };
        let limits = limits.iter().filter(of_positions);
        let end = limits.map(|limit| limit.length).min();
        let Some(end) = end.filter(|_| self.is_one && !config.contains_key("vision_config")) else {
            return vec![];
        };
        let mut warnings = vec![];
        for key in KEYS.into_iter().filter(|key| !is_of_stack(key)) {
            let number = text(config).get(key).and_then(Value::as_u64);
            let number = number.and_then(|number| usize::try_from(number).ok());
            if let Some(number) = number.filter(|number| !self.fits(*number, end)) {
                warnings.push(format!(
                    "{key} of the config is {number}, and the graph ends at {end}"
                ));
            }
        }
        warnings
    }

    /// Whether a config says a length that is compared.
    pub(super) fn are_said(config: &Map<String, Value>) -> bool {
        ROWS.iter().any(|key| config.contains_key(*key))
    }

    /// What a config says otherwise than learned tables of a model that is one stack alone, for any length.
    pub(super) fn contradiction(&self, config: &Map<String, Value>) -> Option<String> {
        let is_pair = config.get("is_encoder_decoder").and_then(Value::as_bool) == Some(true);
        let [least, most] = [self.rows.iter().min()?, self.rows.iter().max()?];
        if is_pair || !self.is_one || !self.is_learned || !self.is_open {
            return None;
        }
        ROWS.iter().find_map(|key| {
            let number = usize::try_from(config.get(*key)?.as_u64()?).ok()?;
            let is_other = number > *most || number + SPARE < *least;
            is_other.then(|| {
                format!("{key} of the config is {number}, and the table of the graph has {least} positions")
            })
        })
    }

    /// Buffers may be longer than a config says; a table on the embeddings has the rows that it says.
    fn fits(&self, number: usize, end: usize) -> bool {
        number <= end + self.reserved && (self.rows.is_empty() || self.rows.contains(&number))
    }
}
