//! Control flow that decides nothing, and nodes that compute the same.

use super::*;

/// A model of this body between integers `input_ids` and `y`.
fn written(body: &str) -> Model {
    let text = format!(
        "<ir_version: 9, opset_import: [\"\" : 18]>\n\
         test (int64[batch,sequence] input_ids) => (float[] y, float[] kept) {{\n\
         one = Constant<value: tensor = int64 {{1}}>()\n\
         two = Constant<value: tensor = int64 {{2}}>()\n\
         all = Size(input_ids)\n\
         yes = Constant<value: tensor = bool {{1}}>()\n\
         first = Constant<value_ints = [0]>()\n\
         x = Cast<to: int = 1>(input_ids)\n kept = Abs(x)\n{body}\n}}\n"
    );
    Model::parse(&text).unwrap()
}

/// A loop with this count, condition and body.
fn repeated(count: &str, condition: &str, body: &str) -> Model {
    written(&format!(
        "all_of_them = Loop ({count}, yes) <body: graph = each (int64 i, bool c) => (bool d, float[] z) \
         {{ d = {condition}\n z = {body} }}>\n y = Squeeze(all_of_them)"
    ))
}

/// A scan over `rows`.
fn scanned(rows: &str) -> Model {
    written(&format!(
        "rows = {rows}\n all_of_them = Scan <num_scan_inputs: int = 1, body: graph = each \
         (float[] r) => (float[] z) {{ z = Neg(r) }}> (rows)\n y = Squeeze(all_of_them)"
    ))
}

fn respelled(model: &Model) -> Option<Model> {
    plain(model, &BTreeMap::new())
}

#[test]
fn one_trip_is_computed_without_a_loop() {
    let want = written("y = Neg(x)");
    for model in [
        repeated("one", "Identity(c)", "Neg(x)"),
        repeated("one", "Not(c)", "Neg(x)"),
        scanned("Unsqueeze(x, first)"),
    ] {
        let plain = respelled(&model).expect("the loop is replaced");
        let left = operators(&plain);
        assert!(
            !left.iter().any(|op| op == "Loop" || op == "Scan"),
            "{left:?}"
        );
        let far = output(&plain, [2, 5])
            .iter()
            .zip(&output(&want, [2, 5]))
            .fold(0.0_f64, |most, (a, b)| most.max((a - b).abs()));
        assert!(far < 1e-9, "{far}");
    }
}

#[test]
fn a_loop_that_counts_is_a_range() {
    let model = repeated("all", "Identity(c)", "Cast<to: int = 1>(i)");
    let plain = respelled(&model).expect("the loop is replaced");
    assert!(operators(&plain).iter().any(|op| op == "Range"));
    let numbers: Vec<f64> = output(&plain, [2, 5]).iter().copied().collect();
    let want: Vec<f64> = (0..10).map(f64::from).collect();
    assert_eq!(numbers, want);
}

/// A loop that carries `first`, makes `next` of it and stacks it, in `type`.
fn carried(first: &str, next: &str, kind: &str) -> Model {
    written(&format!(
        "half = Constant<value: tensor = float {{0.5}}>()\n three = Constant<value: tensor = float {{3.0}}>()\n \
         {first}\n last, all_of_them = Loop (all, yes, first_of_them) <body: graph = each \
         (int64 i, bool c, {kind} a) => (bool d, {kind} b, float[] z) \
         {{ d = Identity(c)\n b = {next}\n z = Cast<to: int = 1>(a) }}>\n y = Neg(all_of_them)"
    ))
}

#[test]
fn a_loop_that_carries_a_count_is_a_range() {
    for (first, next, kind, at) in [
        (
            "first_of_them = Identity(three)",
            "Add(a, three)",
            "float",
            [-3.0, -6.0],
        ),
        (
            "first_of_them = Identity(two)",
            "Add(one, a)",
            "int64",
            [-2.0, -3.0],
        ),
        (
            "first_of_them = Size(x)",
            "Add(two, a)",
            "int64",
            [-10.0, -12.0],
        ),
    ] {
        let model = carried(first, next, kind);
        let plain = respelled(&model).expect("the loop is replaced");
        assert!(!operators(&plain).iter().any(|op| op == "Loop"));
        let numbers = output(&plain, [2, 5]);
        assert_eq!(numbers.len(), 10);
        assert_eq!([numbers[[0]], numbers[[1]]], at);
        assert!(difference(&plain, &model) < 1e-9);
    }
}

