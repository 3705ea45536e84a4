//! Rotations by several streams of positions.

use super::*;
use crate::detect::rotary::site::Streams;

/// Angles `[batch, 1, sequence, pairs]` of which pair i follows stream `of[i]` of three.
fn streamed(s: &mut Sketch, side: Side, of: [i64; PAIRS]) -> String {
    let ids = match side {
        Side::Query => s.input("position_ids", DType::I64, &["3", "batch", "sequence"]),
        Side::Key => "position_ids".to_owned(),
    };
    let at = s.cast(&ids, DType::F32);
    let at = s.unsqueeze(&at, &[-1]);
    let f = s.floats(&[1, PAIRS], (0..PAIRS).map(frequency));
    let all = s.op("Mul", &[&at, &f]);
    let parts: Vec<String> = (0i64..)
        .zip(of)
        .map(|(pair, stream)| {
            let one = s.int(stream);
            let angles = s.gather(&all, &one, 0);
            s.slice(&angles, -1, [pair, pair + 1, 1])
        })
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let angles = s.concat(&parts, -1);
    s.unsqueeze(&angles, &[1])
}

fn rotated(s: &mut Sketch, x: &str, angles: &str) -> String {
    let q = s.headed(x);
    let (cos, sin) = waves(s, angles);
    let other = swapped(s, &q);
    mixed(s, &q, &other, &cos, &sin)
}

fn streams(of: fn(&mut Sketch, &str, Side) -> String) -> Option<Streams> {
    let model = model(&Form {
        rotated: of,
        ..Form::default()
    });
    let found = found(&model);
    assert_eq!((found.rotary.len(), found.not_rotary.len()), (1, 0));
    found.rotary[0].streams.clone()
}

#[test]
fn pairs_are_shared_out_among_streams() {
    let sections = streams(|s, x, side| {
        let angles = streamed(s, side, [0, 1, 1, 2]);
        rotated(s, x, &angles)
    });
    let want = Streams {
        sections: vec![1, 2, 1],
        interleaved: false,
    };
    assert_eq!(sections, Some(want));
    let by_rotation = streams(|s, x, side| {
        let angles = streamed(s, side, [0, 1, 2, 0]);
        rotated(s, x, &angles)
    });
    let want = Streams {
        sections: vec![2, 1, 1],
        interleaved: true,
    };
    assert_eq!(by_rotation, Some(want));
}

#[test]
fn one_stream_is_none() {
    let second = streams(|s, x, side| {
        let angles = streamed(s, side, [1; PAIRS]);
        rotated(s, x, &angles)
    });
    assert_eq!(second, None);
    let plain = streams(|s, x, _| {
        let q = s.headed(x);
        halves(s, &q)
    });
    assert_eq!(plain, None);
}
