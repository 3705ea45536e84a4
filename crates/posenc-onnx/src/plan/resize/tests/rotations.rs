//! Rotations by rows and columns that leave out class and register tokens.

use posenc_encodings::families::axial::Axial;
use posenc_ir::{Model, Use};

use super::*;
use crate::detect::context::Context;
use crate::detect::finding::Encoding;
use crate::prove::resized;
use crate::rewrite::plan;

/// Tokens before the patches.
const PREFIX: i64 = 2;

/// The angle of a pair of an axis at a place, by the number of places along a side.
type Angle = fn(usize, f64, f64) -> f64;

/// The n-th pair of an axis by the formula of DINOv3: the centre of each patch, from −1 to 1.
fn centred(pair: usize, at: f64, side: f64) -> f64 {
    let place = 2.0 * (at + 0.5) / side - 1.0;
    std::f64::consts::TAU * place / 100.0_f64.powf(pair as f64 / 2.0)
}

/// How tokens, of which the last ones are rotated by cosines and sines, are taken apart.
type Apart = fn(&mut Sketch, &str, &str) -> [String; 2];

fn split(s: &mut Sketch, x: &str, _: &str) -> [String; 2] {
    let sizes = s.ints(&[PREFIX, PATCHES]);
    let parts = s.many("Split", &[x, &sizes], &[("axis", A::Int(2))], 2);
    [parts[0].clone(), parts[1].clone()]
}

fn sliced(s: &mut Sketch, x: &str, _: &str) -> [String; 2] {
    [[0, PREFIX, 1], [PREFIX, PREFIX + PATCHES, 1]].map(|range| s.slice(x, 2, range))
}

/// By the number of tokens less that of the sines.
fn counted(s: &mut Sketch, x: &str, sin: &str) -> [String; 2] {
    let (tokens, rows) = (s.op("Shape", &[x]), s.op("Shape", &[sin]));
    let tokens = s.slice(&tokens, 0, [2, 3, 1]);
    let rows = s.slice(&rows, 0, [0, 1, 1]);
    let first = s.op("Sub", &[&tokens, &rows]);
    let last = s.op("Add", &[&first, &rows]);
    between(s, x, [&first, &last])
}

/// By a ninth of the tokens.
fn divided(s: &mut Sketch, x: &str, _: &str) -> [String; 2] {
    let tokens = s.op("Shape", &[x]);
    let tokens = s.slice(&tokens, 0, [2, 3, 1]);
    let nine = s.ints(&[9]);
    let first = s.op("Div", &[&tokens, &nine]);
    between(s, x, [&first, &tokens])
}

fn between(s: &mut Sketch, x: &str, [first, last]: [&str; 2]) -> [String; 2] {
    let (start, axis) = (s.ints(&[0]), s.ints(&[2]));
    let prefix = s.op("Slice", &[x, &start, first, &axis]);
    [prefix, s.op("Slice", &[x, first, last, &axis])]
}

/// Cosines and sines `[patch, feature]` of halves: rows, then columns, for each half.
fn waves(s: &mut Sketch, angle: Angle, sides: [usize; 2]) -> [String; 2] {
    let number = |index: usize| {
        let (patch, feature) = (index / SIZE, index % SIZE);
        let (axis, pair) = ((feature % 4) / 2, feature % 2);
        let at = [patch / sides[1], patch % sides[1]][axis];
        angle(pair, at as f64, sides[axis] as f64)
    };
    let count = sides[0] * sides[1];
    [f64::cos, f64::sin]
        .map(|wave| s.floats(&[count, SIZE], (0..count * SIZE).map(|i| wave(number(i)))))
}

