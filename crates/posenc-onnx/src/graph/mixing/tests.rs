//! Mixers of small graphs, with and without attention that is known.

use posenc_ir::{Model, NodeId};
use rustc_hash::FxHashSet;

use super::{Known, Mixing, follow};
use crate::graph::dataflow::{Class, Classes, is_fed_ids};
use crate::graph::ports::{Lengths, Ports};
use posenc_ir::eval::{Budget, trace};

/// A model of this body between embeddings `x` of 6 tokens and `y`.
fn model(body: &str) -> Model {
    let text = format!(
        "<ir_version: 9, opset_import: [\"\" : 18, \"com.microsoft\" : 1, \
         \"com.microsoft.nchwc\" : 1]>\n\
         test (float[batch,sequence,8] x) => (float[] y) {{\n{body}\n}}\n"
    );
    Model::parse(&text).unwrap()
}

/// The operators that mix tokens, and how.
fn found(body: &str) -> Vec<(String, Mixing)> {
    let model = model(body);
    let known = Known::default();
    list(&model, &known)
}

fn list(model: &Model, known: &Known) -> Vec<(String, Mixing)> {
    let graph = model.graph();
    let ports = Ports::of(graph, &Default::default());
    let classes = Classes::of(graph, &ports);
    let lengths = Lengths {
        batch: 2,
        sequence: 6,
        past: 0,
    };
    let seeds = ports.seeds(graph, lengths);
    let opaque = |v| classes.of_value(v).has(Class::CONTENT) && !is_fed_ids(graph, v);
    let budget = Budget { elements: 1 << 16 };
    let trace = trace(model, &seeds, &opaque, &budget);
    let mixers = follow(model, &trace, &classes, (&ports, lengths), known).mixers;
    let op = |id: NodeId| graph.node(id).op().to_owned();
    mixers.iter().map(|m| (op(m.node), m.mixing)).collect()
}

/// The axes of tokens of an input of three axes that a convolution reads in this order.
fn axes(dims: &str, order: &str) -> Option<Vec<usize>> {
    let text = format!(
        "<ir_version: 9, opset_import: [\"\" : 18]>\n\
         test (float[{dims}] x, float[8, 16, 3] w) => (float[] y) {{\n\
         t = Transpose<perm = [{order}]>(x)\n    y = Conv(t, w)\n}}\n"
    );
    let model = Model::parse(&text).unwrap();
    let ports = Ports::of(model.graph(), &Default::default());
    let lengths = Lengths {
        batch: 2,
        sequence: 6,
        past: 0,
    };
    let port = ports.iter().next().unwrap();
    super::token_axes(
        (model.graph(), &ports),
        port,
        &ports.dims(port, lengths),
        lengths,
    )
}

#[test]
fn tokens_of_frames_are_along_the_open_axis() {
    assert_eq!(axes("batch, time, 16", "0, 2, 1"), Some(vec![1]));
    assert_eq!(axes("batch, 16, time", "0, 1, 2"), Some(vec![2]));
    assert_eq!(axes("batch, time, 16", "0, 1, 2"), Some(vec![1]));
    // Nothing tells where both are known.
    assert_eq!(axes("batch, 40, 16", "0, 2, 1"), Some(vec![1]), "control");
}

fn others(body: &str) -> Vec<String> {
    let all = found(body).into_iter();
    all.filter(|(_, mixing)| *mixing == Mixing::Other)
        .map(|(op, _)| op)
        .collect()
}

/// Weights `[8, 8]`.
const WEIGHTS: &str = "    shape = Constant<value: tensor = int64[2] {8, 8}>()\n\
     w = ConstantOfShape<value: tensor = float[1] {0.1}>(shape)\n";

