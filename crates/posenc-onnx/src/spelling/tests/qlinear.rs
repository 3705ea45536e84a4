//! Operators on integers with a scale.

use super::*;

/// The scale of everything; weights have numbers within ±1.
const SCALE: f64 = 1.0 / 128.0;

/// What an operator on numbers computes of two values, and what the same on integers does.
struct Case {
    name: &'static str,
    numbers: fn(&mut Sketch, [&str; 2]) -> String,
    integers: fn(&mut Sketch, [&Whole; 2], [&str; 2]) -> String,
    /// How many steps of the scale the results may be apart.
    steps: f64,
}

/// Integers with their scale and their zero.
struct Whole([String; 3]);

impl Whole {
    fn of(s: &mut Sketch, x: &str) -> Self {
        let [scale, zero] = grid(s);
        Self([s.op("QuantizeLinear", &[x, &scale, &zero]), scale, zero])
    }

    fn names(&self) -> [&str; 3] {
        let Self([whole, scale, zero]) = self;
        [whole, scale, zero]
    }
}

fn grid(s: &mut Sketch) -> [String; 2] {
    [s.float(SCALE), s.typed(DType::U8, &[], [128.0])]
}

/// `[HIDDEN, HIDDEN]`, with a scale for each column where there are several.
fn weights(s: &mut Sketch, scales: usize) -> [String; 3] {
    let cells = (0..HIDDEN * HIDDEN).map(|n| ((37 * n) % 11) as f64 - 5.0);
    let whole = s.typed(DType::I8, &[HIDDEN, HIDDEN], cells);
    let dims: &[usize] = if scales == 1 { &[] } else { &[scales] };
    let scale = s.floats(dims, (0..scales).map(|n| 0.02 + 0.001 * n as f64));
    let zero = s.typed(DType::I8, dims, vec![0.0; scales]);
    [whole, scale, zero]
}

fn by_weights(s: &mut Sketch, x: &str, scales: usize) -> String {
    let [whole, scale, zero] = weights(s, scales);
    let w = s.with(
        "DequantizeLinear",
        &[&whole, &scale, &zero],
        &[("axis", A::Int(1))],
    );
    s.op("MatMul", &[x, &w])
}

fn by_integers(s: &mut Sketch, x: &Whole, to: [&str; 2], scales: usize) -> String {
    let [whole, scale, zero] = weights(s, scales);
    let [a, b, c] = x.names();
    s.op(
        "QLinearMatMul",
        &[a, b, c, &whole, &scale, &zero, to[0], to[1]],
    )
}

fn binary(s: &mut Sketch, op: &str, [x, y]: [&Whole; 2], to: [&str; 2]) -> String {
    let [a, b, c] = x.names();
    let [d, e, f] = y.names();
    s.op(op, &[a, b, c, d, e, f, to[0], to[1]])
}

fn unary(s: &mut Sketch, op: &str, x: &Whole, to: [&str; 2], attrs: &[(&str, A)]) -> String {
    let [a, b, c] = x.names();
    s.with(op, &[a, b, c, to[0], to[1]], attrs)
}

const LAST: &[(&str, A)] = &[("axis", A::Int(-1))];

