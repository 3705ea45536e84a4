//! Sines and cosines of a grid of patches, which go on by their code.

use super::*;
use crate::detect::finding::Encoding;
use crate::request::ScaleType;

/// What is added to a patch: the code of its row, then that of its column.
fn code(row: usize, column: usize) -> Vec<f64> {
    let pairs = HIDDEN / 4;
    let half = |place: usize| {
        let angles =
            (0..pairs).map(move |i| place as f64 * 1e4_f64.powf(-(i as f64) / pairs as f64));
        let [a, b] = [angles.clone(), angles];
        a.map(f64::sin).chain(b.map(f64::cos))
    };
    let all = half(row).chain(half(column));
    all.map(|x| f64::from(x as f32)).collect()
}

/// The rows of a grid.
fn grid([rows, columns]: [usize; 2]) -> Vec<f64> {
    let all = (0..rows * columns).flat_map(|at| code(at / columns, at % columns));
    all.collect()
}

/// A row of no code for the class token, and those of the patches.
fn codes(s: &mut Sketch) -> String {
    let class = s.floats(&[1, 1, HIDDEN], [0.0; HIDDEN]);
    let patches = s.floats(&[1, PATCHES as usize, HIDDEN], grid([GRID, GRID]));
    s.concat(&[&class, &patches], 1)
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
    let model = with_table(codes, same, same);
    for (size, sides) in [("12x8", [6, 4]), ("6x16", [3, 8]), ("20x20", [10, 10])] {
        let made = resized(&model, size).unwrap_or_else(|why| panic!("{size}: {why}"));
        let (got, want) = (added(&made), grid(sides));
        assert_eq!(got.len(), want.len(), "{size}");
        let pairs = got.iter().zip(&want);
        let far = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(far < 1e-5, "{size}: {far}");
        // Patches that were there before keep their numbers to the bit.
        for (y, x) in
            (0..GRID.min(sides[0])).flat_map(|y| (0..GRID.min(sides[1])).map(move |x| (y, x)))
        {
            let at = (y * sides[1] + x) * HIDDEN;
            assert_eq!(got[at..at + HIDDEN], code(y, x), "{size} {y} {x}");
        }
    }
}

#[test]
fn two_patches_along_a_side_are_refused() {
    let why = refusal("two rows", &with_table(codes, same, same), "4x16");
    assert!(why.contains("fewer than three patches"), "{why}");
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
        let class = s.floats(&[1, 1, HIDDEN], [0.0; HIDDEN]);
        let mut patches = grid([GRID, GRID]);
        patches[5 * HIDDEN] += 0.5;
        let patches = s.floats(&[1, PATCHES as usize, HIDDEN], patches);
        s.concat(&[&class, &patches], 1)
    };
    let model = with_table(damaged, same, same);
    let found = detect(&model, &Options::default());
    assert!(matches!(found.findings[0].encoding, Encoding::Learned(_)));
}