#[test]
fn work_on_each_token_alone_mixes_nothing() {
    for body in [
        "y = Relu(x)",
        "h = MatMul(x, w)\n y = Add(h, x)",
        "c = Constant<value_ints = [0, 0, 4, 2]>()\n h = Reshape(x, c)\n \
         t = Transpose<perm: ints = [0, 2, 1, 3]>(h)\n u = Softmax<axis: int = -1>(t)\n \
         v = Transpose<perm: ints = [0, 2, 1, 3]>(u)\n d = Constant<value_ints = [0, 0, 8]>()\n \
         y = Reshape(v, d)",
        "m = ReduceMean<keepdims: int = 1>(x, last)\n y = Sub(x, m)",
        "h = Einsum<equation: string = \"bsd,de->bse\">(x, w)\n y = Mul(h, h)",
        "a, b = Split<axis: int = 2, num_outputs: int = 2>(x)\n n = Neg(b)\n \
         y = Concat<axis: int = 2>(n, a)",
        "p = Constant<value_ints = [0, 0, 1, 0, 0, -1]>()\n b = Pad(x, p)\n y = Add(x, b)",
        "t = Transpose<perm: ints = [0, 2, 1]>(x)\n n = Constant<value_float: float = 2.0>()\n \
         c = CastLike(n, x)\n u = Mul(t, c)\n y = Transpose<perm: ints = [0, 2, 1]>(u)",
    ] {
        let body = format!("{WEIGHTS}    last = Constant<value_ints = [-1]>()\n {body}");
        assert_eq!(found(&body), [], "{body}");
    }
}

#[test]
fn every_spelling_of_attention_mixes_tokens() {
    for (body, first) in [
        (
            "k = Transpose<perm: ints = [0, 2, 1]>(x)\n s = MatMul(x, k)\n \
             p = Softmax<axis: int = -1>(s)\n y = MatMul(p, x)",
            "MatMul",
        ),
        (
            "s = Einsum<equation: string = \"bqd,bkd->bqk\">(x, x)\n e = Exp(s)\n \
             y = Einsum<equation: string = \"bqk,bkd->bqd\">(e, x)",
            "Einsum",
        ),
        (
            "one = Constant<value_ints = [1]>()\n two = Constant<value_ints = [2]>()\n \
             q = Unsqueeze(x, two)\n k = Unsqueeze(x, one)\n m = Mul(q, k)\n y = Identity(m)",
            "Mul",
        ),
        ("y = Mystery(x)", "Mystery"),
        (
            "axis = Constant<value_int = 1>()\n y = CumSum(x, axis)",
            "CumSum",
        ),
        (
            "p = Constant<value_ints = [0, 1, 0, 0, -1, 0]>()\n b = Pad(x, p)\n y = Add(x, b)",
            "Add",
        ),
        (
            "p = Constant<value_ints = [-1, 1]>()\n v = Constant<value_float = 0.0>()\n \
             a = Constant<value_ints = [-2]>()\n b = Pad(x, p, v, a)\n y = Add(x, b)",
            "Add",
        ),
    ] {
        let found = others(body);
        assert_eq!(found.first().map(String::as_str), Some(first), "{body}");
    }
}

#[test]
fn what_no_output_depends_on_mixes_nothing() {
    let sum = "axis = Constant<value_int = 1>()\n s = CumSum(x, axis)\n";
    assert!(others(&format!("{sum} y = Relu(x)")).is_empty());
    assert_eq!(others(&format!("{sum} y = Relu(s)")), ["CumSum"]);
}

#[test]
fn bodies_are_seen_into() {
    let attention =
        "k = Transpose<perm: ints = [0, 2, 1]>(x)\n s = MatMul(x, k)\n z = MatMul(s, x)";
    let body = format!(
        "cond = Constant<value: tensor = bool {{1}}>()\n y = If (cond) <\n\
         then_branch: graph = then () => (float[batch,sequence,8] z) {{ {attention} }},\n\
         else_branch: graph = other () => (float[batch,sequence,8] z) {{ z = Relu(x) }}>"
    );
    assert_eq!(others(&body), ["MatMul", "MatMul"]);
}

/// A `Scan` along the sequence with a body of its own.
fn scanned(inputs: &str, attributes: &str, body: &str) -> Vec<(String, Mixing)> {
    found(&format!(
        "y = Scan <num_scan_inputs: int = 1, scan_input_axes: ints = [1], \
         scan_output_axes: ints = [1]{attributes}, body: graph = b {body}> ({inputs})"
    ))
}

#[test]
fn a_scan_that_gives_its_results_backwards_is_no_recurrence() {
    let body = "(float[batch,8] i) => (float[batch,8] o) { o = Relu(i) }";
    let scan = |attributes: &str| scanned("x", attributes, body);
    let other = [("Scan".to_owned(), Mixing::Other)];
    let both = ", scan_input_directions: ints = [1], scan_output_directions: ints = [1]";
    for in_order in ["", both] {
        assert!(scan(in_order).is_empty());
    }
    assert_eq!(scan(", scan_input_directions: ints = [1]"), other);
    assert_eq!(scan(", scan_output_directions: ints = [1]"), other);
}

