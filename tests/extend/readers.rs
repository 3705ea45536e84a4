//! Tables that something else reads, and constants of the same numbers.

use posenc_ir::{DType, Tensor};

use super::{altered, output, table, tiled};

/// What else the model adds to its logits, besides words and a copy of its table.
#[derive(Clone, Copy)]
enum Other {
    Nothing,
    Copy,
    Table,
    /// A constant of the numbers that this makes of the table's, row by row.
    Constant(fn(&Tensor) -> Tensor),
}

#[test]
fn a_table_that_something_else_reads_is_refused() {
    let read = |other: Other| {
        let folder = tempfile::tempdir().unwrap();
        let model = altered(folder.path(), "bert/dynamo", |model, out| {
            let graph = model.graph();
            let table = table(model);
            let copy = out.op("Identity", &[table]);
            out.redirect_use(table, graph.uses(table)[0], copy).unwrap();
            let logits = graph.scope(graph.main()).outputs()[0];
            let own = match other {
                Other::Nothing => out.scalar("other", DType::F32, 0.5),
                Other::Copy => copy,
                Other::Table => table,
                Other::Constant(of) => {
                    let tensor = of(&graph.constant(table).unwrap());
                    out.constant("other", tensor)
                }
            };
            let mean = out.op("ReduceMean", &[own]);
            let new = out.op("Add", &[logits, mean]);
            out.redirect_output(logits, new).unwrap();
        });
        let to = folder.path().join("out.onnx");
        (tiled(&model, &to), model, to, folder)
    };
    for (other, says) in [
        (Other::Copy, "a copy of the position table, is read here"),
        (Other::Table, "the position table, is read here"),
        (Other::Constant(|table| table.clone()), "has the numbers of"),
        (Other::Constant(turned), "has the numbers of"),
    ] {
        let (ran, ..) = read(other);
        assert_eq!(ran.code, 4, "{}", ran.stderr);
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
    for control in [Other::Nothing, Other::Constant(negated)] {
        let (ran, model, to, _folder) = read(control);
        assert_eq!(ran.code, 0, "control: {}", ran.stderr);
        assert_eq!(output(&model, 64).bytes(), output(&to, 64).bytes());
    }
}

/// A matrix with rows as columns.
fn turned(table: &Tensor) -> Tensor {
    let [rows, columns] = table.dims() else {
        panic!("a matrix");
    };
    let numbers = table.to_f64s().unwrap();
    let at = |i: usize| numbers[i % rows * columns + i / rows];
    let turned: Vec<f64> = (0..numbers.len()).map(at).collect();
    Tensor::from_f64(table.dtype(), &[*columns, *rows], &turned)
}

fn negated(table: &Tensor) -> Tensor {
    let numbers: Vec<f64> = table.to_f64s().unwrap().iter().map(|v| -v).collect();
    Tensor::from_f64(table.dtype(), table.dims(), &numbers)
}
