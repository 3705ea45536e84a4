mod biases;
mod codes;
mod counts;
mod lengths;
mod maps;
mod open;
mod rotations;
mod sums;
mod tables;
mod windows;

use posenc_ir::{DType, Dim, Model};

use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
use crate::request::Request;
use crate::rewrite::plan;

/// Patches on a side of the image.
const GRID: usize = 4;
const PATCHES: i64 = (GRID * GRID) as i64;

/// What is done to the tokens before attention, or to what attention gives.
type Change = fn(&mut Sketch, &str) -> String;

fn same(_: &mut Sketch, x: &str) -> String {
    x.to_owned()
}

/// A vision transformer on patches of 2 × 2 pixels, with a class token and a learned table.
fn model(before: Change, after: Change) -> Model {
    with_table(table, before, after)
}

/// A row for the class token and for each patch.
fn table(s: &mut Sketch) -> String {
    s.weights(&[1, PATCHES as usize + 1, HIDDEN])
}

/// A vision transformer as [`model`] makes it, with another table.
fn with_table(table: fn(&mut Sketch) -> String, before: Change, after: Change) -> Model {
    built(table, before, after, None)
}

/// A vision transformer as [`model`] makes it, with another table and another output that is computed of it.
fn built(
    table: fn(&mut Sketch) -> String,
    before: Change,
    after: Change,
    more: Option<Change>,
) -> Model {
    let mut s = Sketch::default();
    let pixels = s.input("pixels", DType::F32, &["1", "3", "8", "8"]);
    let w = s.weights(&[HIDDEN, 3, 2, 2]);
    let strides = [("strides", A::Ints(&[2, 2]))];
    let patches = s.with("Conv", &[&pixels, &w], &strides);
    let patches = s.reshape(&patches, &[1, HIDDEN as i64, PATCHES]);
    let patches = s.transpose(&patches, &[0, 2, 1]);
    let class = s.weights(&[1, 1, HIDDEN]);
    let x = s.concat(&[&class, &patches], 1);
    let table = table(&mut s);
    let x = s.op("Add", &[&x, &table]);
    let x = before(&mut s, &x);
    let y = s.attends(&x, &x);
    let y = after(&mut s, &y);
    match more.map(|more| more(&mut s, &table)) {
        Some(more) => s.model(18, &[&y, &more]),
        None => s.model(18, &[&y]),
    }
}

/// The model for images of another size.
fn resized(model: &Model, size: &str) -> Result<Model, String> {
    let mut request = Request::default();
    request.parameters.image_size = Some(size.parse().expect("a size"));
    // What mixes tokens without attention is named before sizes are looked at.
    request.allowances.allow_unread = true;
    let done = plan(model, request, &[]).and_then(|planned| planned.apply());
    done.map(|done| done.model)
        .map_err(|error| error.to_string())
}

/// Whether every model made with one of these changes is refused with these words.
fn assert_refused(cases: &[(&str, Change, &str)]) {
    for (name, after, says) in cases {
        let model = model(same, *after);
        // As many patches in another grid are other patches.
        for size in ["12x8", "4x16"] {
            let why = refusal(name, &model, size);
            assert!(why.contains(says), "{name} {size}: {why}");
        }
    }
}

/// Why a model gets no other size.
fn refusal(name: &str, model: &Model, size: &str) -> String {
    match resized(model, size) {
        Ok(_) => panic!("{name} {size} is not refused"),
        Err(why) => why,
    }
}

/// The dimensions of the first output in the trial run.
fn dims_of(made: &Model) -> Vec<usize> {
    let graph = made.graph();
    let output = graph.scope(graph.main()).outputs()[0];
    let found = detect(made, &Options::default());
    found.trace.get(output).dims.clone().expect("dimensions")
}

/// The declared dimensions of the first input.
fn declared(model: &Model) -> Vec<Dim> {
    let graph = model.graph();
    let input = graph.scope(graph.main()).inputs()[0];
    graph.value(input).shape().expect("a shape").to_vec()
}

