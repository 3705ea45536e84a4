//! What of a rewrite a configuration tells.

use serde_json::{Map, Value};

use posenc_encodings::inferred::Inferred;
use posenc_encodings::kind::Stack;
use posenc_encodings::laws::shared::ORIGINAL_LENGTH;

use super::change::{ConfigChange, object};
use super::images::Images;
use super::lengths::{KEYS, Lengths, Span};
use super::rotations::{Layer, Rotations, shortest};
use crate::detect::Found;
use crate::detect::branches::Branch;
use crate::detect::finding::{Encoding, Finding};
use crate::error::{Refusal, RefusalKind};
use crate::plan::change::Change;
use crate::plan::resize::Wanted;
use crate::plan::stretch::{Divided, Rows, Table};
use crate::plan::{rescale, resize, stretch};
use crate::report::Limits;
use crate::request::Request;

/// What a rewrite changes, as far as a configuration is concerned.
#[derive(Clone, Debug, Default)]
pub(crate) enum Told {
    /// Nothing.
    #[default]
    Nothing,
    /// Frequencies, or the rows of their tables.
    Rotations(Rotations),
    /// Tables and biases.
    Tables(Tables),
    /// The size of images, with what no key says.
    Images(Images, Vec<String>),
    /// Another encoding.
    Swapped,
}

/// Tables with other rows, and biases by other distances.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    lengths: Lengths,
    /// What no key says.
    unsaid: Vec<String>,
}

impl Told {
    /// What a change is to a configuration.
    pub(crate) fn of(change: &Change, branches: &[Branch], request: &Request) -> Self {
        match change {
            Change::Sort | Change::Nothing { .. } => Self::Nothing,
            Change::Swap(_) => Self::Swapped,
            Change::Rescale(plans) => Self::Rotations(rotations(branches, plans, request)),
            Change::Stretch(plan) => Self::Tables(tables(&branches[0].found, plan)),
            Change::Resize(plan) => sizes(&branches[0].found, plan),
        }
    }

    /// What becomes of a `config.json`. `limits` are those of the model before and after.
    ///
    /// # Errors
    /// JSON that is no object, another encoding, and rotations that the config cannot say or that
    /// would not be read back.
    pub(crate) fn config(&self, limits: &Limits, old: &Value) -> Result<ConfigChange, Refusal> {
        let mut new = object(old)?.clone();
        let mut warnings = vec![];
        let mut lengths = Lengths::default();
        match self {
            Self::Nothing => {}
            Self::Swapped => {
                let why = "a config has no key for another encoding";
                return Err(Refusal::new(RefusalKind::NoEffect("write-config"), why));
            }
            Self::Rotations(rotations) => {
                let planned = rotations.planned(old, limits)?;
                lengths = planned.lengths.clone();
                warnings.extend(planned.warnings.iter().cloned());
                if planned.needs_length() {
                    warnings.push(GROWS.to_owned());
                } else {
                    warnings.extend(edit_lengths(&mut new, &lengths));
                }
                // Rotations are read in the inner object, where there is one.
                match new.get_mut("text_config") {
                    Some(Value::Object(text)) => planned.edit(text)?,
                    _ => planned.edit(&mut new)?,
                }
            }
            Self::Tables(tables) => {
                lengths = tables.lengths.clone();
                // What limits a model without tables may have changed as well.
                if lengths.spans.is_empty()
                    && let [Some(old), Some(new)] =
                        [&limits.before, &limits.after].map(|limits| shortest(limits))
                    && old != new
                {
                    lengths.spans.push(Span::of_model(old, new));
                }
                warnings.extend(tables.unsaid.iter().cloned());
                warnings.extend(edit_lengths(&mut new, &lengths));
            }
            Self::Images(images, unsaid) => {
                warnings.extend(unsaid.iter().cloned());
                if !images.edit(&mut new) {
                    warnings.push(images.warning());
                }
            }
        }
        Ok(ConfigChange::new(old, new, lengths).with_warnings(warnings))
    }
}

/// Why a length stays where the law is dynamic NTK.
const GROWS: &str = "max_position_embeddings of the config stays the original length: transformers \
                     takes it for the one from which dynamic scaling grows";

/// Writes lengths into a config and its `text_config`; what a user should know of them.
fn edit_lengths(config: &mut Map<String, Value>, lengths: &Lengths) -> Vec<String> {
    let mut edited = vec![lengths.edit(config, &KEYS)];
    if let Some(Value::Object(text)) = config.get_mut("text_config") {
        edited.push(lengths.edit(text, &KEYS));
    }
    lengths.warnings(&edited)
}

