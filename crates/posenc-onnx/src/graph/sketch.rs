//! Small transformer graphs for tests.

use posenc_ir::proto::attribute_proto::AttributeType;
use posenc_ir::proto::tensor_proto::DataType;
use posenc_ir::proto::tensor_shape_proto::{Dimension, dimension};
use posenc_ir::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};
use posenc_ir::{DType, Model};
use prost::Message;

/// A graph under construction. Values are names; `x` and what it is multiplied with have 3 heads of 8.
#[derive(Clone, Default)]
pub(crate) struct Sketch {
    graph: GraphProto,
    made: usize,
}

/// Heads of queries.
pub(crate) const HEADS: usize = 3;
/// Features of a head.
pub(crate) const SIZE: usize = 8;
/// Width of the residual stream.
pub(crate) const HIDDEN: usize = HEADS * SIZE;

/// An attribute.
pub(crate) enum A<'a> {
    Int(i64),
    Ints(&'a [i64]),
    Text(&'a str),
}

impl Sketch {
    fn fresh(&mut self) -> String {
        self.made += 1;
        format!("v{}", self.made)
    }

    /// An input of the graph; `""` is a dimension of its own.
    pub(crate) fn input(&mut self, name: &str, dtype: DType, dims: &[&str]) -> String {
        let dim = |d: &&str| Dimension {
            value: Some(match d.parse() {
                Ok(n) => dimension::Value::DimValue(n),
                Err(_) => dimension::Value::DimParam((*d).to_owned()),
            }),
            ..Dimension::default()
        };
        self.graph.input.push(ValueInfoProto {
            name: Some(name.to_owned()),
            r#type: Some(TypeProto {
                value: Some(type_proto::Value::TensorType(type_proto::Tensor {
                    elem_type: Some(dtype.code()),
                    shape: Some(TensorShapeProto {
                        dim: dims.iter().map(dim).collect(),
                    }),
                })),
                ..TypeProto::default()
            }),
            ..ValueInfoProto::default()
        });
        name.to_owned()
    }

    pub(crate) fn op(&mut self, op: &str, inputs: &[&str]) -> String {
        self.with(op, inputs, &[])
    }

    pub(crate) fn with(&mut self, op: &str, inputs: &[&str], attrs: &[(&str, A)]) -> String {
        let mut made = self.many(op, inputs, attrs, 1);
        made.remove(0)
    }

    /// A node of `count` outputs; `domain.Op` is one of com.microsoft.
    pub(crate) fn many(
        &mut self,
        op: &str,
        inputs: &[&str],
        attrs: &[(&str, A)],
        count: usize,
    ) -> Vec<String> {
        let output: Vec<String> = (0..count).map(|_| self.fresh()).collect();
        let attribute = |(name, a): &(&str, A)| {
            let mut proto = AttributeProto {
                name: Some((*name).to_owned()),
                ..AttributeProto::default()
            };
            match a {
                A::Int(i) => {
                    proto.set_type(AttributeType::Int);
                    proto.i = Some(*i);
                }
                A::Ints(list) => {
                    proto.set_type(AttributeType::Ints);
                    proto.ints = list.to_vec();
                }
                A::Text(s) => {
                    proto.set_type(AttributeType::String);
                    proto.s = Some(s.as_bytes().to_vec().into());
                }
            }
            proto
        };
        let (domain, op) = match op.split_once('.') {
            Some((_, op)) => ("com.microsoft", op),
            None => ("", op),
        };
        self.graph.node.push(NodeProto {
            op_type: Some(op.to_owned()),
            domain: Some(domain.to_owned()),
            input: inputs.iter().map(|s| (*s).to_owned()).collect(),
            output: output.clone(),
            attribute: attrs.iter().map(attribute).collect(),
            ..NodeProto::default()
        });
        output
    }

    fn constant(&mut self, tensor: TensorProto) -> String {
        let name = self.fresh();
        self.graph.initializer.push(TensorProto {
            name: Some(name.clone()),
            ..tensor
        });
        name
    }

    /// Moves a constant to a file that does not exist.
    pub(crate) fn make_absent(&mut self, name: &str) {
        let at = self.graph.initializer.iter_mut();
        for tensor in at.filter(|t| t.name.as_deref() == Some(name)) {
            tensor.raw_data = None;
            tensor.data_location = Some(1);
            tensor.external_data = vec![posenc_ir::proto::StringStringEntryProto {
                key: Some("location".to_owned()),
                value: Some("absent.bin".to_owned()),
            }];
        }
    }

    /// Stores a constant in a node.
    pub(crate) fn make_node(&mut self, name: &str) {
        let all = &mut self.graph.initializer;
        let at = all.iter().position(|t| t.name.as_deref() == Some(name));
        let mut value = AttributeProto {
            name: Some("value".to_owned()),
            t: Some(all.remove(at.expect("a constant"))),
            ..AttributeProto::default()
        };
        value.set_type(AttributeType::Tensor);
        let node = NodeProto {
            op_type: Some("Constant".to_owned()),
            output: vec![name.to_owned()],
            attribute: vec![value],
            ..NodeProto::default()
        };
        self.graph.node.insert(0, node);
    }

    pub(crate) fn floats(&mut self, dims: &[usize], data: impl IntoIterator<Item = f64>) -> String {
        self.typed(DType::F32, dims, data)
    }

    pub(crate) fn typed(
        &mut self,
        dtype: DType,
        dims: &[usize],
        data: impl IntoIterator<Item = f64>,
    ) -> String {
        let data: Vec<f64> = data.into_iter().collect();
        assert_eq!(data.len(), dims.iter().product::<usize>());
        let tensor = posenc_ir::Tensor::from_f64(dtype, dims, &data);
        self.constant(TensorProto {
            dims: dims.iter().map(|d| *d as i64).collect(),
            data_type: Some(dtype.code()),
            raw_data: Some(tensor.bytes().clone()),
            ..TensorProto::default()
        })
    }

    /// A vector of integers.
    pub(crate) fn ints(&mut self, data: &[i64]) -> String {
        self.constant(TensorProto {
            dims: vec![data.len() as i64],
            data_type: Some(DataType::Int64 as i32),
            int64_data: data.to_vec(),
            ..TensorProto::default()
        })
    }

    /// An integer.
    pub(crate) fn int(&mut self, n: i64) -> String {
        self.constant(TensorProto {
            data_type: Some(DataType::Int64 as i32),
            int64_data: vec![n],
            ..TensorProto::default()
        })
    }

    /// A number.
    pub(crate) fn float(&mut self, x: f64) -> String {
        self.floats(&[], [x])
    }

    /// Weights like drawn at random.
    pub(crate) fn weights(&mut self, dims: &[usize]) -> String {
        let seed = self.made as f64;
        let n: usize = dims.iter().product();
        self.floats(dims, (0..n).map(|i| (1.7 * i as f64 + seed).sin() * 0.3))
    }

    /// A projection, `[batch, sequence, heads, size]`.
    pub(crate) fn projected(&mut self, x: &str) -> String {
        let w = self.weights(&[HIDDEN, HIDDEN]);
        let y = self.op("MatMul", &[x, &w]);
        self.reshape(&y, &[0, 0, HEADS as i64, SIZE as i64])
    }

    /// A projection, `[batch, heads, sequence, size]`.
    pub(crate) fn headed(&mut self, x: &str) -> String {
        let y = self.projected(x);
        self.transpose(&y, &[0, 2, 1, 3])
    }

    /// Attention of `x` to all of `keys`, added to `x`: `[batch, sequence, features]`.
    pub(crate) fn attends(&mut self, x: &str, keys: &str) -> String {
        let [scores, v] = self.scored(x, keys);
        let weights = self.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = self.op("MatMul", &[&weights, &v]);
        let y = self.merged(&y);
        self.op("Add", &[x, &y])
    }

    /// Values weighted by the softmax of queries and keys, all of them in heads: `[batch, sequence, features]`.
    pub(crate) fn weighted(&mut self, q: &str, k: &str, v: &str) -> String {
        let k = self.transpose(k, &[0, 1, 3, 2]);
        let scores = self.op("MatMul", &[q, &k]);
        let weights = self.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = self.op("MatMul", &[&weights, v]);
        self.merged(&y)
    }

    /// Values weighted by the softmax of scores, without the pairs that are `hidden`: `[batch, sequence, features]`.
    pub(crate) fn masked(&mut self, [scores, v]: [&str; 2], hidden: &str) -> String {
        let [low, zero] = [-1e9, 0.0].map(|n| self.float(n));
        let mask = self.op("Where", &[hidden, &low, &zero]);
        let scores = self.op("Add", &[scores, &mask]);
        let weights = self.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = self.op("MatMul", &[&weights, v]);
        self.merged(&y)
    }

    /// Scores of heads `[batch, heads, sequence, keys]`, and the values that they weight.
    pub(crate) fn scored(&mut self, x: &str, keys: &str) -> [String; 2] {
        let q = self.headed(x);
        let [k, v] = [(); 2].map(|()| self.headed(keys));
        let k = self.transpose(&k, &[0, 1, 3, 2]);
        [self.op("MatMul", &[&q, &k]), v]
    }

    /// Heads `[batch, heads, sequence, size]` side by side, `[batch, sequence, features]`.
    pub(crate) fn merged(&mut self, y: &str) -> String {
        let y = self.transpose(y, &[0, 2, 1, 3]);
        self.reshape(&y, &[0, 0, HIDDEN as i64])
    }

    pub(crate) fn transpose(&mut self, x: &str, perm: &[i64]) -> String {
        self.with("Transpose", &[x], &[("perm", A::Ints(perm))])
    }

    pub(crate) fn reshape(&mut self, x: &str, dims: &[i64]) -> String {
        let dims = self.ints(dims);
        self.op("Reshape", &[x, &dims])
    }

    pub(crate) fn unsqueeze(&mut self, x: &str, axes: &[i64]) -> String {
        let axes = self.ints(axes);
        self.op("Unsqueeze", &[x, &axes])
    }

    pub(crate) fn cast(&mut self, x: &str, to: DType) -> String {
        self.with("Cast", &[x], &[("to", A::Int(i64::from(to.code())))])
    }

    pub(crate) fn concat(&mut self, parts: &[&str], axis: i64) -> String {
        self.with("Concat", parts, &[("axis", A::Int(axis))])
    }

    /// `x[start:end:step]` along an axis.
    pub(crate) fn slice(&mut self, x: &str, axis: i64, range: [i64; 3]) -> String {
        let [start, end, axis, step] =
            [range[0], range[1], axis, range[2]].map(|n| self.ints(&[n]));
        self.op("Slice", &[x, &start, &end, &axis, &step])
    }

    pub(crate) fn gather(&mut self, x: &str, index: &str, axis: i64) -> String {
        self.with("Gather", &[x, index], &[("axis", A::Int(axis))])
    }

    /// Ids `[batch, sequence]` as the residual stream `[batch, sequence, hidden]`.
    pub(crate) fn embedded(&mut self) -> String {
        let ids = self.input("input_ids", DType::I64, &["batch", "sequence"]);
        let table = self.weights(&[30, HIDDEN]);
        self.op("Gather", &[&table, &ids])
    }

    /// key − query, `[sequence, sequence]`.
    pub(crate) fn distance(&mut self) -> String {
        let at = self.range();
        let (rows, columns) = (self.unsqueeze(&at, &[1]), self.unsqueeze(&at, &[0]));
        self.op("Sub", &[&columns, &rows])
    }

    /// 0, 1, … along the sequence.
    pub(crate) fn range(&mut self) -> String {
        let shape = self.op("Shape", &["input_ids"]);
        let one = self.int(1);
        let length = self.gather(&shape, &one, 0);
        let zero = self.int(0);
        self.op("Range", &[&zero, &length, &one])
    }

    /// The output of one of two sketches, which may read the values of this one by name.
    pub(crate) fn choice(
        &mut self,
        condition: &str,
        branches: [fn(&mut Self) -> String; 2],
    ) -> String {
        let names = ["then_branch", "else_branch"];
        let attribute = names.iter().zip(branches).map(|(name, branch)| {
            let mut inner = Self {
                made: self.made,
                ..Self::default()
            };
            let given = branch(&mut inner);
            self.made = inner.made;
            inner.graph.output = vec![ValueInfoProto {
                name: Some(given),
                ..ValueInfoProto::default()
            }];
            let mut proto = AttributeProto {
                name: Some((*name).to_owned()),
                g: Some(Box::new(inner.graph)),
                ..AttributeProto::default()
            };
            proto.set_type(AttributeType::Graph);
            proto
        });
        let attribute = attribute.collect();
        let output = self.fresh();
        self.graph.node.push(NodeProto {
            op_type: Some("If".to_owned()),
            input: vec![condition.to_owned()],
            output: vec![output.clone()],
            attribute,
            ..NodeProto::default()
        });
        output
    }

    /// The last state and all states, stacked along the axis that `x` is sliced along, of a `Scan` whose
    /// body makes a state of the one before it and of a slice.
    pub(crate) fn recurrence(
        &mut self,
        [state, x]: [&str; 2],
        axis: i64,
        step: fn(&mut Self, [&str; 2]) -> String,
    ) -> [String; 2] {
        let mut inner = Self {
            made: self.made,
            ..Self::default()
        };
        let given = [0, 1].map(|_| inner.fresh());
        let next = step(&mut inner, [&given[0], &given[1]]);
        let stacked = inner.op("Identity", &[&next]);
        self.made = inner.made;
        let named = |name: String| ValueInfoProto {
            name: Some(name),
            ..ValueInfoProto::default()
        };
        inner.graph.input = given.map(named).to_vec();
        inner.graph.output = [next, stacked].map(named).to_vec();
        let mut body = AttributeProto {
            name: Some("body".to_owned()),
            g: Some(Box::new(inner.graph)),
            ..AttributeProto::default()
        };
        body.set_type(AttributeType::Graph);
        let axes = [axis];
        let attrs = [
            ("num_scan_inputs", A::Int(1)),
            ("scan_input_axes", A::Ints(&axes)),
            ("scan_output_axes", A::Ints(&axes)),
        ];
        let made = self.many("Scan", &[state, x], &attrs, 2);
        if let Some(node) = self.graph.node.last_mut() {
            node.attribute.push(body);
        }
        [made[0].clone(), made[1].clone()]
    }

    /// Makes a value an output of the graph, before those that [`model`](Self::model) names.
    pub(crate) fn output(&mut self, name: &str) {
        self.graph.output.push(ValueInfoProto {
            name: Some(name.to_owned()),
            ..ValueInfoProto::default()
        });
    }

    /// The model with these outputs.
    pub(crate) fn model(mut self, opset: i64, outputs: &[&str]) -> Model {
        let output = |name: &&str| ValueInfoProto {
            name: Some((*name).to_owned()),
            ..ValueInfoProto::default()
        };
        self.graph.output.extend(outputs.iter().map(output));
        self.graph.name = Some("sketch".to_owned());
        let import = |domain: &str, version: i64| OperatorSetIdProto {
            domain: Some(domain.to_owned()),
            version: Some(version),
        };
        let proto = ModelProto {
            ir_version: Some(10),
            opset_import: vec![import("", opset), import("com.microsoft", 1)],
            graph: Some(self.graph),
            ..ModelProto::default()
        };
        Model::from_bytes(proto.encode_to_vec()).unwrap()
    }
}
