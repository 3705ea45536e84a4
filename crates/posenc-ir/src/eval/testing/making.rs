//! Operators that make tensors from little, and reductions.

use super::*;

#[test]
fn ranges_stop_before_their_limit() {
    for (start, limit, delta, want) in [
        (0, 5, 2, vec![0.0, 2.0, 4.0]),
        (5, 0, -2, vec![5.0, 3.0, 1.0]),
        (3, 3, 1, vec![]),
        (0, 5, -1, vec![]),
        (
            i64::MIN,
            i64::MAX,
            i64::MAX,
            vec![i64::MIN as f64, -1.0, (i64::MAX - 1) as f64],
        ),
    ] {
        let inputs = [start, limit, delta].map(|v| ints(&[], &[v]));
        assert_eq!(
            op("Range").numbers(&inputs).1,
            want,
            "{start} {limit} {delta}"
        );
    }
    let inputs = [0.0, 1.0, 0.4].map(|v| floats(&[], &[v]));
    assert_eq!(op("Range").numbers(&inputs).1, [0.0, 0.4, 0.8]);
    let still = [0, 1, 0].map(|v| ints(&[], &[v]));
    assert_eq!(op("Range").why(&still), Some(Why::Parameter("delta")));
    let open = [
        ints(&[], &[0]),
        Value::opaque(DType::I64, []),
        ints(&[], &[1]),
    ];
    let out = op("Range").run(&open).unwrap();
    assert_eq!((out.dtype, out.dims), (Some(DType::I64), None));
}

#[test]
fn shapes_are_read_from_content() {
    let x = content(&[2, 3, 4]);
    assert_eq!(
        op("Shape").numbers(std::slice::from_ref(&x)).1,
        [2.0, 3.0, 4.0]
    );
    let tail = op("Shape").int("start", -2).int("end", 9);
    assert_eq!(tail.numbers(std::slice::from_ref(&x)).1, [3.0, 4.0]);
    let none = op("Shape").int("start", 2).int("end", 1);
    assert_eq!(none.numbers(std::slice::from_ref(&x)), (vec![0], vec![]));
    assert_eq!(op("Size").numbers(&[x]), (vec![], vec![24.0]));
    let unknown = Value::shaped(Some(DType::F32), None);
    assert!(op("Shape").run(&[unknown]).unwrap().data.is_none());
}

#[test]
fn triangles_and_diagonals() {
    let ones = ints(&[2, 3], &[1; 6]);
    for (upper, k, want) in [
        (1, 0, [1.0, 1.0, 1.0, 0.0, 1.0, 1.0]),
        (1, 1, [0.0, 1.0, 1.0, 0.0, 0.0, 1.0]),
        (0, 0, [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]),
        (0, -1, [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]),
        (0, i64::MIN, [0.0; 6]),
    ] {
        let got = op("Trilu")
            .int("upper", upper)
            .numbers(&[ones.clone(), ints(&[], &[k])]);
        assert_eq!(got.1, want, "{upper} {k}");
    }
    assert_eq!(op("Trilu").why(&[list(&[1])]), Some(Why::Rank));
    let eye = op("EyeLike")
        .int("k", 1)
        .int("dtype", 7)
        .run(&[content(&[2, 3])])
        .unwrap();
    assert_eq!(numbers(&eye).1, [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(eye.dtype, Some(DType::I64));
}

#[test]
fn running_sums_in_both_directions() {
    let x = ints(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    for (exclusive, reverse, want) in [
        (0, 0, [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]),
        (1, 0, [0.0, 1.0, 3.0, 0.0, 4.0, 9.0]),
        (0, 1, [6.0, 5.0, 3.0, 15.0, 11.0, 6.0]),
        (1, 1, [5.0, 3.0, 0.0, 11.0, 6.0, 0.0]),
    ] {
        let sum = op("CumSum")
            .int("exclusive", exclusive)
            .int("reverse", reverse);
        let got = sum.numbers(&[x.clone(), ints(&[], &[-1])]);
        assert_eq!(got.1, want, "{exclusive} {reverse}");
    }
    let down = op("CumSum").numbers(&[x.clone(), ints(&[], &[0])]);
    assert_eq!(down.1, [1.0, 2.0, 3.0, 5.0, 7.0, 9.0]);
    assert_eq!(op("CumSum").why(&[x, ints(&[], &[2])]), Some(Why::Axis));
}

#[test]
fn indices_of_nonzero_and_greatest_elements() {
    let x = ints(&[2, 2], &[0, 5, 7, 7]);
    assert_eq!(
        op("NonZero").numbers(std::slice::from_ref(&x)),
        (vec![2, 3], vec![0.0, 1.0, 1.0, 1.0, 0.0, 1.0])
    );
    assert!(op("NonZero").run(&[content(&[3])]).unwrap().dims.is_none());
    let arg = op("ArgMax").int("axis", 1);
    assert_eq!(
        arg.numbers(std::slice::from_ref(&x)),
        (vec![2, 1], vec![1.0, 0.0])
    );
    let last = op("ArgMax")
        .int("axis", 1)
        .int("keepdims", 0)
        .int("select_last_index", 1);
    assert_eq!(last.numbers(&[x]), (vec![2], vec![1.0, 1.0]));
    let hot = [
        list(&[1, -1, 5]),
        ints(&[], &[2]),
        floats(&[2], &[0.0, 1.0]),
    ];
    let got = op("OneHot").numbers(&hot);
    assert_eq!(got, (vec![3, 2], vec![0.0, 1.0, 0.0, 1.0, 0.0, 0.0]));
    let top = op("TopK")
        .outputs(2)
        .all(&[content(&[3, 5]), list(&[2])])
        .unwrap();
    assert_eq!(top[1].dims, Some(vec![3, 2]));
}

#[test]
fn reductions_fold_their_axes() {
    let x = floats(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    for (name, want) in [
        ("ReduceSum", [4.0, 6.0]),
        ("ReduceMean", [2.0, 3.0]),
        ("ReduceMax", [3.0, 4.0]),
        ("ReduceMin", [1.0, 2.0]),
        ("ReduceProd", [3.0, 8.0]),
        ("ReduceSumSquare", [10.0, 20.0]),
        ("ReduceL2", [10f64.sqrt(), 20f64.sqrt()]),
    ] {
        let got = op(name)
            .ints("axes", &[0])
            .numbers(std::slice::from_ref(&x));
        assert_eq!(got, (vec![1, 2], want.to_vec()), "{name}");
        let flat = op(name).int("keepdims", 0);
        assert_eq!(flat.numbers(&[x.clone(), list(&[-2])]).0, [2], "{name}");
        assert_eq!(flat.dims(&[&[2, 2]]), [Some(vec![])], "{name}");
        assert_eq!(
            op(name).why(&[x.clone(), list(&[2])]),
            Some(Why::Axis),
            "{name}"
        );
    }
    let keeps_all = op("ReduceSum").int("noop_with_empty_axes", 1);
    assert_eq!(keeps_all.numbers(&[x, list(&[])]).0, [2, 2]);
    let empty = op("ReduceMax").run(&[floats(&[0], &[])]).unwrap();
    assert!(empty.data.is_none());
}
