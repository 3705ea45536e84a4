//! Tables that are computed of others, and that something else reads.

use posenc_encodings::resize::{Antialias, Corners};

use super::*;
use crate::request::LawName;

/// How a table is made.
type Make = fn(&mut Sketch) -> String;

#[test]
fn a_table_in_parts_follows() {
    let cases: [(&str, Make); 6] = [
        ("as it is", table),
        ("stored in a node", |s| {
            let table = table(s);
            s.make_node(&table);
            table
        }),
        ("all rows picked", |s| {
            let table = s.weights(&[PATCHES as usize + 1, HIDDEN]);
            let all: Vec<i64> = (0..=PATCHES).collect();
            let all = s.ints(&all);
            s.gather(&table, &all, 0)
        }),
        ("class and patches joined", |s| {
            let class = s.weights(&[1, 1, HIDDEN]);
            let patches = s.weights(&[1, PATCHES as usize, HIDDEN]);
            s.concat(&[&class, &patches], 1)
        }),
        ("times a number", |s| {
            let table = table(s);
            let half = s.float(0.5);
            s.op("Mul", &[&table, &half])
        }),
        ("plus a row", |s| {
            let table = table(s);
            let row = s.weights(&[HIDDEN]);
            s.op("Add", &[&table, &row])
        }),
    ];
    for (name, table) in cases {
        for (size, patches) in [("12x8", 24), ("4x16", 16)] {
            let made = resized(&with_table(table, same, same), size);
            let made = made.unwrap_or_else(|why| panic!("{name} {size}: {why}"));
            assert_eq!(dims_of(&made), [1, patches + 1, HIDDEN], "{name} {size}");
        }
    }
}

#[test]
fn a_table_that_is_computed_of_other_numbers_is_refused() {
    let cases: [(&str, Make); 7] = [
        ("times a number for each row", |s| {
            let table = table(s);
            let each = s.weights(&[1, PATCHES as usize + 1, 1]);
            s.op("Mul", &[&table, &each])
        }),
        ("divisors of a row", |s| {
            let table = table(s);
            let row = s.weights(&[HIDDEN]);
            s.op("Div", &[&row, &table])
        }),
        ("normalized", |s| {
            let table = table(s);
            let scale = s.weights(&[HIDDEN]);
            s.with(
                "LayerNormalization",
                &[&table, &scale],
                &[("axis", A::Int(-1))],
            )
        }),
        ("bent", |s| {
            let table = table(s);
            s.op("Tanh", &[&table])
        }),
        ("projected", |s| {
            let table = table(s);
            let w = s.weights(&[HIDDEN, HIDDEN]);
            s.op("MatMul", &[&table, &w])
        }),
        ("times another", |s| {
            let [a, b] = [table(s), table(s)];
            s.op("Mul", &[&a, &b])
        }),
        ("part of a larger one", |s| {
            let large = s.weights(&[1, 40, HIDDEN]);
            s.slice(&large, 1, [0, PATCHES + 1, 1])
        }),
    ];
    for (name, table) in cases {
        for size in ["12x8", "4x16"] {
            let why = refusal(name, &with_table(table, same, same), size);
            let says = "the position table is computed of other numbers";
            assert!(why.contains(says), "{name} {size}: {why}");
        }
    }
}

/// Rows that the graph resizes to the patches of the image at hand, of a table on a grid of so many sides.
fn resizing<const SIDE: usize>(s: &mut Sketch, mode: &str) -> String {
    let shape = s.op("Shape", &["pixels"]);
    let sides = s.slice(&shape, 0, [2, 4, 1]);
    let two = s.int(2);
    let sides = s.op("Div", &[&sides, &two]);
    let kept = s.ints(&[1, HIDDEN as i64]);
    let sizes = s.concat(&[&kept, &sides], 0);
    resized_to::<SIDE>(s, mode, &sizes)
}

/// Rows that the graph resizes to sizes that are stored, in one constant or behind those that stay.
fn resizing_to_stored<const SIDE: usize>(s: &mut Sketch, mode: &str, is_joined: bool) -> String {
    let (kept, side) = (HIDDEN as i64, GRID as i64);
    let sizes = match is_joined {
        false => s.ints(&[1, kept, side, side]),
        true => {
            let (kept, sides) = (s.ints(&[1, kept]), s.ints(&[side, side]));
            s.concat(&[&kept, &sides], 0)
        }
    };
    resized_to::<SIDE>(s, mode, &sizes)
}