#[test]
fn sizes_follow_the_image() {
    let cases: [(&str, Change, Change); 8] = [
        ("as it is", same, same),
        (
            "tokens and heads written down",
            |s, x| {
                let apart = s.reshape(x, &[1, PATCHES + 1, HEADS as i64, SIZE as i64]);
                let half = s.float(0.5);
                let apart = s.op("Mul", &[&apart, &half]);
                s.reshape(&apart, &[1, PATCHES + 1, HIDDEN as i64])
            },
            same,
        ),
        ("the class token alone", same, |s, y| {
            let first = s.int(0);
            s.gather(y, &first, 1)
        }),
        ("all but the class token", same, |s, y| {
            s.slice(y, 1, [1, i64::MAX, 1])
        }),
        ("from the class token to the last patch", same, |s, y| {
            s.slice(y, 1, [1, PATCHES + 1, 1])
        }),
        ("class and patches split", same, |s, y| {
            let parts = s.ints(&[1, PATCHES]);
            let parts = s.many("Split", &[y, &parts], &[("axis", A::Int(1))], 2);
            s.concat(&[&parts[1], &parts[0]], 1)
        }),
        ("the map of features", same, |s, y| {
            let y = s.slice(y, 1, [1, i64::MAX, 1]);
            let side = GRID as i64;
            s.reshape(&y, &[1, side, side, HIDDEN as i64])
        }),
        ("tokens divided by their sum", same, |s, y| {
            let axes = s.ints(&[1]);
            let sum = s.op("ReduceSum", &[y, &axes]);
            s.op("Div", &[y, &sum])
        }),
    ];
    for (name, before, after) in cases {
        let model = model(before, after);
        for size in ["12x8", "4x16", "6x10"] {
            let made = resized(&model, size).unwrap_or_else(|why| panic!("{name} {size}: {why}"));
            let text: Vec<String> = declared(&made)[2..]
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(text.join("x"), size, "{name}");
        }
        let unchanged = resized(&model, "8x8").unwrap_or_else(|why| panic!("{name}: {why}"));
        let [old, new] = [&model, &unchanged].map(|m| m.to_bytes().expect("bytes"));
        assert_eq!(old, new, "{name}");
    }
}

/// The patches of tokens as a map `[1, feature, row, column]`.
fn map(s: &mut Sketch, y: &str) -> String {
    let y = s.slice(y, 1, [1, i64::MAX, 1]);
    let y = s.transpose(&y, &[0, 2, 1]);
    let side = GRID as i64;
    s.reshape(&y, &[1, HIDDEN as i64, side, side])
}

/// What would keep the old size: a change of the tokens, one of what attention gives, and the refusal.
const KEPT: [(&str, Change, Change, &str); 17] = [
    (
        "weights over tokens",
        same,
        |s, y| {
            let w = s.weights(&[PATCHES as usize + 1, PATCHES as usize + 1]);
            s.op("MatMul", &[&w, y])
        },
        "this MatMul reads numbers for each token",
    ),
    (
        "a mean by weights of one number",
        same,
        |s, y| {
            let count = PATCHES as usize + 1;
            let each = s.floats(&[1, count, 1], (0..count).map(|_| 1.0 / count as f64));
            s.op("Mul", &[y, &each])
        },
        "this Mul reads numbers for each token",
    ),
    (
        "weights over flattened tokens",
        same,
        |s, y| {
            let count = PATCHES + 1;
            let flat = s.reshape(y, &[1, count * HIDDEN as i64]);
            let w = s.weights(&[count as usize * HIDDEN, 3]);
            s.op("Gemm", &[&flat, &w])
        },
        "this Gemm reads numbers for each token",
    ),
    (
        "a bias for each token",
        same,
        |s, y| {
            let count = PATCHES + 1;
            let rows = s.reshape(y, &[count, HIDDEN as i64]);
            let w = s.weights(&[HIDDEN, 3]);
            let own = s.weights(&[count as usize, 1]);
            s.op("Gemm", &[&rows, &w, &own])
        },
        "this Gemm reads numbers for each token",
    ),
    (
        "features of each token joined",
        same,
        |s, y| {
            let own = s.weights(&[1, PATCHES as usize + 1, 2]);
            s.concat(&[y, &own], 2)
        },
        "this Concat reads numbers for each token",
    ),
    (
        "a norm over tokens",
        same,
        |s, y| {
            let count = PATCHES as usize + 1;
            let scale = s.weights(&[count, HIDDEN]);
            s.with("LayerNormalization", &[y, &scale], &[("axis", A::Int(1))])
        },
        "this LayerNormalization reads numbers for each token",
    ),
    (
        "tokens as channels",
        same,
        |s, y| {
            let w = s.weights(&[3, PATCHES as usize + 1, 1]);
            s.op("Conv", &[y, &w])
        },
        "this Conv reads numbers for each token",
    ),
    (
        "a number for each token",
        |s, x| {
            let w = s.weights(&[1, PATCHES as usize + 1, 1]);
            s.op("Mul", &[x, &w])
        },
        same,
        "this Mul reads numbers for each token",
    ),
    (
        "half of the tokens",
        same,
        |s, y| s.slice(y, 1, [0, 9, 1]),
        "this Slice acts along an axis",
    ),
    (
        "tokens from the ninth on",
        same,
        |s, y| s.slice(y, 1, [9, i64::MAX, 1]),
        "this Slice acts along an axis",
    ),
    (
        "the sixth token",
        same,
        |s, y| {
            let sixth = s.int(5);
            s.gather(y, &sixth, 1)
        },
        "this Gather acts along an axis",
    ),
    (
        "the last token",
        same,
        |s, y| {
            let last = s.int(-1);
            s.gather(y, &last, 1)
        },
        "this Gather acts along an axis",
    ),
    (
        "tokens split within the patches",
        same,
        |s, y| {
            let parts = s.ints(&[9, PATCHES - 8]);
            s.many("Split", &[y, &parts], &[("axis", A::Int(1))], 2)[1].clone()
        },
        "this Split acts along an axis",
    ),
    (
        "a mean by the old number",
        same,
        |s, y| {
            let axes = s.ints(&[1]);
            let sum = s.op("ReduceSum", &[y, &axes]);
            let count = s.float(PATCHES as f64 + 1.0);
            s.op("Div", &[&sum, &count])
        },
        "this ReduceSum acts along an axis",
    ),
    (
        "pairs of rows",
        same,
        |s, y| {
            let y = s.slice(y, 1, [1, i64::MAX, 1]);
            s.reshape(&y, &[1, 2, 8, HIDDEN as i64])
        },
        "this Reshape groups elements by sizes that do not follow",
    ),
    (
        "a pool over the old grid",
        same,
        |s, y| {
            let y = map(s, y);
            s.with("AveragePool", &[&y], &[("kernel_shape", A::Ints(&[4, 4]))])
        },
        "this AveragePool acts along an axis",
    ),
    (
        "one token written",
        same,
        |s, y| {
            let at = s.ints(&[0, 5]);
            let at = s.unsqueeze(&at, &[0]);
            let row = s.weights(&[1, HIDDEN]);
            s.op("ScatterND", &[y, &at, &row])
        },
        "this ScatterND acts along an axis",
    ),
];

