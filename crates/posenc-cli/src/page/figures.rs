//! The figures of one model, or of an original and what was made of it.

use std::f64::consts::TAU;

use posenc_onnx::report::{Figure, Line, Quantity, Shape};

use super::axis::Scale;
use super::chart::{Chart, Mark};
use super::figure::lines;
use super::picture::{Look, pictures};
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
                    new_length: figure.new_length.or(before.new_length),
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
        Quantity::Frequency => "frequencies",
        Quantity::Rotation => "cosines and sines by distance",
        Quantity::Similarity => "similarity of equal queries and keys",
        Quantity::Bias => "bias by distance",
        Quantity::WindowBias => "bias by offset in the window",
        Quantity::Rows => "rows",
        Quantity::DistanceRows => "rows by distance",
        Quantity::RowSimilarity => "similarity of rows",
        Quantity::PatchSimilarity => "similarity of patches, a tile for each",
    };
    let stack = figure
        .stack
        .map_or_else(String::new, |stack| format!(" of the {stack}"));
    let layers = match &figure.layers[..] {
        [] => String::new(),
        [one] => format!(", layer {one}"),
        all => format!(", layers {}", ranges(all)),
    };
    let heads = match (figure.left_out, &figure.shape) {
        (0, _) => String::new(),
        (more, Shape::Lines(all)) => first_of(all.len(), more),
        (more, Shape::Pictures(all)) => first_of(all.len(), more),
    };
    let caption = format!("{}: {what}{of}{stack}{layers}{heads}", figure.kind);
    match &figure.shape {
        Shape::Lines(all) => {
            let marks = marks(figure, lengths);
            let chart = chart(figure.quantity, all, &marks);
            lines(&caption, &chart)
        }
        Shape::Pictures(all) => pictures(&caption, all, look(figure)),
    }
}

fn first_of(shown: usize, more: usize) -> String {
    format!(", the first {shown} of {} heads", shown + more)
}

/// The lengths as numbers of the y axis; of a rotation, the new one too.
fn marks(figure: &Figure, lengths: &[Mark]) -> Vec<Mark> {
    let new = figure.new_length.map(|length| new_length(length as f64));
    let mut all = lengths.to_vec();
    all.extend(new.filter(|new| !lengths.contains(new)));
    match figure.quantity {
        Quantity::Wavelength => all,
        Quantity::Frequency => {
            let frequency = |mark: Mark| Mark {
                name: format!("2π / {}", mark.name),
                y: TAU / mark.y,
            };
            all.into_iter().map(frequency).collect()
        }
        _ => vec![],
    }
}

/// The length that a model was made for.
pub(crate) fn new_length(length: f64) -> Mark {
    Mark {
        name: format!("new length {length}"),
        y: length,
    }
}

fn chart<'a>(quantity: Quantity, lines: &'a [Line], marks: &'a [Mark]) -> Chart<'a> {
    use Scale::{Linear, Log};
    let (axes, y) = match quantity {
        Quantity::Wavelength => (["pair of features", "wavelength (tokens)"], Log),
        Quantity::Frequency => (["pair of features", "frequency (radians per token)"], Log),
        Quantity::Similarity => (["distance (tokens)", "similarity"], Linear),
        _ => (["key − query (tokens)", "added to the score"], Linear),
    };
    Chart {
        lines,
        axes,
        scales: [Linear, y],
        marks,
    }
}

fn look(figure: &Figure) -> Look {
    let (axes, is_map) = match figure.quantity {
        Quantity::WindowBias => (
            ["columns from query to key", "rows from query to key"],
            true,
        ),
        Quantity::Rotation => (["distance (tokens)", "pair of features"], false),
        Quantity::RowSimilarity => (["row", "row"], true),
        Quantity::PatchSimilarity => (["column of the patch", "row of the patch"], true),
        Quantity::DistanceRows => (["feature", "key − query (tokens)"], false),
        _ => (["feature", "row"], false),
    };
    Look { axes, is_map }
}

#[cfg(test)]
mod tests {
    use posenc_encodings::kind::Kind;

    use super::*;

    fn figure(quantity: Quantity) -> Figure {
        let line = |head: usize| Line {
            name: format!("head {head}"),
            points: vec![[0.0, 1.0], [1.0, 100.0]],
        };
        Figure {
            kind: Kind::Rope,
            stack: None,
            layers: vec![0, 1],
            quantity,
            shape: Shape::Lines(vec![line(0), line(1)]),
            left_out: 0,
            new_length: None,
        }
    }

    #[test]
    fn the_new_length_is_marked_once_and_frequencies_have_lengths_as_frequencies() {
        let of = |quantity, lengths: &[Mark]| {
            let figure = Figure {
                new_length: Some(64),
                ..figure(quantity)
            };
            drawn(&figure, "", lengths).unwrap()
        };
        let known = [new_length(64.0)];
        for lengths in [&known[..], &[]] {
            let waves = of(Quantity::Wavelength, lengths);
            assert_eq!(waves.matches("new length 64").count(), 1, "{waves}");
        }
        let frequencies = of(Quantity::Frequency, &[]);
        assert!(frequencies.contains("2π / new length 64"), "{frequencies}");
        assert!(!of(Quantity::Similarity, &known).contains("new length"));
    }

    #[test]
    fn heads_that_are_not_drawn_are_counted() {
        let caption = |left_out| {
            let figure = Figure {
                left_out,
                ..figure(Quantity::Bias)
            };
            drawn(&figure, "", &[]).unwrap()
        };
        assert!(caption(30).contains("layers 0-1, the first 2 of 32 heads</figcaption>"));
        assert!(!caption(0).contains("first"));
    }
}
