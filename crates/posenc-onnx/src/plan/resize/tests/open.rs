//! Images of any size: sizes that the graph computes, and tables that it resizes.

use posenc_encodings::resize::{Antialias, Corners, Resizing};
use posenc_ir::{Attr, NodeId};

use super::*;
use crate::detect::context::Context;
use crate::edit;
use crate::error::RewriteError;
use crate::plan::resize::{Number, Open, open};
use crate::prove::resized::open::check;
use crate::request::Length;

/// How a table is made.
type Make = fn(&mut Sketch) -> String;

/// What else is asked.
type Ask = fn(&mut Request);

/// How a plan is changed.
type Alter = fn(&mut Open);

fn request() -> Request {
    let mut request = Request::default();
    request.parameters.length = Length::Dynamic;
    request.allowances.allow_unread = true;
    request
}

/// The model for images of any size.
fn opened(model: &Model, request: Request) -> Result<Model, String> {
    let done = plan(model, request, &[]).and_then(|planned| planned.apply());
    done.map(|done| done.model)
        .map_err(|error| error.to_string())
}

fn refused(name: &str, model: &Model, says: &str) {
    match opened(model, request()) {
        Ok(_) => panic!("{name} is not refused"),
        Err(why) => assert!(why.contains(says), "{name}: {why}"),
    }
}

fn count(model: &Model, op: &str) -> usize {
    let nodes = model.graph().nodes();
    nodes.filter(|(_, node)| node.is(op)).count()
}

/// A vision transformer whose table is made with its patches, `[1, feature, row, column]`.
fn on_map(table: Make) -> Model {
    let mut s = Sketch::default();
    let pixels = s.input("pixels", DType::F32, &["n", "3", "8", "12"]);
    let w = s.weights(&[HIDDEN, 3, 2, 2]);
    let strides = [("strides", A::Ints(&[2, 2]))];
    let map = s.with("Conv", &[&pixels, &w], &strides);
    let table = table(&mut s);
    let map = s.op("Add", &[&map, &table]);
    let x = s.reshape(&map, &[0, HIDDEN as i64, 24]);
    let x = s.transpose(&x, &[0, 2, 1]);
    let y = s.attends(&x, &x);
    s.model(18, &[&y])
}

