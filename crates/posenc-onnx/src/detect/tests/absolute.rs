//! What is added to the residual stream: tables, sinusoids, and what is neither.

mod coordinates;
mod not_added;
mod parts;
mod patches;
mod sinusoids;

use super::*;
use crate::detect::finding::Encoding;
use posenc_encodings::families::learned::Learned;
use posenc_encodings::families::sinusoidal::{Denominator, Sinusoidal};
use posenc_encodings::kind::Layout;

/// Rows of the tables.
const ROWS: usize = 40;

type Embed = fn(&mut Sketch, String) -> String;

fn looked_at(embed: Embed) -> (Model, Found) {
    let form = Form {
        rotated: |s, x, _| s.headed(x),
        embed,
        ..Form::default()
    };
    let model = model(&form);
    let found = found(&model);
    (model, found)
}

fn encodings(embed: Embed) -> Vec<Encoding> {
    let (_, found) = looked_at(embed);
    found.findings.into_iter().map(|f| f.encoding).collect()
}

fn learned(offset: usize) -> Encoding {
    Encoding::Learned(Learned {
        max_positions: ROWS - offset,
        table_rows: ROWS,
        dim: HIDDEN,
        offset,
        prefix: 0,
        grid: None,
    })
}

fn sinusoid(max_positions: Option<usize>, offset: usize) -> Sinusoidal {
    Sinusoidal {
        dim: HIDDEN,
        layout: Layout::Half,
        cosines_first: false,
        denominator: Denominator::Pairs,
        base: THETA,
        factor: 1.0,
        amplitude: 1.0,
        max_positions,
        offset,
        image: None,
    }
}

/// The rows that an index picks from a learned table.
fn rows(s: &mut Sketch, index: &str) -> String {
    let table = s.weights(&[ROWS, HIDDEN]);
    s.gather(&table, index, 0)
}

/// 0, 1, … plus something.
fn moved(s: &mut Sketch, by: i64) -> String {
    let (at, by) = (s.range(), s.int(by));
    s.op("Add", &[&at, &by])
}

#[test]
fn copies_of_a_table_do_not_make_its_rows_wider() {
    // A batch of two that was fixed by the export.
    let of_sequences: Embed = |s, x| {
        let row = |i: usize| ((i * 7919) % 101) as f64 / 101.0 - 0.5;
        let numbers = (0..2 * ROWS * HIDDEN).map(|i| row(i % (ROWS * HIDDEN)));
        let table = s.floats(&[2, ROWS, HIDDEN], numbers);
        let shape = s.op("Shape", &[&x]);
        let one = s.ints(&[1]);
        let length = s.gather(&shape, &one, 0);
        let zero = s.ints(&[0]);
        let p = s.op("Slice", &[&table, &zero, &length, &one]);
        s.op("Add", &[&x, &p])
    };
    let of_layers: Embed = |s, x| {
        let table = s.weights(&[3, ROWS, HIDDEN]);
        let one = s.int(1);
        let table = s.gather(&table, &one, 0);
        let at = s.range();
        let p = s.gather(&table, &at, 0);
        s.op("Add", &[&x, &p])
    };
    for (name, embed) in [("of sequences", of_sequences), ("of layers", of_layers)] {
        assert_eq!(encodings(embed), [learned(0)], "{name}");
    }
}

