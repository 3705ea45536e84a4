//! What of a rewrite a configuration tells.

use serde_json::{Map, Value};

use super::change::{ConfigChange, object};
use super::ends::Ends;
use super::images::Images;
use super::layers::Layers;
use super::lengths::{KEYS, Lengths, add};
use super::reach::Reach;
use super::rotations::Rotations;
use super::tables::Tables;
use crate::detect::Found;
use crate::detect::branches::Branch;
use crate::error::{Refusal, RefusalKind};
use crate::plan::change::Change;
use crate::plan::resize;
use crate::plan::resize::Wanted;
use crate::report::Limits;
use crate::request::Request;

/// What a rewrite changes, as far as a configuration is concerned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    what: What,
    /// The layers that rotate.
    layers: Layers,
    ends: Ends,
}

/// What a rewrite changes.
#[derive(Clone, Debug, Default)]
enum What {
    /// Nothing.
    #[default]
    Nothing,
    /// Frequencies, or the rows of their tables.
    Rotations(Reach),
    /// Tables and biases.
    Tables(Tables),
    /// The size of images, with what no key says.
    Images(Images, Vec<String>),
    /// Another encoding.
    Swapped,
    /// Images of any size.
    Open,
}

impl Told {
    /// What a change is to a configuration. `recorded` is the length that the model was trained for by its
    /// own record.
    pub(crate) fn of(
        change: &Change,
        branches: &[Branch],
        request: &Request,
        recorded: Option<usize>,
    ) -> Self {
        let found = &branches[0].found;
        let mut layers = Layers::default();
        let what = match change {
            Change::Swap(_) => What::Swapped,
            Change::Rescale(plans) => {
                layers = Layers::of(branches, plans, request);
                let reach = Reach::of(plans, request, recorded, layers.are_scaled());
                What::Rotations(reach)
            }
            Change::Sort | Change::Form | Change::Nothing { .. } => {
                layers = Layers::of(branches, &[], request);
                What::Nothing
            }
            Change::Stretch(plans) => What::Tables(Tables::of(found, &plans[0])),
            Change::Resize(plan) => sizes(found, plan),
            Change::Open(_) => What::Open,
        };
        let ends = Ends::of(found);
        Self { what, layers, ends }
    }

    /// In what a config contradicts the rotations, which it may say as they were and as they become.
    pub(crate) fn contradiction(&self, config: &Value) -> Option<String> {
        self.layers.contradiction(config.as_object()?)
    }

    /// What becomes of a `config.json`. `limits` are those of the model before and after.
    ///
    /// # Errors
    /// JSON that is no object, another encoding, the config of another model, and rotations that the
    /// config cannot say or that would not be read back.
    pub(crate) fn config(&self, limits: &Limits, old: &Value) -> Result<ConfigChange, Refusal> {
        let before = object(old)?;
        let mut new = before.clone();
        let mut warnings = vec![];
        let mut lengths = Lengths::default();
        match &self.what {
            What::Nothing => warnings.extend(self.layers.compare(before)?),
            What::Swapped => {
                let why = "a config has no key for another encoding";
                return Err(Refusal::new(RefusalKind::NoEffect("write-config"), why));
            }
            What::Open => {
                let why = "a config has no key for images of any size";
                return Err(Refusal::new(RefusalKind::NoEffect("write-config"), why));
            }
            What::Rotations(reach) => {
                let rotations = Rotations {
                    layers: &self.layers,
                    reach,
                };
                let planned = rotations.planned(before, limits)?;
                lengths = planned.lengths.clone();
                warnings.extend(planned.warnings.iter().cloned());
                if planned.needs_length().is_none() {
                    warnings.extend(edit_lengths(&mut new, &lengths));
                }
                // Rotations are read in the inner object, where there is one.
                match new.get_mut("text_config") {
                    Some(Value::Object(text)) => planned.edit(text)?,
                    _ => planned.edit(&mut new)?,
                }
            }
            What::Tables(tables) => {
                lengths = tables.lengths.clone();
                // What limits a model without tables may have changed as well.
                if lengths.spans.is_empty() {
                    lengths.spans = Lengths::of_limits(limits).spans;
                }
                warnings.extend(tables.unsaid.iter().cloned());
                warnings.extend(edit_lengths(&mut new, &lengths));
                tables.edit_clamps(&mut new);
            }
            What::Images(images, unsaid) => {
                warnings.extend(unsaid.iter().cloned());
                if !images.edit(&mut new) {
                    warnings.push(images.warning());
                }
            }
        }
        if lengths.spans.is_empty() {
            warnings.extend(self.ends.warnings(&new, &limits.after));
        }
        let mut once = vec![];
        warnings
            .into_iter()
            .for_each(|warning| add(&mut once, warning));
        Ok(ConfigChange::new(old, new, lengths).with_warnings(once))
    }
}

/// Writes lengths into a config and its `text_config`; what a user should know of them.
fn edit_lengths(config: &mut Map<String, Value>, lengths: &Lengths) -> Vec<String> {
    let mut edited = vec![lengths.edit(config, &KEYS)];
    if let Some(Value::Object(text)) = config.get_mut("text_config") {
        edited.push(lengths.edit(text, &KEYS));
    }
    lengths.warnings(&edited)
}

/// Sizes that were written in the graph.
fn sizes(found: &Found, plan: &resize::Plan) -> What {
    match &plan.wanted {
        Wanted::Image { size, old, by } => {
            let images = Images {
                old: *old,
                new: [size.height, size.width],
            };
            if images.old == images.new {
                return What::Nothing;
            }
            let unsaid = format!(
                "config.json has no key for resized rows of patches ({})",
                by.rows.by
            );
            let unsaid = plan.interpolates().then_some(unsaid);
            What::Images(images, unsaid.into_iter().collect())
        }
        Wanted::Length { tables, .. } => What::Tables(Tables::of_rows(found, tables)),
        Wanted::OpenLength { .. } => What::Nothing,
    }
}
