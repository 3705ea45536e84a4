//! Tables of integers of 8 bits with more rows.

use ndarray::{Array2, Axis};
use posenc_ir::eval::Budget;
use posenc_ir::{DType, Model};

use crate::detect::{Options, detect, run_at};
use crate::graph::ports::Lengths;
use crate::graph::sketch::{A, HIDDEN, Sketch};
use crate::request::{LawName, Request, ScaleType};
use crate::rewrite::rewrite;

const ROWS: usize = 32;
const SCALE: f64 = 0.015_625;
const LINEAR: ScaleType = ScaleType::Law(LawName::Linear);

/// The integer of a feature in a row.
type Code = fn(usize, usize) -> f64;

/// Integers all over the type, from its first one on.
fn wide(row: usize, feature: usize) -> f64 {
    ((37 * row + 11 * feature) % 256) as f64
}

/// Integers near the middle of the type.
fn narrow(row: usize, feature: usize) -> f64 {
    120.0 + ((5 * row + 3 * feature) % 17) as f64
}

/// The scale of one of several rows or features, which is the first one of all.
fn scale_of(at: usize) -> f64 {
    SCALE / (1.0 + 0.1 * at as f64)
}

/// When integers become numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Picked,
    /// The same, with a scale for each feature.
    ByFeature,
    Whole,
    /// With a scale for each row.
    ByRow,
}

/// Tokens with a quantized table of positions. The rows that are added are the second output.
fn model(dtype: DType, code: Code, order: Order) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let least = if dtype == DType::I8 { -128.0 } else { 0.0 };
    let codes = (0..ROWS * HIDDEN).map(|i| least + code(i / HIDDEN, i % HIDDEN));
    let table = s.typed(dtype, &[ROWS, HIDDEN], codes);
    let places = s.range();
    let each = match order {
        Order::ByRow => vec![ROWS],
        Order::ByFeature => vec![HIDDEN],
        Order::Picked | Order::Whole => vec![],
    };
    let count: usize = each.iter().product();
    let scale = s.floats(&each, (0..count).map(scale_of));
    let zero = s.typed(dtype, &each, vec![least + 128.0; count]);
    let rows = match order {
        Order::Picked | Order::ByFeature => {
            let rows = s.gather(&table, &places, 0);
            let inputs = [&rows[..], &scale, &zero];
            s.with("DequantizeLinear", &inputs, &[("axis", A::Int(1))])
        }
        Order::Whole | Order::ByRow => {
            let inputs = [&table[..], &scale, &zero];
            let table = s.with("DequantizeLinear", &inputs, &[("axis", A::Int(0))]);
            s.gather(&table, &places, 0)
        }
    };
    let x = s.op("Add", &[&x, &rows]);
    let y = s.attends(&x, &x);
    s.model(18, &[&y, &rows])
}

/// The model with twice as many rows.
fn longer(model: &Model, scale: ScaleType) -> Result<Model, String> {
    let mut request = Request {
        scale: Some(scale),
        ..Request::default()
    };
    request.parameters.factor = Some(2.0);
    let mut model = model.clone();
    rewrite(&mut model, &request).map_err(|why| why.to_string())?;
    Ok(model)
}

/// What is added at each of so many positions.
fn added(model: &Model, sequence: usize) -> Array2<f64> {
    let graph = model.graph();
    let rows = graph.scope(graph.main()).outputs()[1];
    let found = detect(model, &Options::default());
    let at = Lengths {
        batch: 1,
        sequence,
        past: 0,
    };
    let budget = Budget { elements: 1 << 16 };
    let run = run_at(model, &found, at, &budget).expect("any length");
    let rows = run.get(rows).to_f64().expect("numbers");
    rows.into_dimensionality().expect("rows of features")
}

#[test]
fn interpolated_rows_are_the_nearest_integers() {
    for dtype in [DType::U8, DType::I8] {
        for order in [Order::Picked, Order::ByFeature, Order::Whole] {
            let model = model(dtype, wide, order);
            let old = added(&model, ROWS);
            let longer = longer(&model, LINEAR).expect("more rows");
            let new = added(&longer, 2 * ROWS);
            for position in 0..2 * ROWS {
                // A quarter beyond an old row, and a quarter before the next one.
                let at = (position as f64 / 2.0 - 0.25).clamp(0.0, (ROWS - 1) as f64);
                let row = at.floor() as usize;
                let next = (row + 1).min(ROWS - 1);
                let share = at - row as f64;
                let want =
                    (1.0 - share) * &old.row(row).to_owned() + share * &old.row(next).to_owned();
                let far = &new.row(position) - &want;
                let most = far.fold(0.0_f64, |most, v| most.max(v.abs()));
                assert!(most <= 0.5 * SCALE, "{dtype} {order:?} {position}: {most}");
            }
            // A control: copies of rows would be off by more.
            let copies = old.select(Axis(0), &(0..ROWS).map(|p| p / 2).collect::<Vec<_>>());
            let far = &new.slice(ndarray::s![..ROWS, ..]) - &copies;
            assert!(far.iter().any(|v| v.abs() > 0.5 * SCALE), "{dtype}");
        }
    }
}

#[test]
fn rows_that_are_kept_stay_as_they_are() {
    for scale in [ScaleType::Tile, ScaleType::Hierarchical] {
        let model = model(DType::U8, narrow, Order::Picked);
        let longer = longer(&model, scale).expect("more rows");
        assert_eq!(added(&model, ROWS), added(&longer, ROWS), "{scale}");
    }
}

#[test]
fn integers_that_the_type_does_not_have_are_refused() {
    for (dtype, code, order, scale, part) in [
        (
            DType::U8,
            wide as Code,
            Order::Picked,
            ScaleType::Hierarchical,
            "which uint8 does not have",
        ),
        (
            DType::I8,
            wide,
            Order::Whole,
            ScaleType::Hierarchical,
            "which int8 does not have",
        ),
        (
            DType::I8,
            narrow,
            Order::ByRow,
            LINEAR,
            "is read in a way that is not supported",
        ),
    ] {
        let why = longer(&model(dtype, code, order), scale).err();
        assert!(
            why.as_ref().is_some_and(|why| why.contains(part)),
            "{part}: {why:?}"
        );
    }
}