#[test]
fn a_scan_that_takes_its_slices_in_two_orders_mixes_tokens() {
    let body = "(float[batch,8] i, float[batch,8] j) => (float[batch,8] o) { o = Add(i, j) }";
    let scan = |directions: &str| {
        found(&format!(
            "y = Scan <num_scan_inputs: int = 2, scan_input_axes: ints = [1, 1], \
             scan_output_axes: ints = [1]{directions}, body: graph = b {body}> (x, x)"
        ))
    };
    let other = [("Scan".to_owned(), Mixing::Other)];
    let all = ", scan_input_directions: ints = [1, 1], scan_output_directions: ints = [1]";
    assert!(scan("").is_empty());
    assert!(scan(all).is_empty());
    assert_eq!(scan(", scan_input_directions: ints = [0, 1]"), other);
    assert_eq!(scan(", scan_input_directions: ints = [1, 1]"), other);
}

#[test]
fn a_scan_that_reads_one_token_in_each_trip_mixes_tokens() {
    let scan = |at: i64| {
        found(&format!(
            "at = Constant<value_int = {at}>()\n one = Gather<axis: int = 1>(x, at)\n \
             y = Scan <num_scan_inputs: int = 1, scan_input_axes: ints = [1], \
             scan_output_axes: ints = [1], body: graph = b \
             (float[batch,8] i) => (float[batch,8] o) {{ o = Add(i, one) }}> (x)"
        ))
    };
    for at in [0, 2, -1] {
        assert!(!scan(at).is_empty(), "{at}");
    }
}

#[test]
fn a_state_of_content_makes_a_recurrence_and_another_does_not() {
    let recurrence = [("Scan".to_owned(), Mixing::Recurrence)];
    // `y` is the state after the last trip, beside what each trip gives.
    let scan = |body: &str| {
        found(&format!(
            "z = Constant<value_float = 0.0>()\n \
             s, y = Scan <num_scan_inputs: int = 1, scan_input_axes: ints = [1], \
             scan_output_axes: ints = [1], body: graph = b {body}> (z, x)"
        ))
    };
    let summed = "(float s, float[batch,8] i) => (float t, float[batch,8] o) \
                  { t = Add(s, i)\n o = Add(s, i) }";
    assert_eq!(scan(summed), recurrence);
    let counted = "(float s, float[batch,8] i) => (float t, float[batch,8] o) \
                   { one = Constant<value_float = 1.0>()\n t = Add(s, one)\n o = Mul(s, i) }";
    assert!(scan(counted).is_empty());
    // Each trip attends to all tokens.
    let attending = "(float s, float[batch,8] i) => (float t, float[batch,8] o) \
                     { one = Constant<value_float = 1.0>()\n t = Add(s, one)\n \
                     w = Einsum<equation: string = \"bd,bkd->bk\">(i, x)\n \
                     o = Einsum<equation: string = \"bk,bkd->bd\">(w, x) }";
    let found = scan(attending);
    assert!(
        found
            .iter()
            .any(|(op, mixing)| op == "Einsum" && *mixing == Mixing::Other),
        "{found:?}"
    );
    // What a trip reads from outside is of all tokens.
    let outside = "(float s, float[batch,8] i) => (float t, float[batch,8] o) \
                   { one = Constant<value_float = 1.0>()\n t = Add(s, one)\n \
                   m = ReduceMax<keepdims: int = 0>(x)\n o = Mul(m, i) }";
    assert!(!scan(outside).is_empty());
}

