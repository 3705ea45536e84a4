//! Tables by distance that get other rows.

use posenc_ir::Model;

use crate::graph::sketch::{A, HEADS, SIZE, Sketch};
use crate::request::{LawName, Request, ScaleType};
use crate::rewrite::{Rewritten, rewrite};

/// Tokens for which the tables were made, and rows of the tables.
const TOKENS: i64 = 16;
const ROWS: usize = 31;

/// Distances in the tables of clamped ones.
const CLIP: i64 = 4;

/// The tokens that are asked for.
const LONGER: usize = 40;

/// Row numbers, `[query, key]`.
type Index = fn(&mut Sketch) -> String;

/// What meets the rows of a table that an index picks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Queries,
    Keys,
    Values,
    Scores,
}

const PLACES: [Place; 4] = [Place::Queries, Place::Keys, Place::Values, Place::Scores];

/// A layer of attention with tables of so many rows, and other outputs that it gives.
fn layer(
    tables: &[(Place, usize)],
    index: impl Fn(&mut Sketch) -> String,
    more: impl Fn(&mut Sketch, &str, &str) -> Option<String>,
) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let transposed = s.transpose(&k, &[0, 1, 3, 2]);
    let mut scores = s.op("MatMul", &[&q, &transposed]);
    let index = index(&mut s);
    let mut values = None;
    let mut others = vec![];
    for (place, rows) in tables {
        let width = if *place == Place::Scores { HEADS } else { SIZE };
        let table = s.weights(&[*rows, width]);
        let picked = s.gather(&table, &index, 0);
        let meets = |s: &mut Sketch, content: &str, equation| {
            let attrs = [("equation", A::Text(equation))];
            s.with("Einsum", &[content, &picked], &attrs)
        };
        let term = match place {
            Place::Queries => meets(&mut s, &q, "bhid,ijd->bhij"),
            Place::Keys => meets(&mut s, &k, "bhjd,ijd->bhij"),
            Place::Scores => s.transpose(&picked, &[2, 0, 1]),
            Place::Values => {
                values = Some(picked);
                continue;
            }
        };
        scores = s.op("Add", &[&scores, &term]);
        others.extend(more(&mut s, &table, &index));
    }
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let mut y = s.op("MatMul", &[&weights, &v]);
    if let Some(picked) = values {
        let attrs = [("equation", A::Text("bhij,ijd->bhid"))];
        let term = s.with("Einsum", &[&weights, &picked], &attrs);
        y = s.op("Add", &[&y, &term]);
    }
    let y = s.merged(&y);
    let outputs: Vec<&str> = [&y]
        .into_iter()
        .chain(&others)
        .map(String::as_str)
        .collect();
    s.model(18, &outputs)
}

fn only(place: Place, rows: usize, index: Index) -> Model {
    layer(&[(place, rows)], index, |_, _, _| None)
}

/// The row of each pair where there is one for every distance.
fn plain(s: &mut Sketch) -> String {
    let (d, center) = (s.distance(), s.int(TOKENS - 1));
    s.op("Add", &[&d, &center])
}

fn clipped(s: &mut Sketch) -> String {
    let (d, low, high) = (s.distance(), s.int(-CLIP), s.int(CLIP));
    let d = s.op("Clip", &[&d, &low, &high]);
    s.op("Add", &[&d, &high])
}

fn asked(scale: Option<ScaleType>, factor: Option<f64>, length: Option<usize>) -> Request {
    let mut request = Request {
        scale,
        ..Request::default()
    };
    request.parameters.factor = factor;
    request.parameters.max_length = length;
    request
}

fn longer() -> Request {
    asked(None, None, Some(LONGER))
}

fn linear(factor: Option<f64>, length: Option<usize>) -> Request {
    asked(Some(LawName::Linear.into()), factor, length)
}

fn done(model: &Model, request: &Request) -> Result<Rewritten, String> {
    let mut model = model.clone();
    rewrite(&mut model, request).map_err(|why| why.to_string())
}

/// Rows of the embeddings of words in every model.
const WORDS: usize = 30;

/// More rows than any table of distances here, and fewer than any weights of these widths.
const MANY: usize = 100;

