use super::*;

/// A form of attention whose queries and keys do not rotate by rope; whether position is seen to act
/// on them nevertheless.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    pub(crate) unknown: bool,
}

fn odd(name: &'static str, rotated: fn(&mut Sketch, &str, Side) -> String) -> Case {
    Case {
        name,
        form: Form {
            rotated,
            ..Form::default()
        },
        unknown: true,
    }
}

fn none(name: &'static str, rotated: fn(&mut Sketch, &str, Side) -> String) -> Case {
    Case {
        unknown: false,
        ..odd(name, rotated)
    }
}

/// Rotates by angles that `of` makes from `[sequence, pairs]`.
fn bent(s: &mut Sketch, x: &str, of: impl Fn(&mut Sketch, &str) -> String) -> String {
    let q = s.headed(x);
    let plain = angles(s);
    let bent = of(s, &plain);
    let (cos, sin) = waves(s, &bent);
    let other = swapped(s, &q);
    mixed(s, &q, &other, &cos, &sin)
}

/// Angles of queries at positions that are so much larger.
fn ahead(s: &mut Sketch, angles: &str, side: Side, by: f64) -> String {
    let by = if side == Side::Query { by } else { 0.0 };
    let more = s.floats(&[1, PAIRS], (0..PAIRS).map(|i| by * frequency(i)));
    s.op("Add", &[angles, &more])
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        odd("queries three places ahead of their keys", |s, x, side| {
            bent(s, x, |s, angles| ahead(s, angles, side, 3.0))
        }),
        odd("queries a little ahead of their keys", |s, x, side| {
            bent(s, x, |s, angles| ahead(s, angles, side, 0.02))
        }),
        odd("one frequency of the keys runs backwards", |s, x, side| {
            bent(s, x, |s, angles| {
                let sign = if side == Side::Key { -1.0 } else { 1.0 };
                let signs = s.floats(&[PAIRS], [1.0, sign, 1.0, 1.0]);
                s.op("Mul", &[angles, &signs])
            })
        }),
        odd("heads with frequencies in another order", |s, x, _| {
            let q = s.headed(x);
            let at = s.range();
            let at = s.cast(&at, DType::F32);
            let at = s.unsqueeze(&at, &[-1]);
            let cells =
                (0..HEADS).flat_map(|h| (0..PAIRS).map(move |i| frequency((i + h) % PAIRS)));
            let f = s.floats(&[HEADS, 1, PAIRS], cells);
            let angles = s.op("Mul", &[&at, &f]);
            let (cos, sin) = waves(s, &angles);
            let other = swapped(s, &q);
            mixed(s, &q, &other, &cos, &sin)
        }),
        odd(
            "an angle that grows with the square of the position",
            |s, x, _| {
                bent(s, x, |s, angles| {
                    let tenth = s.float(0.1);
                    let less = s.op("Mul", &[angles, &tenth]);
                    s.op("Mul", &[angles, &less])
                })
            },
        ),
        odd(
            "an angle that is constant from some position on",
            |s, x, _| {
                bent(s, x, |s, angles| {
                    let most = s.float(4.0);
                    s.op("Min", &[angles, &most])
                })
            },
        ),
        odd("no partner", |s, x, _| {
            let q = s.headed(x);
            let angles = angles(s);
            let (cos, sin) = waves(s, &angles);
            mixed(s, &q, &q, &cos, &sin)
        }),
        odd("a partner without a sign", |s, x, _| {
            let q = s.headed(x);
            let first = s.slice(&q, -1, [0, PAIRS as i64, 1]);
            let second = s.slice(&q, -1, [PAIRS as i64, 1 << 40, 1]);
            let other = s.concat(&[&second, &first], -1);
            let angles = angles(s);
            let (cos, sin) = waves(s, &angles);
            mixed(s, &q, &other, &cos, &sin)
        }),
        odd("a length that grows with the position", |s, x, _| {
            let q = s.headed(x);
            let q = halves(s, &q);
            let at = s.range();
            let at = s.cast(&at, DType::F32);
            let at = s.unsqueeze(&at, &[-1]);
            let base = s.float(1.02);
            let grows = s.op("Pow", &[&base, &at]);
            s.op("Mul", &[&q, &grows])
        }),
        odd("queries alone", |s, x, side| {
            let q = s.headed(x);
            match side {
                Side::Query => halves(s, &q),
                Side::Key => q,
            }
        }),
        odd("keys alone", |s, x, side| {
            let q = s.headed(x);
            match side {
                Side::Query => q,
                Side::Key => halves(s, &q),
            }
        }),
        odd("another base for the keys", |s, x, side| {
            bent(s, x, |s, angles| {
                let times = if side == Side::Key { 1.5 } else { 1.0 };
                let times = s.float(times);
                s.op("Mul", &[angles, &times])
            })
        }),
        odd("another factor for the keys", |s, x, side| {
            let q = s.headed(x);
            let angles = angles(s);
            let (mut cos, sin) = waves(s, &angles);
            if side == Side::Key {
                let more = s.float(1.1);
                cos = s.op("Mul", &[&cos, &more]);
            }
            let other = swapped(s, &q);
            mixed(s, &q, &other, &cos, &sin)
        }),
        odd("a table added to queries and keys", |s, x, _| {
            let q = s.headed(x);
            let angles = angles(s);
            let (cos, _) = waves(s, &angles);
            s.op("Add", &[&q, &cos])
        }),
        odd(
            "waves next to the features of queries and keys",
            |s, x, _| {
                let q = s.headed(x);
                let angles = angles(s);
                let (cos, _) = waves(s, &angles);
                let shape = s.op("Shape", &[&q]);
                let cos = s.op("Expand", &[&cos, &shape]);
                s.concat(&[&q, &cos], -1)
            },
        ),
        odd("gates by position", |s, x, _| {
            let q = s.headed(x);
            let angles = angles(s);
            let (cos, _) = waves(s, &angles);
            s.op("Mul", &[&q, &cos])
        }),
        odd("rows in a shuffled order", |s, x, _| {
            let q = s.headed(x);
            let at = s.range();
            let order = s.ints(&[3, 1, 4, 15, 9, 2, 6, 5, 35, 8, 97, 93, 23, 84, 62, 64]);
            let at = s.gather(&order, &at, 0);
            let angles = angles_of(s, &at);
            let (cos, sin) = waves(s, &angles);
            let other = swapped(s, &q);
            mixed(s, &q, &other, &cos, &sin)
        }),
        odd(
            "halves from two projections, rotated by content",
            |s, x, _| {
                let q = s.headed(x);
                let other = s.headed(x);
                let angles = angles(s);
                let (cos, sin) = waves(s, &angles);
                mixed(s, &q, &other, &cos, &sin)
            },
        ),
        none("no position at all", |s, x, _| s.headed(x)),
        none("a scale for each head", |s, x, _| {
            let q = s.headed(x);
            let scale = s.weights(&[HEADS, 1, 1]);
            s.op("Mul", &[&q, &scale])
        }),
        none("a scale for each feature", |s, x, _| {
            let q = s.headed(x);
            let scale = s.weights(&[SIZE]);
            s.op("Mul", &[&q, &scale])
        }),
        none(
            "numbers next to the features, the same everywhere",
            |s, x, _| {
                let q = s.headed(x);
                let row = s.weights(&[1, 1, 1, SIZE]);
                let shape = s.op("Shape", &[&q]);
                let row = s.op("Expand", &[&row, &shape]);
                s.concat(&[&q, &row], -1)
            },
        ),
        none("a rotation that is the same everywhere", |s, x, _| {
            let q = s.headed(x);
            let cos = s.floats(&[SIZE], (0..SIZE).map(|i| frequency(i % PAIRS).cos()));
            let sin = s.floats(&[SIZE], (0..SIZE).map(|i| frequency(i % PAIRS).sin()));
            let other = swapped(s, &q);
            mixed(s, &q, &other, &cos, &sin)
        }),
        Case {
            name: "waves added to the residual stream",
            form: Form {
                rotated: |s, x, _| s.headed(x),
                embed: |s, x| {
                    let angles = angles(s);
                    let wide = s.concat(&[angles.as_str(); 6], -1);
                    let wave = s.op("Sin", &[&wide]);
                    s.op("Add", &[&x, &wave])
                },
                ..Form::default()
            },
            unknown: false,
        },
        Case {
            name: "values rotated, queries and keys not",
            form: Form {
                rotated: |s, x, _| s.headed(x),
                attend: |s, q, k, v| {
                    let v = halves(s, v);
                    attend(s, q, k, &v)
                },
                ..Form::default()
            },
            unknown: false,
        },
        Case {
            name: "a distance added to the scores",
            form: Form {
                rotated: |s, x, _| s.headed(x),
                attend: |s, q, k, v| {
                    let scores = scores(s, q, k);
                    let at = s.range();
                    let at = s.cast(&at, DType::F32);
                    let scores = s.op("Add", &[&scores, &at]);
                    let scores = causal(s, &scores);
                    let weights = s.op("Softmax", &[&scores]);
                    s.op("MatMul", &[&weights, v])
                },
                ..Form::default()
            },
            unknown: false,
        },
    ]
}

