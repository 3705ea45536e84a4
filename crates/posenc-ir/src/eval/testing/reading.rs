//! Operators that read and write at places.

use super::*;

#[test]
fn slices_read_the_same_from_arrays_and_from_stored_constants() {
    let all: Vec<i64> = (0..12).collect();
    let cases: [[&[i64]; 5]; 5] = [
        [&[1], &[3], &[0], &[1], &[4, 5, 6, 7, 8, 9, 10, 11]],
        [&[-1], &[-100], &[0], &[-2], &[8, 9, 10, 11, 0, 1, 2, 3]],
        [&[0, 3], &[2, 0], &[0, 1], &[1, -2], &[3, 1, 7, 5]],
        [&[1, 1], &[100, 2], &[-2, -1], &[1, 1], &[5, 9]],
        [&[2], &[2], &[1], &[1], &[]],
    ];
    for [starts, ends, axes, steps, want] in cases {
        let parameters = [starts, ends, axes, steps].map(list);
        for x in [ints(&[3, 4], &all), stored(&[3, 4], &all)] {
            let inputs = [vec![x], parameters.to_vec()].concat();
            let out = op("Slice").run(&inputs).unwrap();
            let got: Vec<i64> = out.to_i64().unwrap().iter().copied().collect();
            assert_eq!(got, want, "{starts:?} {ends:?}");
        }
    }
    let early = op("Slice").opset(9).ints("starts", &[1]).ints("ends", &[9]);
    assert_eq!(early.dims(&[&[3, 4]]), [Some(vec![2, 4])]);
}

#[test]
fn slices_with_invalid_parameters_are_refused() {
    let x = count(&[3, 4]);
    let cases = [
        (
            "no ends",
            vec![x.clone(), list(&[0])],
            Why::Parameter("starts"),
        ),
        (
            "length",
            vec![x.clone(), list(&[0]), list(&[1, 2])],
            Why::Parameter("starts"),
        ),
        (
            "axis",
            vec![x.clone(), list(&[0]), list(&[1]), list(&[2])],
            Why::Axis,
        ),
        (
            "twice",
            vec![x.clone(), list(&[0, 0]), list(&[1, 1]), list(&[0, -2])],
            Why::Axis,
        ),
        (
            "step",
            vec![x.clone(), list(&[0]), list(&[1]), list(&[0]), list(&[0])],
            Why::Parameter("steps"),
        ),
    ];
    for (name, inputs, why) in cases {
        assert_eq!(op("Slice").why(&inputs), Some(why), "{name}");
    }
    let open = op("Slice")
        .run(&[x, list(&[0]), Value::opaque(DType::I64, [1])])
        .unwrap();
    assert_eq!((open.dtype, open.dims), (Some(DType::F32), None));
}

#[test]
fn gathers_read_rows_elements_and_tuples() {
    let table = stored(&[3, 2], &[0, 1, 10, 11, 20, 21]);
    let got = op("Gather").numbers(&[table.clone(), ints(&[1, 2], &[2, -3])]);
    assert_eq!(got, (vec![1, 2, 2], vec![20.0, 21.0, 0.0, 1.0]));
    let got = op("Gather")
        .int("axis", 1)
        .numbers(&[table.clone(), ints(&[], &[-1])]);
    assert_eq!(got, (vec![3], vec![1.0, 11.0, 21.0]));
    let got = op("GatherElements").numbers(&[table.clone(), ints(&[2, 2], &[0, 2, 1, -1])]);
    assert_eq!(got, (vec![2, 2], vec![0.0, 21.0, 10.0, 21.0]));
    let got = op("GatherND").numbers(&[table.clone(), ints(&[2, 2], &[2, 0, 0, -1])]);
    assert_eq!(got, (vec![2], vec![20.0, 1.0]));
    let got = op("GatherND").numbers(&[table.clone(), ints(&[1, 1], &[1])]);
    assert_eq!(got, (vec![1, 2], vec![10.0, 11.0]));
    let batched = op("GatherND").int("batch_dims", 1);
    let got = batched.numbers(&[table, ints(&[3, 1], &[0, 1, 0])]);
    assert_eq!(got, (vec![3], vec![0.0, 11.0, 20.0]));
}

