//! Sines and cosines of a grid of patches, which go on by their code.

use super::*;
use crate::detect::finding::Encoding;
use crate::request::ScaleType;

/// What is added to a patch at these coordinates: the code of its row, then that of its column.
fn code(coordinates: [f64; 2]) -> Vec<f64> {
    let pairs = HIDDEN / 4;
    let half = |at: f64| {
        let angles = (0..pairs).map(move |i| at * 1e4_f64.powf(-(i as f64) / pairs as f64));
        let [a, b] = [angles.clone(), angles];
        a.map(f64::sin).chain(b.map(f64::cos))
    };
    let all = coordinates.into_iter().flat_map(half);
    all.map(|x| f64::from(x as f32)).collect()
}

/// The rows of a grid, whose coordinates count patches or run to 2π.
fn grid([rows, columns]: [usize; 2], is_normalized: bool) -> Vec<f64> {
    let coordinate = |place: usize, count: usize| match is_normalized {
        true => place as f64 * std::f64::consts::TAU / count as f64,
        false => place as f64,
    };
    let all = (0..rows * columns).flat_map(|at| {
        let (y, x) = (at / columns, at % columns);
        code([coordinate(y, rows), coordinate(x, columns)])
    });
    all.collect()
}

/// A row of no code for the class token, and those of the patches.
fn behind_class(s: &mut Sketch, patches: Vec<f64>) -> String {
    let class = s.floats(&[1, 1, HIDDEN], [0.0; HIDDEN]);
    let patches = s.floats(&[1, PATCHES as usize, HIDDEN], patches);
    s.concat(&[&class, &patches], 1)
}

fn codes(s: &mut Sketch) -> String {
    behind_class(s, grid([GRID, GRID], false))
}

fn normalized(s: &mut Sketch) -> String {
    behind_class(s, grid([GRID, GRID], true))
}

/// What is added, without the class token.
fn added(model: &Model) -> Vec<f64> {
    let found = detect(model, &Options::default());
    let finding = &found.findings[0];
    assert!(matches!(finding.encoding, Encoding::Sinusoidal(_)));
    let at = finding.entries[0];
    let value = model.graph().node(at.node).input(at.slot()).unwrap();
    let numbers = found.trace.get(value).to_f64().unwrap();
    let all: Vec<f64> = numbers.iter().copied().collect();
    assert_eq!(all[..HIDDEN], [0.0; HIDDEN], "the class token");
    all[HIDDEN..].to_vec()
}

#[test]
fn sines_of_a_grid_go_on_by_their_code() {
    for (table, is_normalized) in [
        (codes as fn(&mut Sketch) -> String, false),
        (normalized, true),
    ] {
        let model = with_table(table, same, same);
        for (size, sides) in [("12x8", [6, 4]), ("6x16", [3, 8]), ("20x20", [10, 10])] {
            let made = resized(&model, size).unwrap_or_else(|why| panic!("{size}: {why}"));
            let (got, want) = (added(&made), grid(sides, is_normalized));
            assert_eq!(got.len(), want.len(), "{size}");
            let far = |want: &[f64]| {
                let pairs = got.iter().zip(want);
                pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
            };
            assert!(far(&want) < 1e-5, "{size}: {}", far(&want));
            assert!(far(&grid(sides, !is_normalized)) > 0.1, "control");
        }
    }
}

#[test]
fn patches_that_were_there_keep_their_numbers_to_the_bit() {
    let model = with_table(codes, same, same);
    let old = added(&model);
    let new = added(&resized(&model, "12x16").unwrap());
    let row = |all: &[f64], at: usize| all[at * HIDDEN..(at + 1) * HIDDEN].to_vec();
    for patch in 0..GRID * GRID {
        let (y, x) = (patch / GRID, patch % GRID);
        assert_eq!(row(&new, y * 8 + x), row(&old, patch), "{y} {x}");
    }
}

#[test]
fn two_patches_along_a_side_are_refused() {
    let why = refusal("two rows", &with_table(codes, same, same), "4x16");
    assert!(why.contains("fewer than three patches"), "{why}");
}

#[test]
fn coordinates_by_another_step_are_refused() {
    let halved: fn(&mut Sketch) -> String = |s| {
        let places = (0..GRID * GRID).map(|at| [at / GRID, at % GRID]);
        let rows = places.flat_map(|place| code(place.map(|at| at as f64 / 4.0)));
        behind_class(s, rows.collect())
    };
    let why = refusal(
        "a step of a quarter",
        &with_table(halved, same, same),
        "12x8",
    );
    assert!(why.contains("divided by 4.000000"), "{why}");
}

#[test]
fn interpolated_codes_are_refused() {
    let model = with_table(codes, same, same);
    for scale in [ScaleType::Cubic, "linear".parse().unwrap()] {
        let mut request = Request {
            scale: Some(scale),
            ..Request::default()
        };
        request.parameters.image_size = Some("12x8".parse().unwrap());
        let why = plan(&model, request, &[]).unwrap_err().to_string();
        assert!(why.contains("go on by their code; remove `scale`"), "{why}");
    }
}

#[test]
fn a_code_with_another_number_is_no_code() {
    let damaged: fn(&mut Sketch) -> String = |s| {
        let mut patches = grid([GRID, GRID], false);
        patches[5 * HIDDEN] += 0.5;
        behind_class(s, patches)
    };
    let model = with_table(damaged, same, same);
    let found = detect(&model, &Options::default());
    assert!(matches!(found.findings[0].encoding, Encoding::Learned(_)));
}