/// Cosines and sines by the formula of centres, computed of the size of the image; places are divided by the sides that
/// `sides` gives, of those that are computed.
fn computed(s: &mut Sketch, sides: fn(&mut Sketch, [String; 2]) -> [String; 2]) -> [String; 2] {
    let shape = s.op("Shape", &["pixels"]);
    let patch = s.ints(&[2]);
    let counts = [2, 3].map(|axis| {
        let pixels = s.slice(&shape, 0, [axis, axis + 1, 1]);
        s.op("Div", &[&pixels, &patch])
    });
    let pairs = s.ints(&[2]);
    let dims = s.concat(&[&counts[0], &counts[1], &pairs], 0);
    let divisors = counts
        .clone()
        .map(|count| s.with("Cast", &[&count], &[("to", A::Int(1))]));
    let divisors = sides(s, divisors);
    let angles = [0, 1].map(|axis| {
        let [zero, one] = [0, 1].map(|n| s.int(n));
        let count = s.op("Squeeze", &[&counts[axis]]);
        let places = s.op("Range", &[&zero, &count, &one]);
        let places = s.with("Cast", &[&places], &[("to", A::Int(1))]);
        let [half, two, unit] = [0.5, 2.0, 1.0].map(|n| s.floats(&[1], [n]));
        let places = s.op("Add", &[&places, &half]);
        let places = s.op("Div", &[&places, &divisors[axis]]);
        let places = s.op("Mul", &[&places, &two]);
        let places = s.op("Sub", &[&places, &unit]);
        let axes = s.ints(&[[1, 2], [0, 2]][axis]);
        let places = s.op("Unsqueeze", &[&places, &axes]);
        let steps =
            [0, 1].map(|pair| std::f64::consts::TAU / 100.0_f64.powf(f64::from(pair) / 2.0));
        let steps = s.floats(&[2], steps);
        let angles = s.op("Mul", &[&places, &steps]);
        s.op("Expand", &[&angles, &dims])
    });
    let angles = s.concat(&[&angles[0], &angles[1], &angles[0], &angles[1]], 2);
    let (patches, size) = (
        s.op("Mul", &[&counts[0], &counts[1]]),
        s.ints(&[SIZE as i64]),
    );
    let flat = s.concat(&[&patches, &size], 0);
    let angles = s.op("Reshape", &[&angles, &flat]);
    ["Cos", "Sin"].map(|wave| s.op(wave, &[&angles]))
}

/// A transformer of patches of 2 × 2 pixels whose patches are rotated, and not its class and register tokens.
fn rotated(angle: Angle, apart: Apart) -> Model {
    rotated_by(|s| waves(s, angle, [GRID, GRID]), apart)
}

/// A transformer as [`rotated`] makes it, with other cosines and sines.
fn rotated_by(waves: impl Fn(&mut Sketch) -> [String; 2], apart: Apart) -> Model {
    let mut s = Sketch::default();
    let pixels = s.input("pixels", DType::F32, &["1", "3", "8", "8"]);
    let w = s.weights(&[HIDDEN, 3, 2, 2]);
    let patches = s.with("Conv", &[&pixels, &w], &[("strides", A::Ints(&[2, 2]))]);
    let patches = s.reshape(&patches, &[1, HIDDEN as i64, PATCHES]);
    let patches = s.transpose(&patches, &[0, 2, 1]);
    let class = s.weights(&[1, PREFIX as usize, HIDDEN]);
    let x = s.concat(&[&class, &patches], 1);
    let [cos, sin] = waves(&mut s);
    let [q, k] = [(); 2].map(|()| {
        let heads = s.headed(&x);
        let [prefix, own] = apart(&mut s, &heads, &sin);
        let half = (SIZE / 2) as i64;
        let first = s.slice(&own, 3, [0, half, 1]);
        let second = s.slice(&own, 3, [half, i64::MAX, 1]);
        let second = s.op("Neg", &[&second]);
        let turned = s.concat(&[&second, &first], 3);
        let kept = s.op("Mul", &[&own, &cos]);
        let turned = s.op("Mul", &[&turned, &sin]);
        let sum = s.op("Add", &[&kept, &turned]);
        s.concat(&[&prefix, &sum], 2)
    });
    let v = s.headed(&x);
    let y = s.weighted(&q, &k, &v);
    let y = s.op("Add", &[&x, &y]);
    s.model(18, &[&y])
}

