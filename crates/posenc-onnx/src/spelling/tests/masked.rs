//! Masks behind a softmax.

use super::*;

/// How weights that a mask multiplies are divided by their sums.
#[derive(Clone, Copy, Default)]
struct Form {
    /// Keys that come later by more than this are hidden.
    ahead: i64,
    chosen: bool,
    once_more: bool,
    unguarded: bool,
    fractions: bool,
    other_sum: bool,
    other_axis: bool,
}

fn weights(s: &mut Sketch, q: &str, k: &str, form: Form) -> String {
    let x = scores(s, q, k);
    let weights = softmax(s, &x);
    let at = s.range();
    let (rows, ahead) = (s.unsqueeze(&at, &[-1]), s.int(form.ahead));
    let last = s.op("Add", &[&rows, &ahead]);
    let sees = s.op("GreaterOrEqual", &[&last, &at]);
    let (mut factor, zero) = (s.cast(&sees, DType::F32), s.float(0.0));
    if form.fractions {
        let half = s.float(0.5);
        factor = s.op("Mul", &[&factor, &half]);
    }
    let masked = match form.chosen {
        true => s.op("Where", &[&sees, &weights, &zero]),
        false => s.op("Mul", &[&factor, &weights]),
    };
    let axis = s.ints(&[if form.other_axis { -2 } else { -1 }]);
    let summed = if form.other_sum { &weights } else { &masked };
    let sums = s.op("ReduceSum", &[summed, &axis]);
    if form.unguarded {
        let quotient = s.op("Div", &[&masked, &sums]);
        if !form.once_more {
            return quotient;
        }
        let any = s.op("Greater", &[&sums, &zero]);
        return s.op("Where", &[&any, &quotient, &zero]);
    }
    let any = s.op("Greater", &[&sums, &zero]);
    let one = s.float(1.0);
    let divisor = s.op("Where", &[&any, &sums, &one]);
    let quotient = s.op("Div", &[&masked, &divisor]);
    match form.once_more {
        true => s.op("Where", &[&any, &quotient, &zero]),
        false => quotient,
    }
}

fn before(form: Form) -> Model {
    model(|s, q, k| weights(s, q, k, form))
}

#[test]
fn a_mask_of_weights_that_are_renormalized_is_one_of_scores() {
    for chosen in [false, true] {
        for once_more in [false, true] {
            // The first of them see nothing where they do not see themselves.
            for ahead in [0, -1, -3, 2] {
                let form = Form {
                    ahead,
                    chosen,
                    once_more,
                    ..Form::default()
                };
                let before = before(form);
                let after = plain(&before, &BTreeMap::new()).expect("it is replaced");
                let left = operators(&after);
                assert!(!left.iter().any(|op| op == "Div" || op == "ReduceSum"));
                assert_eq!(left.iter().filter(|op| *op == "Softmax").count(), 1);
                assert!(difference(&before, &after) < 1e-9, "{ahead}");
            }
        }
    }
}

#[test]
fn sums_that_may_be_zero_leave_the_masked_softmax_alone() {
    for (chosen, once_more) in [(false, false), (true, false), (true, true)] {
        let form = Form {
            chosen,
            once_more,
            ahead: if once_more { -3 } else { 0 },
            unguarded: true,
            ..Form::default()
        };
        let before = before(form);
        let after = plain(&before, &BTreeMap::new()).expect("it is replaced");
        let left = operators(&after);
        for op in ["Div", "ReduceSum"] {
            assert!(!left.iter().any(|left| left == op), "{op}");
        }
        // Rows that would be 0/0 are 0 where they are chosen once more.
        assert_eq!(left.iter().any(|left| left == "Mul"), once_more);
        assert!(difference(&before, &after) < 1e-9);
    }
}

#[test]
fn other_quotients_of_weights_stay() {
    let forms = [
        Form {
            fractions: true,
            ..Form::default()
        },
        Form {
            unguarded: true,
            fractions: true,
            ..Form::default()
        },
        Form {
            unguarded: true,
            other_sum: true,
            ..Form::default()
        },
        Form {
            other_sum: true,
            ..Form::default()
        },
        Form {
            other_axis: true,
            ..Form::default()
        },
    ];
    for form in forms {
        assert!(plain(&before(form), &BTreeMap::new()).is_none());
    }
}