const CASES: [Case; 9] = [
    Case {
        name: "a product with weights",
        numbers: |s, [x, _]| by_weights(s, x, 1),
        integers: |s, [x, _], to| by_integers(s, x, to, 1),
        steps: 8.0,
    },
    Case {
        name: "a product with weights of a scale for each column",
        numbers: |s, [x, _]| by_weights(s, x, HIDDEN),
        integers: |s, [x, _], to| by_integers(s, x, to, HIDDEN),
        steps: 8.0,
    },
    Case {
        name: "a product of content",
        numbers: |s, [x, y]| {
            let y = s.transpose(y, &[0, 2, 1]);
            s.op("MatMul", &[x, &y])
        },
        integers: |s, [x, y], to| {
            let [whole, scale, zero] = y.names();
            let whole = s.transpose(whole, &[0, 2, 1]);
            let turned = Whole([whole, scale.to_owned(), zero.to_owned()]);
            binary(s, "QLinearMatMul", [x, &turned], to)
        },
        steps: 8.0,
    },
    Case {
        name: "a sum",
        numbers: |s, [x, y]| s.op("Add", &[x, y]),
        integers: |s, both, to| binary(s, "ms.QLinearAdd", both, to),
        steps: 2.0,
    },
    Case {
        name: "factors",
        numbers: |s, [x, y]| s.op("Mul", &[x, y]),
        integers: |s, both, to| binary(s, "ms.QLinearMul", both, to),
        steps: 3.0,
    },
    Case {
        name: "a choice",
        numbers: |s, [x, y]| {
            let chosen = s.op("Greater", &[x, y]);
            s.op("Where", &[&chosen, x, y])
        },
        integers: |s, [x, y], to| {
            let [a, b, c] = x.names();
            let [d, e, f] = y.names();
            let [left, right] = [[a, b, c], [d, e, f]].map(|x| s.op("DequantizeLinear", &x));
            let chosen = s.op("Greater", &[&left, &right]);
            s.op(
                "ms.QLinearWhere",
                &[&chosen, a, b, c, d, e, f, to[0], to[1]],
            )
        },
        steps: 2.0,
    },
    Case {
        name: "a sigmoid",
        numbers: |s, [x, _]| s.op("Sigmoid", &[x]),
        integers: |s, [x, _], to| unary(s, "ms.QLinearSigmoid", x, to, &[]),
        steps: 2.0,
    },
    Case {
        name: "a softmax",
        numbers: |s, [x, _]| s.with("Softmax", &[x], LAST),
        integers: |s, [x, _], to| {
            let attrs = [("axis", A::Int(-1)), ("opset", A::Int(13))];
            unary(s, "ms.QLinearSoftmax", x, to, &attrs)
        },
        steps: 2.0,
    },
    Case {
        name: "parts put side by side",
        numbers: |s, [x, y]| s.concat(&[x, y], -1),
        integers: |s, [x, y], to| {
            let [a, b, c] = x.names();
            let [d, e, f] = y.names();
            s.with("ms.QLinearConcat", &[to[0], to[1], a, b, c, d, e, f], LAST)
        },
        steps: 2.0,
    },
];

fn content(s: &mut Sketch) -> [String; 2] {
    let x = s.embedded();
    let w = s.weights(&[HIDDEN, HIDDEN]);
    let y = s.op("MatMul", &[&x, &w]);
    [x, y]
}

fn numbers(case: &Case) -> Model {
    let mut s = Sketch::default();
    let [x, y] = content(&mut s);
    let out = (case.numbers)(&mut s, [&x, &y]);
    s.model(17, &[&out, &y])
}

fn integers(case: &Case) -> Model {
    let mut s = Sketch::default();
    let [x, y] = content(&mut s);
    let [a, b] = [&x, &y].map(|x| Whole::of(&mut s, x));
    let [scale, zero] = grid(&mut s);
    let whole = (case.integers)(&mut s, [&a, &b], [&scale, &zero]);
    let out = s.op("DequantizeLinear", &[&whole, &scale, &zero]);
    s.model(17, &[&out, &y])
}

fn is_on_integers(op: &str) -> bool {
    op.starts_with("QLinear") || op == "QGemm"
}

#[test]
fn operators_on_integers_are_those_on_what_they_stand_for() {
    let models: Vec<Model> = CASES.iter().map(numbers).collect();
    for (nth, case) in CASES.iter().enumerate() {
        let plain = plain(&integers(case), &BTreeMap::new()).expect(case.name);
        let left = operators(&plain);
        assert!(!left.iter().any(|op| is_on_integers(op)), "{left:?}");
        let bound = case.steps * SCALE;
        let apart = difference(&models[nth], &plain);
        assert!(apart < bound, "{}: {apart} of {bound}", case.name);
        let others = models.iter().enumerate().filter(|(other, _)| *other != nth);
        for (other, model) in others {
            let same = output(model, [2, 5]).shape() == output(&plain, [2, 5]).shape();
            assert!(
                !same || difference(model, &plain) > bound,
                "{} is {}",
                case.name,
                CASES[other].name
            );
        }
    }
}

