//! Loops and scans that are followed trip by trip.

use super::*;

/// A loop that carries a number and stacks it, to which each trip adds `step`.
fn counter(condition: &str, most: i64, end: i64, extra: Vec<ValueInfoProto>) -> GraphProto {
    let body = graph(
        vec![
            node("Add", &["carried", "step"], &["next"]),
            node(condition, &["carried", "end"], &["go_on"]),
            node("Identity", &["carried"], &["piece"]),
        ],
        vec![],
        vec![untyped("trip"), untyped("go"), untyped("carried")],
        &["go_on", "next", "piece"],
    );
    let count = node("Loop", &["most", "", "first"], &["last", "pieces"]);
    let constants = vec![
        int_constant("most", &[], &[most]),
        int_constant("first", &[], &[3]),
        int_constant("step", &[], &[2]),
        int_constant("end", &[], &[end]),
    ];
    let constants = constants.into_iter();
    let constants = constants.filter(|c| extra.iter().all(|v| v.name != c.name));
    let count = samples::with_bodies(count, vec![("body", body)]);
    graph(vec![count], constants.collect(), extra, &["last", "pieces"])
}

#[test]
fn a_loop_of_known_numbers_is_run_to_its_end() {
    for (condition, most, last, pieces) in [
        ("LessOrEqual", 3, 9.0, vec![3.0, 5.0, 7.0]),
        // The condition ends it.
        ("Less", 100, 9.0, vec![3.0, 5.0, 7.0]),
        ("Greater", 100, 5.0, vec![3.0]),
    ] {
        let model = samples::model(counter(condition, most, 6, vec![]));
        let run = trace(&model, &FxHashMap::default(), NOTHING, &BUDGET);
        let (dims, all) = numbers(get(&model, &run, "pieces"));
        assert_eq!((dims, &all), (vec![pieces.len()], &pieces), "{condition}");
        let value = get(&model, &run, "last");
        assert_eq!(value.scalar_f64(), Some(last), "{condition}");
        // One run with what is carried unknown is what the trace holds of the body.
        assert!(get(&model, &run, "next").data.is_none());
    }
}

#[test]
fn a_loop_without_numbers_or_with_too_many_trips_has_none() {
    let open = |name| vec![value(name, DType::I64, &[])];
    for (most, end, extra) in [
        (3, 6, open("first")),
        (3, 6, open("end")),
        (3, 6, open("most")),
        (i64::MAX, i64::MAX, vec![]),
    ] {
        let model = samples::model(counter("LessOrEqual", most, end, extra));
        let run = trace(&model, &FxHashMap::default(), NOTHING, &BUDGET);
        for name in ["last", "pieces"] {
            assert!(get(&model, &run, name).data.is_none(), "{most} {name}");
        }
    }
}

#[test]
fn a_scan_of_known_numbers_is_run_to_its_end() {
    let body = graph(
        vec![
            node("Add", &["state", "row"], &["state_out"]),
            node("Neg", &["state_out"], &["row_out"]),
        ],
        vec![],
        vec![untyped("state"), untyped("row")],
        &["state_out", "row_out"],
    );
    let constants = vec![
        samples::floats("zero", &[0.0]),
        samples::floats("x", &[1.0, 2.0, 4.0]),
    ];
    for reversed in [false, true] {
        let scan = samples::with_bodies(
            node("Scan", &["zero", "x"], &["total", "rows"]),
            vec![("body", body.clone())],
        );
        let mut scan = int_attribute(scan, "num_scan_inputs", 1);
        if reversed {
            // A direction that is not followed.
            let mut directions = AttributeProto {
                name: Some("scan_input_directions".to_owned()),
                ints: vec![1],
                ..Default::default()
            };
            directions.set_type(AttributeType::Ints);
            scan.attribute.push(directions);
        }
        let graph = graph(vec![scan], constants.clone(), vec![], &["total", "rows"]);
        let model = samples::model(graph);
        let run = trace(&model, &FxHashMap::default(), NOTHING, &BUDGET);
        let value = get(&model, &run, "rows");
        assert_eq!(value.dims, Some(vec![3, 1]));
        assert_eq!(value.data.is_none(), reversed);
        if !reversed {
            assert_eq!(numbers(value).1, [-1.0, -3.0, -7.0]);
        }
    }
}
