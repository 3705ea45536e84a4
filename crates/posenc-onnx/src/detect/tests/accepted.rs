mod attention;

use super::*;
use crate::rewrite::rewrite;
use posenc_encodings::kind::Layout;

/// A form that is rope.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    pub(crate) layout: Layout,
}

fn halved_case(name: &'static str, form: Form) -> Case {
    Case {
        name,
        form,
        layout: Layout::Half,
    }
}

/// A case that rotates queries and keys in another way.
fn rotated(name: &'static str, rotated: fn(&mut Sketch, &str, Side) -> String) -> Case {
    let form = Form {
        rotated,
        ..Form::default()
    };
    halved_case(name, form)
}

/// A case that attends in another way.
fn attended(name: &'static str, attend: fn(&mut Sketch, &str, &str, &str) -> String) -> Case {
    let form = Form {
        attend,
        ..Form::default()
    };
    halved_case(name, form)
}

/// A case of the other layout.
fn interleaved(name: &'static str, how: fn(&mut Sketch, &str, Side) -> String) -> Case {
    Case {
        layout: Layout::Interleaved,
        ..rotated(name, how)
    }
}

/// cos and sin given, halves of `[…, sequence, size]`.
fn by(s: &mut Sketch, x: &str, cos: &str, sin: &str) -> String {
    let other = swapped(s, x);
    mixed(s, x, &other, cos, sin)
}

fn on_angles(s: &mut Sketch, x: &str, angles: &str) -> String {
    let q = s.headed(x);
    let (cos, sin) = waves(s, angles);
    by(s, &q, &cos, &sin)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = rotations();
    cases.extend(frequencies());
    cases.extend(attention::native());
    cases.extend(attention::attentions());
    cases
}

