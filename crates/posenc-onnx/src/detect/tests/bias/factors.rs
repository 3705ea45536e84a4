//! Factors and bounds of the scores, which leave no trace where queries and keys are zero.

use super::*;

/// What scores are multiplied with.
type Factor = fn(&mut Sketch) -> String;

#[test]
fn factors_that_follow_the_position_are_unknown() {
    let times = |factor: Factor| {
        changed(|s, scores| {
            let factor = factor(s);
            let scores = s.op("Mul", &[&factor, &scores]);
            causal(s, &scores)
        })
    };
    let decay = |s: &mut Sketch| {
        let far = far(s);
        let far = s.op("Abs", &[&far]);
        let line = sloped(s, SLOPES.map(|m| -m), &far);
        s.op("Exp", &[&line])
    };
    assert!(is_unknown(&times(decay)));
    let mut model = times(decay);
    let to_none = Request {
        to: Some(Kind::None),
        ..Request::default()
    };
    let before = model.graph().text();
    assert!(crate::rewrite::rewrite(&mut model, &to_none).is_err());
    assert_eq!(model.graph().text(), before);
    let nothing: [(&str, Factor); 3] = [
        ("a mask", |s| {
            let d = s.distance();
            let zero = s.int(0);
            let seen = s.op("LessOrEqual", &[&d, &zero]);
            s.cast(&seen, DType::F32)
        }),
        ("a temperature", |s| s.float(0.3)),
        ("a temperature for each head", |s| {
            s.floats(&[HEADS, 1, 1], SLOPES)
        }),
    ];
    for (name, factor) in nothing {
        assert_eq!(named(&times(factor)), [], "{name}");
    }
}

/// A number of each query, from 1 on.
fn rising(s: &mut Sketch) -> String {
    let at = s.range();
    let at = s.cast(&at, DType::F32);
    let (one, tenth) = (s.float(1.0), s.float(0.1));
    let at = s.op("Mul", &[&at, &tenth]);
    let at = s.op("Add", &[&at, &one]);
    s.unsqueeze(&at, &[1])
}

/// What is done to scores.
type Change = fn(&mut Sketch, &str) -> String;

#[test]
fn what_changes_from_query_to_query_is_unknown() {
    let after = |change: Change| {
        changed(|s, scores| {
            let scores = change(s, &scores);
            causal(s, &scores)
        })
    };
    let unknown: [(&str, Change); 5] = [
        ("a factor", |s, x| {
            let rows = rising(s);
            s.op("Mul", &[x, &rows])
        }),
        ("a divisor", |s, x| {
            let rows = rising(s);
            s.op("Div", &[x, &rows])
        }),
        ("a bound above", |s, x| {
            let rows = rising(s);
            s.op("Min", &[x, &rows])
        }),
        ("a bound below", |s, x| {
            let rows = rising(s);
            let rows = s.op("Neg", &[&rows]);
            s.op("Max", &[&rows, x])
        }),
        ("a soft bound", |s, x| {
            let rows = rising(s);
            let x = s.op("Div", &[x, &rows]);
            let x = s.op("Tanh", &[&x]);
            s.op("Mul", &[&x, &rows])
        }),
    ];
    for (name, change) in unknown {
        assert!(is_unknown(&after(change)), "{name}");
    }
    let nothing: [(&str, Change); 3] = [
        ("one bound", |s, x| {
            let bound = s.float(3.0);
            s.op("Min", &[x, &bound])
        }),
        ("a bound for each head", |s, x| {
            let bounds = s.floats(&[HEADS, 1, 1], SLOPES);
            s.op("Min", &[x, &bounds])
        }),
        ("a mask", |s, x| {
            let d = s.distance();
            let zero = s.int(0);
            let hidden = s.op("Greater", &[&d, &zero]);
            let hidden = s.cast(&hidden, DType::F32);
            let low = s.float(-2e9);
            let high = s.float(1e9);
            let bounds = s.op("Mul", &[&hidden, &low]);
            let bounds = s.op("Add", &[&bounds, &high]);
            s.op("Min", &[x, &bounds])
        }),
    ];
    for (name, change) in nothing {
        assert_eq!(named(&after(change)), [], "{name}");
    }
}
