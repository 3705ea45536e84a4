//! Factors on the scores, which leave no trace where queries and keys are zero.

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
    let nothing: [(&str, Factor); 4] = [
        ("a mask", |s| {
            let d = distance(s);
            let zero = s.int(0);
            let seen = s.op("LessOrEqual", &[&d, &zero]);
            s.cast(&seen, DType::F32)
        }),
        ("a temperature", |s| s.float(0.3)),
        ("a temperature for each head", |s| {
            s.floats(&[HEADS, 1, 1], SLOPES)
        }),
        ("the same for all keys", |s| {
            let at = s.range();
            let at = s.cast(&at, DType::F32);
            let at = s.op("Exp", &[&at]);
            s.unsqueeze(&at, &[1])
        }),
    ];
    for (name, factor) in nothing {
        assert_eq!(named(&times(factor)), [], "{name}");
    }
}