/// The only rotation of a model.
fn axial(model: &Model) -> Axial {
    let found = detect(model, &Options::default());
    assert!(found.not_rotary.is_empty(), "{:?}", found.not_rotary);
    match &found.axial[..] {
        [own] => match &own.finding.encoding {
            Encoding::Axial(axial) => axial.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{} rotations, {:?}", other.len(), found.findings),
    }
}

/// The stored cosines and sines of a model, in the order in which they are read.
fn stored(model: &Model) -> Vec<Vec<f64>> {
    let found = detect(model, &Options::default());
    let entries: Vec<Use> = found.axial[0].regions[0].entries.clone();
    let graph = model.graph();
    let value = |at: &Use| graph.node(at.node).input(at.slot());
    let values = entries.iter().filter_map(value);
    let numbers = values.filter_map(|value| graph.constant(value)?.to_f64s());
    numbers.collect()
}

#[test]
fn rotations_of_centres_are_made_anew_for_other_grids() {
    for (name, apart) in [
        ("split", split as Apart),
        ("sliced", sliced),
        ("counted", counted),
    ] {
        let model = rotated(centred, apart);
        assert_eq!(axial(&model).prefix, 0, "these are left out before");
        for (size, grid) in [
            ("12x8", [6, 4]),
            ("6x16", [3, 8]),
            ("8x16", [4, 8]),
            ("6x6", [3, 3]),
        ] {
            let made = resized(&model, size).unwrap_or_else(|why| panic!("{name} {size}: {why}"));
            assert_eq!(axial(&made).grid, grid, "{name} {size}");
            let tokens = PREFIX as usize + grid[0] * grid[1];
            assert_eq!(dims_of(&made), [1, tokens, HIDDEN], "{name} {size}");
            // By the formula at the new size, and not by that of the old one.
            let expected = |angle: Angle| {
                let mut s = Sketch::default();
                let waves = waves(&mut s, angle, grid);
                let waves = waves.map(|wave| s.op("Neg", &[&wave]));
                let own = s.model(18, &[&waves[0], &waves[1]]);
                let graph = own.graph();
                let all = graph.scope(graph.main()).nodes().iter();
                let inputs = all.filter_map(|id| graph.node(*id).input(0));
                let numbers = inputs.filter_map(|value| graph.constant(value)?.to_f64s());
                numbers.collect::<Vec<Vec<f64>>>()
            };
            let far = |other: &[Vec<f64>]| {
                let own = stored(&made);
                assert_eq!(own.len(), 2, "{name} {size}");
                let own = own.into_iter().flatten();
                let pairs = own.zip(other.iter().flatten().copied());
                pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
            };
            assert!(far(&expected(centred)) < 1e-6, "{name} {size}");
            let further: Angle = |pair, at, _| centred(pair, at, GRID as f64);
            assert!(far(&expected(further)) > 0.5, "control: {name} {size}");
        }
        let same = resized(&model, "8x8").unwrap();
        assert_eq!(same.to_bytes().unwrap(), model.to_bytes().unwrap());
    }
}

#[test]
fn as_many_patches_on_another_grid_are_rotated_otherwise() {
    let model = rotated(centred, sliced);
    let (small, large) = (
        resized(&model, "12x16").unwrap(),
        resized(&model, "16x12").unwrap(),
    );
    assert_eq!([axial(&small).grid, axial(&large).grid], [[6, 8], [8, 6]]);
    let there = resized(&small, "16x12").unwrap();
    let far = |other: &Model| {
        let [a, b] = [&large, other].map(|model| stored(model).concat());
        a.iter()
            .zip(&b)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max)
    };
    assert!(far(&there) < 1e-6, "{}", far(&there));
    assert!(far(&small) > 0.5, "control");
}