fn resized_to<const SIDE: usize>(s: &mut Sketch, mode: &str, sizes: &str) -> String {
    let stored = s.weights(&[1, SIDE, SIDE, HIDDEN]);
    let stored = s.transpose(&stored, &[0, 3, 1, 2]);
    let empty = s.floats(&[0], []);
    let mode = [("mode", A::Text(mode))];
    let grid = s.with("Resize", &[&stored, &empty, &empty, sizes], &mode);
    let rows = s.reshape(&grid, &[1, HIDDEN as i64, -1]);
    let rows = s.transpose(&rows, &[0, 2, 1]);
    let class = s.weights(&[1, 1, HIDDEN]);
    s.concat(&[&class, &rows], 1)
}

#[test]
fn a_table_that_the_graph_resizes_is_compared_with_the_stored_one() {
    let as_asked: [(&str, Make); 4] = [
        ("the grid of the image", |s| resizing::<GRID>(s, "cubic")),
        ("another grid", |s| resizing::<7>(s, "cubic")),
        ("stored sizes", |s| {
            resizing_to_stored::<7>(s, "cubic", false)
        }),
        ("stored sides", |s| {
            resizing_to_stored::<7>(s, "cubic", true)
        }),
    ];
    let otherwise: [(&str, Make); 3] = [
        ("linear", |s| resizing::<7>(s, "linear")),
        ("nearest", |s| resizing::<7>(s, "nearest")),
        ("linear, to stored sizes", |s| {
            resizing_to_stored::<7>(s, "linear", false)
        }),
    ];
    for (size, patches) in [("12x8", 24), ("4x16", 16)] {
        for (name, table) in as_asked {
            let made = resized(&with_table(table, same, same), size);
            let made = made.unwrap_or_else(|why| panic!("{name} {size}: {why}"));
            assert_eq!(dims_of(&made), [1, patches + 1, HIDDEN], "{name} {size}");
        }
        for (name, table) in otherwise {
            let why = refusal(name, &with_table(table, same, same), size);
            assert!(why.contains("in another way"), "{name} {size}: {why}");
        }
    }
}

/// The first rows of a table with so many more than there are patches, as many as patches and a class token.
fn cut<const MORE: usize>(s: &mut Sketch) -> String {
    let table = s.weights(&[1, PATCHES as usize + 1 + MORE, HIDDEN]);
    let shape = s.op("Shape", &["pixels"]);
    let sides = s.ints(&[2, 3]);
    let sides = s.gather(&shape, &sides, 0);
    let step = s.ints(&[2]);
    let sides = s.op("Div", &[&sides, &step]);
    let patches = s.with("ReduceProd", &[&sides], &[("keepdims", A::Int(1))]);
    let one = s.ints(&[1]);
    let end = s.op("Add", &[&patches, &one]);
    let zero = s.ints(&[0]);
    s.op("Slice", &[&table, &zero, &end, &one])
}

/// The first rows of a table, as many as a mask shows.
fn cut_by_mask(s: &mut Sketch) -> String {
    let table = s.weights(&[1, PATCHES as usize + 1, HIDDEN]);
    let mask = s.input("attention_mask", DType::I64, &["1", "17"]);
    let axes = s.ints(&[1]);
    let shown = s.with("ReduceSum", &[&mask, &axes], &[("keepdims", A::Int(0))]);
    let (zero, one) = (s.ints(&[0]), s.ints(&[1]));
    s.op("Slice", &[&table, &zero, &shown, &one])
}

#[test]
fn a_table_of_which_all_rows_are_cut_is_resized() {
    for (size, patches) in [("12x8", 24), ("4x16", 16), ("4x8", 8)] {
        let made = resized(&with_table(cut::<0>, same, same), size);
        let made = made.unwrap_or_else(|why| panic!("{size}: {why}"));
        assert_eq!(dims_of(&made), [1, patches + 1, HIDDEN], "{size}");
        refusal("of more rows", &with_table(cut::<3>, same, same), size);
        refusal("by a mask", &with_table(cut_by_mask, same, same), size);
    }
}

