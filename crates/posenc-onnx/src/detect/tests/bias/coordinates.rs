//! Biases that differences between coordinates of the input select.

use super::*;

/// Attention whose scores are biased by the rows that differences between numbers of the input
/// pick, each number standing for a token.
fn by_differences(numbers: fn(&mut Sketch) -> String) -> Model {
    changed(|s, scores| {
        let at = numbers(s);
        let (rows, columns) = (s.unsqueeze(&at, &[2]), s.unsqueeze(&at, &[1]));
        let d = s.op("Sub", &[&columns, &rows]);
        let [low, high, first] = [-5, 5, 5].map(|n| s.int(n));
        let d = s.op("Max", &[&d, &low]);
        let d = s.op("Min", &[&d, &high]);
        let row = s.op("Add", &[&d, &first]);
        let table = s.weights(&[11, HEADS]);
        let bias = s.gather(&table, &row, 0);
        let bias = s.transpose(&bias, &[0, 3, 1, 2]);
        s.op("Add", &[&scores, &bias])
    })
}

#[test]
fn biases_that_coordinates_pick_are_unknown() {
    let boxes = by_differences(|s| {
        let boxes = s.input("bbox", DType::I64, &["batch", "sequence", "4"]);
        let zero = s.int(0);
        s.gather(&boxes, &zero, 2)
    });
    assert!(is_unknown(&boxes), "{:?}", named(&boxes));
    let ids = by_differences(|_| "input_ids".to_owned());
    assert_eq!(named(&ids), [], "what tokens are is no position");
    let types = by_differences(|s| s.input("token_type_ids", DType::I64, &["batch", "sequence"]));
    assert_eq!(named(&types), []);
}
