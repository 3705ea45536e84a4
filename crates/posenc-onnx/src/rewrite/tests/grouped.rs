//! Rotations within grouped-query attention, before it, and brought into it.

use posenc_ir::{DType, Model};

use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
use crate::request::{LawName, Request, Target};
use crate::rewrite::rewrite;
use posenc_encodings::kind::Form;

/// Rows of the tables.
const ROWS: usize = 256;

/// What is before grouped-query attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing: the operator rotates.
    Nothing,
    /// Rotations at positions that are counted as the operator counts them.
    Rotations(Counted),
    /// The same, and the rotated keys are an output.
    Read,
    /// The same, and keys are scaled behind them.
    Scaled,
    /// The same, and features of queries and keys change places behind them.
    Moved,
    /// The same, and keys are masked within them.
    Masked,
    /// The same, and the operator normalizes queries and keys.
    Norms,
}

/// How the positions of rotations before the operator are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// From the last index of each sequence.
    Last,
    /// So, without 0 for the tokens of a sequence that is shorter than the others.
    Below,
    /// So, one further on.
    Later,
    /// From the last index of the longest sequence.
    Longest,
    /// From sizes.
    Sizes,
    /// They are given.
    Given,
}

/// Grouped-query attention with rows of tables by position; heads have so many features.
fn grouped(size: usize, before: Before) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let mask = s.input("attention_mask", DType::I64, &["batch", "total"]);
    let (axis, one) = (s.ints(&[1]), s.int(1));
    let all = s.with("ReduceSum", &[&mask, &axis], &[("keepdims", A::Int(0))]);
    let last = s.op("Sub", &[&all, &one]);
    let shape = s.op("Shape", &[&mask]);
    let total = s.gather(&shape, &one, 0);
    let [indices, count] = [&last, &total].map(|n| s.cast(n, DType::I32));
    let [mut q, mut k, v] = [0; 3].map(|_| {
        let w = s.weights(&[HIDDEN, HEADS * size]);
        s.op("MatMul", &[&x, &w])
    });
    let [heads, width] = [HEADS, size].map(|n| n.to_string());
    let [key, value] = ["key", "value"].map(|name| {
        let name = format!("past_key_values.0.{name}");
        s.input(&name, DType::F32, &["batch", &heads, "past", &width])
    });
    let half = size / 2;
    let [cos, sin] = [f64::cos, f64::sin].map(|wave: fn(f64) -> f64| {
        let angle = move |i: usize| {
            let pair = (i % half) as f64;
            (i / half) as f64 * 10_000f64.powf(-pair / half as f64)
        };
        s.floats(&[ROWS, half], (0..ROWS * half).map(move |i| wave(angle(i))))
    });
    let heads = HEADS as i64;
    let mut attributes = vec![
        ("num_heads", A::Int(heads)),
        ("kv_num_heads", A::Int(heads)),
    ];
    let mut outputs = vec![];
    let mut inputs = vec![];
    if before == Before::Nothing {
        attributes.push(("do_rotary", A::Int(1)));
        inputs.extend([cos, sin]);
    } else {
        let counted = match before {
            Before::Rotations(counted) => counted,
            _ => Counted::Last,
        };
        let at = positions(&mut s, [&indices, &total], counted);
        let [cos, sin] = [cos, sin].map(|table| {
            let rows = s.gather(&table, &at, 0);
            let rows = s.concat(&[&rows, &rows], 2);
            s.unsqueeze(&rows, &[2])
        });
        q = rotated(&mut s, &q, size, [&cos, &sin]);
        let scale = s.float(2.0);
        match before {
            Before::Masked => {
                let sequence = s.op("Shape", &[&x]);
                let tokens = s.gather(&sequence, &one, 0);
                let from = s.op("Sub", &[&total, &tokens]);
                let [from, to] = [from, total].map(|n| s.unsqueeze(&n, &[0]));
                let own = s.op("Slice", &[&mask, &from, &to, &axis]);
                let own = s.cast(&own, DType::F32);
                let own = s.unsqueeze(&own, &[2, 3]);
                let masked = [&cos, &sin].map(|wave| s.op("Mul", &[wave, &own]));
                k = rotated(&mut s, &k, size, [&masked[0], &masked[1]]);
            }
            _ => k = rotated(&mut s, &k, size, [&cos, &sin]),
        }
        match before {
            Before::Read => outputs.push(k.clone()),
            Before::Scaled => k = s.op("Mul", &[&k, &scale]),
            Before::Moved => {
                [q, k] = [&q, &k].map(|x| {
                    let x = s.reshape(x, &[0, 0, heads, 2, half as i64]);
                    let x = s.transpose(&x, &[0, 1, 2, 4, 3]);
                    s.reshape(&x, &[0, 0, -1])
                });
            }
            Before::Norms => {
                let norms = [(); 2].map(|()| s.weights(&[size]));
                inputs.extend([(); 7].map(|()| String::new()));
                inputs.extend(norms);
            }
            _ => {}
        }
    }
    let first = [&q, &k, &v, &key, &value, &indices, &count];
    let inputs: Vec<&str> = first.into_iter().chain(&inputs).map(|s| &**s).collect();
    let made = s.many("ms.GroupQueryAttention", &inputs, &attributes, 3);
    outputs.splice(0..0, made);
    let outputs: Vec<&str> = outputs.iter().map(|s| &**s).collect();
    s.model(17, &outputs)
}

