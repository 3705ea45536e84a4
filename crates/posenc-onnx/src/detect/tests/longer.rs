//! Rotations that are others in longer sequences.

use super::*;

/// Rotates by angles of bent positions or frequencies.
fn rotated(s: &mut Sketch, x: &str, of: impl Fn(&mut Sketch, &str, &str) -> String) -> String {
    let q = s.headed(x);
    let at = s.range();
    let at = s.cast(&at, DType::F32);
    let at = s.unsqueeze(&at, &[-1]);
    let f = s.floats(&[1, PAIRS], (0..PAIRS).map(frequency));
    let angles = of(s, &at, &f);
    let (cos, sin) = waves(s, &angles);
    let other = swapped(s, &q);
    mixed(s, &q, &other, &cos, &sin)
}

/// The number of tokens, from the shape that positions are counted by.
fn length(s: &mut Sketch) -> String {
    let shape = s.op("Shape", &["input_ids"]);
    let one = s.int(1);
    let length = s.gather(&shape, &one, 0);
    s.cast(&length, DType::F32)
}

/// The sites that rotate by a known law, and those of which something is unknown.
fn read(rotated: fn(&mut Sketch, &str, Side) -> String) -> (usize, usize) {
    let found = found(&model(&Form {
        rotated,
        ..Form::default()
    }));
    (found.rotary.len(), found.not_rotary.len())
}

#[test]
fn a_rotation_that_changes_with_the_length_is_unknown() {
    // Frequencies over a factor that grows with the length, in operators that no list names.
    let grown = read(|s, x, _| {
        rotated(s, x, |s, at, f| {
            let (n, sixty, zero, one) = (length(s), s.float(60.0), s.float(0.0), s.float(1.0));
            let over = s.op("Sub", &[&n, &sixty]);
            let over = s.op("Clip", &[&over, &zero]);
            let factor = s.op("Add", &[&over, &one]);
            let f = s.op("Div", &[f, &factor]);
            s.op("Mul", &[at, &f])
        })
    });
    assert_eq!(grown, (0, 1));
    let constant = read(|s, x, _| {
        rotated(s, x, |s, at, f| {
            let (n, zero, one) = (length(s), s.float(0.0), s.float(1.0));
            let nothing = s.op("Mul", &[&n, &zero]);
            let factor = s.op("Add", &[&nothing, &one]);
            let f = s.op("Div", &[f, &factor]);
            s.op("Mul", &[at, &f])
        })
    });
    assert_eq!(constant, (1, 0), "control");
}

#[test]
fn positions_that_do_not_go_on_are_unknown() {
    let bent: [fn(&mut Sketch, &str, Side) -> String; 3] = [
        |s, x, _| {
            rotated(s, x, |s, at, f| {
                let forty = s.float(40.0);
                let at = s.with("Mod", &[at, &forty], &[("fmod", A::Int(1))]);
                s.op("Mul", &[&at, f])
            })
        },
        |s, x, _| {
            rotated(s, x, |s, at, f| {
                let last = s.float(300.0);
                let at = s.op("Min", &[at, &last]);
                s.op("Mul", &[&at, f])
            })
        },
        |s, x, _| {
            rotated(s, x, |s, at, f| {
                let (forty, half) = (s.float(40.0), s.float(0.5));
                let late = s.op("Sub", &[at, &forty]);
                let late = s.op("Relu", &[&late]);
                let less = s.op("Mul", &[&late, &half]);
                let at = s.op("Sub", &[at, &less]);
                s.op("Mul", &[&at, f])
            })
        },
    ];
    for (i, rotated) in bent.into_iter().enumerate() {
        assert_eq!(read(rotated), (0, 1), "{i}");
    }
    let far = read(|s, x, _| {
        rotated(s, x, |s, at, f| {
            let last = s.float(1e6);
            let at = s.op("Min", &[at, &last]);
            s.op("Mul", &[&at, f])
        })
    });
    assert_eq!(far, (1, 0), "control");
}

/// Rotates by angles of positions that are bent.
fn bent(s: &mut Sketch, x: &str, bend: impl Fn(&mut Sketch, &str) -> String) -> String {
    rotated(s, x, |s, at, f| {
        let at = bend(s, at);
        s.op("Mul", &[&at, f])
    })
}

#[test]
fn positions_that_do_not_go_on_far_away_are_unknown() {
    let all: [fn(&mut Sketch, &str, Side) -> String; 4] = [
        |s, x, _| {
            bent(s, x, |s, at| {
                let last = s.float(8191.0);
                s.op("Min", &[at, &last])
            })
        },
        |s, x, _| {
            bent(s, x, |s, at| {
                let size = s.float(5000.0);
                s.with("Mod", &[at, &size], &[("fmod", A::Int(1))])
            })
        },
        |s, x, _| {
            bent(s, x, |s, at| {
                let last = s.float(131_071.0);
                let late = s.op("Greater", &[at, &last]);
                s.op("Where", &[&late, &last, at])
            })
        },
        |s, x, _| {
            bent(s, x, |s, at| {
                let narrow = s.cast(at, DType::I16);
                s.cast(&narrow, DType::F32)
            })
        },
    ];
    for (i, rotated) in all.into_iter().enumerate() {
        assert_eq!(read(rotated), (0, 1), "{i}");
    }
    let wide = read(|s, x, _| {
        bent(s, x, |s, at| {
            let wide = s.cast(at, DType::I32);
            s.cast(&wide, DType::F32)
        })
    });
    assert_eq!(wide, (1, 0), "control");
}

#[test]
fn tables_may_end_before_a_longer_sequence_does() {
    let read = read(|s, x, _| {
        let q = s.headed(x);
        let at = s.range();
        let tables = [table(s, 40, f64::cos), table(s, 40, f64::sin)];
        let [cos, sin] = tables.map(|t| {
            let rows = s.gather(&t, &at, 0);
            s.concat(&[&rows, &rows], -1)
        });
        let other = swapped(s, &q);
        mixed(s, &q, &other, &cos, &sin)
    });
    assert_eq!(read, (1, 0));
}