/// Where and how queries and keys are rotated.
fn rotations() -> Vec<Case> {
    vec![
        halved_case("plain", Form::default()),
        rotated("rows of a cache by position ids", |s, x, side| {
            let ids = match side {
                Side::Query => s.input("position_ids", DType::I64, &["batch", "sequence"]),
                Side::Key => "position_ids".to_owned(),
            };
            let q = s.headed(x);
            let mut rows = |of: fn(f64) -> f64| {
                let half = table(s, 64, of);
                let both = s.concat(&[&half, &half], -1);
                let cached = s.unsqueeze(&both, &[0, 1]);
                let cut = s.slice(&cached, 2, [0, 1 << 40, 1]);
                let axes = s.ints(&[0, 1]);
                let flat = s.op("Squeeze", &[&cut, &axes]);
                let picked = s.gather(&flat, &ids, 0);
                s.unsqueeze(&picked, &[1])
            };
            let (cos, sin) = (rows(f64::cos), rows(f64::sin));
            by(s, &q, &cos, &sin)
        }),
        rotated("before heads and tokens trade places", |s, x, _| {
            let q = s.projected(x);
            let angles = angles(s);
            let angles = s.unsqueeze(&angles, &[1]);
            let (cos, sin) = waves(s, &angles);
            let q = by(s, &q, &cos, &sin);
            s.transpose(&q, &[0, 2, 1, 3])
        }),
        rotated("tokens before sequences", |s, x, _| {
            let q = s.projected(x);
            let q = s.transpose(&q, &[1, 0, 2, 3]);
            let angles = angles(s);
            let angles = s.unsqueeze(&angles, &[1, 2]);
            let (cos, sin) = waves(s, &angles);
            let q = by(s, &q, &cos, &sin);
            s.transpose(&q, &[1, 2, 0, 3])
        }),
        rotated("the rest of the features joins at the end", |s, x, _| {
            let q = s.headed(x);
            let rotating = s.slice(&q, -1, [0, SIZE as i64, 1]);
            let rest = s.slice(&q, -1, [SIZE as i64, 1 << 40, 1]);
            let first = s.slice(&rotating, -1, [0, PAIRS as i64, 1]);
            let second = s.slice(&rotating, -1, [PAIRS as i64, 1 << 40, 1]);
            let angles = angles(s);
            let (cos, sin) = (s.op("Cos", &[&angles]), s.op("Sin", &[&angles]));
            let (a, b) = (s.op("Mul", &[&first, &cos]), s.op("Mul", &[&second, &sin]));
            let (c, d) = (s.op("Mul", &[&second, &cos]), s.op("Mul", &[&first, &sin]));
            let (low, high) = (s.op("Sub", &[&a, &b]), s.op("Add", &[&c, &d]));
            s.concat(&[&low, &high, &rest], -1)
        }),
        rotated("what queries and keys are projected from", |s, x, _| {
            let apart = s.reshape(x, &[0, 0, HEADS as i64, SIZE as i64]);
            let angles = angles(s);
            let angles = s.unsqueeze(&angles, &[1]);
            let (cos, sin) = waves(s, &angles);
            let x = by(s, &apart, &cos, &sin);
            let x = s.reshape(&x, &[0, 0, HIDDEN as i64]);
            s.headed(&x)
        }),
        rotated("halves split", |s, x, _| {
            let q = s.headed(x);
            let sizes = s.ints(&[PAIRS as i64, PAIRS as i64]);
            let parts = s.many("Split", &[&q, &sizes], &[("axis", A::Int(-1))], 2);
            let angles = angles(s);
            let (cos, sin) = (s.op("Cos", &[&angles]), s.op("Sin", &[&angles]));
            let (a, b) = (
                s.op("Mul", &[&parts[0], &cos]),
                s.op("Mul", &[&parts[1], &sin]),
            );
            let first = s.op("Sub", &[&a, &b]);
            let (a, b) = (
                s.op("Mul", &[&parts[1], &cos]),
                s.op("Mul", &[&parts[0], &sin]),
            );
            let second = s.op("Add", &[&a, &b]);
            s.concat(&[&first, &second], -1)
        }),
        interleaved(
            "pairs on an axis of their own, as complex numbers",
            |s, x, _| {
                let q = s.headed(x);
                let q = s.reshape(&q, &[0, 0, 0, -1, 2]);
                let (zero, one) = (s.int(0), s.int(1));
                let (re, im) = (s.gather(&q, &zero, -1), s.gather(&q, &one, -1));
                let angles = angles(s);
                let (cos, sin) = (s.op("Cos", &[&angles]), s.op("Sin", &[&angles]));
                let (a, b) = (s.op("Mul", &[&re, &cos]), s.op("Mul", &[&im, &sin]));
                let new_re = s.op("Sub", &[&a, &b]);
                let (a, b) = (s.op("Mul", &[&re, &sin]), s.op("Mul", &[&im, &cos]));
                let new_im = s.op("Add", &[&a, &b]);
                let (re, im) = (s.unsqueeze(&new_re, &[-1]), s.unsqueeze(&new_im, &[-1]));
                let q = s.concat(&[&re, &im], -1);
                s.reshape(&q, &[0, 0, 0, SIZE as i64])
            },
        ),
        rotated("partners by a matrix that trades places", |s, x, _| {
            let q = s.headed(x);
            let cell = |n: usize| {
                let (i, j) = (n / SIZE, n % SIZE);
                if i == j + PAIRS {
                    -1.0
                } else {
                    f64::from(u8::from(i + PAIRS == j))
                }
            };
            let trade = s.floats(&[SIZE, SIZE], (0..SIZE * SIZE).map(cell));
            let other = s.op("MatMul", &[&q, &trade]);
            let angles = angles(s);
            let (cos, sin) = waves(s, &angles);
            mixed(s, &q, &other, &cos, &sin)
        }),
        rotated("queries and keys stacked", |s, x, side| {
            let q = s.headed(x);
            let other = s.headed(x);
            let (q, other) = (s.unsqueeze(&q, &[0]), s.unsqueeze(&other, &[0]));
            let both = s.concat(&[&q, &other], 0);
            let both = halves(s, &both);
            let at = s.int(if side == Side::Query { 0 } else { 1 });
            s.gather(&both, &at, 0)
        }),
        rotated("sin stored negated", |s, x, _| {
            let q = s.headed(x);
            let at = s.range();
            let cells = |of: fn(f64) -> f64, sign: f64| {
                (0..64).flat_map(move |p| {
                    (0..SIZE).map(move |i| sign * of(p as f64 * frequency(i % PAIRS)))
                })
            };
            let cos = s.floats(&[64, SIZE], cells(f64::cos, 1.0));
            let sin = s.floats(&[64, SIZE], cells(f64::sin, -1.0));
            let (cos, sin) = (s.gather(&cos, &at, 0), s.gather(&sin, &at, 0));
            let other = swapped(s, &q);
            let (a, b) = (s.op("Mul", &[&q, &cos]), s.op("Mul", &[&other, &sin]));
            s.op("Sub", &[&a, &b])
        }),
        rotated("scaled before it rotates", |s, x, _| {
            let q = s.headed(x);
            let scale = s.float(0.6);
            let q = s.op("Mul", &[&q, &scale]);
            halves(s, &q)
        }),
    ]
}