#[test]
fn other_angles_of_rows_and_columns_are_refused() {
    let cases: [(&str, Angle); 4] = [
        ("places from 0", |pair, at, _| {
            at / 100.0_f64.powf(pair as f64 / 2.0)
        }),
        ("from edge to edge", |pair, at, side| {
            let place = 2.0 * at / (side - 1.0) - 1.0;
            std::f64::consts::TAU * place / 100.0_f64.powf(pair as f64 / 2.0)
        }),
        ("aside from the centre", |pair, at, side| {
            centred(pair, at, side) + 0.3
        }),
        ("half as far", |pair, at, side| {
            centred(pair, at, side) / 2.0
        }),
    ];
    for (name, angle) in cases {
        for apart in [split as Apart, sliced] {
            let model = rotated(angle, apart);
            assert_eq!(axial(&model).grid, [GRID, GRID], "{name}");
            let why = refusal(name, &model, "12x8");
            let says =
                "the cosines and sines by which patches rotate here are not those of the centres";
            assert!(why.contains(says), "{name}: {why}");
        }
    }
    let why = refusal("a ninth", &rotated(centred, divided), "16x12");
    assert!(why.contains("this Slice acts along an axis"), "{why}");
    let why = refusal("two rows", &rotated(centred, split), "4x16");
    assert!(why.contains("give a larger `image-size`"), "{why}");
    let mut request = Request::default();
    request.parameters.length = crate::request::Length::Dynamic;
    request.allowances.allow_unread = true;
    let model = rotated(centred, split);
    let open = plan(&model, request, &[]);
    let why = open.err().map(|why| why.to_string()).unwrap_or_default();
    assert!(why.contains("stored rotation by rows and columns"), "{why}");
}

#[test]
fn places_that_meet_the_number_of_old_patches_are_refused() {
    let follow = rotated_by(|s| computed(s, |_, sides| sides), split);
    assert_eq!(axial(&follow).grid, [GRID, GRID]);
    let made = resized(&follow, "12x8").unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(axial(&made).grid, [6, 4]);
    let written = |s: &mut Sketch, [_, width]: [String; 2]| {
        let height = s.floats(&[1], [GRID as f64]);
        [height, width]
    };
    let model = rotated_by(|s| computed(s, written), split);
    assert_eq!(axial(&model).grid, [GRID, GRID], "equal at the old size");
    let why = refusal("a written height", &model, "12x8");
    assert!(
        why.contains("this Div reads 4, which may follow from the 4 patches"),
        "{why}"
    );
    // The height stays.
    let made = resized(&model, "8x12").unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(axial(&made).grid, [4, 6]);
}

#[test]
fn a_rotation_of_other_angles_than_those_of_the_plan_is_seen() {
    let model = rotated(centred, split);
    let found = detect(&model, &Options::default());
    let context = Context {
        model: &model,
        found: &found,
    };
    let mut request = Request::default();
    let size = "12x8".parse().expect("a size");
    request.parameters.image_size = Some(size);
    let planned = crate::plan::resize::plan(&context, &request, size).expect("a plan");
    let made = resized(&model, "12x8").expect("made");
    let check = |made: &Model| {
        let found = detect(made, &Options::default());
        let after = Context {
            model: made,
            found: &found,
        };
        resized::check(&context, &after, &planned).map_err(|why| why.to_string())
    };
    check(&made).expect("as planned");
    // The rotation of the old size goes on: another step from patch to patch.
    let entries = detect(&made, &Options::default()).axial[0].regions[0]
        .entries
        .clone();
    for (factor, says) in [(1.2, "cannot be read back"), (1.0, "rotate otherwise")] {
        let graph = made.graph();
        let mut out = graph.emitter(graph.main(), "test");
        for (at, wave) in entries.iter().zip([f64::cos, f64::sin]) {
            let value = graph.node(at.node).input(at.slot()).expect("a value");
            let tensor = graph.constant(value).expect("stored");
            let numbers = (0..24 * SIZE).map(|i| {
                let (patch, feature) = (i / SIZE, i % SIZE);
                let (axis, pair) = ((feature % 4) / 2, feature % 2);
                let at = [patch / 4, patch % 4][axis] as f64;
                // With the factor of 1, the same steps from another start.
                let start = if factor == 1.0 { 0.05 } else { 0.0 };
                wave(factor * centred(pair, at, [6.0, 4.0][axis]) + start)
            });
            let numbers: Vec<f64> = numbers.collect();
            let tensor = posenc_ir::Tensor::from_f64(tensor.dtype(), tensor.dims(), &numbers);
            out.replace_constant(value, graph.uses(value), tensor)
                .expect("replaced");
        }
        let (other, _) = made.clone().with_patch(out.finish()).expect("a model");
        let why = check(&other).expect_err("seen");
        assert!(why.contains(says), "{factor}: {why}");
    }
}