#[test]
fn an_index_out_of_range_gives_dimensions_without_data() {
    let table = stored(&[3, 2], &[0, 1, 10, 11, 20, 21]);
    for (name, indices, dims) in [
        ("Gather", ints(&[1], &[3]), vec![1, 2]),
        ("Gather", ints(&[1], &[-4]), vec![1, 2]),
        ("GatherElements", ints(&[1, 1], &[3]), vec![1, 1]),
        ("GatherND", ints(&[1, 1], &[i64::MIN]), vec![1, 2]),
    ] {
        let out = op(name).run(&[table.clone(), indices]).unwrap();
        assert_eq!((out.dims, out.data.is_none()), (Some(dims), true), "{name}");
    }
    let refused = [
        (
            op("Gather").int("axis", 2),
            vec![table.clone(), list(&[0])],
            Why::Axis,
        ),
        (
            op("GatherElements"),
            vec![table.clone(), list(&[0])],
            Why::Rank,
        ),
        (
            op("GatherND"),
            vec![table.clone(), ints(&[1, 3], &[0; 3])],
            Why::Rank,
        ),
        (
            op("GatherND"),
            vec![table.clone(), ints(&[], &[0])],
            Why::Rank,
        ),
        (
            op("GatherND").int("batch_dims", 1),
            vec![table, ints(&[2, 1], &[0; 2])],
            Why::Shapes,
        ),
    ];
    for (op, inputs, why) in refused {
        assert_eq!(op.why(&inputs), Some(why), "{}", op.node.op());
    }
}

#[test]
fn scattered_updates_replace_or_combine_elements() {
    let x = ints(&[4], &[1, 2, 3, 4]);
    let updates = ints(&[2], &[10, -20]);
    for (reduction, want) in [
        ("none", [1.0, -20.0, 3.0, 10.0]),
        ("add", [1.0, -18.0, 3.0, 14.0]),
        ("mul", [1.0, -40.0, 3.0, 40.0]),
        ("min", [1.0, -20.0, 3.0, 4.0]),
        ("max", [1.0, 2.0, 3.0, 10.0]),
    ] {
        let elements = op("ScatterElements").text("reduction", reduction);
        let got = elements.numbers(&[x.clone(), list(&[3, 1]), updates.clone()]);
        assert_eq!(got.1, want, "{reduction}");
        let tuples = op("ScatterND").text("reduction", reduction);
        let got = tuples.numbers(&[x.clone(), ints(&[2, 1], &[-1, 1]), updates.clone()]);
        assert_eq!(got.1, want, "{reduction}");
    }
    let odd = op("ScatterND").text("reduction", "pow");
    let why = odd.why(&[x.clone(), ints(&[2, 1], &[0, 1]), updates.clone()]);
    assert_eq!(why, Some(Why::Attribute("reduction")));
    // An index outside, and fewer updates than indices.
    for (indices, updates) in [([9, 1], updates), ([0, 1], ints(&[1], &[5]))] {
        let out = op("ScatterND")
            .run(&[x.clone(), ints(&[2, 1], &indices), updates])
            .unwrap();
        assert!(out.data.is_none());
    }
}

#[test]
fn new_slots_of_a_cache_are_written_from_an_index_of_each_sequence_on() {
    let cache = ints(&[2, 1, 4, 1], &[1, 2, 3, 4, 5, 6, 7, 8]);
    let new = ints(&[2, 1, 2, 1], &[10, 20, 30, 40]);
    let written = |mode: &str, first: &[i64]| {
        let written = op("TensorScatter").text("mode", mode);
        let out = written.run(&[cache.clone(), new.clone(), list(first)]);
        let numbers = out.unwrap().to_i64()?;
        Some(numbers.iter().copied().collect::<Vec<i64>>())
    };
    let both = Some(vec![10, 20, 3, 4, 5, 6, 30, 40]);
    assert_eq!(written("linear", &[0, 2]), both);
    assert_eq!(written("circular", &[0, 2]), both);
    let around = Some(vec![20, 2, 3, 10, 5, 30, 40, 8]);
    assert_eq!(written("circular", &[3, 1]), around);
    for first in [&[3, 1][..], &[-1, 0], &[0], &[0, i64::MAX]] {
        assert_eq!(written("linear", first), None, "{first:?}");
    }
    let long = [
        ints(&[1, 1, 1, 0], &[]),
        Value::opaque(DType::I64, [1, 1, 1 << 60, 0]),
        list(&[0]),
    ];
    let circular = op("TensorScatter").text("mode", "circular");
    assert!(
        circular.run(&long).unwrap().data.is_none(),
        "more than the cache has"
    );
    let absent = op("TensorScatter").numbers(&[cache.clone(), new.clone()]);
    assert_eq!(absent.1, [10.0, 20.0, 3.0, 4.0, 30.0, 40.0, 7.0, 8.0]);
    let odd = op("TensorScatter").text("mode", "spiral");
    assert_eq!(odd.why(&[cache, new]), Some(Why::Attribute("mode")));
}