#[test]
fn tables_are_found_however_their_rows_are_read() {
    let cases: [(&str, Embed, usize); 8] = [
        (
            "gathered",
            |s, x| {
                let at = s.range();
                let p = rows(s, &at);
                s.op("Add", &[&x, &p])
            },
            0,
        ),
        (
            "operands exchanged, batched and scaled",
            |s, x| {
                let at = s.range();
                let at = s.unsqueeze(&at, &[0]);
                let p = rows(s, &at);
                let two = s.float(2.0);
                let p = s.op("Mul", &[&p, &two]);
                s.op("Add", &[&p, &x])
            },
            0,
        ),
        (
            "two reserved rows",
            |s, x| {
                let at = moved(s, 2);
                let p = rows(s, &at);
                s.op("Add", &[&x, &p])
            },
            2,
        ),
        (
            "shifted by one more",
            |s, x| {
                let at = moved(s, 3);
                let p = rows(s, &at);
                s.op("Add", &[&x, &p])
            },
            3,
        ),
        (
            "cut to the length",
            |s, x| {
                let table = s.weights(&[ROWS, HIDDEN]);
                let shape = s.op("Shape", &[&x]);
                let one = s.ints(&[1]);
                let length = s.gather(&shape, &one, 0);
                let zero = s.ints(&[0]);
                let p = s.op("Slice", &[&table, &zero, &length, &zero]);
                s.op("Add", &[&x, &p])
            },
            0,
        ),
        (
            "read as counts of a mask",
            |s, x| {
                let mask = s.input("attention_mask", DType::I64, &["batch", "sequence"]);
                let axis = s.int(1);
                let at = s.op("CumSum", &[&mask, &axis]);
                let at = s.op("Mul", &[&at, &mask]);
                let p = rows(s, &at);
                s.op("Add", &[&x, &p])
            },
            1,
        ),
        (
            "in an operator of its own",
            |s, x| {
                let at = s.range();
                let at = s.unsqueeze(&at, &[0]);
                let p = rows(s, &at);
                let scale = s.weights(&[HIDDEN]);
                s.op("ms.SkipLayerNormalization", &[&x, &p, &scale])
            },
            0,
        ),
        (
            "chosen by a product",
            |s, x| {
                let at = s.range();
                let (depth, values) = (s.int(ROWS as i64), s.floats(&[2], [0.0, 1.0]));
                let choice = s.op("OneHot", &[&at, &depth, &values]);
                let table = s.weights(&[ROWS, HIDDEN]);
                let p = s.op("MatMul", &[&choice, &table]);
                s.op("Add", &[&x, &p])
            },
            0,
        ),
    ];
    for (name, embed, offset) in cases {
        assert_eq!(encodings(embed), [learned(offset)], "{name}");
    }
}

#[test]
fn what_joins_at_an_operator_of_two_outputs_reaches_the_layers_behind_both() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let at = s.range();
    let at = s.unsqueeze(&at, &[0]);
    let p = rows(&mut s, &at);
    let scale = s.weights(&[HIDDEN]);
    let joined = s.many("ms.SkipLayerNormalization", &[&x, &p, &scale], &[], 4);
    let [scores, v] = s.scored(&joined[0], &joined[0]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.merged(&y);
    // The sum goes on past the first layer.
    let x = s.op("Add", &[&joined[3], &y]);
    let y = s.attends(&x, &x);
    let found = found(&s.model(17, &[&y]));
    assert_eq!(found.findings.len(), 1);
    assert_eq!(found.findings[0].sites, [0, 1]);
}

