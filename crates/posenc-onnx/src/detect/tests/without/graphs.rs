//! Graphs, sets, points and lookups: members of a set have no position.

use super::*;

/// Features of the nodes of a graph.
fn nodes(s: &mut Sketch) -> String {
    s.input("nodes", DType::F32, &["nodes", "24"])
}

fn adjacency(s: &mut Sketch) -> String {
    s.input("adjacency", DType::F32, &["nodes", "nodes"])
}

#[test]
fn neighbors_summed_by_a_matrix_that_is_fed() {
    without(0, |s| {
        let (mut x, edges) = (nodes(s), adjacency(s));
        for _ in 0..2 {
            let y = linear(s, &x, 24, 24);
            let y = s.op("MatMul", &[&edges, &y]);
            x = s.op("Relu", &[&y]);
        }
        linear(s, &x, 24, 7)
    });
}

#[test]
fn neighbors_weighed_by_additive_scores() {
    without(0, |s| {
        let (x, edges) = (nodes(s), adjacency(s));
        let h = linear(s, &x, 24, 8);
        let (from, to) = (linear(s, &h, 8, 1), linear(s, &h, 8, 1));
        let to = s.transpose(&to, &[1, 0]);
        let scores = s.op("Add", &[&from, &to]);
        let scores = s.op("LeakyRelu", &[&scores]);
        let (zero, low) = (s.float(0.0), s.float(-9e15));
        let is_edge = s.op("Greater", &[&edges, &zero]);
        let scores = s.op("Where", &[&is_edge, &scores, &low]);
        let weights = softmax(s, &scores, 1);
        s.op("MatMul", &[&weights, &h])
    });
}

#[test]
fn neighbors_scattered_along_edges() {
    without(0, |s| {
        let mut x = nodes(s);
        let edges = s.input("edges", DType::I64, &["2", "edges"]);
        let (first, second) = (s.int(0), s.int(1));
        let (from, to) = (s.gather(&edges, &first, 0), s.gather(&edges, &second, 0));
        let to = s.unsqueeze(&to, &[1]);
        for _ in 0..2 {
            let sent = s.gather(&x, &from, 0);
            let zero = s.float(0.0);
            let empty = s.op("Mul", &[&x, &zero]);
            let attrs = [("reduction", A::Text("add"))];
            let sum = s.with("ScatterND", &[&empty, &to, &sent], &attrs);
            let (own, sum) = (linear(s, &x, 24, 24), linear(s, &sum, 24, 24));
            let y = s.op("Add", &[&own, &sum]);
            x = s.op("Relu", &[&y]);
        }
        x
    });
}

#[test]
fn the_sum_of_a_set() {
    without(0, |s| {
        let x = sequence(s);
        let y = linear(s, &x, 24, 32);
        let y = s.op("Relu", &[&y]);
        let y = reduced(s, "ReduceSum", &y, &[1]);
        linear(s, &y, 32, 4)
    });
}

/// The largest of each feature of points `[batch, 3, points]`.
fn largest(s: &mut Sketch, points: &str) -> String {
    let y = convolved(s, points, &[32, 3, 1], 1);
    let y = s.op("Relu", &[&y]);
    reduced(s, "ReduceMax", &y, &[2])
}

#[test]
fn points_turned_by_a_matrix_of_their_own() {
    let draw = |s: &mut Sketch| {
        let x = s.input("points", DType::F32, &["batch", "3", "128"]);
        let y = largest(s, &x);
        let turn = linear(s, &y, 32, 9);
        let turn = s.reshape(&turn, &[-1, 3, 3]);
        let x = s.transpose(&x, &[0, 2, 1]);
        let x = s.op("MatMul", &[&x, &turn]);
        let x = s.transpose(&x, &[0, 2, 1]);
        let y = largest(s, &x);
        linear(s, &y, 32, 10)
    };
    without(0, draw);
}

#[test]
fn edges_to_the_nearest_points() {
    let draw = |s: &mut Sketch| {
        let x = s.input("points", DType::F32, &["64", "3"]);
        let turned = s.transpose(&x, &[1, 0]);
        let products = s.op("MatMul", &[&x, &turned]);
        let two = s.float(2.0);
        let products = s.op("Mul", &[&products, &two]);
        let squares = s.op("Mul", &[&x, &x]);
        let squares = kept(s, "ReduceSum", &squares, &[1]);
        let turned = s.transpose(&squares, &[1, 0]);
        let near = s.op("Sub", &[&products, &squares]);
        let near = s.op("Sub", &[&near, &turned]);
        let count = s.ints(&[8]);
        let best = s.many("TopK", &[&near, &count], &[], 2);
        let others = s.gather(&x, &best[1], 0);
        let own = s.unsqueeze(&x, &[1]);
        let apart = s.op("Sub", &[&others, &own]);
        let shape = s.op("Shape", &[&apart]);
        let own = s.op("Expand", &[&own, &shape]);
        let edges = s.concat(&[&apart, &own], 2);
        let y = linear(s, &edges, 6, 32);
        let y = s.op("Relu", &[&y]);
        reduced(s, "ReduceMax", &y, &[0, 1])
    };
    warned("this MatMul mixes tokens", draw);
}

