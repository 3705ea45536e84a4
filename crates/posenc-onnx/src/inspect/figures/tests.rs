use std::f64::consts::TAU;

use super::*;
use crate::prove::testing::fixture;
use crate::report::{Line, Picture};

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

fn pictures(figures: &[Figure], quantity: Quantity) -> &[Picture] {
    let mut same = figures.iter().filter(|figure| figure.quantity == quantity);
    match (same.next().map(|figure| &figure.shape), same.next()) {
        (Some(Shape::Pictures(pictures)), None) => pictures,
        _ => panic!("one figure of pictures"),
    }
}

#[test]
fn rotations_show_their_wavelengths_and_how_similarity_falls() {
    let figures = of("mini/rope");
    assert!(figures.iter().all(|figure| figure.layers == [0, 1]));
    let [waves] = lines(&figures, Quantity::Wavelength) else {
        panic!("one law")
    };
    let want = (0..4).map(|i| TAU * 1e4_f64.powf(f64::from(i) / 4.0));
    let pairs = waves.points.iter().map(|point| point[1]).zip(want);
    assert_eq!(waves.points.len(), 4);
    for (got, want) in pairs {
        assert!((got / want - 1.0).abs() < 1e-6, "{got} {want}");
    }
    let [frequencies] = lines(&figures, Quantity::Frequency) else {
        panic!("one law")
    };
    for (frequency, wave) in frequencies.points.iter().zip(&waves.points) {
        assert!((frequency[1] * wave[1] / TAU - 1.0).abs() < 1e-12);
    }
    let [cos, sin] = pictures(&figures, Quantity::Rotation) else {
        panic!("one law")
    };
    assert_eq!([&*cos.name, &*sin.name], ["cos", "sin"]);
    for (i, wave) in waves.points.iter().enumerate() {
        let angle = TAU / wave[1] * 5.0;
        assert!((cos.numbers[i][5] - angle.cos()).abs() < 1e-12);
        assert!((sin.numbers[i][5] - angle.sin()).abs() < 1e-12);
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
    let [picture] = pictures(&figures, Quantity::Rows) else {
        panic!("one table")
    };
    let graph = model.graph();
    let table = graph.find(graph.main(), "enc.pos.weight").unwrap();
    let table = graph.constant(table).unwrap().to_f64s().unwrap();
    assert_eq!(picture.size, [40, 24]);
    assert_eq!(picture.numbers.concat(), table);
    assert_eq!(of("mini/none"), []);
}

#[test]
fn a_bias_of_positions_of_keys_is_0_at_the_position_of_the_query() {
    let figures = of("bloom/dynamo");
    let heads = lines(&figures, Quantity::Bias);
    for (head, slope) in heads.iter().zip([0.25, 0.0625, 0.015_625, 0.003_906_25]) {
        assert_eq!(head.points.last(), Some(&[0.0, 0.0]));
        let near = |[x, y]: &[f64; 2]| (y - slope * x).abs() < 1e-6;
        assert!(head.points.iter().all(near), "{}", head.name);
    }
}

#[test]
fn similar_rows_of_patches_are_in_the_tile_of_each() {
    let figures = of("vit/dynamo");
    let [picture] = pictures(&figures, Quantity::PatchSimilarity) else {
        panic!("one table")
    };
    assert_eq!((picture.size, picture.tile), ([16, 16], [4, 4]));
    for row in 0..4 {
        for column in 0..4 {
            let own = picture.numbers[4 * row + row][4 * column + column];
            assert!((own - 1.0).abs() < 1e-12, "a patch and itself");
        }
    }
    let [rows] = pictures(&figures, Quantity::Rows) else {
        panic!("one table")
    };
    let [a, b] = [1, 6].map(|row| &rows.numbers[row]);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let want = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    // Patch 5, behind the row of the class, is in the second row and the second column.
    assert!((picture.numbers[1][1] - want).abs() < 1e-12);
    assert!((want - 1.0).abs() > 0.1, "control");
}