/// Where positions and frequencies come from.
fn frequencies() -> Vec<Case> {
    vec![
        rotated("reciprocal frequencies", |s, x, _| {
            let at = s.range();
            let at = s.cast(&at, DType::F32);
            let at = s.unsqueeze(&at, &[-1]);
            let scale = s.floats(&[PAIRS], (0..PAIRS).map(|i| 1.0 / frequency(i)));
            let angles = s.op("Div", &[&at, &scale]);
            on_angles(s, x, &angles)
        }),
        rotated("an outer product by Einsum", |s, x, _| {
            let at = s.range();
            let at = s.cast(&at, DType::F32);
            let f = s.floats(&[PAIRS], (0..PAIRS).map(frequency));
            let equation = [("equation", A::Text("i,j->ij"))];
            let angles = s.with("Einsum", &[&at, &f], &equation);
            on_angles(s, x, &angles)
        }),
        rotated("frequencies stored twice", |s, x, _| {
            let at = s.range();
            let at = s.cast(&at, DType::F32);
            let at = s.unsqueeze(&at, &[-1]);
            let f = s.floats(&[SIZE], (0..SIZE).map(|i| frequency(i % PAIRS)));
            let angles = s.op("Mul", &[&at, &f]);
            let (cos, sin) = (s.op("Cos", &[&angles]), s.op("Sin", &[&angles]));
            let q = s.headed(x);
            by(s, &q, &cos, &sin)
        }),
        rotated("frequencies in double precision", |s, x, _| {
            let at = s.range();
            let at = s.cast(&at, DType::F64);
            let at = s.unsqueeze(&at, &[-1]);
            let f = s.typed(DType::F64, &[PAIRS], (0..PAIRS).map(frequency));
            let angles = s.op("Mul", &[&at, &f]);
            let angles = s.cast(&angles, DType::F32);
            on_angles(s, x, &angles)
        }),
        rotated("frequencies computed in the graph", |s, x, _| {
            let at = s.range();
            let at = s.cast(&at, DType::F32);
            let at = s.unsqueeze(&at, &[-1]);
            let [from, to, step] = [0.0, SIZE as f64, 2.0].map(|v| s.float(v));
            let even = s.op("Range", &[&from, &to, &step]);
            let size = s.float(SIZE as f64);
            let share = s.op("Div", &[&even, &size]);
            let theta = s.float(THETA);
            let scale = s.op("Pow", &[&theta, &share]);
            let f = s.op("Reciprocal", &[&scale]);
            let angles = s.op("Mul", &[&at, &f]);
            on_angles(s, x, &angles)
        }),
        rotated("positions counted from the mask", |s, x, side| {
            let mask = match side {
                Side::Query => s.input("attention_mask", DType::I64, &["batch", "sequence"]),
                Side::Key => "attention_mask".to_owned(),
            };
            let (along, one) = (s.int(1), s.int(1));
            let at = s.op("CumSum", &[&mask, &along]);
            let at = s.op("Sub", &[&at, &one]);
            let angles = angles_of(s, &at);
            let angles = s.unsqueeze(&angles, &[1]);
            on_angles(s, x, &angles)
        }),
        rotated("positions of a float type", |s, x, side| {
            let at = match side {
                Side::Query => s.input("positions", DType::F32, &["batch", "sequence"]),
                Side::Key => "positions".to_owned(),
            };
            let angles = angles_of(s, &at);
            let angles = s.unsqueeze(&angles, &[1]);
            on_angles(s, x, &angles)
        }),
        rotated("positions of one axis", |s, x, side| {
            let at = match side {
                Side::Query => s.input("position_ids", DType::I32, &["sequence"]),
                Side::Key => "position_ids".to_owned(),
            };
            let angles = angles_of(s, &at);
            on_angles(s, x, &angles)
        }),
        rotated("positions under an unusual name", |s, x, side| {
            let at = match side {
                Side::Query => s.input("input_pos", DType::I64, &["sequence"]),
                Side::Key => "input_pos".to_owned(),
            };
            let angles = angles_of(s, &at);
            on_angles(s, x, &angles)
        }),
    ]
}

