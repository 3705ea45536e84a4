//! Tables whose rows are added in another order of axes, beside others, and behind class tokens.

use posenc_ir::{DType, Model};

use crate::detect::finding::Encoding;
use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HIDDEN, Sketch};
use crate::request::{LawName, Parameters, Request};
use crate::rewrite::rewrite;

/// A linear interpolation to a length, or by a factor.
fn linear(max_length: Option<usize>, factor: Option<f64>) -> Request {
    Request {
        scale: Some(LawName::Linear.into()),
        parameters: Parameters {
            max_length,
            factor,
            ..Parameters::default()
        },
        ..Request::default()
    }
}

/// A layer on tokens to which rows of a table are added while positions are before sequences.
fn positions_first() -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let x = s.transpose(&x, &[1, 0, 2]);
    let (shape, zero, one) = (s.op("Shape", &["input_ids"]), s.ints(&[0]), s.ints(&[1]));
    let length = s.gather(&shape, &one, 0);
    let table = s.weights(&[32, 1, HIDDEN]);
    let rows = s.op("Slice", &[&table, &zero, &length, &zero]);
    let x = s.op("Add", &[&x, &rows]);
    let x = s.transpose(&x, &[1, 0, 2]);
    let y = s.attends(&x, &x);
    s.model(18, &[&y])
}

#[test]
fn rows_before_sequences_are_compared() {
    let request = linear(None, Some(2.0));
    let mut model = positions_first();
    let done = rewrite(&mut model, &request).unwrap();
    assert_eq!(done.report.limits.before[0].length, 32);
    assert_eq!(done.report.limits.after[0].length, 64);
}

/// A layer on a class token before others, each with a row of a stored table; a class token behind them
/// where `is_last`. Rows are picked by their places where `is_picked`, and else cut to the length.
fn with_class(table: &[f64], is_last: bool, is_picked: bool) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let (shape, one, zero) = (s.op("Shape", &["input_ids"]), s.ints(&[1]), s.ints(&[0]));
    let length = s.gather(&shape, &one, 0);
    let batch = s.gather(&shape, &zero, 0);
    let class = s.weights(&[1, 1, HIDDEN]);
    let width = s.ints(&[HIDDEN as i64]);
    let dims = s.concat(&[&batch, &one, &width], 0);
    let class = s.op("Expand", &[&class, &dims]);
    let x = match is_last {
        false => s.concat(&[&class, &x], 1),
        true => s.concat(&[&x, &class], 1),
    };
    let end = s.op("Add", &[&length, &one]);
    let table = s.floats(&[table.len() / HIDDEN, HIDDEN], table.iter().copied());
    let rows = match is_picked {
        false => s.op("Slice", &[&table, &zero, &end, &zero]),
        true => {
            let [first, step] = [0, 1].map(|n| s.int(n));
            let end = s.op("Squeeze", &[&end]);
            let places = s.op("Range", &[&first, &end, &step]);
            s.gather(&table, &places, 0)
        }
    };
    let x = s.op("Add", &[&x, &rows]);
    let y = s.attends(&x, &x);
    s.model(18, &[&y])
}

/// Rows of sines and cosines, or of no formula.
fn table(rows: usize, is_sinusoidal: bool) -> Vec<f64> {
    let cells = (0..rows).flat_map(|row| (0..HIDDEN).map(move |at| (row as f64, at)));
    let cell = |(row, at): (f64, usize)| {
        let angle = row / 1e4_f64.powf((at - at % 2) as f64 / HIDDEN as f64);
        match (is_sinusoidal, at % 2) {
            (true, 0) => angle.sin(),
            (true, _) => angle.cos(),
            (false, _) => (row * row * 0.37 + at as f64 * 1.3).sin(),
        }
    };
    cells.map(|at| f64::from(cell(at) as f32)).collect()
}

/// The rows of the only stored table of this width, after a rewrite to so many tokens.
fn stretched(is_sinusoidal: bool, is_last: bool, is_picked: bool) -> Result<Vec<f64>, String> {
    let mut request = Request::default();
    if !is_sinusoidal {
        request.scale = Some("tile".parse().unwrap());
    }
    request.parameters.max_length = Some(48);
    let mut model = with_class(&table(25, is_sinusoidal), is_last, is_picked);
    let done = rewrite(&mut model, &request).map_err(|why| why.to_string())?;
    assert_eq!(done.report.limits.before[0].length, 24);
    assert_eq!(done.report.limits.after[0].length, 48);
    let graph = model.graph();
    let read = graph.nodes().filter_map(|(_, node)| node.input(0));
    let mut stored = read.filter_map(|value| graph.constant(value));
    let rows = stored.find(|rows| rows.dims() == [49, HIDDEN]).unwrap();
    Ok(rows.to_f64s().unwrap().to_vec())
}