#[test]
fn what_only_looks_like_rope_is_refused() {
    let mut wrong = vec![];
    for case in cases() {
        let model = model(&case.form);
        let found = found(&model);
        let seen = (
            found.attention.len(),
            found.rotary.len(),
            !found.not_rotary.is_empty(),
        );
        if seen != (1, 0, case.unknown) {
            wrong.push(format!("{}: {seen:?} {:?}", case.name, found.not_rotary));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Something with a softmax or a gate, from the residual stream to an output.
struct Block {
    name: &'static str,
    block: fn(&mut Sketch, &str) -> String,
}

fn blocks() -> Vec<Block> {
    let block = |name, block| Block { name, block };
    vec![
        block("a router of experts", |s, x| {
            let w = s.weights(&[HIDDEN, 4]);
            let logits = s.op("MatMul", &[x, &w]);
            let shares = s.op("Softmax", &[&logits]);
            let experts = s.weights(&[4, HIDDEN]);
            let mixed = s.op("MatMul", &[&shares, &experts]);
            s.op("Mul", &[&mixed, x])
        }),
        block("a router whose shares are picked", |s, x| {
            let w = s.weights(&[HIDDEN, 4]);
            let logits = s.op("MatMul", &[x, &w]);
            let shares = s.op("Softmax", &[&logits]);
            let k = s.ints(&[2]);
            let best = s.many("TopK", &[&shares, &k], &[], 2);
            let axes = s.ints(&[-1]);
            let sum = s.op("ReduceSum", &[&best[0], &axes]);
            s.op("Mul", &[x, &sum])
        }),
        block("pooling by learned scores", |s, x| {
            let w = s.weights(&[HIDDEN, 1]);
            let scores = s.op("MatMul", &[x, &w]);
            let scores = s.transpose(&scores, &[0, 2, 1]);
            let weights = s.op("Softmax", &[&scores]);
            s.op("MatMul", &[&weights, x])
        }),
        block("a classifier", |s, x| {
            let w = s.weights(&[HIDDEN, 10]);
            let logits = s.op("MatMul", &[x, &w]);
            s.op("Softmax", &[&logits])
        }),
        block("a classifier under a temperature and a bias", |s, x| {
            let (w, b) = (s.weights(&[HIDDEN, 10]), s.weights(&[10]));
            let logits = s.op("MatMul", &[x, &w]);
            let logits = s.op("Add", &[&logits, &b]);
            let t = s.float(0.7);
            let logits = s.op("Div", &[&logits, &t]);
            s.op("Softmax", &[&logits])
        }),
        block("a gated unit", |s, x| {
            let (a, b) = (s.weights(&[HIDDEN, 32]), s.weights(&[HIDDEN, 32]));
            let gate = s.op("MatMul", &[x, &a]);
            let gate = s.op("Sigmoid", &[&gate]);
            let up = s.op("MatMul", &[x, &b]);
            s.op("Mul", &[&gate, &up])
        }),
        block("a ratio of two projections", |s, x| {
            let (a, b) = (s.weights(&[HIDDEN, 32]), s.weights(&[HIDDEN, 32]));
            let above = s.op("MatMul", &[x, &a]);
            let below = s.op("MatMul", &[x, &b]);
            let below = s.op("Exp", &[&below]);
            s.op("Div", &[&above, &below])
        }),
        block("a multilayer perceptron", |s, x| {
            let (a, b) = (s.weights(&[HIDDEN, 32]), s.weights(&[32, HIDDEN]));
            let h = s.op("MatMul", &[x, &a]);
            let h = s.op("Relu", &[&h]);
            s.op("MatMul", &[&h, &b])
        }),
        block("attention of a graph, by sums of node scores", |s, x| {
            let (a, b) = (s.weights(&[HIDDEN, 1]), s.weights(&[HIDDEN, 1]));
            let (from, to) = (s.op("MatMul", &[x, &a]), s.op("MatMul", &[x, &b]));
            let to = s.transpose(&to, &[0, 2, 1]);
            let scores = s.op("Add", &[&from, &to]);
            let weights = s.op("Softmax", &[&scores]);
            s.op("MatMul", &[&weights, x])
        }),
        block("a convolution", |s, x| {
            let x = s.transpose(x, &[0, 2, 1]);
            let w = s.weights(&[HIDDEN, HIDDEN, 3]);
            s.with("Conv", &[&x, &w], &[("pads", A::Ints(&[1, 1]))])
        }),
        block("waves of position next to content", |s, x| {
            let angles = angles(s);
            let wide = s.concat(&[angles.as_str(); 6], -1);
            let (cos, sin) = (s.op("Cos", &[&wide]), s.op("Sin", &[&wide]));
            mixed(s, x, x, &cos, &sin)
        }),
    ]
}

#[test]
fn what_is_no_attention_is_no_site() {
    for case in blocks() {
        let mut s = Sketch::default();
        let x = s.embedded();
        let y = (case.block)(&mut s, &x);
        let found = found(&s.model(18, &[&y]));
        let name = case.name;
        assert!(found.attention.is_empty(), "{name}: {:?}", found.attention);
        assert!(
            found.rotary.is_empty() && found.not_rotary.is_empty(),
            "{name}"
        );
        assert!(
            found.no_attention.is_empty(),
            "{name}: {:?}",
            found.no_attention
        );
    }
}
