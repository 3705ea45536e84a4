//! Hand-worked cases of every operator family.

mod content;
mod elements;
mod hostile;
mod making;
mod products;
mod reading;
mod running;
mod shapes;

use ndarray::{ArrayD, IxDyn};

use super::{Budget, EvalError, Value, Why, apply};
use crate::dtype::DType;
use crate::id::{ScopeId, ValueId};
use crate::list::List;
use crate::node::{Node, Operator};
use crate::proto::{AttributeProto, attribute_proto::AttributeType};
use crate::tensor::Tensor;

type Dims = &'static [usize];

const BUDGET: Budget = Budget { elements: 1 << 16 };

/// A node of one output under test, to be completed and run.
#[derive(Clone)]
struct Op {
    node: Node,
    opset: i64,
}

fn op(name: &str) -> Op {
    of("", name)
}

fn contrib(name: &str) -> Op {
    of("com.microsoft", name)
}

fn of(domain: &str, name: &str) -> Op {
    let operator = Operator {
        domain: domain.into(),
        op: name.into(),
    };
    let node = Node {
        scope: ScopeId::from_index(0),
        piece: None,
        name: "".into(),
        operator: operator.into(),
        inputs: List::default(),
        outputs: [Some(ValueId::from_index(0))].into_iter().collect(),
        extra: None,
    };
    Op { node, opset: 17 }
}

impl Op {
    fn opset(mut self, opset: i64) -> Self {
        self.opset = opset;
        self
    }

    fn outputs(mut self, n: usize) -> Self {
        self.node.outputs = (0..n).map(|i| Some(ValueId::from_index(i))).collect();
        self
    }

    fn attribute(
        mut self,
        name: &str,
        kind: AttributeType,
        fill: impl FnOnce(&mut AttributeProto),
    ) -> Self {
        let mut attribute = AttributeProto {
            name: Some(name.to_owned()),
            ..Default::default()
        };
        attribute.set_type(kind);
        fill(&mut attribute);
        let before = self.node.attributes().iter().cloned();
        let attributes = before.chain([attribute]).collect();
        self.node.extra_mut().attributes = attributes;
        self
    }

    fn int(self, name: &str, v: i64) -> Self {
        self.attribute(name, AttributeType::Int, |a| a.i = Some(v))
    }

    fn ints(self, name: &str, v: &[i64]) -> Self {
        self.attribute(name, AttributeType::Ints, |a| a.ints = v.to_vec())
    }

    fn float(self, name: &str, v: f32) -> Self {
        self.attribute(name, AttributeType::Float, |a| a.f = Some(v))
    }

    fn text(self, name: &str, v: &str) -> Self {
        let bytes = v.as_bytes().to_vec();
        self.attribute(name, AttributeType::String, |a| a.s = Some(bytes.into()))
    }

    fn all(&self, inputs: &[Value]) -> Result<Vec<Value>, EvalError> {
        let inputs: Vec<Option<&Value>> = inputs
            .iter()
            // An unknown value means an omitted input.
            .map(|v| Some(v).filter(|v| v.dtype.is_some()))
            .collect();
        apply(&self.node, self.opset, &inputs, &BUDGET)
    }

    fn run(&self, inputs: &[Value]) -> Result<Value, EvalError> {
        self.all(inputs).map(|mut all| all.remove(0))
    }

    /// Dimensions and elements of the first output.
    fn numbers(&self, inputs: &[Value]) -> (Vec<usize>, Vec<f64>) {
        numbers(&self.run(inputs).unwrap())
    }

    /// Dimensions of every output, with the content of no input known.
    fn dims(&self, inputs: &[&[usize]]) -> Vec<Option<Vec<usize>>> {
        let inputs: Vec<Value> = inputs.iter().map(|d| content(d)).collect();
        let all = self.all(&inputs).unwrap();
        assert!(all.iter().all(|v| v.data.is_none()));
        all.into_iter().map(|v| v.dims).collect()
    }

