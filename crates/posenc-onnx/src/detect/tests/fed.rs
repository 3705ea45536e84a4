//! Tables and frequencies that are inputs of the graph, as constants of a framework may become.

use super::*;
use crate::graph::ports::Role;

/// The role of the input `fed`.
fn role(model: &Model) -> Role {
    let graph = model.graph();
    let ports = Ports::of(graph, &Default::default());
    let mut ports = ports.iter();
    let port = ports.find(|port| graph.name(port.value) == "fed");
    port.expect("it is fed").role
}

/// Rows of an input that are added to embeddings.
fn with_rows(dims: &[&str], index: impl Fn(&mut Sketch) -> String) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let fed = s.input("fed", DType::F32, dims);
    let index = index(&mut s);
    let rows = s.gather(&fed, &index, 0);
    let x = s.op("Add", &[&x, &rows]);
    let y = s.attends(&x, &x);
    s.model(17, &[&y])
}

#[test]
fn rows_of_an_input_by_place_are_a_table_without_numbers() {
    let model = with_rows(&["64", "24"], Sketch::range);
    assert_eq!(HIDDEN, 24, "the width above");
    let by_positions = with_rows(&["64", "24"], |s| {
        s.input("position_ids", DType::I64, &["batch", "sequence"])
    });
    assert_eq!(role(&by_positions), Role::Table);
    assert_eq!(role(&model), Role::Table);
    let all = found(&model).findings;
    assert_eq!(all.len(), 1);
    assert_eq!(Encoding::kind(&all[0].encoding), Kind::Learned);
    assert!(
        all[0].evidence[0].contains("is absent"),
        "{:?}",
        all[0].evidence
    );
}

#[test]
fn other_inputs_are_no_tables() {
    let by_ids = with_rows(&["64", "24"], |_| "input_ids".to_owned());
    assert_eq!(role(&by_ids), Role::Content);
    let of_each_sequence = with_rows(&["batch", "24"], Sketch::range);
    assert_eq!(role(&of_each_sequence), Role::Content);
    // Also read as it is.
    let mut s = Sketch::default();
    let x = s.embedded();
    let fed = s.input("fed", DType::F32, &["64", "24"]);
    let at = s.range();
    let rows = s.gather(&fed, &at, 0);
    let x = s.op("Add", &[&x, &rows]);
    let y = s.attends(&x, &x);
    let also = s.op("Neg", &[&fed]);
    assert_eq!(role(&s.model(17, &[&y, &also])), Role::Content);
    // Columns, not rows.
    let mut s = Sketch::default();
    let x = s.embedded();
    let fed = s.input("fed", DType::F32, &["24", "64"]);
    let at = s.range();
    let columns = s.gather(&fed, &at, 1);
    let rows = s.transpose(&columns, &[1, 0]);
    let x = s.op("Add", &[&x, &rows]);
    let y = s.attends(&x, &x);
    assert_eq!(role(&s.model(17, &[&y])), Role::Content);
    // One number is the step of a process.
    let mut s = Sketch::default();
    let x = s.embedded();
    let fed = s.input("fed", DType::F32, &["1"]);
    let wave = s.op("Sin", &[&fed]);
    let x = s.op("Add", &[&x, &wave]);
    let y = s.attends(&x, &x);
    assert_eq!(role(&s.model(17, &[&y])), Role::Content);
}

#[test]
fn a_rotation_whose_frequencies_are_fed_is_not_passed_over() {
    let read = |fed: bool| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let frequencies = match fed {
            true => s.input("fed", DType::F32, &["4"]),
            false => s.floats(&[PAIRS], (0..PAIRS).map(frequency)),
        };
        let at = s.range();
        let at = s.cast(&at, DType::F32);
        let at = s.unsqueeze(&at, &[-1]);
        let angles = s.op("Mul", &[&at, &frequencies]);
        let (cos, sin) = waves(&mut s, &angles);
        let [q, k] = [q, k].map(|x| {
            let other = swapped(&mut s, &x);
            mixed(&mut s, &x, &other, &cos, &sin)
        });
        let y = attend(&mut s, &q, &k, &v);
        let y = s.merged(&y);
        let model = s.model(17, &[&y]);
        if fed {
            assert_eq!(role(&model), Role::Table);
        }
        let found = found(&model);
        let why = found.not_rotary.first().map(|refused| refused.why.clone());
        (found.rotary.len(), why)
    };
    assert_eq!(read(false), (1, None));
    let (count, why) = read(true);
    assert_eq!(count, 0);
    assert!(why.is_some_and(|why| why.contains("not at hand")));
}