#[test]
fn a_loop_that_carries_another_number_stays() {
    for (name, first, next, kind) in [
        (
            "fractions",
            "first_of_them = Identity(three)",
            "Add(a, half)",
            "float",
        ),
        (
            "a fraction at first",
            "first_of_them = Identity(half)",
            "Add(a, three)",
            "float",
        ),
        (
            "content",
            "first_of_them = ReduceMax<keepdims: int = 0>(x)",
            "Add(a, three)",
            "float",
        ),
        (
            "powers",
            "first_of_them = Identity(two)",
            "Mul(a, two)",
            "int64",
        ),
        (
            "twice as much",
            "first_of_them = Identity(two)",
            "Add(a, a)",
            "int64",
        ),
        (
            "triangular numbers",
            "first_of_them = Identity(two)",
            "Add(a, i)",
            "int64",
        ),
    ] {
        assert!(respelled(&carried(first, next, kind)).is_none(), "{name}");
    }
    let body = "last, all_of_them = Loop (all, yes, two) <body: graph = each \
         (int64 i, bool c, int64 a) => (bool d, int64 b, float[] z) \
         { d = Identity(c)\n b = Add(a, one)\n z = Cast<to: int = 1>(a) }>\n \
         n = Cast<to: int = 1>(last)\n y = Add(n, all_of_them)";
    assert!(respelled(&written(body)).is_none(), "the last one is read");
}

#[test]
fn other_loops_stay() {
    for (name, model) in [
        ("two trips", repeated("two", "Identity(c)", "Neg(x)")),
        (
            "ends early",
            repeated("all", "Less(i, two)", "Cast<to: int = 1>(i)"),
        ),
        ("content", repeated("all", "Identity(c)", "Add(x, x)")),
        ("several slices", scanned("Identity(x)")),
        (
            "a bound for each trip",
            repeated(
                "all",
                "Identity(c)\n g = Cast<to: int = 1>(i)\n \
                 h = Constant<value: tensor = float {5.0}>()",
                "Clip(h, g)",
            ),
        ),
    ] {
        assert!(respelled(&model).is_none(), "{name}");
    }
}

#[test]
fn nodes_that_compute_the_same_become_one() {
    let twice = written("a = Exp(x)\n b = Exp(x)\n y = Mul(a, b)");
    let once = respelled(&twice).expect("one of them goes");
    let all = operators(&once);
    assert_eq!(all.iter().filter(|op| *op == "Exp").count(), 1, "{all:?}");
    assert!(difference(&twice, &once) < 1e-9);
    let of_constants = |numbers: [&str; 2]| {
        let [c, d] = numbers;
        written(&format!(
            "c = Constant<value: tensor = {c}>()\n d = Constant<value: tensor = {d}>()\n \
             a = Pow(x, c)\n b = Pow(x, d)\n y = Mul(a, b)"
        ))
    };
    let equal = of_constants(["float {2.0}", "float {2.0}"]);
    let once = respelled(&equal).expect("one of them goes");
    assert_eq!(operators(&once).iter().filter(|op| *op == "Pow").count(), 1);
    for different in [
        ["float {2.0}", "float {3.0}"],
        ["float {2.0}", "float[1] {2.0}"],
        ["float {0.0}", "float {-0.0}"],
    ] {
        assert!(
            respelled(&of_constants(different)).is_none(),
            "{different:?}"
        );
    }
    for other in [
        "a = Exp(x)\n b = Neg(x)\n y = Mul(a, b)",
        "a = Cast<to: int = 6>(x)\n b = Cast<to: int = 7>(x)\n c = Cast<to: int = 7>(a)\n d = Mul(b, c)\n \
         y = Cast<to: int = 1>(d)",
        "a = RandomNormalLike(x)\n b = RandomNormalLike(x)\n y = Mul(a, b)",
    ] {
        assert!(respelled(&written(other)).is_none(), "{other}");
    }
}

