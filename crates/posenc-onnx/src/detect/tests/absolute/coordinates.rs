//! Tables that coordinates of the input pick from.

use super::*;

/// Two stacks over the same ids; each adds the rows that one column of boxes picks, of one table
/// for both or of a table for each.
fn found_in_two_stacks(shared: bool) -> Vec<(Encoding, Vec<usize>, usize)> {
    let mut s = Sketch::default();
    let boxes = s.input("bbox", DType::I64, &["batch", "sequence", "4"]);
    let first = s.embedded();
    let words = s.weights(&[30, HIDDEN]);
    let second = s.gather(&words, "input_ids", 0);
    let tables = [0, 1].map(|_| s.weights(&[ROWS, HIDDEN]));
    let mut outputs = vec![];
    for (i, x) in [first, second].into_iter().enumerate() {
        let column = s.int(i as i64);
        let at = s.gather(&boxes, &column, 2);
        let rows = s.gather(&tables[if shared { 0 } else { i }], &at, 0);
        let x = s.op("Add", &[&x, &rows]);
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        outputs.push(attend(&mut s, &q, &k, &v));
    }
    let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
    let found = found(&s.model(23, &outputs));
    assert_eq!(found.attention.len(), 2);
    let findings = found.findings.into_iter();
    findings
        .map(|f| (f.encoding, f.sites, f.entries.len()))
        .collect()
}

#[test]
fn a_table_that_is_looked_up_again_keeps_the_sites_of_both() {
    let both = found_in_two_stacks(true);
    assert_eq!(both, [(learned(0), vec![0, 1], 2)]);
    let each = found_in_two_stacks(false);
    let want = [(learned(0), vec![0], 1), (learned(0), vec![1], 1)];
    assert_eq!(each, want, "two tables are two encodings");
}
