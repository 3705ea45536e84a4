//! Maps of features that are enlarged to sizes that are written in the graph.

use super::*;

/// A transformer of patches of 2 × 2 pixels whose map is made coarser by a convolution, and that is enlarged to these
/// sizes.
fn enlarged(
    (kernel, pad): (usize, i64),
    sizes: [i64; 2],
    by: fn(&mut Sketch, [i64; 2]) -> String,
) -> Model {
    let mut s = Sketch::default();
    let pixels = s.input("pixels", DType::F32, &["1", "3", "8", "8"]);
    let w = s.weights(&[HIDDEN, 3, 2, 2]);
    let strides = [("strides", A::Ints(&[2, 2]))];
    let fine = s.with("Conv", &[&pixels, &w], &strides);
    let w = s.weights(&[HIDDEN, HIDDEN, kernel, kernel]);
    let pads = [pad; 4];
    let coarser = [("strides", A::Ints(&[2, 2])), ("pads", A::Ints(&pads))];
    let coarse = s.with("Conv", &[&fine, &w], &coarser);
    let x = s.reshape(&fine, &[1, HIDDEN as i64, PATCHES]);
    let x = s.transpose(&x, &[0, 2, 1]);
    let y = s.attends(&x, &x);
    let sizes = by(&mut s, sizes);
    let mode = [("mode", A::Text("linear"))];
    let large = s.with("Resize", &[&coarse, "", "", &sizes], &mode);
    s.model(18, &[&large, &y])
}

fn stored(s: &mut Sketch, [height, width]: [i64; 2]) -> String {
    s.ints(&[1, HIDDEN as i64, height, width])
}

fn joined(s: &mut Sketch, [height, width]: [i64; 2]) -> String {
    let shape = s.op("Shape", &["pixels"]);
    let batch = s.slice(&shape, 0, [0, 1, 1]);
    let [features, sides] = [&[HIDDEN as i64][..], &[height, width]].map(|n| s.ints(n));
    s.concat(&[&batch, &features, &sides], 0)
}

#[test]
fn a_map_is_enlarged_to_what_the_other_became() {
    for by in [stored as fn(&mut Sketch, [i64; 2]) -> String, joined] {
        for (sizes, times) in [([4, 4], 1), ([8, 8], 2), ([16, 16], 4)] {
            let model = enlarged((2, 0), sizes, by);
            for (size, fine) in [("12x8", [6, 4]), ("4x16", [2, 8]), ("8x16", [4, 8])] {
                let made = resized(&model, size).unwrap_or_else(|why| panic!("{size}: {why}"));
                let [height, width] = fine.map(|side| side * times);
                assert_eq!(
                    dims_of(&made),
                    [1, HIDDEN, height, width],
                    "{sizes:?} {size}"
                );
            }
            let same = resized(&model, "8x8").unwrap();
            assert_eq!(same.to_bytes().unwrap(), model.to_bytes().unwrap());
        }
    }
}

#[test]
fn sizes_that_no_map_or_several_explain_are_refused() {
    for sizes in [[5, 5], [4, 8], [1, 1], [3, 4], [24, 24]] {
        let why = refusal("no map", &enlarged((2, 0), sizes, stored), "12x8");
        assert!(
            why.contains("this Resize acts along an axis"),
            "{sizes:?}: {why}"
        );
    }
    // Of 5 rows, half of the map has 3: twice as many are others than those of the map.
    let model = enlarged((3, 1), [4, 4], stored);
    let larger = resized(&model, "12x8").unwrap();
    assert_eq!(dims_of(&larger), [1, HIDDEN, 6, 4]);
    let why = refusal("5 or 6 rows", &model, "10x8");
    assert!(
        why.contains("several maps of the old image explain"),
        "{why}"
    );
    assert!(why.contains("multiples of 4x4"), "{why}");
    // 8 times 3 rows, or twice the 10 of the image.
    let why = refusal("20 or 24 rows", &enlarged((3, 1), [16, 16], stored), "10x8");
    assert!(
        why.contains("several maps of the old image explain"),
        "{why}"
    );
}

#[test]
fn a_model_without_encodings_says_that_its_image_is_another() {
    let model = enlarged((2, 0), [4, 4], stored);
    let mut request = Request::default();
    request.parameters.image_size = Some("12x8".parse().unwrap());
    request.allowances.allow_unread = true;
    let done = plan(&model, request, &[]).and_then(|planned| planned.apply());
    let report = done.unwrap().report;
    let [edit] = &report.edits[..] else {
        panic!("{:?}", report.edits);
    };
    let sizes = [&edit.from, &edit.to].map(|side| side["image_size"].clone());
    assert_eq!(sizes, ["8x8", "12x8"]);
    let [map] = &report.inferred[..] else {
        panic!("{:?}", report.inferred);
    };
    assert_eq!((&*map.name, &map.value), ("map", &"6x4".into()));
    assert!(
        map.source.contains("4x4 for the old image"),
        "{}",
        map.source
    );
}
