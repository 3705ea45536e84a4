//! What other rows of tables and other distances of biases are to a configuration.

use std::collections::BTreeSet;

use posenc_encodings::kind::Stack;
use posenc_encodings::resize::distances::{Sides, Widening};
use serde_json::{Map, Value};

use super::lengths::{Lengths, Span, add};
use crate::detect::Found;
use crate::detect::finding::{Encoding, Finding};
use crate::plan::stretch::distances::{self, ByDistance};
use crate::plan::stretch::{Divided, Plan, Rows, Table};

/// The keys of a `config.json` that are the farthest distance of a table: those of Wav2Vec2-BERT, and that of
/// DeBERTa.
const CLAMPS: [&str; 3] = [
    "left_max_position_embeddings",
    "right_max_position_embeddings",
    "max_relative_positions",
];

/// Tables with other rows, and biases by other distances.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pub(super) lengths: Lengths,
    /// Farthest distances on a side, at which tables are clamped: the old one and the new one.
    pub(super) clamps: Vec<[usize; 2]>,
    /// What no key says.
    pub(super) unsaid: Vec<String>,
}

impl Tables {
    /// The new farthest distances in place of the old ones.
    pub(super) fn edit_clamps(&self, config: &mut Map<String, Value>) {
        for key in CLAMPS {
            let Some(value) = config.get_mut(key) else {
                continue;
            };
            let clamps = self.clamps.iter();
            let new = clamps.filter(|[old, _]| value.as_u64() == Some(*old as u64));
            let new: BTreeSet<usize> = new.map(|[_, new]| *new).collect();
            // Of two sides of one length that become others, neither is known to be the key's.
            if let [new] = Vec::from_iter(new)[..] {
                *value = new.into();
            }
        }
    }

    /// The tables and biases of a plan.
    pub(super) fn of(found: &Found, plan: &Plan) -> Self {
        let mut all = Self::of_rows(found, &plan.tables);
        for (at, finding) in found.findings.iter().enumerate() {
            if let Some(bias) = plan.bias(at) {
                add(&mut all.unsaid, divided(finding, bias));
            }
            if let Some(tables) = plan.by_distance(at) {
                let ends = tables.old_length.zip(tables.new_length);
                if let Some((old, new)) = ends {
                    all.lengths.add(Span {
                        stack: stack(found, finding),
                        ..Span::of_model(old, new)
                    });
                }
                if ends.is_none() {
                    let sides = tables.reads.iter().map(|read| [read.old, read.new]);
                    all.clamps.extend(sides.flat_map(clamps));
                }
                if let Some(sentence) = widened(finding, tables) {
                    add(&mut all.unsaid, sentence);
                }
            }
        }
        all
    }

    /// Tables that get other rows, beside those that stay.
    pub(super) fn of_rows(found: &Found, tables: &[Table]) -> Self {
        let mut all = Self::default();
        for (at, finding) in found.findings.iter().enumerate() {
            match tables.iter().find(|table| table.finding == at) {
                Some(table) if table.old != table.new => {
                    all.lengths.add(span(found, finding, table));
                    all.say(&finding.encoding, table);
                }
                Some(table) => all.say(&finding.encoding, table),
                None if finding.encoding.is_absolute() => {
                    all.lengths.kept.extend(finding.max_length);
                }
                None => {}
            }
        }
        all
    }

    fn say(&mut self, encoding: &Encoding, table: &Table) {
        if let Some(sentence) = method(encoding, table) {
            add(&mut self.unsaid, sentence);
        }
    }
}

/// The lengths of a table.
fn span(found: &Found, finding: &Finding, table: &Table) -> Span {
    Span {
        old: table.old,
        new: table.new,
        reserved: table.reserved,
        stack: stack(found, finding),
    }
}

/// The stack of all sites that see a finding. A model of one stack is an encoder where no site hides later
/// tokens, and a decoder where all do.
fn stack(found: &Found, finding: &Finding) -> Option<Stack> {
    let sites = finding.sites.iter().map(|site| &found.attention[*site]);
    let own = |mask: Option<bool>| match mask {
        Some(true) => Some(Stack::Decoder),
        Some(false) => Some(Stack::Encoder),
        None => None,
    };
    let mut stacks = sites
        .filter(|site| !site.cross)
        .map(|site| site.place.stack.or_else(|| own(site.mask.causal)));
    let first = stacks.next()?;
    first.filter(|_| stacks.all(|stack| stack == first))
}

/// How the rows of a table became others.
fn method(encoding: &Encoding, table: &Table) -> Option<String> {
    match (&table.rows, encoding) {
        (Rows::Resized { by, .. }, _) => {
            Some(format!("config.json has no key for a resized table ({by})"))
        }
        (Rows::Waves { code, .. }, Encoding::Sinusoidal(old)) if code.factor != old.factor => {
            let factor = code.factor;
            Some(format!(
                "config.json has no key for sinusoids of positions that are divided by {factor}"
            ))
        }
        _ => None,
    }
}

/// The farthest distances of either side.
fn clamps([old, new]: [Sides; 2]) -> [[usize; 2]; 2] {
    [[old.before, new.before], [old.after, new.after]]
}

/// How the rows of distances became others.
fn widened(finding: &Finding, tables: &ByDistance) -> Option<String> {
    let is_mixed = matches!(
        tables.rows,
        distances::Rows::Widened(Widening::Interpolated)
    );
    let kind = finding.encoding.kind();
    is_mixed.then(|| format!("config.json has no key for interpolated rows of {kind}"))
}

/// By what a bias is divided.
fn divided(finding: &Finding, bias: &Divided) -> String {
    let what = match bias.of_distances {
        true => "distances",
        false => "slopes",
    };
    let (kind, factor) = (finding.encoding.kind(), bias.of_original);
    format!("config.json has no key for {what} of {kind} that are divided by {factor}")
}