#[test]
fn what_keeps_the_old_size_is_refused() {
    for (name, before, after, says) in KEPT {
        // As many patches in another grid are other patches.
        for size in ["12x8", "4x16"] {
            let why = refusal(name, &model(before, after), size);
            assert!(why.contains(says), "{name} {size}: {why}");
        }
    }
    let plain = model(same, same);
    for (size, says) in [
        ("9x8", "no whole number of steps of 2; 8 or 10 would be"),
        ("8x1", "2 would be"),
    ] {
        let why = refusal("patches", &plain, size);
        assert!(why.contains(says), "{size}: {why}");
    }
}

#[test]
fn sizes_follow_the_image_without_positions_too_but_not_without_attention() {
    let made = |attends: bool| {
        let mut s = Sketch::default();
        let pixels = s.input("pixels", DType::F32, &["1", "3", "8", "8"]);
        let w = s.weights(&[HIDDEN, 3, 2, 2]);
        let patches = s.with("Conv", &[&pixels, &w], &[("strides", A::Ints(&[2, 2]))]);
        let x = s.reshape(&patches, &[1, HIDDEN as i64, PATCHES]);
        let x = s.transpose(&x, &[0, 2, 1]);
        let y = match attends {
            true => s.attends(&x, &x),
            false => s.op("Relu", &[&x]),
        };
        s.model(18, &[&y])
    };
    let larger = resized(&made(true), "12x8").unwrap();
    assert_eq!(declared(&larger), [1, 3, 12, 8].map(Dim::Known));
    assert_eq!(dims_of(&larger), [1, 24, HIDDEN]);
    let why = refusal("no attention", &made(false), "12x8");
    assert!(why.contains("no attention"), "{why}");
}

#[test]
fn frames_are_no_image_and_no_lack_of_one() {
    let with = |dims: &[&str]| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let frames = s.input("frames", DType::F32, dims);
        let frames = s.op("Neg", &[&frames]);
        let y = s.attends(&x, &x);
        s.model(18, &[&y, &frames])
    };
    let why = refusal("frames", &with(&["1", "4", "3", "8", "8"]), "16x16");
    assert!(why.contains("takes frames of several"), "{why}");
    let why = refusal("features", &with(&["1", "4", "3"]), "16x16");
    assert!(why.contains("one image as input"), "{why}");
}