/// The float tables of this width, without the words.
fn tables(model: &Model, width: usize) -> Vec<Vec<f64>> {
    let graph = model.graph();
    let stored = graph.values().filter(|v| {
        graph.stored(*v).is_some_and(|stored| {
            matches!(stored.dims[..], [rows, columns] if columns == width && rows < MANY && rows != WORDS)
                && stored.dtype.is_some_and(|dtype| dtype.is_float())
        })
    });
    let numbers = stored.filter_map(|v| graph.constant(v)?.to_f64s());
    numbers.collect()
}

#[test]
fn rows_beyond_the_last_are_copies_of_it_wherever_they_are_read() {
    for place in PLACES {
        let width = if place == Place::Scores { HEADS } else { SIZE };
        let model = only(place, ROWS, plain);
        let [before] = &tables(&model, width)[..] else {
            panic!("{place:?}: one table");
        };
        let made = done(&model, &longer()).unwrap_or_else(|why| panic!("{place:?}: {why}"));
        let [after] = &tables(&made.model, width)[..] else {
            panic!("{place:?}: one table");
        };
        let rows: Vec<&[f64]> = after.chunks(width).collect();
        assert_eq!(rows.len(), 2 * LONGER - 1, "{place:?}");
        let added = LONGER - TOKENS as usize;
        assert_eq!(
            after[added * width..][..before.len()],
            before[..],
            "{place:?}"
        );
        for (row, copied) in rows.iter().enumerate() {
            let nearest = row.clamp(added, added + ROWS - 1);
            assert_eq!(copied, &rows[nearest], "{place:?} {row}");
        }
        let limits = made.report.limits.after.iter().map(|limit| limit.length);
        assert_eq!(limits.min(), Some(LONGER), "{place:?}");
    }
}

#[test]
fn all_tables_of_a_layer_change_together() {
    let all = [Place::Queries, Place::Keys, Place::Values].map(|place| (place, ROWS));
    let model = layer(&all, plain, |_, _, _| None);
    for request in [longer(), linear(None, Some(LONGER))] {
        let made = done(&model, &request).unwrap_or_else(|why| panic!("{why}"));
        let rows = tables(&made.model, SIZE).into_iter();
        let rows: Vec<usize> = rows.map(|table| table.len() / SIZE).collect();
        assert_eq!(rows, [2 * LONGER - 1; 3]);
    }
}

#[test]
fn rows_are_followed_however_they_follow_from_the_distance() {
    let ways: [(&str, Index); 7] = [
        ("two numbers", |s| {
            let (d, all, one) = (s.distance(), s.int(TOKENS), s.int(1));
            let at = s.op("Add", &[&d, &all]);
            s.op("Sub", &[&at, &one])
        }),
        ("taken off a number", |s| {
            let (d, center) = (s.distance(), s.int(TOKENS - 1));
            s.op("Sub", &[&center, &d])
        }),
        ("turned first", |s| {
            let (d, center) = (s.distance(), s.int(TOKENS - 1));
            let d = s.op("Neg", &[&d]);
            s.op("Add", &[&center, &d])
        }),
        ("turned later", |s| {
            let (d, center, minus) = (s.distance(), s.int(1 - TOKENS), s.int(-1));
            let at = s.op("Add", &[&d, &center]);
            s.op("Mul", &[&minus, &at])
        }),
        ("a negative number taken off", |s| {
            let (d, center) = (s.distance(), s.int(1 - TOKENS));
            s.op("Sub", &[&d, &center])
        }),
        ("moved", |s| {
            let d = s.distance();
            let d = s.unsqueeze(&d, &[0]);
            let center = s.ints(&[TOKENS - 1]);
            let at = s.op("Add", &[&d, &center]);
            let axes = s.ints(&[0]);
            s.op("Squeeze", &[&at, &axes])
        }),
        ("bounded far away", |s| {
            let (at, most) = (plain(s), s.int(5000));
            s.op("Min", &[&at, &most])
        }),
    ];
    for (name, index) in ways {
        for request in [longer(), linear(None, Some(LONGER))] {
            let made = done(&only(Place::Queries, ROWS, index), &request);
            let made = made.unwrap_or_else(|why| panic!("{name}: {why}"));
            assert_eq!(
                tables(&made.model, SIZE)[0].len(),
                (2 * LONGER - 1) * SIZE,
                "{name}"
            );
        }
    }
}