    fn why(&self, inputs: &[Value]) -> Option<Why> {
        self.run(inputs).err().map(|error| error.why)
    }
}

/// Dimensions and elements.
fn numbers(value: &Value) -> (Vec<usize>, Vec<f64>) {
    let array = value.to_f64().expect("the elements are known");
    assert_eq!(value.dims.as_deref(), Some(array.shape()));
    (array.shape().to_vec(), array.iter().copied().collect())
}

fn ints(dims: &[usize], all: &[i64]) -> Value {
    Value::int(ArrayD::from_shape_vec(IxDyn(dims), all.to_vec()).unwrap())
}

fn list(all: &[i64]) -> Value {
    ints(&[all.len()], all)
}

fn floats(dims: &[usize], all: &[f64]) -> Value {
    Value::float(ArrayD::from_shape_vec(IxDyn(dims), all.to_vec()).unwrap())
}

fn bools(dims: &[usize], all: &[bool]) -> Value {
    Value::bool(ArrayD::from_shape_vec(IxDyn(dims), all.to_vec()).unwrap())
}

/// Floats 0, 1, 2, …
fn count(dims: &[usize]) -> Value {
    let n = dims.iter().product::<usize>();
    floats(dims, &(0..n).map(|v| v as f64).collect::<Vec<_>>())
}

/// Floats of unknown content.
fn content(dims: &[usize]) -> Value {
    Value::opaque(DType::F32, dims)
}

fn left_out() -> Value {
    Value::unknown()
}

fn stored(dims: &[usize], all: &[i64]) -> Value {
    Value::from_tensor(&Tensor::from_i64(dims, all))
}

#[test]
fn an_unknown_operator_gives_unknown_outputs_one_per_declared() {
    let out = op("Nothing").outputs(3).all(&[count(&[2])]).unwrap();
    assert_eq!(out.len(), 3);
    assert!(
        out.iter()
            .all(|v| v.dtype.is_none() && v.dims.is_none() && v.data.is_none())
    );
}

#[test]
fn beyond_the_budget_only_dimensions_are_inferred() {
    let cases = [
        ("Expand", vec![count(&[1]), list(&[1 << 40])], vec![1 << 40]),
        (
            "ConstantOfShape",
            vec![list(&[1 << 20, 1 << 20])],
            vec![1 << 20; 2],
        ),
        ("Tile", vec![count(&[2]), list(&[1 << 40])], vec![1 << 41]),
        (
            "Range",
            vec![ints(&[], &[0]), ints(&[], &[i64::MAX]), ints(&[], &[1])],
            vec![i64::MAX as usize],
        ),
    ];
    for (name, inputs, dims) in cases {
        let out = op(name).run(&inputs).unwrap();
        assert_eq!(out.dims.as_deref(), Some(&*dims), "{name}");
        assert!(out.data.is_none(), "{name}");
    }
    // No element, yet dimensions that do not multiply.
    let empty = op("ConstantOfShape").run(&[list(&[0, 1 << 62, 1 << 62])]);
    assert_eq!(empty.unwrap().dims, None);
    let within = op("Expand").run(&[count(&[1]), list(&[1 << 16])]).unwrap();
    assert!(within.data.is_some());
}

#[test]
fn missing_required_inputs_are_reported_by_index() {
    for (name, given, number) in [
        ("Add", vec![count(&[1])], 1),
        ("Neg", vec![], 0),
        ("Where", vec![bools(&[1], &[true]), count(&[1])], 2),
        ("Reshape", vec![count(&[1])], 1),
        ("Gather", vec![count(&[1])], 1),
        ("CumSum", vec![count(&[1])], 1),
        ("ScatterND", vec![count(&[1]), list(&[0])], 2),
    ] {
        assert_eq!(op(name).why(&given), Some(Why::NoInput(number)), "{name}");
    }
}
