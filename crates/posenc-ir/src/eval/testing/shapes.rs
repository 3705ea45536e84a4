//! Operators that change dimensions.

use super::*;

#[test]
fn reshape_copies_zeros_and_infers_one_dimension() {
    let cases: [(&[i64], Result<Dims, Why>); 9] = [
        (&[6, 4], Ok(&[6, 4])),
        (&[-1, 4], Ok(&[6, 4])),
        (&[0, -1], Ok(&[2, 12])),
        (&[0, 0, 0], Ok(&[2, 3, 4])),
        (&[-1, -1], Err(Why::Parameter("shape"))),
        (&[5, -1], Err(Why::Shapes)),
        (&[2, 3], Err(Why::Shapes)),
        (&[2, 3, 4, 0], Err(Why::Parameter("shape"))),
        (&[-2, 12], Err(Why::Dimension)),
    ];
    for (shape, want) in cases {
        for x in [count(&[2, 3, 4]), content(&[2, 3, 4])] {
            let got = op("Reshape").run(&[x, list(shape)]);
            let got = got.map(|v| v.dims.unwrap()).map_err(|m| m.why);
            assert_eq!(got.as_deref(), want.as_ref().map(|d| *d), "{shape:?}");
        }
    }
    let literal = op("Reshape").int("allowzero", 1);
    let got = literal.numbers(&[count(&[2, 0]), list(&[5, 0])]);
    assert_eq!(got.0, [5, 0]);
}

#[test]
fn reshape_of_unknown_dimensions_needs_a_complete_shape() {
    let x = Value::shaped(Some(DType::F32), None);
    let run = |shape: Value| op("Reshape").run(&[x.clone(), shape]).unwrap().dims;
    assert_eq!(run(list(&[2, 3])), Some(vec![2, 3]));
    assert_eq!(run(list(&[2, -1])), None);
    assert_eq!(run(list(&[0, 3])), None);
    assert_eq!(run(Value::opaque(DType::I64, [2])), None);
}

#[test]
fn axes_of_length_one_are_added_and_removed() {
    let x = count(&[1, 3, 1]);
    let dims = |o: Op, axes: Option<&[i64]>| {
        let inputs: Vec<Value> = [x.clone()].into_iter().chain(axes.map(list)).collect();
        o.run(&inputs).map(|v| v.dims.unwrap()).map_err(|m| m.why)
    };
    assert_eq!(dims(op("Squeeze"), None), Ok(vec![3]));
    assert_eq!(dims(op("Squeeze"), Some(&[-1])), Ok(vec![1, 3]));
    assert_eq!(dims(op("Squeeze").ints("axes", &[0]), None), Ok(vec![3, 1]));
    assert_eq!(dims(op("Squeeze"), Some(&[1])), Err(Why::Shapes));
    assert_eq!(dims(op("Squeeze"), Some(&[3])), Err(Why::Axis));
    assert_eq!(
        dims(op("Unsqueeze"), Some(&[0, -1])),
        Ok(vec![1, 1, 3, 1, 1])
    );
    assert_eq!(
        dims(op("Unsqueeze").ints("axes", &[1]), None),
        Ok(vec![1, 1, 3, 1])
    );
    assert_eq!(dims(op("Unsqueeze"), Some(&[1, -4])), Err(Why::Axis));
    assert_eq!(dims(op("Unsqueeze"), None), Err(Why::NoInput(1)));
}