/// The positions of new tokens, `[batch, sequence]`.
fn positions(s: &mut Sketch, [last, total]: [&str; 2], counted: Counted) -> String {
    if counted == Counted::Given {
        return s.input("position_ids", DType::I64, &["batch", "sequence"]);
    }
    let (zero, one, axis) = (s.int(0), s.int(1), s.ints(&[0]));
    let shape = s.op("Shape", &["input_ids"]);
    let tokens = s.gather(&shape, &one, 0);
    let before = s.op("Sub", &[&tokens, &one]);
    let each = s.op("Range", &[&zero, &tokens, &one]);
    let last = s.cast(last, DType::I64);
    let own = s.reshape(&last, &[-1, 1]);
    let last = match counted {
        Counted::Longest => {
            let longest = s.with("ReduceMax", &[&own], &[("axes", A::Ints(&[0]))]);
            let nothing = s.op("Sub", &[&own, &own]);
            s.op("Add", &[&longest, &nothing])
        }
        Counted::Sizes => {
            let nothing = s.op("Sub", &[&shape, &shape]);
            let nothing = s.op("ReduceSum", &[&nothing, &axis]);
            let last = s.op("Sub", &[total, &one]);
            let last = s.op("Add", &[&last, &nothing]);
            let dims = s.gather(&shape, &axis, 0);
            let last = s.op("Expand", &[&last, &dims]);
            s.reshape(&last, &[-1, 1])
        }
        _ => own,
    };
    let mut first = s.op("Sub", &[&last, &before]);
    if counted != Counted::Below {
        first = s.op("Max", &[&first, &zero]);
    }
    if counted == Counted::Later {
        first = s.op("Add", &[&first, &one]);
    }
    s.op("Add", &[&first, &each])
}

/// Queries or keys `[batch, sequence, hidden]` that rotate in halves.
fn rotated(s: &mut Sketch, x: &str, size: usize, [cos, sin]: [&str; 2]) -> String {
    let x = s.reshape(x, &[0, 0, HEADS as i64, size as i64]);
    let (half, size) = (size as i64 / 2, size as i64);
    let halves = [[0, half, 1], [half, size, 1]];
    let [first, second] = halves.map(|range| s.slice(&x, 3, range));
    let turned = s.op("Neg", &[&second]);
    let turned = s.concat(&[&turned, &first], 3);
    let [left, right] = [s.op("Mul", &[&x, cos]), s.op("Mul", &[&turned, sin])];
    let y = s.op("Add", &[&left, &right]);
    s.reshape(&y, &[0, 0, -1])
}

/// The last length before another choice of frequencies, after a rescale.
fn switched(law: LawName) -> Result<Option<usize>, String> {
    let mut request = Request {
        scale: Some(law.into()),
        ..Request::default()
    };
    request.parameters.factor = Some(4.0);
    request.parameters.original_length = Some(64);
    let mut model = grouped(SIZE, Before::Nothing);
    let done = rewrite(&mut model, &request).map_err(|why| why.to_string())?;
    let [site] = &done.found.rotary[..] else {
        return Err(format!("{} rotations", done.found.rotary.len()));
    };
    assert_eq!(site.form, Form::Contrib);
    Ok(site.switch.as_ref().map(|switch| switch.original_length))
}

#[test]
fn tables_of_an_operator_are_chosen_by_the_length() {
    assert_eq!(switched(LawName::Dynamic), Ok(Some(64)));
    assert_eq!(switched(LawName::Yarn), Ok(None));
}

