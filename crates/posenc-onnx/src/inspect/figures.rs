//! From what was found to figures.

use std::f64::consts::TAU;

use ndarray::{ArrayD, Axis};
use posenc_encodings::kind::Kind;
use posenc_ir::Model;
use posenc_ir::eval::Budget;

use crate::attention::Site;
use crate::detect::finding::{Encoding, Finding};
use crate::detect::{Found, Options, detect, run_at};
use crate::graph::ports::Lengths;
use crate::prove::expectations;
use crate::prove::expected::{Expected, ExpectedFrequencies};
use crate::report::{Figure, Line, Picture, Quantity, Shape};
use crate::spelling;

/// Tokens that biases and rows are shown for, where the model takes so many.
const TOKENS: usize = 128;

/// Distances that a similarity is shown for: near ones tell most.
const DISTANCES: usize = 512;

/// Points of a line.
const POINTS: usize = 256;

/// Heads that are shown.
const HEADS: usize = 16;

/// Elements that a value may have.
const BUDGET: Budget = Budget { elements: 1 << 24 };

/// What can be drawn of a model.
pub(crate) fn figures(model: &Model, options: &Options) -> Vec<Figure> {
    let (read, _) = spelling::as_read(model, &options.roles);
    let read = read.as_ref().unwrap_or(model);
    let found = detect(read, options);
    let mut all = rotations(read, &found);
    all.extend(
        found
            .findings
            .iter()
            .filter_map(|finding| of(read, &found, finding)),
    );
    all
}

/// Wavelengths and similarities: two figures for each law.
fn rotations(model: &Model, found: &Found) -> Vec<Figure> {
    let expected = expectations(model, found).unwrap_or_default();
    let mut laws: Vec<(&Expected, Vec<usize>)> = vec![];
    for one in &expected {
        let stack = |site: usize| found.attention[site].place.stack;
        let same = |(law, _): &&mut (&Expected, Vec<usize>)| {
            law.law == one.law && stack(law.site) == stack(one.site)
        };
        match laws.iter_mut().find(same) {
            Some((_, sites)) => sites.push(one.site),
            None => laws.push((one, vec![one.site])),
        }
    }
    let figures = laws.iter().flat_map(|(expected, sites)| {
        let figure = |quantity, shape| figure(found, Kind::Rope, sites, quantity, shape);
        let lengths = lengths(&expected.law);
        [
            figure(Quantity::Wavelength, wavelengths(&expected.law, &lengths)),
            figure(Quantity::Similarity, similarities(&expected.law, &lengths)),
        ]
    });
    figures.collect()
}

/// The lengths at which frequencies are shown, with the name of each; more than one where they change with the
/// length.
fn lengths(law: &ExpectedFrequencies) -> Vec<(String, usize)> {
    match law.changes_at() {
        None => vec![(String::new(), DISTANCES)],
        Some(at) => [at, 4 * at]
            .map(|length| (format!("{length} tokens"), length))
            .to_vec(),
    }
}

fn wavelengths(law: &ExpectedFrequencies, lengths: &[(String, usize)]) -> Shape {
    let line = |(name, length): &(String, usize)| {
        let frequencies = law.frequencies(*length).inv_freq;
        let point = |(pair, f): (usize, f64)| [pair as f64, TAU / f.abs()];
        Line {
            name: name.clone(),
            points: frequencies.into_iter().enumerate().map(point).collect(),
        }
    };
    Shape::Lines(lengths.iter().map(line).collect())
}

fn similarities(law: &ExpectedFrequencies, lengths: &[(String, usize)]) -> Shape {
    let line = |(name, length): &(String, usize)| {
        let all = law.frequencies(*length);
        let pairs = all.inv_freq.len().max(1) as f64;
        let similarity = |distance: f64| {
            let cosines = all.inv_freq.iter().map(|f| (f * distance).cos());
            all.attention_factor.powi(2) * cosines.sum::<f64>() / pairs
        };
        let longest = (*length).min(DISTANCES);
        let points = POINTS.min(longest);
        let distance = |i: usize| (i * longest / points) as f64;
        Line {
            name: name.clone(),
            points: (0..points)
                .map(|i| [distance(i), similarity(distance(i))])
                .collect(),
        }
    };
    Shape::Lines(lengths.iter().map(line).collect())
}