#[test]
fn a_table_whose_rows_are_picked_in_another_order_is_refused() {
    let model = with_table(
        |s| {
            let table = s.weights(&[PATCHES as usize + 1, HIDDEN]);
            let all: Vec<i64> = (0..=PATCHES).rev().collect();
            let all = s.ints(&all);
            s.gather(&table, &all, 0)
        },
        same,
        same,
    );
    for size in ["12x8", "4x16"] {
        let why = refusal("in another order", &model, size);
        assert!(why.contains("numbers for each token"), "{size}: {why}");
    }
}

#[test]
fn a_table_that_something_else_reads_is_refused() {
    let cases: [(&str, Change, &str); 3] = [
        ("an output", same, "the position table, is an output"),
        (
            "its mean",
            |s, table| s.with("ReduceMean", &[table], &[("axes", A::Ints(&[1]))]),
            "is read here for something else",
        ),
        (
            "products with it",
            |s, table| {
                let w = s.weights(&[HIDDEN, 3]);
                s.op("MatMul", &[table, &w])
            },
            "is read here for something else",
        ),
    ];
    for (name, more, says) in cases {
        let model = built(table, same, same, Some(more));
        for size in ["12x8", "4x16"] {
            let why = refusal(name, &model, size);
            assert!(why.contains(says), "{name} {size}: {why}");
        }
    }
}

#[test]
fn a_table_that_was_interpolated_in_another_way_is_refused() {
    let asked = |change: fn(&mut Request)| {
        let mut request = Request::default();
        request.parameters.image_size = Some("12x8".parse().expect("a size"));
        change(&mut request);
        request
    };
    let ways: [fn(&mut Request); 4] = [
        |_| {},
        |r| r.parameters.antialias = Antialias::On,
        |r| r.parameters.corners = Corners::Aligned,
        |r| r.scale = Some(LawName::Linear.into()),
    ];
    let done = |model: &Model, request: Request| {
        let done = plan(model, request, &[]).and_then(|planned| planned.apply());
        done.map_err(|why| why.to_string())
    };
    let model = model(same, same);
    for (i, way) in ways.iter().enumerate() {
        let made = done(&model, asked(*way)).unwrap_or_else(|why| panic!("{i}: {why}"));
        for (j, other) in ways.iter().enumerate() {
            let mut request = asked(*other);
            match done(&made.model, request.clone()) {
                Ok(same) => assert!(i == j && same.report.edits.is_empty(), "{i} {j}"),
                Err(why) => assert!(i != j && why.contains("interpolated already"), "{why}"),
            }
            request.allowances.allow_rescale = true;
            assert!(done(&made.model, request).is_ok(), "{i} {j}");
        }
    }
}

#[test]
fn a_table_on_maps_follows_where_one_side_stays() {
    let mut s = Sketch::default();
    let pixels = s.input("pixels", DType::F32, &["1", "3", "8", "8"]);
    let w = s.weights(&[HIDDEN, 3, 2, 2]);
    let map = s.with("Conv", &[&pixels, &w], &[("strides", A::Ints(&[2, 2]))]);
    let table = s.weights(&[1, HIDDEN, GRID, GRID]);
    let map = s.op("Add", &[&map, &table]);
    let x = s.reshape(&map, &[1, HIDDEN as i64, PATCHES]);
    let x = s.transpose(&x, &[0, 2, 1]);
    let y = s.attends(&x, &x);
    let model = s.model(18, &[&y]);
    for (size, [height, width]) in [("12x12", [6, 6]), ("12x8", [6, 4]), ("8x12", [4, 6])] {
        let made = resized(&model, size).unwrap_or_else(|why| panic!("{size}: {why}"));
        assert_eq!(dims_of(&made), [1, height * width, HIDDEN], "{size}");
        let graph = made.graph();
        let read = graph.nodes().filter_map(|(_, node)| node.input(1));
        let mut stored = read.filter_map(|value| graph.constant(value));
        let dims = [1, HIDDEN, height, width];
        assert!(stored.any(|table| table.dims() == dims), "{size}");
    }
}