/// A convolution and a product with a bias of 32 bits, whose scale is that of the products.
#[test]
fn the_bias_of_integers_has_the_scale_of_the_products() {
    for (op, scales) in [("QLinearConv", 1), ("QLinearConv", HIDDEN), ("ms.QGemm", 1)] {
        let mut s = Sketch::default();
        let x = s.embedded();
        let is_gemm = op == "ms.QGemm";
        let x = match is_gemm {
            true => s.reshape(&x, &[-1, HIDDEN as i64]),
            false => s.transpose(&x, &[0, 2, 1]),
        };
        let x = Whole::of(&mut s, &x);
        let [a, b, c] = x.names();
        let [whole, scale, zero] = weights(&mut s, scales);
        let whole = match is_gemm {
            true => whole,
            false => s.unsqueeze(&whole, &[2]),
        };
        let bias = s.typed(DType::I32, &[HIDDEN], (0..HIDDEN).map(|n| n as f64));
        let to = grid(&mut s);
        let whole = match is_gemm {
            true => s.op(op, &[a, b, c, &whole, &scale, &zero, &bias]),
            false => s.op(op, &[a, b, c, &whole, &scale, &zero, &to[0], &to[1], &bias]),
        };
        let model = s.model(17, &[&whole]);
        let plain = plain(&model, &BTreeMap::new()).expect(op);
        let left = operators(&plain);
        assert!(!left.iter().any(|op| is_on_integers(op)), "{left:?}");
        let graph = plain.graph();
        let maker = |value| graph.node(graph.producer(value).unwrap().0);
        let node = graph.nodes().find(|(_, n)| n.is("Conv") || n.is("Gemm"));
        let (_, node) = node.expect(op);
        let bias = maker(node.input(2).unwrap());
        assert!(bias.is("DequantizeLinear"), "{}", bias.op());
        let product = maker(bias.input(1).unwrap());
        assert!(product.is("Mul"), "{}", product.op());
        let axis = bias.int("axis").unwrap();
        assert_eq!(axis, (scales > 1).then_some(0), "{op}");
        // The result of `QGemm` without a scale is in numbers.
        let rounds = left.iter().filter(|op| *op == "QuantizeLinear").count();
        assert_eq!(rounds, if is_gemm { 1 } else { 2 }, "{op}");
    }
}

#[test]
fn operators_on_integers_that_are_not_known_stay() {
    type Make = fn(&mut Sketch, &Whole, [&str; 2]) -> String;
    let cases: [(&str, i64, Make); 6] = [
        ("before there are integers", 9, |s, x, to| {
            binary(s, "ms.QLinearAdd", [x, x], to)
        }),
        ("a scale for each row", 17, |s, x, to| {
            let [a, b, c] = x.names();
            let scale = s.floats(&[HIDDEN], vec![SCALE; HIDDEN]);
            let [whole, of, zero] = weights(s, 1);
            s.op(
                "QLinearMatMul",
                &[a, &scale, c, &whole, &of, &zero, to[0], b],
            )
        }),
        ("several scales before they have an axis", 11, |s, x, to| {
            by_integers(s, x, to, HIDDEN)
        }),
        ("a softmax along another axis", 17, |s, x, to| {
            let attrs = [("axis", A::Int(1)), ("opset", A::Int(11))];
            unary(s, "ms.QLinearSoftmax", x, to, &attrs)
        }),
        ("pooling with channels last", 17, |s, x, to| {
            let attrs = [("channels_last", A::Int(1))];
            unary(s, "ms.QLinearGlobalAveragePool", x, to, &attrs)
        }),
        ("an operator of another domain", 17, |s, x, to| {
            binary(s, "QLinearAdd", [x, x], to)
        }),
    ];
    for (name, opset, make) in cases {
        let mut s = Sketch::default();
        let x = s.embedded();
        let x = Whole::of(&mut s, &x);
        let [scale, zero] = grid(&mut s);
        let whole = make(&mut s, &x, [&scale, &zero]);
        let model = s.model(opset, &[&whole]);
        let plain = plain(&model, &BTreeMap::new());
        let left = operators(plain.as_ref().unwrap_or(&model));
        assert!(left.iter().any(|op| is_on_integers(op)), "{name}: {left:?}");
    }
}