/// The same with another form, or for a runtime.
fn grouped_as(request: Request) -> Result<Model, String> {
    let mut model = grouped(SIZE, Before::Nothing);
    let done = rewrite(&mut model, &request).map_err(|why| why.to_string())?;
    assert!(
        done.found
            .rotary
            .iter()
            .all(|site| site.form != Form::Contrib)
    );
    Ok(model)
}

#[test]
fn an_operator_that_rotates_is_replaced_by_rotations_and_one_that_does_not() {
    for form in [Form::Ops, Form::Onnx] {
        let request = Request {
            form: Some(form),
            ..Request::default()
        };
        let model = grouped_as(request).unwrap();
        let mut nodes = model.graph().nodes().map(|(_, node)| node);
        let node = nodes.find(|node| node.op() == "GroupQueryAttention");
        let node = node.unwrap();
        assert_eq!(node.int("do_rotary").unwrap(), Some(0));
        assert_eq!(node.inputs().len(), 7, "tables are no inputs any more");
    }
}

#[test]
fn a_runtime_without_a_kernel_is_refused() {
    for (target, says) in [
        (Target::OrtCuda, "no GroupQueryAttention of float for CUDA"),
        (
            Target::Portable,
            "GroupQueryAttention of com.microsoft is no operator of ONNX",
        ),
    ] {
        let request = Request {
            target: Some(target),
            ..Request::default()
        };
        let why = grouped_as(request).unwrap_err();
        assert!(why.contains(says), "{why}");
    }
    let request = Request {
        target: Some(Target::OrtCpu),
        ..Request::default()
    };
    assert!(rewrite(&mut grouped(SIZE, Before::Nothing), &request).is_ok());
}

/// Whether the operator rotates, after its rotations were asked for in ONNX Runtime's form, and how many operators
/// rotate before it.
fn joined(mut model: Model) -> (bool, usize) {
    let mut request = Request {
        form: Some(Form::Contrib),
        ..Request::default()
    };
    request.allowances.allow_unread = true;
    let done = rewrite(&mut model, &request).unwrap();
    assert_eq!(done.report.edits.len(), 1);
    let nodes: Vec<_> = model.graph().nodes().map(|(_, node)| node).collect();
    let grouped = nodes.iter().find(|node| node.op() == "GroupQueryAttention");
    let flag = grouped.unwrap().int("do_rotary").unwrap();
    let before = nodes.iter().filter(|node| node.op() == "RotaryEmbedding");
    (flag == Some(1), before.count())
}

#[test]
fn an_operator_rotates_itself_where_it_counts_the_same_positions() {
    let with = |counted| grouped(16, Before::Rotations(counted));
    assert_eq!(joined(with(Counted::Last)), (true, 0));
    for counted in [
        Counted::Below,
        Counted::Later,
        Counted::Longest,
        Counted::Sizes,
        Counted::Given,
    ] {
        assert_eq!(joined(with(counted)), (false, 2), "{counted:?}");
    }
}

#[test]
fn an_operator_does_not_rotate_itself_where_that_is_another_result() {
    for before in [Before::Read, Before::Scaled, Before::Masked, Before::Norms] {
        assert_eq!(joined(grouped(16, before)), (false, 2), "{before:?}");
    }
    // The operator would rotate other pairs.
    let request = Request {
        form: Some(Form::Contrib),
        ..Request::default()
    };
    let why = rewrite(&mut grouped(16, Before::Moved), &request).unwrap_err();
    assert!(why.to_string().contains("cannot be read back"), "{why}");
    // ONNX Runtime rotates no heads of this width.
    let narrow = grouped(SIZE, Before::Rotations(Counted::Last));
    assert_eq!(joined(narrow), (false, 2));
}

#[test]
fn a_rotation_comes_back_into_its_operator() {
    for form in [Form::Ops, Form::Onnx] {
        let mut model = grouped(16, Before::Nothing);
        let mut request = Request {
            form: Some(form),
            ..Request::default()
        };
        rewrite(&mut model, &request).unwrap();
        request.form = None;
        request.scale = Some(LawName::Yarn.into());
        request.parameters.factor = Some(4.0);
        request.parameters.original_length = Some(64);
        rewrite(&mut model, &request).unwrap();
        assert_eq!(joined(model), (true, 0), "{form}");
    }
}
