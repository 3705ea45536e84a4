//! Rotations of queries and keys.

use posenc_encodings::kind::Layout;

use super::*;

#[test]
fn other_readers_of_keys_keep_them() {
    // Keys that are also the values.
    let form = Form {
        value: |_, _, k| k.to_owned(),
        ..Form::default()
    };
    let model = form.model();
    let done = swapped(&model, &to(Kind::Rope)).unwrap();
    let graph = done.graph();
    let found = detect(&done, &Options::default());
    let keys = found.rotary[0].key.region.input;
    let weighed = graph
        .uses(keys)
        .iter()
        .filter(|u| graph.node(u.node).is("MatMul"));
    assert_eq!(weighed.count(), 1, "the values are not rotated");
}

#[test]
fn keys_are_rotated_after_their_norm_and_before_they_are_repeated() {
    let form = Form {
        head: |s, x, side| {
            let x = heads(s, x);
            let x = s.with("LpNormalization", &[&x], &[("axis", A::Int(-1))]);
            if side == Side::Query {
                let scale = s.float(0.4);
                return s.op("Mul", &[&x, &scale]);
            }
            let x = s.unsqueeze(&x, &[2]);
            let dims = s.ints(&[1, 1, 1, 1, 1]);
            let x = s.op("Expand", &[&x, &dims]);
            s.reshape(&x, &[0, HEADS as i64, -1, SIZE as i64])
        },
        ..Form::default()
    };
    let done = swapped(&form.model(), &to(Kind::Rope)).unwrap();
    let graph = done.graph();
    let found = detect(&done, &Options::default());
    for half in [&found.rotary[0].query, &found.rotary[0].key] {
        let (id, _) = graph.producer(half.region.input).unwrap();
        assert_eq!(graph.node(id).op(), "LpNormalization");
    }
}

#[test]
fn every_layout_and_width_is_read_back() {
    let shapes: [fn(&mut Sketch, &str, Side) -> String; 4] = [
        |s, x, _| heads(s, x),
        // Heads folded into the batch.
        |s, x, _| {
            let x = heads(s, x);
            let x = s.reshape(&x, &[-1, 14, SIZE as i64]);
            s.reshape(&x, &[-1, HEADS as i64, 14, SIZE as i64])
        },
        // Scaled on both sides.
        |s, x, _| {
            let x = heads(s, x);
            let scale = s.float(0.6);
            s.op("Mul", &[&x, &scale])
        },
        // Transposed twice.
        |s, x, _| {
            let x = split(s, x);
            let x = s.transpose(&x, &[0, 2, 3, 1]);
            s.transpose(&x, &[0, 1, 3, 2])
        },
    ];
    for head in shapes {
        let form = Form {
            head,
            ..Form::default()
        };
        for layout in [Layout::Half, Layout::Interleaved] {
            for width in [2, 4, SIZE] {
                let mut request = to(Kind::Rope);
                request.parameters.layout = Some(layout);
                request.parameters.rotary_dim = Some(width);
                let done = swapped(&form.model(), &request).unwrap();
                let found = detect(&done, &Options::default());
                let rope = &found.rotary[0].query.rotation.rope;
                assert_eq!(rope.rotary_dim, width);
                // One pair follows both layouts.
                assert!(width == 2 || rope.layout == Some(layout));
            }
        }
    }
}

#[test]
fn queries_that_differ_in_length_from_keys_are_not_rotated() {
    let form = Form {
        head: |s, x, side| {
            let x = heads(s, x);
            match side {
                Side::Query => x,
                Side::Key => s.slice(&x, 2, [0, 1 << 40, 2]),
            }
        },
        value: |s, x, _| {
            let v = projected(s, x);
            let v = heads(s, &v);
            s.slice(&v, 2, [0, 1 << 40, 2])
        },
        ..Form::default()
    };
    let why = swapped(&form.model(), &to(Kind::Rope)).unwrap_err();
    assert!(
        why.contains("its queries are not the last of the tokens"),
        "{why}"
    );
}
