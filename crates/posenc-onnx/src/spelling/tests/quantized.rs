//! Products of quantized content.

use posenc_ir::ValueId;
use rustc_hash::FxHashMap;

use super::*;

/// How the product of queries and keys is written.
#[derive(Clone, Copy, Default)]
struct Form {
    /// The scales of both are multiplied in the other order.
    turned: bool,
    /// One scale is that of the other operand.
    other_scale: bool,
    other_zero: bool,
    weights: bool,
    to_double: bool,
}

fn product(form: Form) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let (q, k) = (s.headed(&x), s.headed(&x));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let of = s.many("DynamicQuantizeLinear", &[&q], &[], 3);
    let with = match form.weights {
        false => s.many("DynamicQuantizeLinear", &[&k], &[], 3),
        true => {
            let cells = (0..SIZE * SIZE).map(|n| (n % 7) as f64);
            let whole = s.typed(DType::U8, &[SIZE, SIZE], cells);
            let [scale, zero] =
                [(DType::F32, 0.5), (DType::U8, 3.0)].map(|(dtype, v)| s.typed(dtype, &[], [v]));
            vec![whole, scale, zero]
        }
    };
    let zero = if form.other_zero { &of[2] } else { &with[2] };
    let whole = s.op("MatMulInteger", &[&of[0], &with[0], &of[2], zero]);
    let dtype = if form.to_double {
        DType::F64
    } else {
        DType::F32
    };
    let whole = s.cast(&whole, dtype);
    let second = if form.other_scale { &of[1] } else { &with[1] };
    let scale = match form.turned {
        true => s.op("Mul", &[second, &of[1]]),
        false => s.op("Mul", &[&of[1], second]),
    };
    let scale = if form.to_double {
        s.cast(&scale, DType::F64)
    } else {
        scale
    };
    let y = s.op("Mul", &[&whole, &scale]);
    s.model(17, &[&y, &q, &k])
}

/// The output, where `DynamicQuantizeLinear` gives what it does by its definition.
fn numbers(model: &Model) -> ArrayD<f64> {
    let graph = model.graph();
    let ids = ArrayD::from_shape_fn(vec![2, 5], |i| (7 * i[1] + 11 * i[0] + 3) as i64 % 30);
    let input = graph.find(graph.main(), "input_ids").unwrap();
    let mut seeds: FxHashMap<ValueId, Value> = [(input, Value::int(ids))].into_iter().collect();
    let budget = Budget { elements: 1 << 20 };
    let nodes = || graph.nodes().filter(|(_, n)| n.is("DynamicQuantizeLinear"));
    let run = trace(model, &seeds, &|_| false, &budget);
    for (_, node) in nodes() {
        let x = run.get(node.input(0).unwrap()).to_f64().unwrap();
        let [low, high] =
            [f64::min as fn(f64, f64) -> f64, f64::max].map(|f| x.fold(0.0, |m, v| f(m, *v)));
        let scale = (high - low) / 255.0;
        let zero = (-low / scale).round();
        let whole = x.mapv(|v| ((v / scale).round_ties_even() + zero).clamp(0.0, 255.0) as i64);
        let single = |v: f64| ndarray::arr0(v).into_dyn();
        let outputs = [
            Value::int(whole).with_dtype(DType::U8),
            Value::float(single(scale)),
            Value::int(single(zero).mapv(|v| v as i64)).with_dtype(DType::U8),
        ];
        for (out, value) in node.outputs().iter().zip(outputs) {
            seeds.extend(out.map(|out| (out, value)));
        }
    }
    let run = trace(model, &seeds, &|_| false, &budget);
    for (_, node) in graph.nodes().filter(|(_, n)| n.is("MatMulInteger")) {
        let read = |slot: usize| run.get(node.input(slot).unwrap()).to_f64().unwrap();
        let [a, b] = [0, 1].map(|slot| {
            let zero = read(slot + 2).first().copied().unwrap();
            read(slot).mapv(|v| v - zero)
        });
        let dims = [a.shape()[0], a.shape()[1], a.shape()[2], b.shape()[3]];
        let cell = |i: ndarray::IxDyn| {
            let term = |j| a[[i[0], i[1], i[2], j]] * b[[i[0], i[1], j, i[3]]];
            (0..a.shape()[3]).map(term).sum::<f64>() as i64
        };
        let whole = ArrayD::from_shape_fn(dims.to_vec(), cell);
        let whole = Value::int(whole).with_dtype(DType::I32);
        seeds.extend(node.output(0).map(|out| (out, whole)));
    }
    let run = trace(model, &seeds, &|_| false, &budget);
    let output = graph.scope(graph.main()).outputs()[0];
    run.get(output).to_f64().expect("the output has numbers")
}

#[test]
fn integers_times_both_scales_are_the_product_of_what_they_stand_for() {
    for turned in [false, true] {
        let before = product(Form {
            turned,
            ..Form::default()
        });
        let after = plain(&before, &BTreeMap::new()).expect("it is replaced");
        let left = operators(&after);
        assert!(!left.iter().any(|op| op == "MatMulInteger"), "{left:?}");
        let (was, is) = (numbers(&before), numbers(&after));
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9 * (1.0 + a.abs());
        assert!(was.iter().zip(&is).all(near));
        assert!(was.iter().any(|v| v.abs() > 1e-3), "control");
    }
}

#[test]
fn other_products_of_integers_stay() {
    let forms = [
        Form {
            other_scale: true,
            ..Form::default()
        },
        Form {
            other_zero: true,
            ..Form::default()
        },
        Form {
            weights: true,
            ..Form::default()
        },
        Form {
            to_double: true,
            ..Form::default()
        },
    ];
    for (i, form) in forms.into_iter().enumerate() {
        assert!(plain(&product(form), &BTreeMap::new()).is_none(), "{i}");
    }
}