#[test]
fn what_is_computed_for_no_output_is_dropped() {
    let model = written("a = Exp(x)\n b = Neg(a)\n y = Neg(x)");
    let less = respelled(&model).expect("two nodes are dropped");
    assert!(!operators(&less).iter().any(|op| op == "Exp"));
    assert!(difference(&model, &less) < 1e-9);
    let sizes = written("s = Shape(x)\n t = Size(x)\n y = Neg(x)");
    assert!(respelled(&sizes).is_none(), "sizes hold nothing");
    let chain = written("a = Exp(x)\n s = Shape(a)\n t = Size(s)\n y = Neg(x)");
    let less = respelled(&chain).expect("three nodes are dropped");
    let left = operators(&less);
    assert!(
        !left.iter().any(|op| op == "Exp" || op == "Shape"),
        "{left:?}"
    );
}

#[test]
fn what_a_body_reads_stays() {
    let model = written(
        "a = Exp(x)\n c = Greater(all, two)\n y = If (c) <then_branch: graph = t () => (float[] z) \
         { d = Neg(a)\n z = Abs(x) }, else_branch: graph = e () => (float[] w) { w = Neg(x) }>",
    );
    assert!(respelled(&model).is_none(), "nothing can be dropped");
}

#[test]
fn the_same_of_inputs_in_another_order_is_one() {
    let left = |a: &str, b: &str| {
        let twice = written(&format!(
            "c = Cast<to: int = 9>(x)\n d = Not(c)\n e = Exp(x)\n a = {a}\n b = {b}\n \
             f = Where(d, a, b)\n g = Cast<to: int = 1>(c)\n y = Add(f, g)"
        ));
        let plain = respelled(&twice).unwrap_or_else(|| twice.clone());
        assert!(difference(&twice, &plain) < 1e-9, "{a}, {b}");
        let op = a.split('(').next().unwrap();
        operators(&plain).iter().filter(|own| *own == op).count() - usize::from(op == "Where")
    };
    assert_eq!(left("Mul(x, e)", "Mul(e, x)"), 1);
    assert_eq!(left("Where(c, x, e)", "Where(d, e, x)"), 1);
    assert_eq!(left("Sub(x, e)", "Sub(e, x)"), 2);
    assert_eq!(left("Where(c, x, e)", "Where(d, x, e)"), 2);
    assert_eq!(left("Where(c, x, e)", "Where(c, e, x)"), 2);
}

#[test]
fn rows_in_pieces_that_a_body_gives_hinder_nothing() {
    let body = "few = Constant<value: tensor = float[1,2] {1.0, 2.0}>()\n a = Exp(x)\n b = Exp(x)\n \
         stack, more = Loop (all, yes) <body: graph = each \
         (int64 i, bool c) => (bool d, float[] z, float[] g) \
         { d = Identity(c)\n g = Concat<axis: int = 0>(few, few)\n z = Add(a, b) }>\n \
         most = ReduceMax(more)\n y = Mul(stack, most)";
    let plain = respelled(&written(body)).expect("one of two is left out");
    let left = operators(&plain);
    assert!(!left.iter().any(|op| op == "Concat"), "{left:?}");
    assert_eq!(left.iter().filter(|op| *op == "Exp").count(), 1, "{left:?}");
}

#[test]
fn a_replacement_that_the_graph_refuses_hinders_no_other() {
    // What is computed from a value in its place is a circle.
    static REFUSED: [Rule; 1] = [|view, draft, id| {
        let graph = view.graph();
        let after = graph.find(graph.main(), "a")?;
        draft.replace(graph.node(id).output(0)?, after)
    }];
    let model = written("a = Exp(x)\n b = Exp(x)\n y = Mul(a, b)");
    let roles = BTreeMap::new();
    let respelling = Respelling {
        roles: &roles,
        constants: repeated::equal_constants(model.graph()),
        rules_of: |node| match node.op() {
            "Cast" => [&REFUSED, &[]],
            _ => [&[], &[]],
        },
    };
    let nodes: Vec<_> = model.graph().nodes().map(|(id, _)| id).collect();
    assert!(respelling.at_once(&model, &nodes).is_err());
    let left = operators(&respelling.of(&model, &nodes).expect("the other fits"));
    assert_eq!(left.iter().filter(|op| *op == "Exp").count(), 1, "{left:?}");
    assert!(left.iter().any(|op| op == "Cast"), "{left:?}");
}