#[test]
fn a_class_token_before_the_others_keeps_its_row() {
    for is_picked in [false, true] {
        let old = table(25, false);
        let new = stretched(false, false, is_picked).unwrap();
        assert_eq!(new[..old.len()], old);
        assert_eq!(
            new[old.len()..],
            old[HIDDEN..],
            "a copy without the class token"
        );
        let waves = stretched(true, false, is_picked).unwrap();
        let far = table(49, true)
            .iter()
            .zip(&waves)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(far < 1e-6, "{far}");
    }
}

#[test]
fn a_class_token_behind_the_others_is_refused() {
    for is_picked in [false, true] {
        let why = stretched(false, true, is_picked).unwrap_err();
        assert!(why.contains("48"), "{why}");
    }
}

/// A layer on tokens with rows by place, and with rows that the first column of an input of three axes picks.
fn with_boxes(columns: &str) -> Model {
    let mut s = Sketch::default();
    let boxes = s.input("bbox", DType::I64, &["batch", "sequence", columns]);
    let x = s.embedded();
    let at = s.range();
    let table = s.weights(&[32, HIDDEN]);
    let rows = s.gather(&table, &at, 0);
    let x = s.op("Add", &[&x, &rows]);
    let (column, table) = (s.int(0), s.weights(&[50, HIDDEN]));
    let at = s.gather(&boxes, &column, 2);
    let rows = s.gather(&table, &at, 0);
    let x = s.op("Add", &[&x, &rows]);
    let y = s.attends(&x, &x);
    s.model(18, &[&y])
}

#[test]
fn tables_of_coordinates_stay_where_those_of_positions_get_longer() {
    let request = linear(Some(64), None);
    let mut model = with_boxes("4");
    let done = rewrite(&mut model, &request).unwrap();
    assert_eq!(done.report.limits.after[0].length, 64);
    let found = detect(&model, &Options::default());
    let rows = found.findings.iter().filter_map(|f| match &f.encoding {
        Encoding::Learned(e) => Some(e.max_positions),
        _ => None,
    });
    let mut rows: Vec<usize> = rows.collect();
    rows.sort_unstable();
    assert_eq!(rows, [50, 64]);
}

#[test]
fn rows_of_half_precision_that_are_cast_are_compared_as_exactly_as_they_are_stored() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let numbers = (0..32 * HIDDEN).map(|i| (1.7 * i as f64).sin());
    let table = s.typed(DType::F16, &[32, HIDDEN], numbers);
    let at = s.range();
    let rows = s.gather(&table, &at, 0);
    let rows = s.cast(&rows, DType::F32);
    let x = s.op("Add", &[&x, &rows]);
    let y = s.attends(&x, &x);
    let request = linear(None, Some(3.0));
    let done = rewrite(&mut s.model(18, &[&y]), &request).unwrap();
    assert_eq!(done.report.limits.after[0].length, 96);
}

/// Rows of a table of so many, one for each element of an axis.
fn with_rows(s: &mut Sketch, x: &str, rows: usize) -> String {
    let shape = s.op("Shape", &[x]);
    let [zero, one] = [0, 1].map(|n| s.int(n));
    let length = s.gather(&shape, &one, 0);
    let at = s.op("Range", &[&zero, &length, &one]);
    let table = s.weights(&[rows, HIDDEN]);
    let rows = s.gather(&table, &at, 0);
    s.op("Add", &[x, &rows])
}

#[test]
fn tables_before_and_behind_a_pooling_take_a_factor_and_no_length() {
    let model = || {
        let mut s = Sketch::default();
        let x = s.embedded();
        let x = with_rows(&mut s, &x, 32);
        let x = s.attends(&x, &x);
        let x = s.slice(&x, 1, [0, i64::MAX, 2]);
        let x = with_rows(&mut s, &x, 16);
        let y = s.attends(&x, &x);
        s.model(18, &[&y])
    };
    let why = rewrite(&mut model(), &linear(Some(64), None)).map(drop);
    let why = why.unwrap_err().to_string();
    assert!(why.contains("as behind a pooling"), "{why}");
    let mut made = model();
    rewrite(&mut made, &linear(None, Some(2.0))).unwrap();
    let found = detect(&made, &Options::default());
    let rows = found.findings.iter().filter_map(|f| match &f.encoding {
        Encoding::Learned(e) => Some(e.max_positions),
        _ => None,
    });
    assert_eq!(rows.collect::<Vec<_>>(), [64, 32]);
}

