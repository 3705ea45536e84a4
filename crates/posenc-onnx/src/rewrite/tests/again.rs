//! Tables of embeddings that an earlier rewrite gave other rows.

use posenc_encodings::resize::Corners;
use posenc_ir::Model;

use crate::graph::sketch::{HIDDEN, Sketch};
use crate::request::{LawName, Request, ScaleType};
use crate::rewrite::{Rewritten, rewrite};

/// Positions of the table, and those that are asked for.
const POSITIONS: usize = 16;
const LONGER: usize = 40;

/// A layer behind embeddings with a table of positions.
fn with(table: impl Fn(&mut Sketch) -> String) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let (table, at) = (table(&mut s), s.range());
    let rows = s.gather(&table, &at, 0);
    let x = s.op("Add", &[&x, &rows]);
    let y = s.attends(&x, &x);
    s.model(18, &[&y])
}

fn learned() -> Model {
    with(|s| s.weights(&[POSITIONS, HIDDEN]))
}

fn sinusoidal() -> Model {
    let half = HIDDEN / 2;
    let wave = |i: usize| {
        let (position, column) = (i / HIDDEN, i % HIDDEN);
        let angle = position as f64 * 1e4_f64.powf(-2.0 * (column % half) as f64 / HIDDEN as f64);
        if column < half {
            angle.sin()
        } else {
            angle.cos()
        }
    };
    with(|s| s.floats(&[POSITIONS, HIDDEN], (0..POSITIONS * HIDDEN).map(wave)))
}

fn asked(scale: Option<ScaleType>, length: usize) -> Request {
    let mut request = Request {
        scale,
        ..Request::default()
    };
    request.parameters.max_length = Some(length);
    request
}

fn linear() -> Option<ScaleType> {
    Some(LawName::Linear.into())
}

fn done(model: &Model, request: &Request) -> Result<Rewritten, String> {
    let mut model = model.clone();
    rewrite(&mut model, request).map_err(|why| why.to_string())
}

fn made(model: &Model, request: &Request) -> Model {
    done(model, request)
        .unwrap_or_else(|why| panic!("{why}"))
        .model
}

#[test]
fn as_many_rows_by_another_law_are_refused() {
    let aligned = || {
        let mut request = asked(linear(), LONGER);
        request.parameters.corners = Corners::Aligned;
        request
    };
    let others = [ScaleType::Cubic, ScaleType::Tile, ScaleType::Hierarchical];
    let others = others.map(|scale| asked(Some(scale), LONGER));
    let ways = [&[asked(linear(), LONGER), aligned()][..], &others].concat();
    let model = learned();
    for (i, first) in ways.iter().enumerate() {
        let once = made(&model, first);
        for (j, second) in ways.iter().enumerate() {
            match done(&once, second) {
                Ok(same) => assert!(i == j && same.report.edits.is_empty(), "{i} {j}"),
                Err(why) => assert!(i != j && why.contains("scaled already"), "{why}"),
            }
            let mut allowed = second.clone();
            allowed.allowances.allow_rescale = true;
            assert!(done(&once, &allowed).is_ok(), "{i} {j}");
        }
        for same in [
            asked(None, LONGER),
            asked(Some(ScaleType::Truncate), LONGER),
        ] {
            let same = done(&once, &same);
            assert!(same.is_ok_and(|same| same.report.edits.is_empty()), "{i}");
        }
    }
}

#[test]
fn rows_stay_interpolated_whatever_comes_between() {
    let once = made(&learned(), &asked(linear(), LONGER));
    for between in [
        asked(Some(ScaleType::Truncate), 30),
        asked(Some(ScaleType::Tile), 50),
    ] {
        let twice = made(&once, &between);
        let why = done(&twice, &asked(linear(), 60)).expect_err("a refusal");
        assert!(why.contains("scaled already (linear)"), "{why}");
    }
}

#[test]
fn sinusoids_that_went_on_are_not_scaled_to_a_length() {
    let model = sinusoidal();
    let once = made(&model, &asked(None, LONGER));
    for length in [LONGER, 60] {
        let why = done(&once, &asked(linear(), length)).err();
        let why = why.expect("a refusal");
        assert!(why.contains("scaled already"), "{why}");
    }
    // A factor says what is meant.
    let mut given = asked(linear(), LONGER);
    given.parameters.factor = Some(2.5);
    let [whole, apart] = [&model, &once].map(|model| made(model, &given));
    let table = |model: &Model| {
        let graph = model.graph();
        let mut all = graph.values().filter(|v| {
            let stored = graph.stored(*v);
            stored.is_some_and(|stored| stored.dims == [LONGER, HIDDEN])
        });
        let table = all.next().expect("a table");
        graph.constant(table).expect("numbers").to_f64s()
    };
    assert_eq!(table(&whole), table(&apart));
}
