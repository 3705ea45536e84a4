//! Positions in layers that are the trips of a loop.

use super::*;

/// Attention, and something behind it, in the body of a loop of two trips.
fn looped(behind: &str) -> Model {
    let text = format!(
        "<ir_version: 9, opset_import: [\"\" : 18]>\n\
         test (float[batch,sequence,8] inputs_embeds) => (float[batch,sequence,8] y) {{\n\
         two = Constant<value: tensor = int64 {{2}}>()\n\
         yes = Constant<value: tensor = bool {{1}}>()\n\
         zero = Constant<value_ints = [0]>()\n one = Constant<value_ints = [1]>()\n\
         many = Constant<value_ints = [1000]>()\n twice = Constant<value_float = 2.0>()\n\
         y = Loop (two, yes, inputs_embeds) <body: graph = layer \
         (int64 i, bool c, float[batch,sequence,8] x) => (bool d, float[batch,sequence,8] z) {{\n\
         d = Identity(c)\n keys = Transpose<perm: ints = [0, 2, 1]>(x)\n scores = MatMul(x, keys)\n\
         weights = Softmax(scores)\n read = MatMul(weights, x)\n sum = Add(read, x)\n {behind} }}>\n}}\n"
    );
    Model::parse(&text).unwrap()
}

#[test]
fn a_position_in_the_body_of_a_loop_is_seen_behind_it() {
    let plain = checks(&looped("z = Tanh(sum)"));
    assert_eq!(failed(&plain), [""; 0]);
    let rows: Vec<&str> = plain.iter().map(|check| check.quantity.as_str()).collect();
    assert!(rows.contains(&"rows of equal tokens"), "{rows:?}");
    let first = "first = Slice(sum, zero, one, one)\n rest = Slice(sum, one, many, one)\n \
                 scaled = Mul(first, twice)\n z = Concat<axis: int = 1>(scaled, rest)";
    let placed = checks(&looped(first));
    assert!(
        failed(&placed).contains(&"rows of equal tokens"),
        "{placed:?}"
    );
}