/// What is not read as it was written.
fn misread(case: &Case) -> Option<String> {
    let found = found(&model(&case.form));
    let [site] = &found.attention[..] else {
        return Some(format!("{} sites", found.attention.len()));
    };
    let shape = (site.heads, site.kv_heads, site.head_dim);
    if shape != (Some(HEADS), Some(HEADS), Some(SIZE)) || site.cross || site.past {
        return Some(format!("{site:?}"));
    }
    if site.mask.causal == Some(false) {
        return Some("not causal".to_owned());
    }
    let [rotary] = &found.rotary[..] else {
        return Some(format!("{:?}", found.not_rotary));
    };
    for half in [&rotary.query, &rotary.key] {
        let rope = &half.rotation.rope;
        let far = |(i, f): (usize, &f64)| (f / frequency(i) - 1.0).abs() > 1e-4;
        let wrong = rope.inv_freq.iter().enumerate().any(far);
        if wrong || rope.layout != Some(case.layout) || rope.rotary_dim != SIZE {
            return Some(format!("{rope:?}"));
        }
    }
    None
}

/// What a rescale makes other than what was requested.
fn misscaled(case: &Case) -> Option<String> {
    let mut model = model(&case.form);
    let done = match rewrite(&mut model, &rescaled_by(LawName::Linear, 2.0)) {
        Ok(done) => done,
        Err(why) => return Some(why.to_string()),
    };
    let after = found(&model);
    let [rotary] = &after.rotary[..] else {
        return Some(format!("{:?}", after.not_rotary));
    };
    let halved = [&rotary.query, &rotary.key].into_iter().all(|half| {
        let rope = &half.rotation.rope;
        (rope.inv_freq[1] / frequency(1) - 0.5).abs() < 1e-4
    });
    (!halved || done.report.edits.is_empty()).then(|| format!("{:?}", rotary.key.rotation.rope))
}

#[test]
fn rope_is_read_however_it_is_written() {
    let wrong: Vec<(&str, String)> = cases()
        .iter()
        .filter_map(|c| Some((c.name, misread(c)?)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn rope_is_rescaled_however_it_is_written() {
    let wrong: Vec<(&str, String)> = cases()
        .iter()
        .filter_map(|c| Some((c.name, misscaled(c)?)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
