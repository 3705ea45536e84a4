//! From what was found to figures.

mod biases;
mod rotations;
mod rows;
#[cfg(test)]
mod tests;

use ndarray::ArrayD;
use posenc_encodings::kind::Kind;
use posenc_ir::Model;
use posenc_ir::eval::Budget;

use crate::detect::finding::{Encoding, Finding};
use crate::detect::{Found, Options, detect, run_at};
use crate::graph::ports::Lengths;
use crate::record::record;
use crate::report::{Figure, Quantity, Shape};
use crate::spelling;

/// Tokens that biases and rows are shown for, where the model takes so many.
const TOKENS: usize = 128;

/// Elements that a value may have.
const BUDGET: Budget = Budget { elements: 1 << 24 };

/// What can be drawn of a model.
pub(crate) fn figures(model: &Model, options: &Options) -> Vec<Figure> {
    let (read, _) = spelling::as_read(model, &options.roles);
    let read = read.as_ref().unwrap_or(model);
    let found = detect(read, options);
    let new_length = record(read).and_then(|record| record.max_length);
    let rotations = rotations::shapes(read, &found, new_length);
    let rotations = rotations.into_iter().flat_map(|(sites, shapes)| {
        shapes.map(|(quantity, shape)| Figure {
            new_length,
            ..figure(&found, Kind::Rope, &sites, quantity, shape)
        })
    });
    let mut all: Vec<Figure> = rotations.collect();
    all.extend(
        found
            .findings
            .iter()
            .flat_map(|finding| of(read, &found, finding)),
    );
    all
}

/// What is drawn of a finding; nothing where it has no numbers.
fn of(model: &Model, found: &Found, finding: &Finding) -> Vec<Figure> {
    let kind = finding.encoding.kind();
    let figure = |quantity, shape| figure(found, kind, &finding.sites, quantity, shape);
    match &finding.encoding {
        Encoding::ScoreBias(_, bias) => {
            let numbers = numbers(model, found, finding);
            let drawn = numbers.and_then(|n| biases::shape(found, finding, &**bias, &n));
            let drawn = drawn.map(|(quantity, shape, left_out)| Figure {
                left_out,
                ..figure(quantity, shape)
            });
            drawn.into_iter().collect()
        }
        Encoding::Learned(_)
        | Encoding::Sinusoidal(_)
        | Encoding::Shaw(_)
        | Encoding::TransformerXl(_) => {
            let stored = finding
                .table
                .and_then(|table| found.trace.get(table).to_f64());
            let numbers = stored.or_else(|| numbers(model, found, finding));
            let shapes = numbers.map(|numbers| rows::shapes(&finding.encoding, &numbers));
            let shapes = shapes.into_iter().flatten();
            shapes
                .map(|(quantity, shape)| figure(quantity, shape))
                .collect()
        }
        _ => vec![],
    }
}

fn figure(found: &Found, kind: Kind, sites: &[usize], quantity: Quantity, shape: Shape) -> Figure {
    let place = |site: &usize| &found.attention[*site].place;
    let mut layers: Vec<usize> = sites.iter().map(|site| place(site).layer).collect();
    layers.sort_unstable();
    layers.dedup();
    Figure {
        kind,
        stack: sites.first().and_then(|site| place(site).stack),
        layers,
        quantity,
        shape,
        left_out: 0,
        new_length: None,
    }
}

/// The numbers with which an encoding enters first: in a run of a usual length, or in that of detection.
fn numbers(model: &Model, found: &Found, finding: &Finding) -> Option<ArrayD<f64>> {
    let entry = finding.entries.first()?;
    let value = model.graph().node(entry.node).input(entry.slot())?;
    let sequence = finding.max_length.unwrap_or(TOKENS).min(TOKENS);
    let at = Lengths {
        batch: 1,
        sequence,
        past: 0,
    };
    let run = run_at(model, found, at, &BUDGET);
    let longer = run.and_then(|run| run.get(value).to_f64());
    longer.or_else(|| found.trace.get(value).to_f64())
}
