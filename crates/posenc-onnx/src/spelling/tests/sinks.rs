//! Sinks before the scores of the keys.

use super::*;

/// How sinks join the scores, and what is cut out of the softmax.
#[derive(Clone, Copy)]
struct Form {
    sinks: i64,
    begin: i64,
    end: i64,
    padded: bool,
    behind: bool,
    /// A type between the scores and the softmax, and between it and the weights.
    cast: bool,
}

const PLAIN: Form = Form {
    sinks: 1,
    begin: 1,
    end: i64::MAX,
    padded: false,
    behind: false,
    cast: false,
};

fn weights(s: &mut Sketch, q: &str, k: &str, form: Form) -> String {
    let scores = scores(s, q, k);
    let scores = match form.padded {
        true => {
            let pads = s.ints(&[0, 0, 0, form.sinks, 0, 0, 0, 0]);
            let low = s.float(-2.0);
            s.op("Pad", &[&scores, &pads, &low])
        }
        false => {
            let sinks = s.weights(&[1, HEADS, 1, form.sinks as usize]);
            let shape = s.op("Shape", &[&scores]);
            let (rows, one) = (s.slice(&shape, 0, [0, 3, 1]), s.ints(&[1]));
            let shape = s.concat(&[&rows, &one], 0);
            let sinks = s.op("Expand", &[&sinks, &shape]);
            match form.behind {
                true => s.concat(&[&scores, &sinks], -1),
                false => s.concat(&[&sinks, &scores], -1),
            }
        }
    };
    let scores = match form.cast {
        true => s.cast(&scores, DType::F64),
        false => scores,
    };
    let weights = softmax(s, &scores);
    // A change to the same type changes nothing.
    let weights = match form.cast {
        true => s.cast(&weights, DType::F32),
        false => weights,
    };
    let weights = s.cast(&weights, DType::F32);
    s.slice(&weights, -1, [form.begin, form.end, 1])
}

fn before(form: Form) -> Model {
    model(|s, q, k| weights(s, q, k, form))
}

#[test]
fn sinks_before_the_keys_are_put_behind_them() {
    for form in [
        PLAIN,
        Form {
            padded: true,
            ..PLAIN
        },
        Form {
            sinks: 3,
            begin: 3,
            ..PLAIN
        },
        Form {
            cast: true,
            ..PLAIN
        },
    ] {
        let model = before(form);
        let after = plain(&model, &BTreeMap::new()).expect("another spelling");
        assert!(difference(&model, &after) < 1e-6);
        assert!(
            plain(&after, &BTreeMap::new()).is_none(),
            "nothing is put behind twice"
        );
    }
}

#[test]
fn what_is_cut_otherwise_stays() {
    for (name, form) in [
        (
            "behind",
            Form {
                behind: true,
                ..PLAIN
            },
        ),
        ("one sink is kept", Form { sinks: 2, ..PLAIN }),
        ("a key is lost", Form { begin: 2, ..PLAIN }),
        ("the last is lost", Form { end: -1, ..PLAIN }),
        (
            "padded by more",
            Form {
                padded: true,
                sinks: 2,
                ..PLAIN
            },
        ),
    ] {
        let model = before(form);
        assert!(plain(&model, &BTreeMap::new()).is_none(), "{name}");
    }
}