#[test]
fn sizes_follow_images_of_any_size() {
    let cases: [(&str, Change, Change); 10] = [
        ("as it is", same, same),
        (
            "a mask of zeros for each token",
            |s, x| {
                let count = PATCHES as usize + 1;
                let mask = s.floats(&[1, count, 1], (0..count).map(|_| 0.0));
                s.op("Add", &[x, &mask])
            },
            same,
        ),
        (
            "a mask of zeros that is repeated",
            |s, x| {
                let mask = s.floats(&[1, PATCHES as usize + 1, 1], (0..=PATCHES).map(|_| 0.0));
                let dims = s.ints(&[1, PATCHES + 1, HIDDEN as i64]);
                let mask = s.op("Expand", &[&mask, &dims]);
                s.op("Add", &[x, &mask])
            },
            same,
        ),
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
        (
            "a shape in parts",
            |s, x| {
                let [one, tokens, rest] = [1, PATCHES + 1, -1].map(|n| s.ints(&[n]));
                let shape = s.concat(&[&one, &tokens, &rest], 0);
                s.op("Reshape", &[x, &shape])
            },
            same,
        ),
        (
            "a shape of numbers",
            |s, x| {
                let parts = [1, PATCHES + 1, HIDDEN as i64].map(|n| {
                    let n = s.int(n);
                    s.unsqueeze(&n, &[0])
                });
                let shape = s.concat(&[&parts[0], &parts[1], &parts[2]], 0);
                s.op("Reshape", &[x, &shape])
            },
            same,
        ),
        ("the class token alone", same, |s, y| {
            let first = s.int(0);
            s.gather(y, &first, 1)
        }),
        ("all tokens in one axis", same, |s, y| {
            let flat = s.reshape(y, &[-1, (PATCHES + 1) * HIDDEN as i64]);
            s.op("Relu", &[&flat])
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
        let made = opened(&model, request()).unwrap_or_else(|why| panic!("{name}: {why}"));
        let text: Vec<String> = declared(&made).iter().map(ToString::to_string).collect();
        assert_eq!(text.join(" "), "1 3 height width", "{name}");
        assert_eq!(count(&made, "Resize"), 1, "{name}");
        // The model is one of these already.
        let again = opened(&made, request()).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(count(&again, "Resize"), 1, "{name}");
        let why = refusal(name, &made, "12x8");
        assert!(why.contains("are open"), "{name}: {why}");
    }
}

#[test]
fn tables_of_other_forms_are_resized() {
    let map: [(&str, Make); 3] = [
        ("of four axes", |s| s.weights(&[1, HIDDEN, 4, 6])),
        ("of three axes", |s| s.weights(&[HIDDEN, 4, 6])),
        ("of the type of halves", |s| {
            let numbers = (0..HIDDEN * 24).map(|i| (1.7 * i as f64).sin());
            let table = s.typed(DType::F16, &[1, HIDDEN, 4, 6], numbers);
            s.cast(&table, DType::F32)
        }),
    ];
    for (name, table) in map {
        let made = opened(&on_map(table), request()).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(count(&made, "Resize"), 1, "{name}");
    }
    let lines: [(&str, Make); 3] = [
        ("of which all rows are picked", |s| {
            let table = s.weights(&[PATCHES as usize + 1, HIDDEN]);
            let all: Vec<i64> = (0..=PATCHES).collect();
            let all = s.ints(&all);
            let all = s.unsqueeze(&all, &[0]);
            s.gather(&table, &all, 0)
        }),
        ("of two axes", |s| {
            s.weights(&[PATCHES as usize + 1, HIDDEN])
        }),
        ("class and patches joined", |s| {
            let class = s.weights(&[1, 1, HIDDEN]);
            let patches = s.weights(&[1, PATCHES as usize, HIDDEN]);
            s.concat(&[&class, &patches], 1)
        }),
    ];
    for (name, table) in lines {
        let model = with_table(table, same, same);
        let made = opened(&model, request()).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(count(&made, "Resize"), 1, "{name}");
    }
}

#[test]
fn what_does_not_follow_images_of_any_size_is_refused() {
    for (name, before, after, says) in KEPT {
        refused(name, &model(before, after), says);
    }
    let halved = model(same, |s, y| {
        let y = map(s, y);
        let attrs = [
            ("kernel_shape", A::Ints(&[1, 1])),
            ("strides", A::Ints(&[2, 2])),
        ];
        let y = s.with("MaxPool", &[&y], &attrs);
        let half = GRID as i64 / 2;
        s.reshape(&y, &[-1, half, half])
    });
    let says = "a size that does not follow from the rows and columns";
    refused("every other row and column", &halved, says);
    let square = model(same, |s, y| {
        let (shape, first) = (s.op("Shape", &[y]), s.ints(&[0]));
        let batch = s.gather(&shape, &first, 0);
        let [tokens, width] = [PATCHES + 1, HIDDEN as i64].map(|n| s.ints(&[n]));
        let parts = [batch, tokens, width].map(|n| s.unsqueeze(&n, &[0]));
        let shape = s.concat(&[&parts[0], &parts[1], &parts[2]], 1);
        let shape = s.op("Squeeze", &[&shape, &first]);
        s.op("Reshape", &[y, &shape])
    });
    let says = "numbers that follow from the grid of patches, and are no list of sizes";
    refused("sizes on two axes", &square, says);
    let bent = on_map(|s| {
        let table = s.weights(&[1, HIDDEN, 4, 6]);
        s.op("Tanh", &[&table])
    });
    refused("a bent table", &bent, "is computed of other numbers");
}

#[test]
fn a_model_that_was_opened_in_another_way_is_refused() {
    let image = model(same, same);
    let size: Ask = |r| r.parameters.image_size = Some("12x8".parse().expect("a size"));
    let linear: Ask = |r| r.scale = Some(crate::request::LawName::Linear.into());
    let smooth: Ask = |r| r.parameters.antialias = Antialias::On;
    let aligned: Ask = |r| r.parameters.corners = Corners::Aligned;
    let write: Ask = |r| r.allowances.write_config = true;
    let asked = |change: Ask| {
        let mut request = request();
        change(&mut request);
        request
    };
    let cases = [
        (linear, "already, by cubic interpolation; open the original"),
        (smooth, "already, by cubic interpolation; open the original"),
        (
            aligned,
            "already, by cubic interpolation; open the original",
        ),
        (size, "at 12x8 only the original can be compared"),
        (write, "no key for images of any size"),
    ];
    let plain = opened(&image, request()).expect("a model");
    for (change, says) in cases {
        let why = opened(&plain, asked(change)).expect_err(says);
        assert!(why.contains(says), "{says}: {why}");
    }
    for (change, how) in [
        (linear, "by linear interpolation;"),
        (smooth, "by cubic interpolation, with `antialias`;"),
        (aligned, "by cubic interpolation, with `align-corners`;"),
    ] {
        let made = opened(&image, asked(change)).expect(how);
        assert!(opened(&made, asked(change)).is_ok(), "{how}");
        let why = opened(&made, request()).expect_err(how);
        assert!(why.contains(how), "{how}: {why}");
    }
    let compared = opened(&image, asked(size)).expect("a model");
    for change in [size, |_: &mut Request| {}] {
        assert!(opened(&compared, asked(change)).is_ok());
    }
}

#[test]
fn what_has_no_effect_is_refused() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let y = s.attends(&x, &x);
    let words = s.model(18, &[&y]);
    refused("words", &words, "`dynamic` has no effect");
    let image = model(same, same);
    let with = |change: Ask| {
        let mut request = request();
        change(&mut request);
        opened(&image, request).expect_err("a refusal")
    };
    let cases: [(Ask, &str); 6] = [
        (
            |r| r.parameters.image_size = Some("4294967296x8".parse().expect("a size")),
            "pixels at most",
        ),
        (
            |r| r.parameters.factor = Some(2.0),
            "`factor` has no effect",
        ),
        (
            |r| r.allowances.write_config = true,
            "no key for images of any size",
        ),
        (
            |r| r.scale = Some(crate::request::ScaleType::Tile),
            "cubic or linear",
        ),
        (
            |r| {
                r.parameters.antialias = Antialias::On;
                r.parameters.corners = Corners::Aligned;
            },
            "exclude each other",
        ),
        (
            |r| r.parameters.image_size = Some("9x8".parse().expect("a size")),
            "no whole number of steps of 2",
        ),
    ];
    for (change, says) in cases {
        let why = with(change);
        assert!(why.contains(says), "{says}: {why}");
    }
}

/// Edits a model by another plan than that which it is compared with.
fn altered(
    change: impl FnOnce(&mut Open),
    after: impl FnOnce(Model) -> Model,
) -> Result<(), RewriteError> {
    let model = model(same, |s, y| {
        let y = s.slice(y, 1, [1, i64::MAX, 1]);
        let side = GRID as i64;
        s.reshape(&y, &[1, side, side, HIDDEN as i64])
    });
    let options = Options::default();
    let found = detect(&model, &options);
    let context = Context {
        model: &model,
        found: &found,
    };
    let right = open(&context, &request(), None)?.expect("a plan");
    let mut other = right.clone();
    change(&mut other);
    let (next, _) = edit::resize::open(&context, &other).expect("an edit");
    check(&context, &after(next), &right, &options)
}

/// The model with another coefficient where its table is resized.
fn with_coefficient(model: Model, coefficient: f32) -> Model {
    let graph = model.graph();
    let (id, node): (NodeId, _) = graph
        .nodes()
        .find(|(_, node)| node.is("Resize"))
        .expect("a table that is resized");
    let mut out = graph.emitter(graph.main(), "test");
    let attrs = [("cubic_coeff_a", Attr::Float(coefficient))];
    let new = out.copy(id, node.inputs(), &attrs).expect("a copy");
    let pair = node.output(0).zip(new[0]).expect("an output");
    out.redirect(pair.0, pair.1).expect("another");
    let patch = out.finish();
    model.with_patch(patch).expect("a model").0
}

#[test]
fn a_graph_that_resizes_in_another_way_is_found() {
    assert!(altered(|_| {}, |model| model).is_ok());
    assert!(altered(|_| {}, |model| with_coefficient(model, -0.75)).is_ok());
    let resizes = "in another way than is asked for";
    let cases: [(&str, Alter, &str); 4] = [
        ("linear", |plan| plan.by.rows.by = Resizing::Linear, resizes),
        (
            "aligned",
            |plan| plan.by.rows.corners = Corners::Aligned,
            resizes,
        ),
        (
            "smoothed",
            |plan| plan.by.rows.antialias = Antialias::On,
            resizes,
        ),
        (
            "turned",
            |plan| plan.grid.1.reverse(),
            "would get other sizes than those that follow",
        ),
    ];
    for (name, change, says) in cases {
        let why = altered(change, |model| model).expect_err(name).to_string();
        assert!(why.contains(says), "{name}: {why}");
    }
    let more = |plan: &mut Open| {
        let all = plan.constants.values_mut().flat_map(|own| &mut own.each);
        let follow = all.filter_map(|number| match number {
            Number::Grid { more, .. } => Some(more),
            Number::Fixed(_) => None,
        });
        let mut count = 0;
        for more in follow {
            *more += 1;
            count += 1;
        }
        assert!(count > 0, "a size that follows");
    };
    let why = altered(more, |model| model).expect_err("another number");
    let says = "would get other sizes than those that follow";
    assert!(why.to_string().contains(says), "{why}");
    let why = altered(|_| {}, |model| with_coefficient(model, -0.5));
    let why = why.expect_err("another coefficient").to_string();
    assert!(why.contains("in another way than is asked for"), "{why}");
}

#[test]
fn older_graphs_are_refused_where_they_cannot_resize() {
    for (opset, antialias, says) in [
        (10, Antialias::Off, Some("from opset 11 on")),
        (17, Antialias::On, Some("from opset 18 on")),
        (17, Antialias::Off, None),
        (18, Antialias::On, None),
    ] {
        let mut s = Sketch::default();
        let pixels = s.input("pixels", DType::F32, &["1", "3", "8", "8"]);
        let w = s.weights(&[HIDDEN, 3, 2, 2]);
        let strides = [("strides", A::Ints(&[2, 2]))];
        let patches = s.with("Conv", &[&pixels, &w], &strides);
        let patches = s.reshape(&patches, &[1, HIDDEN as i64, PATCHES]);
        let x = s.transpose(&patches, &[0, 2, 1]);
        let table = s.weights(&[1, PATCHES as usize, HIDDEN]);
        let x = s.op("Add", &[&x, &table]);
        let y = s.attends(&x, &x);
        let model = s.model(opset, &[&y]);
        let mut request = request();
        request.parameters.antialias = antialias;
        match (opened(&model, request), says) {
            (Ok(made), None) => assert_eq!(count(&made, "Resize"), 1, "{opset}"),
            (Err(why), Some(says)) => assert!(why.contains(says), "{opset}: {why}"),
            (Ok(_), Some(_)) => panic!("{opset} is not refused"),
            (Err(why), None) => panic!("{opset}: {why}"),
        }
    }
}