#[test]
fn what_is_no_encoding_is_not_reported() {
    let cases: [(&str, Embed); 7] = [
        ("nothing", |_, x| x),
        ("a bias", |s, x| {
            let bias = s.weights(&[HIDDEN]);
            s.op("Add", &[&x, &bias])
        }),
        ("a bias of full rank", |s, x| {
            let bias = s.weights(&[1, 1, HIDDEN]);
            s.op("Add", &[&x, &bias])
        }),
        ("the same row for all tokens", |s, x| {
            let (at, zero) = (s.range(), s.int(0));
            let types = s.op("Mul", &[&at, &zero]);
            let p = rows(s, &types);
            s.op("Add", &[&x, &p])
        }),
        ("the position itself, for all features", |s, x| {
            let at = s.range();
            let at = s.cast(&at, DType::F32);
            let at = s.unsqueeze(&at, &[0, 2]);
            s.op("Add", &[&x, &at])
        }),
        ("types that the caller feeds", |s, x| {
            let types = s.input("token_type_ids", DType::I64, &["batch", "sequence"]);
            let p = rows(s, &types);
            s.op("Add", &[&x, &p])
        }),
        ("a mask", |s, x| {
            let mask = s.input("attention_mask", DType::I64, &["batch", "sequence"]);
            let mask = s.cast(&mask, DType::F32);
            let mask = s.unsqueeze(&mask, &[2]);
            let wide = s.weights(&[1, 1, HIDDEN]);
            let mask = s.op("Mul", &[&mask, &wide]);
            s.op("Add", &[&x, &mask])
        }),
    ];
    for (name, embed) in cases {
        let found = encodings(embed);
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}

#[test]
fn rows_that_do_not_follow_one_another_are_unknown() {
    let cases: [(&str, Embed, &str); 2] = [
        (
            "every other row",
            |s, x| {
                let (at, two) = (s.range(), s.int(2));
                let at = s.op("Mul", &[&at, &two]);
                let p = rows(s, &at);
                s.op("Add", &[&x, &p])
            },
            "row 0 is followed by row 2",
        ),
        (
            "two positions a row",
            |s, x| {
                let (at, two) = (s.range(), s.int(2));
                let at = s.op("Div", &[&at, &two]);
                let p = rows(s, &at);
                s.op("Add", &[&x, &p])
            },
            "row 0 is followed by row 0",
        ),
    ];
    for (name, embed, why) in cases {
        let (_, found) = looked_at(embed);
        let [finding] = &found.findings[..] else {
            panic!("{name}: {:?}", found.findings);
        };
        assert_eq!(finding.encoding, Encoding::Unknown, "{name}");
        assert!(
            finding.evidence.iter().any(|e| e.contains(why)),
            "{name}: {finding:?}"
        );
    }
}

#[test]
fn of_very_many_summands_the_first_are_looked_at() {
    const MANY: usize = 1100;
    let (_, rows_alone) = looked_at(|s, mut x| {
        let at = s.range();
        let p = rows(s, &at);
        for _ in 0..MANY {
            x = s.op("Add", &[&x, &p]);
        }
        x
    });
    assert_eq!(rows_alone.findings.len(), 1);
    let missed = &rows_alone.not_evaluated;
    assert_eq!(missed.len(), 1, "{missed:?}");
    // What is the same for all tokens does not count.
    let (_, after_biases) = looked_at(|s, mut x| {
        let bias = s.weights(&[1, 1, HIDDEN]);
        for _ in 0..MANY {
            x = s.op("Add", &[&x, &bias]);
        }
        let at = s.range();
        let p = rows(s, &at);
        s.op("Add", &[&x, &p])
    });
    assert_eq!(after_biases.findings.len(), 1);
    assert!(after_biases.not_evaluated.is_empty());
}

/// As many rows of a stored table as tokens, from one on.
fn cut<const START: i64>(s: &mut Sketch, x: String) -> String {
    let (shape, one) = (s.op("Shape", &[&x]), s.ints(&[1]));
    let length = s.gather(&shape, &one, 0);
    let (first, zero) = (s.ints(&[START]), s.ints(&[0]));
    let end = s.op("Add", &[&length, &first]);
    let table = s.weights(&[ROWS, HIDDEN]);
    let rows = s.op("Slice", &[&table, &first, &end, &zero]);
    s.op("Add", &[&x, &rows])
}

/// Rows by indices that are stored for each position, up to one of them.
fn stored<const CLIP: i64>(s: &mut Sketch, x: String) -> String {
    let indices = (0..ROWS as i64).map(|at| at.min(CLIP) as f64);
    let indices = s.typed(DType::I64, &[ROWS], indices);
    let (shape, one, zero) = (s.op("Shape", &[&x]), s.ints(&[1]), s.ints(&[0]));
    let length = s.gather(&shape, &one, 0);
    let at = s.op("Slice", &[&indices, &zero, &length, &zero]);
    let p = rows(s, &at);
    s.op("Add", &[&x, &p])
}

#[test]
fn limits_are_the_rows_that_positions_reach() {
    let limit = |embed: Embed| -> Vec<usize> {
        let (model, _) = looked_at(embed);
        found(&model).limits.iter().map(|l| l.length).collect()
    };
    let reserved = limit(|s, x| {
        let at = moved(s, 2);
        let p = rows(s, &at);
        s.op("Add", &[&x, &p])
    });
    assert_eq!(reserved, [ROWS - 2]);
    // Rows beyond the last are never selected.
    let clipped = limit(|s, x| {
        let (at, last) = (s.range(), s.int(ROWS as i64 - 1));
        let at = s.op("Min", &[&at, &last]);
        let p = rows(s, &at);
        s.op("Add", &[&x, &p])
    });
    assert!(clipped.is_empty(), "{clipped:?}");
    // So are rows beyond the last that is stored for a position.
    assert_eq!(limit(stored::<19>), [ROWS], "the buffer alone");
    let both = limit(stored::<{ ROWS as i64 }>);
    assert_eq!(both, [ROWS, ROWS], "the buffer, and the table");
    let types = limit(|s, x| {
        let (at, zero) = (s.range(), s.int(0));
        let types = s.op("Mul", &[&at, &zero]);
        let p = rows(s, &types);
        s.op("Add", &[&x, &p])
    });
    assert!(types.is_empty(), "{types:?}");
    // The first rows are left out, and the last token reads the last row.
    assert_eq!(limit(cut::<0>), [ROWS]);
    assert_eq!(limit(cut::<2>), [ROWS - 2]);
    // Numbers at the limits of an integer are rows of no table.
    for far in [i64::MAX - 3, i64::MIN, i64::MIN + 9] {
        let mut s = Sketch::default();
        let x = s.embedded();
        let (at, far) = (s.range(), s.int(far));
        let at = s.op("Add", &[&at, &far]);
        let p = rows(&mut s, &at);
        let x = s.op("Add", &[&x, &p]);
        let model = s.model(17, &[&x]);
        assert!(found(&model).limits.is_empty(), "{far}");
    }
}

#[test]
fn rows_that_times_pick_are_learned() {
    let steps = encodings(|s, x| {
        let at = s.input("timesteps", DType::I64, &["batch", "sequence"]);
        let p = rows(s, &at);
        s.op("Add", &[&x, &p])
    });
    assert_eq!(steps, [learned(0)]);
    let cases: [(&str, Embed); 3] = [
        ("one time for a sequence", |s, x| {
            let at = s.input("timestep", DType::I64, &["batch", "1"]);
            let p = rows(s, &at);
            s.op("Add", &[&x, &p])
        }),
        ("something else of each token", |s, x| {
            let at = s.input("language_ids", DType::I64, &["batch", "sequence"]);
            let p = rows(s, &at);
            s.op("Add", &[&x, &p])
        }),
        ("one time for all tokens", |s, x| {
            let at = s.input("timestep", DType::I64, &["batch"]);
            let p = rows(s, &at);
            let p = s.unsqueeze(&p, &[1]);
            s.op("Add", &[&x, &p])
        }),
    ];
    for (name, embed) in cases {
        let found = encodings(embed);
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}

/// Attention of queries, keys and values that are made of these.
fn met(s: &mut Sketch, values: &str, queries: &str, keys: &str) -> String {
    let [q, k, v] = [queries, keys, values].map(|x| s.headed(x));
    let scores = scores(s, &q, &k);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    s.merged(&y)
}

/// Rows added to what queries and keys of self-attention are made of, and to the queries that meet
/// another sequence.
fn met_twice() -> Model {
    let s = &mut Sketch::default();
    let x = s.embedded();
    let other = s.input(
        "encoder_hidden_states",
        DType::F32,
        &["batch", "other", "24"],
    );
    let at = s.range();
    let p = rows(s, &at);
    let placed = s.op("Add", &[&x, &p]);
    let y = met(s, &x, &placed, &placed);
    let y = s.op("Add", &[&x, &y]);
    let placed = s.op("Add", &[&y, &p]);
    let y = met(s, &other, &placed, &other);
    std::mem::take(s).model(23, &[&y])
}

#[test]
fn what_cross_attention_alone_sees_is_left_to_it() {
    let mut model = met_twice();
    let seen = |model: &Model| -> Vec<Vec<usize>> {
        let findings = found(model).findings;
        let alike = findings.iter().all(|f| f.encoding == learned(0));
        assert!(alike, "{findings:?}");
        findings.into_iter().map(|f| f.sites).collect()
    };
    let cross = |model: &Model| {
        found(model)
            .attention
            .iter()
            .map(|s| s.cross)
            .collect::<Vec<_>>()
    };
    assert_eq!(cross(&model), [false, true]);
    assert_eq!(seen(&model), [[0], [1]]);
    let to_none = Request {
        to: Some(posenc_encodings::kind::Kind::None),
        ..Request::default()
    };
    crate::rewrite::rewrite(&mut model, &to_none).unwrap();
    assert_eq!(seen(&model), [[1]]);
}

#[test]
fn frames_that_make_a_token_are_no_grid() {
    let found = encodings(|s, x| {
        let pairs = s.reshape(&x, &[0, -1, 2 * HIDDEN as i64]);
        let w = s.weights(&[2 * HIDDEN, HIDDEN]);
        let y = s.op("MatMul", &[&pairs, &w]);
        let (at, two) = (s.range(), s.int(2));
        let shape = s.op("Shape", &[&at]);
        let zero = s.int(0);
        let length = s.gather(&shape, &zero, 0);
        let half = s.op("Div", &[&length, &two]);
        let one = s.int(1);
        let at = s.op("Range", &[&zero, &half, &one]);
        let p = rows(s, &at);
        s.op("Add", &[&y, &p])
    });
    assert_eq!(found, [learned(0)]);
}