#[test]
fn clamped_distances_need_no_rows_and_get_more_when_they_are_scaled() {
    let ways: [(&str, Index); 3] = [
        ("clamped first", clipped),
        ("clamped later", |s| {
            let (d, low, high) = (s.distance(), s.int(0), s.int(2 * CLIP));
            let center = s.int(CLIP);
            let at = s.op("Add", &[&d, &center]);
            s.op("Clip", &[&at, &low, &high])
        }),
        ("turned and bounded", |s| {
            let (d, low, high) = (s.distance(), s.int(-CLIP), s.int(CLIP));
            let d = s.op("Neg", &[&d]);
            let d = s.op("Max", &[&low, &d]);
            let d = s.op("Min", &[&d, &high]);
            s.op("Add", &[&d, &high])
        }),
    ];
    for (name, index) in ways {
        for place in PLACES {
            let width = if place == Place::Scores { HEADS } else { SIZE };
            let model = only(place, 2 * CLIP as usize + 1, index);
            let same = done(&model, &longer()).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert!(same.report.edits.is_empty(), "{name} {place:?}");
            let says = same
                .report
                .warnings
                .iter()
                .any(|w| w.contains("clamps the distances"));
            assert!(says, "{name} {place:?}: {:?}", same.report.warnings);
            let made = done(&model, &linear(Some(2.0), None));
            let made = made.unwrap_or_else(|why| panic!("{name} {place:?}: {why}"));
            let rows = tables(&made.model, width)[0].len() / width;
            assert_eq!(rows, 4 * CLIP as usize + 1, "{name} {place:?}");
        }
    }
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let nothing = |_: &mut Sketch, _: &str, _: &str| None;
    let is = |index: Index| only(Place::Queries, ROWS, index);
    let with = |more: fn(&mut Sketch, &str, &str) -> Option<String>| {
        layer(&[(Place::Queries, ROWS)], plain, more)
    };
    let cases = [
        (
            "the table is an output",
            with(|_, table, _| Some(table.to_owned())),
            "is an output",
        ),
        (
            "the table is read elsewhere",
            with(|s, table, _| Some(s.op("ReduceSum", &[table]))),
            "read here for something else",
        ),
        (
            "the rows are an output",
            with(|_, _, index| Some(index.to_owned())),
            "is an output",
        ),
        (
            "the rows are read elsewhere",
            with(|s, _, index| Some(s.op("Abs", &[index]))),
            "read here for something else",
        ),
        (
            "the positions are shifted",
            is(|s| {
                let (at, center) = (s.range(), s.int(TOKENS - 1));
                let later = s.op("Add", &[&at, &center]);
                let (rows, columns) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&later, &[0]));
                s.op("Sub", &[&columns, &rows])
            }),
            "how a row follows from the distance",
        ),
        (
            "another operator",
            is(|s| {
                let (at, two) = (plain(s), s.int(2));
                let at = s.op("Mul", &[&at, &two]);
                s.op("Div", &[&at, &two])
            }),
            "how a row follows from the distance",
        ),
        (
            "tables of unequal rows share an index",
            layer(
                &[(Place::Queries, ROWS), (Place::Values, ROWS + 4)],
                plain,
                nothing,
            ),
            "would get another row than that of the formula",
        ),
        (
            "rows by a product",
            {
                let mut s = Sketch::default();
                let x = s.embedded();
                let [q, k, v] = [0; 3].map(|_| s.headed(&x));
                let k = s.transpose(&k, &[0, 1, 3, 2]);
                let scores = s.op("MatMul", &[&q, &k]);
                let (index, depth) = (plain(&mut s), s.int(ROWS as i64));
                let ones = s.floats(&[2], [0.0, 1.0]);
                let lines = s.op("OneHot", &[&index, &depth, &ones]);
                let table = s.weights(&[ROWS, SIZE]);
                let vectors = s.op("MatMul", &[&lines, &table]);
                let attrs = [("equation", A::Text("bhid,ijd->bhij"))];
                let term = s.with("Einsum", &[&q, &vectors], &attrs);
                let scores = s.op("Add", &[&scores, &term]);
                let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
                let y = s.op("MatMul", &[&weights, &v]);
                s.model(18, &[&y])
            },
            "no operator is known that picks",
        ),
    ];
    for (name, model, says) in cases {
        for request in [longer(), linear(None, Some(LONGER))] {
            let why = done(&model, &request)
                .err()
                .unwrap_or_else(|| panic!("{name}"));
            assert!(why.contains(says), "{name}: {why}");
        }
    }
}

