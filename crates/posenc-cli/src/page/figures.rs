//! The figures of one model, or of an original and what was made of it.

use posenc_onnx::report::{Figure, Line, Quantity, Shape};

use super::chart::{Chart, Mark, Scale};
use super::figure::lines;
use super::picture;
use crate::number::ranges;

/// More lines than these are not drawn over others.
const MANY: usize = 4;

/// What is drawn of a model. Lengths are marked on wavelengths.
pub(crate) fn figures(all: &[Figure], lengths: &[Mark]) -> Vec<String> {
    let drawn = all.iter().map(|figure| drawn(figure, "", lengths));
    drawn.flatten().collect()
}

/// What is drawn of two models, each with its name: lines of both in one chart, where they are few.
pub(crate) fn pairs(
    [(a, first), (b, second)]: [(&str, &[Figure]); 2],
    lengths: &[Mark],
) -> Vec<String> {
    let mut left: Vec<&Figure> = first.iter().collect();
    let mut all = vec![];
    let [of_a, of_b] = [a, b].map(|name| format!(" of {name}"));
    for figure in second {
        let is_same = |other: &&Figure| {
            (other.quantity, other.stack, &other.layers)
                == (figure.quantity, figure.stack, &figure.layers)
        };
        let Some(at) = left.iter().position(is_same) else {
            all.extend(drawn(figure, &of_b, lengths));
            continue;
        };
        let before = left.remove(at);
        match (&before.shape, &figure.shape) {
            (x, y) if x == y => all.extend(drawn(figure, " of both", lengths)),
            (Shape::Lines(x), Shape::Lines(y)) if x.len() + y.len() <= MANY => {
                let both = Figure {
                    shape: Shape::Lines([named(a, x), named(b, y)].concat()),
                    ..figure.clone()
                };
                all.extend(drawn(&both, "", lengths));
            }
            _ => {
                all.extend(drawn(before, &of_a, lengths));
                all.extend(drawn(figure, &of_b, lengths));
            }
        }
    }
    for figure in left {
        all.extend(drawn(figure, &of_a, lengths));
    }
    all
}

fn named(model: &str, lines: &[Line]) -> Vec<Line> {
    let name = |line: &Line| match &line.name[..] {
        "" => model.to_owned(),
        name => format!("{model}, {name}"),
    };
    let line = |line: &Line| Line {
        name: name(line),
        points: line.points.clone(),
    };
    lines.iter().map(line).collect()
}

fn drawn(figure: &Figure, of: &str, lengths: &[Mark]) -> Option<String> {
    let what = match figure.quantity {
        Quantity::Wavelength => "wavelengths",
        Quantity::Similarity => "similarity of equal queries and keys",
        Quantity::Bias => "bias by distance",
        Quantity::Rows => "rows",
    };
    let stack = figure
        .stack
        .map_or_else(String::new, |stack| format!(" of the {stack}"));
    let layers = match &figure.layers[..] {
        [] => String::new(),
        [one] => format!(", layer {one}"),
        all => format!(", layers {}", ranges(all)),
    };
    let caption = format!("{}: {what}{of}{stack}{layers}", figure.kind);
    let (axes, scale, marks) = match figure.quantity {
        Quantity::Wavelength => (["pair of features", "tokens"], Scale::Log, lengths),
        Quantity::Similarity => (["distance in tokens", "similarity"], Scale::Linear, &[][..]),
        Quantity::Bias => (
            ["key − query in tokens", "added to the score"],
            Scale::Linear,
            &[][..],
        ),
        Quantity::Rows => (["feature", "position"], Scale::Linear, &[][..]),
    };
    match &figure.shape {
        Shape::Lines(all) => lines(
            &caption,
            &Chart {
                lines: all,
                axes,
                scale,
                marks,
            },
        ),
        Shape::Picture(numbers) => picture::picture(&caption, numbers),
    }
}
