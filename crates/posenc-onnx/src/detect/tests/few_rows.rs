//! Tables with fewer rows than the trial run has tokens, or as many.

use super::*;

/// Attention behind what is added to the tokens.
fn behind(add: impl FnOnce(&mut Sketch, &str) -> String) -> Found {
    let mut s = Sketch::default();
    let x = s.embedded();
    let x = add(&mut s, &x);
    let y = s.attends(&x, &x);
    found(&s.model(17, &[&y]))
}

/// Rows that are picked by position, from this one on.
fn picked(s: &mut Sketch, x: &str, rows: usize, first: i64) -> String {
    let (at, first) = (s.range(), s.int(first));
    let at = s.op("Add", &[&at, &first]);
    let table = s.weights(&[rows, HIDDEN]);
    let rows = s.gather(&table, &at, 0);
    s.op("Add", &[x, &rows])
}

/// Rows that are cut to the number of tokens.
fn cut(s: &mut Sketch, x: &str, rows: usize) -> String {
    let (shape, one, zero) = (s.op("Shape", &["input_ids"]), s.ints(&[1]), s.ints(&[0]));
    let length = s.gather(&shape, &one, 0);
    let table = s.weights(&[rows, HIDDEN]);
    let rows = s.op("Slice", &[&table, &zero, &length, &zero]);
    s.op("Add", &[x, &rows])
}

#[test]
fn tables_of_few_rows_are_found_with_their_ends() {
    for rows in [3, 4, 8, 13, 14, 15, 40] {
        for first in [0, 2] {
            let read = behind(|s, x| picked(s, x, rows + first, first as i64));
            assert_eq!(kinds(&read), [Kind::Learned], "{rows} {first}");
            assert_eq!(read.findings[0].max_length, Some(rows), "{first}");
            assert_eq!(read.limits[0].length, rows, "{first}");
        }
        let read = behind(|s, x| cut(s, x, rows));
        assert_eq!(kinds(&read), [Kind::Learned], "{rows}");
        assert_eq!(read.limits[0].length, rows);
    }
}

#[test]
fn several_tables_of_few_rows_are_found() {
    let read = behind(|s, x| {
        let x = cut(s, x, 12);
        picked(s, &x, 9, 1)
    });
    assert_eq!(kinds(&read), [Kind::Learned; 2]);
    let limits: Vec<usize> = read.limits.iter().map(|limit| limit.length).collect();
    assert_eq!(limits, [8, 12]);
}

#[test]
fn a_table_with_too_few_rows_for_any_run_is_unknown() {
    let read = behind(|s, x| picked(s, x, 3, 2));
    assert_eq!(kinds(&read), [Kind::Unknown]);
    let evidence = read.findings[0].evidence.join("\n");
    assert!(evidence.contains("could not be evaluated"), "{evidence}");
    let why = "no table read by position: the table ends before the sequence does";
    assert!(evidence.contains(why), "{evidence}");
}

#[test]
fn tables_that_all_sequences_read_to_the_end_leave_the_run_as_it_is() {
    let trial = crate::detect::trial::TRIAL.sequence;
    // The last row is that of all positions from there on.
    let held = behind(|s, x| {
        let (at, last) = (s.range(), s.int(9));
        let at = s.op("Min", &[&at, &last]);
        let table = s.weights(&[10, HIDDEN]);
        let rows = s.gather(&table, &at, 0);
        s.op("Add", &[x, &rows])
    });
    assert_eq!(held.lengths.sequence, trial);
    // A weight is as wide as the stream.
    let width = behind(|s, x| {
        let (shape, two, zero) = (s.op("Shape", &[x]), s.ints(&[2]), s.ints(&[0]));
        let width = s.gather(&shape, &two, 0);
        let weights = s.weights(&[HIDDEN, HIDDEN]);
        let weights = s.op("Slice", &[&weights, &zero, &width, &zero]);
        s.op("MatMul", &[x, &weights])
    });
    assert_eq!(width.lengths.sequence, trial);
    let spare = behind(|s, x| picked(s, x, trial + 1, 0));
    assert_eq!(spare.lengths.sequence, trial);
    let whole = behind(|s, x| picked(s, x, trial, 0));
    assert_eq!(whole.lengths.sequence, trial - 1, "control");
}