#[test]
fn statistics_convolutions_and_recurrences_have_names() {
    let one = "axes = Constant<value_ints = [1]>()\n";
    let mean = format!("{one} m = ReduceMean(x, axes)\n y = Sub(x, m)");
    assert_eq!(found(&mean), [("ReduceMean".into(), Mixing::Pooling)]);
    let last = "i = ArgMax<axis: int = 1, keepdims: int = 0>(x)\n y = Identity(i)";
    assert_eq!(found(last), [("ArgMax".into(), Mixing::Pooling)]);
    let conv = "t = Transpose<perm: ints = [0, 2, 1]>(x)\n \
                shape = Constant<value_ints = [8, 8, 3]>()\n \
                k = ConstantOfShape<value: tensor = float[1] {0.1}>(shape)\n \
                y = Conv<pads: ints = [1, 1]>(t, k)";
    assert_eq!(found(conv), [("Conv".into(), Mixing::Convolution)]);
}

#[test]
fn a_token_that_content_selects_is_no_new_order() {
    let flat = "axes = Constant<value_ints = [2]>()\n s = ReduceSum<keepdims: int = 0>(x, axes)\n \
                shape = Constant<value_ints = [-1, 8]>()\n flat = Reshape(x, shape)\n";
    let one =
        format!("{flat} i = ArgMax<axis: int = 1, keepdims: int = 0>(s)\n y = Gather(flat, i)");
    let picked = [
        ("ArgMax".into(), Mixing::Pooling),
        ("Gather".into(), Mixing::Pooling),
    ];
    assert_eq!(found(&one), picked);
    let pairs = format!(
        "{flat} i = ArgMax<axis: int = 1>(s)\n b = Mul(i, i)\n p = Concat<axis: int = 1>(b, i)\n \
         y = GatherND(x, p)"
    );
    assert_eq!(others(&pairs), [""; 0]);
    let sorted = format!(
        "{flat} k = Constant<value_ints = [6]>()\n v, i = TopK(s, k)\n \
         one = Constant<value_ints = [-1]>()\n j = Reshape(i, one)\n y = Gather(flat, j)"
    );
    assert_eq!(others(&sorted), ["Gather"]);
}

#[test]
fn what_is_added_up_at_one_place_is_united() {
    let at = |places: &str| {
        others(&format!(
            "p = Constant<value: tensor = int64[3,1] {{{places}}}>()\n \
             t = Transpose<perm: ints = [1, 0, 2]>(x)\n f = Constant<value_ints = [0]>()\n \
             e = Constant<value_ints = [3]>()\n part = Slice(t, f, e)\n \
             s = ScatterND<reduction: string = \"add\">(t, p, part)\n \
             y = Transpose<perm: ints = [1, 0, 2]>(s)"
        ))
    };
    assert_eq!(at("0, 1, 2"), [""; 0]);
    assert_eq!(at("1, 2, 3"), ["ScatterND"]);
    assert_eq!(at("0, 0, 2"), ["ScatterND"]);
}

#[test]
fn packed_rows_and_blocks_of_channels_mix_no_tokens_and_a_new_order_may() {
    let table = "table = Constant<value: tensor = uint8[9,4] {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, \
                 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}>()\n \
                 shape = Constant<value_ints = [9, 1]>()\n \
                 scales = ConstantOfShape<value: tensor = float[1] {0.1}>(shape)\n \
                 ids = ArgMax<axis: int = 2, keepdims: int = 0>(x)\n";
    let rows = |attribute: &str| {
        format!("{table} y = com.microsoft.GatherBlockQuantized<{attribute}>(table, ids, scales)")
    };
    assert_eq!(found(&rows("gather_axis: int = 0")), []);
    assert_ne!(
        found(&rows("gather_axis: float = 0.0")),
        [],
        "an axis of another type"
    );
    let blocked = |last: i64| {
        format!(
            "t = Transpose<perm: ints = [0, 2, 1]>(x)\n one = Constant<value_ints = [3]>()\n \
             u = Unsqueeze(t, one)\n \
             y = com.microsoft.nchwc.ReorderOutput<channels: int = 8, channels_last: int = {last}>(u)"
        )
    };
    assert_eq!(found(&blocked(0)), []);
    assert_ne!(found(&blocked(1)), []);
}

#[test]
fn a_product_over_all_tokens_with_weights_is_not_named() {
    let body = "t = Transpose<perm: ints = [0, 2, 1]>(x)\n \
                shape = Constant<value_ints = [6, 6]>()\n \
                w = ConstantOfShape<value: tensor = float[1] {0.1}>(shape)\n y = MatMul(t, w)";
    assert_eq!(others(body), ["MatMul"]);
}