/// Waves of coordinates that are fed are no waves of positions.
#[test]
fn waves_of_coordinates() {
    without(0, |s| {
        let x = s.input("points", DType::F32, &["points", "3"]);
        let f = s.floats(&[6], (0..6).map(|i| f64::from(1 << i)));
        let angles = s.unsqueeze(&x, &[2]);
        let angles = s.op("Mul", &[&angles, &f]);
        let angles = s.reshape(&angles, &[0, 18]);
        let (sin, cos) = (s.op("Sin", &[&angles]), s.op("Cos", &[&angles]));
        let y = s.concat(&[&x, &sin, &cos], 1);
        let y = linear(s, &y, 39, 32);
        let y = s.op("Relu", &[&y]);
        linear(s, &y, 32, 4)
    });
}

#[test]
fn the_word_among_its_neighbors() {
    without(0, |s| {
        let x = s.embedded();
        let y = reduced(s, "ReduceMean", &x, &[1]);
        let words = s.weights(&[HIDDEN, 30]);
        let y = s.op("MatMul", &[&y, &words]);
        softmax(s, &y, -1)
    });
}

#[test]
fn the_nearest_code_of_each_patch() {
    without(0, |s| {
        let x = pixels(s);
        let w = s.weights(&[8, 3, 4, 4]);
        let x = s.with("Conv", &[&x, &w], &[("strides", A::Ints(&[4, 4]))]);
        let x = s.transpose(&x, &[0, 2, 3, 1]);
        let x = s.reshape(&x, &[-1, 8]);
        let codes = s.weights(&[64, 8]);
        let turned = s.transpose(&codes, &[1, 0]);
        let products = s.op("MatMul", &[&x, &turned]);
        let squares = s.op("Mul", &[&codes, &codes]);
        let squares = reduced(s, "ReduceSum", &squares, &[1]);
        let two = s.float(2.0);
        let products = s.op("Mul", &[&products, &two]);
        let far = s.op("Sub", &[&squares, &products]);
        let attrs = [("axis", A::Int(1)), ("keepdims", A::Int(0))];
        let best = s.with("ArgMin", &[&far], &attrs);
        s.gather(&codes, &best, 0)
    });
}

/// Weights of stored samples, by their squared distance.
#[test]
fn answers_of_stored_samples() {
    without(0, |s| {
        let x = s.input("x", DType::F32, &["batch", "24"]);
        let stored = s.weights(&[50, 24]);
        let turned = s.transpose(&stored, &[1, 0]);
        let products = s.op("MatMul", &[&x, &turned]);
        let squares = s.op("Mul", &[&stored, &stored]);
        let squares = reduced(s, "ReduceSum", &squares, &[1]);
        let two = s.float(2.0);
        let products = s.op("Mul", &[&products, &two]);
        let near = s.op("Sub", &[&products, &squares]);
        let weights = softmax(s, &near, 1);
        let answers = s.weights(&[50, 5]);
        s.op("MatMul", &[&weights, &answers])
    });
}

#[test]
fn a_spectrum_by_stored_waves() {
    without(0, |s| {
        let x = s.input("wave", DType::F32, &["batch", "1", "samples"]);
        let turn = std::f64::consts::TAU / 64.0;
        let [real, imaginary] = [f64::cos, f64::sin].map(|wave| {
            let cells = (0..33 * 64).map(|i| wave(turn * (i / 64 * (i % 64)) as f64));
            let w = s.floats(&[33, 1, 64], cells);
            let y = s.with("Conv", &[&x, &w], &[("strides", A::Ints(&[16]))]);
            s.op("Mul", &[&y, &y])
        });
        let power = s.op("Add", &[&real, &imaginary]);
        let bands = s.floats(&[20, 33], (0..660).map(|i| f64::from(i % 7)));
        let y = s.op("MatMul", &[&bands, &power]);
        let least = s.float(1e-9);
        let y = s.op("Max", &[&y, &least]);
        s.op("Log", &[&y])
    });
}

#[test]
fn products_of_pairs_of_features() {
    warned("this MatMul mixes tokens", |s| {
        let fields = s.input("fields", DType::I64, &["batch", "5"]);
        let table = s.weights(&[30, HIDDEN]);
        let x = s.gather(&table, &fields, 0);
        let turned = s.transpose(&x, &[0, 2, 1]);
        let pairs = s.op("MatMul", &[&x, &turned]);
        let pairs = s.reshape(&pairs, &[0, 25]);
        linear(s, &pairs, 25, 1)
    });
}

#[test]
fn a_table_of_members_that_attend_is_found() {
    with_table(|s| {
        let x = sequence(s);
        let x = linear(s, &x, 24, HIDDEN);
        let x = placed(s, &x);
        s.attends(&x, &x)
    });
}