#[test]
fn what_a_table_of_distances_cannot_become_is_refused() {
    let whole = only(Place::Queries, ROWS, plain);
    let bias = only(Place::Scores, ROWS, plain);
    let clamped = only(Place::Queries, 2 * CLIP as usize + 1, clipped);
    let inner = only(Place::Queries, 2 * CLIP as usize + 3, |s| {
        let (at, one) = (clipped(s), s.int(1));
        s.op("Add", &[&at, &one])
    });
    let cubic = |length| asked(Some(ScaleType::Cubic), None, length);
    let cases = [
        ("cubic", &whole, cubic(Some(LONGER)), "shaw takes linear"),
        (
            "cubic bias",
            &bias,
            cubic(Some(LONGER)),
            "relative-bias takes linear",
        ),
        (
            "shorter",
            &whole,
            linear(None, Some(8)),
            "cannot become one for 8",
        ),
        (
            "two lengths",
            &whole,
            linear(Some(2.0), Some(LONGER)),
            "remove one of them",
        ),
        (
            "no factor",
            &clamped,
            linear(None, Some(LONGER)),
            "give `factor`",
        ),
        ("fewer", &clamped, linear(Some(0.5), None), "no fewer rows"),
        (
            "inner rows",
            &inner,
            linear(Some(2.0), None),
            "others than the outermost rows",
        ),
        (
            "clamped, beyond all numbers",
            &clamped,
            linear(Some(1e30), None),
            "makes more rows of 4 than",
        ),
        (
            "beyond all numbers",
            &whole,
            linear(Some(1e30), None),
            "makes more rows of 16 than",
        ),
        (
            "beyond what can be compared",
            &whole,
            asked(None, None, Some(5793)),
            "can be compared up to 5792 tokens",
        ),
        (
            "clamped, beyond what can be compared",
            &clamped,
            linear(Some(1500.0), None),
            "can be compared up to 5792 tokens",
        ),
    ];
    for (name, model, request, says) in cases {
        let why = done(model, &request)
            .err()
            .unwrap_or_else(|| panic!("{name}"));
        assert!(why.contains(says), "{name}: {why}");
    }
}

#[test]
fn interpolated_rows_are_not_interpolated_again() {
    let model = only(Place::Queries, ROWS, plain);
    let once = done(&model, &linear(Some(2.0), None)).unwrap_or_else(|why| panic!("{why}"));
    let why = done(&once.model, &linear(Some(2.0), None)).err().unwrap();
    assert!(why.contains("scaled already"), "{why}");
    let same = done(&once.model, &linear(None, Some(2 * TOKENS as usize)));
    assert!(same.is_ok_and(|same| same.report.edits.is_empty()));
    let mut again = linear(Some(2.0), None);
    again.allowances.allow_rescale = true;
    assert!(done(&once.model, &again).is_ok());
    let copied = done(&once.model, &longer());
    let copied = copied.unwrap_or_else(|why| panic!("copies of the outermost rows: {why}"));
    let why = done(&copied.model, &linear(Some(2.0), None)).err().unwrap();
    assert!(why.contains("scaled already"), "{why}");
}

#[test]
fn copied_rows_are_not_interpolated() {
    let model = only(Place::Queries, ROWS, plain);
    let copied = done(&model, &longer()).unwrap_or_else(|why| panic!("{why}"));
    let same = done(&copied.model, &longer());
    assert!(same.is_ok_and(|same| same.report.edits.is_empty()));
    for request in [linear(None, Some(LONGER)), linear(None, Some(2 * LONGER))] {
        let why = done(&copied.model, &request).err().unwrap();
        assert!(why.contains("scaled already"), "{why}");
        let mut allowed = request;
        allowed.allowances.allow_rescale = true;
        assert!(done(&copied.model, &allowed).is_ok());
    }
}