#[test]
fn known_attention_is_let_through_and_the_rest_is_not() {
    let body = "k = Transpose<perm: ints = [0, 2, 1]>(x)\n s = MatMul(x, k)\n \
                p = Softmax<axis: int = -1>(s)\n h = MatMul(p, x)\n r = Add(x, h)\n \
                a = MatMul(r, k)\n y = MatMul(a, r)";
    let model = model(body);
    let graph = model.graph();
    let products: Vec<NodeId> = (graph.nodes())
        .filter(|(_, node)| node.is("MatMul"))
        .map(|(id, _)| id)
        .collect();
    let keys_and_values: FxHashSet<_> = [(products[0], 1), (products[1], 1)].into_iter().collect();
    let known = Known {
        keys_and_values,
        ..Known::default()
    };
    let left = list(&model, &known);
    assert_eq!(left.len(), 2, "the second attention alone: {left:?}");
    assert!(
        left.iter()
            .all(|(op, mixing)| op == "MatMul" && *mixing == Mixing::Other)
    );
}

#[test]
fn elements_that_content_chooses_mix_what_is_along_their_axis() {
    let chosen = "k = Constant<value_ints = [2]>()\n v, i = TopK<axis: int = 2>(x, k)\n";
    // Each token chooses among its own features.
    for body in [
        "z = Sub(x, x)\n y = ScatterElements<axis: int = 2>(z, i, v)",
        "y = GatherElements<axis: int = 2>(x, i)",
    ] {
        assert_eq!(others(&format!("{chosen} {body}")), [""; 0], "{body}");
        assert!(found(&format!("{chosen} {body}")).is_empty(), "{body}");
    }
    // Among tokens.
    let tokens = "k = Constant<value_ints = [6]>()\n v, i = TopK<axis: int = 2>(x, k)\n";
    let body = format!("{tokens} z = Sub(x, x)\n y = ScatterElements<axis: int = 1>(z, i, v)");
    assert_eq!(others(&body), ["ScatterElements"]);
    let body = format!("{tokens} y = GatherElements<axis: int = 1>(x, i)");
    assert!(!found(&body).is_empty());
}

/// The sum of tokens with weights `p`, which `body` computes from features `h` of each.
fn weighted(body: &str) -> Vec<(String, Mixing)> {
    let constants = "narrow = Constant<value_ints = [8, 1]>()\n \
                     v = ConstantOfShape<value: tensor = float[1] {0.1}>(narrow)\n \
                     at = Constant<value_int = 0>()\n one = Constant<value_ints = [1]>()\n \
                     h = MatMul(x, w)\n s = MatMul(h, v)\n";
    let sum = "t = Transpose<perm: ints = [0, 2, 1]>(p)\n y = MatMul(t, x)";
    found(&format!("{WEIGHTS} {constants} {body}\n {sum}"))
}

#[test]
fn a_sum_of_tokens_with_a_weight_for_each_is_a_pooling() {
    let sum = ("MatMul".to_owned(), Mixing::Pooling);
    for body in [
        "p = Softmax<axis: int = 1>(s)",
        "a = Tanh(s)\n b = Mul(a, a)\n p = Softmax<axis: int = 1>(b)",
        // A summary of all tokens counts for each alike, as the state of a recurrence does.
        "m = ReduceMax<keepdims: int = 1>(x, one)\n g = MatMul(m, v)\n a = Add(s, g)\n \
         p = Softmax<axis: int = 1>(a)",
    ] {
        assert_eq!(weighted(body).last(), Some(&sum), "{body}");
    }
}