/// A layer on the 36 patches of an image and one on tokens, each with a table of its own; the patches are before the
/// tokens in one layer where they `meet`.
fn with_image(meet: bool) -> Model {
    let mut s = Sketch::default();
    let pixels = s.input("pixels", DType::F32, &["images", "3", "12", "12"]);
    let w = s.weights(&[HIDDEN, 3, 2, 2]);
    let patches = s.with("Conv", &[&pixels, &w], &[("strides", A::Ints(&[2, 2]))]);
    let patches = s.reshape(&patches, &[0, HIDDEN as i64, -1]);
    let patches = s.transpose(&patches, &[0, 2, 1]);
    let grid = s.weights(&[1, 36, HIDDEN]);
    let patches = s.op("Add", &[&patches, &grid]);
    let tokens = s.embedded();
    let table = s.weights(&[32, HIDDEN]);
    let at = s.range();
    let rows = s.gather(&table, &at, 0);
    let tokens = s.op("Add", &[&tokens, &rows]);
    if meet {
        let both = s.concat(&[&patches, &tokens], 1);
        let y = s.attends(&both, &both);
        return s.model(18, &[&y]);
    }
    let [image, text] = [patches, tokens].map(|x| s.attends(&x, &x));
    s.model(18, &[&image, &text])
}

#[test]
fn a_length_is_of_tokens_where_images_have_a_stack_of_their_own() {
    let request = linear(Some(64), None);
    let mut model = with_image(false);
    let done = rewrite(&mut model, &request).unwrap();
    assert_eq!(done.report.limits.before[0].length, 32);
    assert_eq!(done.report.limits.after[0].length, 64);
    let found = detect(&model, &Options::default());
    let grids = found.findings.iter().filter_map(|f| match &f.encoding {
        Encoding::Learned(e) => e.grid,
        _ => None,
    });
    assert_eq!(grids.collect::<Vec<_>>(), [[6, 6]]);
    let joined = rewrite(&mut with_image(true), &request).map(drop);
    assert!(joined.is_err(), "tokens behind patches");
}

#[test]
fn tables_get_fewer_rows_than_a_run_has_tokens() {
    let of = |length: usize| {
        let request = linear(Some(length), None);
        let done = rewrite(&mut with_boxes("4"), &request).map(drop);
        done.map_err(|why| why.to_string())
    };
    for length in 3..14 {
        assert_eq!(of(length), Ok(()), "{length}");
    }
    let why = of(2).unwrap_err();
    let least = why.split("give a length of ").nth(1).expect(&why);
    let least: usize = least.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(of(least), Ok(()));
}

/// A layer on tokens to which sines and cosines, stored as another multiple, are added times a number; one stored row
/// is another where `is_damaged`.
fn scaled(stored: f64, number: f64, is_damaged: bool) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let (shape, zero, one) = (s.op("Shape", &["input_ids"]), s.ints(&[0]), s.ints(&[1]));
    let length = s.gather(&shape, &one, 0);
    let mut all: Vec<f64> = table(24, true).iter().map(|v| v * stored).collect();
    if is_damaged {
        all[20 * HIDDEN] += 0.25;
    }
    let table = s.floats(&[24, HIDDEN], all);
    let rows = s.op("Slice", &[&table, &zero, &length, &zero]);
    let number = s.floats(&[1], [number]);
    let rows = s.op("Mul", &[&rows, &number]);
    let x = s.op("Add", &[&x, &rows]);
    let y = s.attends(&x, &x);
    s.model(18, &[&y])
}

#[test]
fn a_table_that_is_scaled_where_it_is_added_keeps_its_own_scale() {
    for (stored, number) in [(1.0, 0.7), (3.0, 1.0), (0.5, 1.3), (1.0, 1.0)] {
        for factor in [1.0, 2.0] {
            let mut request = Request::default();
            if factor > 1.0 {
                request.scale = Some(LawName::Linear.into());
                request.parameters.factor = Some(factor);
            } else {
                request.parameters.max_length = Some(48);
            }
            let mut model = scaled(stored, number, false);
            rewrite(&mut model, &request).unwrap();
            let graph = model.graph();
            let read = graph.nodes().filter_map(|(_, node)| node.input(0));
            let mut kept = read.filter_map(|value| graph.constant(value));
            let rows = kept.find(|rows| rows.dims() == [48, HIDDEN]).unwrap();
            let rows = rows.to_f64s().unwrap();
            let want = table(96, true);
            for (at, got) in rows.iter().enumerate() {
                let (row, column) = (at / HIDDEN, at % HIDDEN);
                let angle = row as f64
                    / factor
                    / 1e4_f64.powf((column - column % 2) as f64 / HIDDEN as f64);
                let wave = if column % 2 == 0 {
                    angle.sin()
                } else {
                    angle.cos()
                };
                assert!(
                    (got - stored * wave).abs() < 2e-6 * stored,
                    "{stored} {number} {factor} {at}"
                );
                if factor == 1.0 && row < 24 {
                    let old = f64::from((want[at] * stored) as f32);
                    assert_eq!(*got, old, "rows within the old length stay");
                }
            }
        }
    }
    let mut request = Request::default();
    request.parameters.max_length = Some(48);
    let damaged = rewrite(&mut scaled(1.0, 0.7, true), &request);
    assert!(damaged.is_err(), "a row that is none of the formula");
}