#[test]
fn a_reshaped_stored_constant_stays_stored() {
    let x = stored(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    for (name, other) in [("Reshape", list(&[6])), ("Unsqueeze", list(&[0]))] {
        let out = op(name).run(&[x.clone(), other]).unwrap();
        assert!(
            matches!(out.data.as_deref(), Some(crate::eval::Data::Stored(_))),
            "{name}"
        );
        assert_eq!(numbers(&out).1, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "{name}");
    }
}

#[test]
fn transposed_elements_move_with_their_axes() {
    let x = count(&[2, 3]);
    let want = (vec![3, 2], vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert_eq!(op("Transpose").numbers(std::slice::from_ref(&x)), want);
    // The elements stay in order when the transposed array gets the standard layout.
    let transposed = op("Transpose").run(std::slice::from_ref(&x)).unwrap();
    let flat = op("Reshape").numbers(&[transposed, list(&[-1])]);
    assert_eq!(flat, (vec![6], want.1));
    for perm in [&[0][..], &[0, 0], &[0, 2]] {
        assert!(
            op("Transpose")
                .ints("perm", perm)
                .run(std::slice::from_ref(&x))
                .is_err()
        );
    }
    let dims = op("Transpose").ints("perm", &[2, 0, 1]).dims(&[&[2, 3, 4]]);
    assert_eq!(dims, [Some(vec![4, 2, 3])]);
}

#[test]
fn flatten_cuts_the_dimensions_in_two() {
    for (axis, want) in [(0, [1, 24]), (1, [2, 12]), (-1, [6, 4]), (3, [24, 1])] {
        let dims = op("Flatten").int("axis", axis).dims(&[&[2, 3, 4]]);
        assert_eq!(dims, [Some(want.to_vec())], "{axis}");
    }
    assert_eq!(
        op("Flatten").int("axis", 4).why(&[count(&[2])]),
        Some(Why::Axis)
    );
}

#[test]
fn concatenation_and_split_are_each_others_inverse() {
    let (a, b) = (count(&[2, 1]), floats(&[2, 2], &[5.0, 6.0, 7.0, 8.0]));
    let joined = op("Concat").int("axis", -1).run(&[a, b]).unwrap();
    assert_eq!(
        numbers(&joined),
        (vec![2, 3], vec![0.0, 5.0, 6.0, 1.0, 7.0, 8.0])
    );
    let parts = op("Split").int("axis", 1).outputs(2);
    let parts = parts.all(&[joined.clone(), list(&[1, 2])]).unwrap();
    assert_eq!(numbers(&parts[0]), (vec![2, 1], vec![0.0, 1.0]));
    assert_eq!(numbers(&parts[1]), (vec![2, 2], vec![5.0, 6.0, 7.0, 8.0]));

    let refused = [
        (op("Concat"), vec![count(&[2])], Why::Attribute("axis")),
        (
            op("Concat").int("axis", 0),
            vec![count(&[1, 2]), count(&[1, 3])],
            Why::Shapes,
        ),
        (
            op("Concat").int("axis", 0),
            vec![count(&[1, 2]), count(&[1])],
            Why::Rank,
        ),
        (op("Concat").int("axis", 2), vec![count(&[1, 2])], Why::Axis),
        (
            op("Split"),
            vec![joined.clone(), list(&[1, 2])],
            Why::Parameter("split"),
        ),
        (op("Split"), vec![joined, list(&[-1, 3])], Why::Dimension),
    ];
    for (op, inputs, why) in refused {
        assert_eq!(op.why(&inputs), Some(why), "{}", op.node.op());
    }
}

#[test]
fn of_equal_parts_the_last_one_may_be_shorter() {
    let lengths = |n: usize, outputs: usize| {
        let dims = op("Split").opset(18).outputs(outputs).dims(&[&[n]]);
        dims.into_iter().map(|d| d.unwrap()[0]).collect::<Vec<_>>()
    };
    assert_eq!(lengths(6, 3), [2, 2, 2]);
    assert_eq!(lengths(7, 3), [3, 3, 1]);
    assert_eq!(lengths(0, 2), [0, 0]);
    assert_eq!(
        op("Split").outputs(4).why(&[count(&[5])]),
        Some(Why::Parameter("split"))
    );
}

#[test]
fn expand_tile_and_pad_repeat_the_right_elements() {
    let x = count(&[2, 1]);
    let got = op("Expand").numbers(&[x.clone(), list(&[1, 2])]);
    assert_eq!(got, (vec![2, 2], vec![0.0, 0.0, 1.0, 1.0]));
    let got = op("Tile").numbers(&[x.clone(), list(&[2, 2])]);
    assert_eq!(
        got,
        (vec![4, 2], vec![0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0])
    );
    assert_eq!(
        op("Expand").why(&[count(&[2]), list(&[3])]),
        Some(Why::Shapes)
    );
    assert_eq!(
        op("Tile").why(&[x, list(&[2])]),
        Some(Why::Parameter("repeats"))
    );

    let row = floats(&[3], &[1.0, 2.0, 3.0]);
    for (mode, want) in [
        ("constant", [0.0, 0.0, 1.0, 2.0, 3.0, 0.0]),
        ("edge", [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]),
        ("reflect", [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]),
        ("wrap", [2.0, 3.0, 1.0, 2.0, 3.0, 1.0]),
    ] {
        let got = op("Pad")
            .text("mode", mode)
            .numbers(&[row.clone(), list(&[2, 1])]);
        assert_eq!(got.1, want, "{mode}");
    }
    let cropped = op("Pad").numbers(&[row.clone(), list(&[-1, 1]), floats(&[], &[9.0])]);
    assert_eq!(cropped.1, [2.0, 3.0, 9.0]);
    assert_eq!(
        op("Pad").why(&[row.clone(), list(&[-4, 0])]),
        Some(Why::Dimension)
    );
    assert_eq!(
        op("Pad").why(&[row, list(&[1])]),
        Some(Why::Parameter("pads"))
    );
}

#[test]
fn blocks_move_between_depth_and_space() {
    let deep = op("DepthToSpace").int("blocksize", 2);
    assert_eq!(deep.dims(&[&[1, 8, 2, 3]]), [Some(vec![1, 2, 4, 6])]);
    assert_eq!(deep.why(&[content(&[1, 6, 2, 3])]), Some(Why::Shapes));
    let flat = op("SpaceToDepth").int("blocksize", 2);
    assert_eq!(flat.dims(&[&[1, 2, 4, 6]]), [Some(vec![1, 8, 2, 3])]);
    assert_eq!(flat.why(&[content(&[1, 2, 3, 6])]), Some(Why::Shapes));
}

#[test]
fn sequences_are_reversed_up_to_their_lengths() {
    let rows = op("ReverseSequence")
        .int("time_axis", 1)
        .int("batch_axis", 0);
    let got = rows.numbers(&[count(&[2, 3]), list(&[2, 3])]);
    assert_eq!(got, (vec![2, 3], vec![1.0, 0.0, 2.0, 5.0, 4.0, 3.0]));
    let columns = op("ReverseSequence");
    let got = columns.numbers(&[count(&[2, 3]), list(&[2, 1, 2])]);
    assert_eq!(got.1, [3.0, 1.0, 5.0, 0.0, 4.0, 2.0]);
    for lengths in [&[2, 4][..], &[2], &[2, -1]] {
        let got = rows.run(&[count(&[2, 3]), list(lengths)]).unwrap();
        assert!(got.data.is_none(), "{lengths:?}");
    }
}