/// The rotations of all branches.
fn rotations(branches: &[Branch], plans: &[Option<rescale::Plan>], request: &Request) -> Rotations {
    let mut layers = vec![];
    for (branch, plan) in branches.iter().zip(plans) {
        let Some(plan) = plan else { continue };
        let found = &branch.found;
        for (i, rotary) in found.rotary.iter().enumerate() {
            let site = &found.attention[rotary.site];
            let rope = &rotary.query.rotation.rope;
            if !site.cross {
                layers.push(Layer {
                    number: site.place.layer,
                    target: plan.target(i).cloned(),
                    widths: [rope.rotary_dim, rope.head_dim],
                });
            }
        }
    }
    let mut plans = plans.iter().flatten();
    let plan = plans.next();
    let is_original = |value: &&Inferred| value.name == ORIGINAL_LENGTH.name;
    let inferred = plan.and_then(|plan| plan.inferred.iter().find(is_original));
    let inferred = inferred.and_then(|value| usize::try_from(value.value.as_u64()?).ok());
    let p = &request.parameters;
    Rotations {
        layers,
        max_length: plan.and_then(|plan| plan.max_length),
        original: p.original_length.or(inferred),
        keeps: request.scale.is_none() && request.hf_config.is_none() && p.theta.is_none(),
    }
}

/// The tables and biases of a model.
fn tables(found: &Found, plan: &stretch::Plan) -> Tables {
    let mut lengths = Lengths::default();
    let mut unsaid = vec![];
    for (at, finding) in found.findings.iter().enumerate() {
        if let Some(table) = plan.table(at) {
            lengths.spans.extend(span(found, finding, table));
            unsaid.extend(method(&finding.encoding, table));
        } else if let Some(bias) = plan.bias(at) {
            unsaid.push(divided(finding, bias));
        } else if let Some(rows) = finding
            .max_length
            .filter(|_| finding.encoding.is_absolute())
        {
            lengths.kept.push(rows);
        }
    }
    lengths.spans.dedup();
    unsaid.dedup();
    Tables { lengths, unsaid }
}

/// The lengths of a table; `None` where it keeps them.
fn span(found: &Found, finding: &Finding, table: &Table) -> Option<Span> {
    let mut stacks: Vec<Option<Stack>> = vec![];
    for site in finding.sites.iter().map(|site| &found.attention[*site]) {
        if !site.cross && !stacks.contains(&site.place.stack) {
            stacks.push(site.place.stack);
        }
    }
    let span = Span {
        old: table.old,
        new: table.new,
        reserved: table.reserved,
        stack: match stacks[..] {
            [stack] => stack,
            _ => None,
        },
    };
    (table.old != table.new).then_some(span)
}

/// How the rows of a table became others.
fn method(encoding: &Encoding, table: &Table) -> Option<String> {
    match (&table.rows, encoding) {
        (Rows::Resized { by, .. }, _) => Some(format!(
            "no key of a config says how the rows of a learned table became others ({by})"
        )),
        (Rows::Waves { code, .. }, Encoding::Sinusoidal(old)) if code.factor != old.factor => {
            let factor = code.factor;
            Some(format!(
                "no key of a config says that the positions of sinusoids are divided by {factor}"
            ))
        }
        _ => None,
    }
}

/// By what a bias is divided.
fn divided(finding: &Finding, bias: &Divided) -> String {
    let what = match bias.of_distances {
        true => "distances",
        false => "slopes",
    };
    let (kind, factor) = (finding.encoding.kind(), bias.of_original);
    format!("no key of a config says that the {what} of {kind} are divided by {factor}")
}

/// Sizes that were written in the graph.
fn sizes(found: &Found, plan: &resize::Plan) -> Told {
    match &plan.wanted {
        Wanted::Image { size, old, rows } => {
            let images = Images {
                old: *old,
                new: [size.height, size.width],
            };
            if images.old == images.new {
                return Told::Nothing;
            }
            let mut tables = plan.tables.iter();
            let resized = tables.any(|table| !table.is_computed);
            let by = rows.by;
            let unsaid =
                format!("no key of a config says how the rows of patches became others ({by})");
            Told::Images(images, resized.then_some(unsaid).into_iter().collect())
        }
        Wanted::Length { tables, .. } => {
            let of = |table: &Table| (&found.findings[table.finding], table.clone());
            let all: Vec<(&Finding, Table)> = tables.iter().map(of).collect();
            let spans = all
                .iter()
                .filter_map(|(finding, table)| span(found, finding, table));
            let mut lengths = Lengths::default();
            lengths.spans.extend(spans);
            lengths.spans.dedup();
            let unsaid = all
                .iter()
                .filter_map(|(finding, table)| method(&finding.encoding, table));
            let mut unsaid: Vec<String> = unsaid.collect();
            unsaid.dedup();
            Told::Tables(Tables { lengths, unsaid })
        }
    }
}
