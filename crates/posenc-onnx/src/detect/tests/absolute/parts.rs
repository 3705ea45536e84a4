//! Rows of parts of a sequence, which may be types.

use super::*;

/// One row for so many tokens, and another one for those behind them.
fn of_parts(s: &mut Sketch, first: i64) -> String {
    let (at, end) = (s.range(), s.int(first));
    let is_first = s.op("Less", &[&at, &end]);
    let is_first = s.unsqueeze(&is_first, &[1]);
    let rows = [(); 2].map(|()| s.weights(&[1, HIDDEN]));
    s.op("Where", &[&is_first, &rows[0], &rows[1]])
}

/// How many encodings are found, and how many parts are named.
fn found_in(embed: Embed) -> [usize; 2] {
    let (_, found) = looked_at(embed);
    let parts = |why: &&String| why.contains("is added to all tokens of a part");
    let named = found.not_evaluated.iter().filter(parts).count();
    [found.findings.len(), named]
}

#[test]
fn one_row_for_each_part_of_a_sequence_may_be_a_type() {
    let alone = found_in(|s, x| {
        let rows = of_parts(s, 5);
        s.op("Add", &[&x, &rows])
    });
    assert_eq!(alone, [0, 1]);
    let one = found_in(|s, x| {
        let rows = of_parts(s, 1);
        s.op("Add", &[&x, &rows])
    });
    assert_eq!(one, [1, 0], "a position of its own");
}

#[test]
fn rows_of_parts_are_seen_beside_those_of_a_table() {
    let both = found_in(|s, x| beside_table(s, &x, Some(5), 1.0));
    assert_eq!(both, [0, 1]);
    let scaled = found_in(|s, x| beside_table(s, &x, Some(5), 0.5));
    assert_eq!(scaled, [0, 1]);
    let alone = found_in(|s, x| beside_table(s, &x, None, 0.5));
    assert_eq!(alone, [1, 0], "control");
}

/// Rows of a table times a factor, and those of parts, in one sum.
fn beside_table(s: &mut Sketch, x: &str, first: Option<i64>, factor: f64) -> String {
    let (at, factor) = (s.range(), s.float(factor));
    let p = rows(s, &at);
    let mut p = s.op("Mul", &[&p, &factor]);
    if let Some(first) = first {
        let types = of_parts(s, first);
        p = s.op("Add", &[&p, &types]);
    }
    s.op("Add", &[x, &p])
}

#[test]
fn tables_that_each_part_reads_anew_are_seen_with_their_types() {
    assert_eq!(found_in(|s, x| joined_parts(s, &x, true)), [0, 1]);
    let [found, named] = found_in(|s, x| joined_parts(s, &x, false));
    assert_eq!((found > 0, named), (true, 0), "control");
}

/// Rows of a table for six tokens and, from the first again, for the others, each with a row of its own or not.
fn joined_parts(s: &mut Sketch, x: &str, has_types: bool) -> String {
    let table = s.weights(&[ROWS, HIDDEN]);
    let shape = s.op("Shape", &[x]);
    let one = s.ints(&[1]);
    let length = s.gather(&shape, &one, 0);
    let [zero, six] = [0, 6].map(|n| s.ints(&[n]));
    let others = s.op("Sub", &[&length, &six]);
    let parts = [six, others].map(|end| {
        let part = s.op("Slice", &[&table, &zero, &end, &zero]);
        let types = s.weights(&[1, HIDDEN]);
        match has_types {
            true => s.op("Add", &[&part, &types]),
            false => part,
        }
    });
    let all = s.concat(&[&parts[0], &parts[1]], 0);
    s.op("Add", &[x, &all])
}

/// Rows of a table by position less a row that all tokens get, which `rest` makes of the table, the rows and the
/// positions.
fn less(s: &mut Sketch, x: &str, rest: Rest) -> String {
    let (at, table) = (s.range(), s.weights(&[32, HIDDEN]));
    let rows = s.gather(&table, &at, 0);
    let x = s.op("Add", &[x, &rows]);
    let rest = rest(s, [&table, &rows, &at]);
    s.op("Sub", &[&x, &rest])
}

type Rest = fn(&mut Sketch, [&str; 3]) -> String;

/// The last position.
fn last(s: &mut Sketch, at: &str) -> String {
    let (end, stop) = (s.ints(&[-1]), s.ints(&[i64::MAX]));
    s.op("Slice", &[at, &end, &stop])
}

#[test]
fn rows_that_all_tokens_get_and_that_follow_their_number_are_named() {
    let cases: [(&str, Embed, usize); 6] = [
        (
            "the mean of the rows",
            |s, x| {
                less(s, &x, |s, [_, rows, _]| {
                    let axes = s.ints(&[0]);
                    s.op("ReduceMean", &[rows, &axes])
                })
            },
            1,
        ),
        (
            "the last row",
            |s, x| {
                less(s, &x, |s, [table, _, at]| {
                    let last = last(s, at);
                    s.gather(table, &last, 0)
                })
            },
            1,
        ),
        (
            "the first row",
            |s, x| {
                less(s, &x, |s, [table, _, at]| {
                    let first = s.slice(at, 0, [0, 1, 1]);
                    s.gather(table, &first, 0)
                })
            },
            1,
        ),
        (
            "a row of another table by the length",
            |s, x| {
                less(s, &x, |s, [_, _, at]| {
                    let (last, other) = (last(s, at), s.weights(&[32, HIDDEN]));
                    s.gather(&other, &last, 0)
                })
            },
            1,
        ),
        (
            "a row of another table, as of types",
            |s, x| {
                less(s, &x, |s, [_, _, at]| {
                    let (zero, other) = (s.op("Sub", &[at, at]), s.weights(&[2, HIDDEN]));
                    s.gather(&other, &zero, 0)
                })
            },
            0,
        ),
        (
            "one row",
            |s, x| less(s, &x, |s, _| s.weights(&[1, HIDDEN])),
            0,
        ),
    ];
    for (name, embed, count) in cases {
        let (_, found) = looked_at(embed);
        assert_eq!(found.findings.len(), 1, "{name}");
        let named = found.not_evaluated.iter();
        let named = named.filter(|why| why.contains("added to all tokens"));
        assert_eq!(named.count(), count, "{name}: {:?}", found.not_evaluated);
    }
}