#[test]
fn a_sum_of_tokens_with_other_weights_is_none() {
    for body in [
        "p = Identity(s)",
        "p = Softmax<axis: int = 0>(s)",
        // A weight for each place.
        "c = Constant<value: tensor = float[6, 1] {0.0, 0.1, 0.2, 0.3, 0.4, 0.5}>()\n \
         a = Add(s, c)\n p = Softmax<axis: int = 1>(a)",
        // A position.
        "n = Shape(x)\n i = Constant<value_int = 1>()\n l = Gather(n, i)\n \
         r = Range(at, l, i)\n f = Cast<to: int = 1>(r)\n \
         u = Unsqueeze(f, one)\n a = Add(s, u)\n p = Softmax<axis: int = 1>(a)",
        // The weights of the tokens before.
        "e = Constant<value_ints = [0, 1, 0, 0, -1, 0]>()\n b = Pad(s, e)\n \
         p = Softmax<axis: int = 1>(b)",
        // Products of tokens.
        "k = Transpose<perm: ints = [0, 2, 1]>(x)\n q = MatMul(x, k)\n a = MatMul(q, s)\n \
         p = Softmax<axis: int = 1>(a)",
        // Weights from a summary, one for each place.
        "m = ReduceMax<keepdims: int = 1>(x, one)\n z = Constant<value_ints = [8, 6]>()\n \
         d = ConstantOfShape<value: tensor = float[1] {0.1}>(z)\n g = MatMul(m, d)\n \
         a = Transpose<perm: ints = [0, 2, 1]>(g)\n p = Softmax<axis: int = 1>(a)",
    ] {
        let last = weighted(body).last().cloned();
        assert_eq!(last, Some(("MatMul".to_owned(), Mixing::Other)), "{body}");
    }
}

#[test]
fn as_many_sums_as_tokens_are_no_pooling() {
    let of = |queries: usize| {
        let constants = format!(
            "z = Constant<value_ints = [{queries}, 8]>()\n \
             d = ConstantOfShape<value: tensor = float[1] {{0.1}}>(z)\n \
             e = Transpose<perm: ints = [1, 0]>(d)\n k = Transpose<perm: ints = [0, 2, 1]>(x)\n"
        );
        [
            "a = MatMul(d, k)\n p = Softmax<axis: int = 2>(a)",
            "b = MatMul(x, e)\n a = Transpose<perm: ints = [0, 2, 1]>(b)\n \
             p = Softmax<axis: int = 2>(a)",
        ]
        .map(|scores| found(&format!("{constants} {scores}\n y = MatMul(p, x)")))
        .map(|all| all.last().cloned().unwrap().1)
    };
    assert_eq!(of(4), [Mixing::Pooling; 2]);
    assert_eq!(of(6), [Mixing::Other; 2]);
}

#[test]
fn before_opset_13_a_softmax_is_over_the_axes_that_follow_too() {
    let of = |features: usize| {
        let text = format!(
            "<ir_version: 7, opset_import: [\"\" : 12]>\n\
             test (float[batch,sequence,8] x) => (float[] y) {{\n\
             shape = Constant<value: tensor = int64[2] {{8, {features}}}>()\n\
             w = ConstantOfShape<value: tensor = float[1] {{0.1}}>(shape)\n\
             s = MatMul(x, w)\n p = Softmax(s)\n t = Transpose<perm: ints = [0, 2, 1]>(p)\n\
             y = MatMul(t, x)\n}}\n"
        );
        list(&Model::parse(&text).unwrap(), &Known::default())
    };
    let sum = |mixing| Some(("MatMul".to_owned(), mixing));
    assert_eq!(of(1).last().cloned(), sum(Mixing::Pooling));
    assert_eq!(of(2).last().cloned(), sum(Mixing::Other));
}

/// The mixers of a model with states `[batch, 2, 8]` besides `x`, from which `body` computes `y`.
fn with_states(body: &str) -> Vec<(String, Mixing)> {
    let text = format!(
        "<ir_version: 9, opset_import: [\"\" : 18]>\n\
         test (float[batch,sequence,8] x, float[batch,2,8] states) => (float[] y) {{\n\
         first = Constant<value_int = 0>()\n second = Constant<value_int = 1>()\n\
         {body}\n}}\n"
    );
    list(&Model::parse(&text).unwrap(), &Known::default())
}

#[test]
fn states_of_layers_that_are_taken_apart_are_no_tokens() {
    let own = "a = Gather<axis: int = 1>(states, first)\n b = Gather<axis: int = 1>(states, second)\n\
               l = Gather<axis: int = 1>(x, first)\n c = Add(l, a)\n y = Add(c, b)";
    assert_eq!(with_states(own), []);
    let whole = format!(
        "{own}2\n d = Neg(states)\n e = Add(d, states)\n f = Add(y2, l)\n \
                         g = Gather<axis: int = 1>(e, second)\n y = Add(f, g)"
    );
    assert!(!with_states(&whole.replace("y = Add(c, b)2", "y2 = Add(c, b)")).is_empty());
}