/// What is drawn of a finding; `None` where it has no numbers.
fn of(model: &Model, found: &Found, finding: &Finding) -> Option<Figure> {
    let kind = finding.encoding.kind();
    let (quantity, shape) = match &finding.encoding {
        Encoding::ScoreBias(..) => {
            let numbers = numbers(model, found, finding)?;
            (
                Quantity::Bias,
                Shape::Lines(heads(found, finding, &numbers)?),
            )
        }
        Encoding::Learned(_)
        | Encoding::Sinusoidal(_)
        | Encoding::Shaw(_)
        | Encoding::TransformerXl(_) => {
            let stored = finding
                .table
                .and_then(|table| found.trace.get(table).to_f64());
            let numbers = match stored {
                Some(numbers) => numbers,
                None => numbers(model, found, finding)?,
            };
            (Quantity::Rows, Shape::Picture(picture(&numbers)?))
        }
        _ => return None,
    };
    Some(figure(found, kind, &finding.sites, quantity, shape))
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

/// A line for each head: what the last query of a causal site, or the one in the middle of another, gives each key.
fn heads(found: &Found, finding: &Finding, numbers: &ArrayD<f64>) -> Option<Vec<Line>> {
    let [.., queries, keys] = *numbers.shape() else {
        return None;
    };
    if keys < 2 || queries == 0 || numbers.iter().any(|v| v.is_nan()) {
        return None;
    }
    let heads = numbers.len() / (queries * keys);
    let flat = numbers.as_standard_layout().into_owned();
    let flat = flat.into_shape_with_order((heads, queries, keys)).ok()?;
    let is_causal = |site: &usize| {
        let site: &Site = &found.attention[*site];
        site.mask.causal == Some(true)
    };
    let query = match finding.sites.iter().all(is_causal) {
        true => queries - 1,
        false => queries / 2,
    };
    // The last query is that of the last key.
    let own = (keys - queries.min(keys) + query) as f64;
    let line = |head: usize| {
        let row = flat.index_axis(Axis(0), head).row(query).to_owned();
        let points = row
            .iter()
            .enumerate()
            .map(|(key, v)| [key as f64 - own, *v]);
        // What hides keys is no bias.
        let points = points.filter(|[_, bias]| bias.abs() < 1e4);
        Line {
            name: match heads {
                1 => String::new(),
                _ => format!("head {head}"),
            },
            points: points.collect(),
        }
    };
    Some((0..heads.min(HEADS)).map(line).collect())
}

/// The last two axes of an array, of its first copy.
fn picture(numbers: &ArrayD<f64>) -> Option<Picture> {
    let [.., rows, columns] = *numbers.shape() else {
        return None;
    };
    if rows == 0 || columns == 0 {
        return None;
    }
    let flat: Vec<f64> = numbers.iter().take(rows * columns).copied().collect();
    Some(Picture::new([rows, columns], |row, column| {
        flat[row * columns + column]
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::testing::fixture;

    fn of(name: &str) -> Vec<Figure> {
        figures(&fixture(name), &Options::default())
    }

    fn lines(figures: &[Figure], quantity: Quantity) -> &[Line] {
        let mut same = figures.iter().filter(|figure| figure.quantity == quantity);
        match (same.next().map(|figure| &figure.shape), same.next()) {
            (Some(Shape::Lines(lines)), None) => lines,
            _ => panic!("one figure of lines"),
        }
    }

    #[test]
    fn rotations_show_their_wavelengths_and_how_similarity_falls() {
        let figures = of("mini/rope");
        assert_eq!(figures.len(), 2);
        assert_eq!(figures[0].layers, [0, 1]);
        let [waves] = lines(&figures, Quantity::Wavelength) else {
            panic!("one law")
        };
        let want = (0..4).map(|i| TAU * 1e4_f64.powf(f64::from(i) / 4.0));
        let pairs = waves.points.iter().map(|point| point[1]).zip(want);
        assert_eq!(waves.points.len(), 4);
        for (got, want) in pairs {
            assert!((got / want - 1.0).abs() < 1e-6, "{got} {want}");
        }
        let [similarity] = lines(&figures, Quantity::Similarity) else {
            panic!("one law")
        };
        assert_eq!(similarity.points[0], [0.0, 1.0]);
        let at = |d: f64| {
            let angles = (0..4).map(|i| d / 1e4_f64.powf(f64::from(i) / 4.0));
            angles.map(f64::cos).sum::<f64>() / 4.0
        };
        let [distance, got] = similarity.points[100];
        assert!((got - at(distance)).abs() < 1e-5);
        assert!((got - at(distance + 1.0)).abs() > 1e-3, "control");
    }

    #[test]
    fn biases_are_lines_for_heads_over_the_distance() {
        let figures = of("mini/alibi");
        let heads = lines(&figures, Quantity::Bias);
        assert_eq!(heads.len(), 3);
        for (head, slope) in heads.iter().zip([0.0625, 0.003_906_25, 0.25]) {
            assert_eq!(head.points.first().map(|p| p[0]), Some(1.0 - TOKENS as f64));
            assert_eq!(head.points.last(), Some(&[0.0, 0.0]));
            let near = |[x, y]: &[f64; 2]| (y - slope * x).abs() < 1e-6;
            assert!(head.points.iter().all(near), "{}", head.name);
        }
    }

    #[test]
    fn tables_are_pictures_of_their_rows_and_nothing_is_drawn_of_nothing() {
        let model = fixture("mini/learned");
        let figures = figures(&model, &Options::default());
        let [figure] = &figures[..] else {
            panic!("one table")
        };
        let Shape::Picture(picture) = &figure.shape else {
            panic!("a picture")
        };
        let graph = model.graph();
        let table = graph.find(graph.main(), "enc.pos.weight").unwrap();
        let table = graph.constant(table).unwrap().to_f64s().unwrap();
        assert_eq!((figure.quantity, picture.size), (Quantity::Rows, [40, 24]));
        assert_eq!(picture.numbers.concat(), table);
        assert_eq!(of("mini/none"), []);
    }
}
