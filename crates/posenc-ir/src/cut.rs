//! Cuts the nodes between given values out of a model as a model of its own, which a runtime can
//! run.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Def, Dim, Graph, ScopeKind, Type};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::model::Model;
use crate::order::outer_reads;
use crate::proto::{
    FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, tensor_shape_proto, type_proto,
};
use crate::splice::Splice;
use crate::stored::{Payload, Stored};
use limit::ByteLimit;

mod inline;
mod limit;

/// A value at which a cut starts: an input of the model that is cut out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutInput {
    /// The value.
    pub value: ValueId,
    /// Its element type.
    pub dtype: DType,
    /// Its shape.
    pub dims: Vec<Dim>,
}

/// A model that was cut out of another.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The encoded model. External weights are embedded.
    pub bytes: Vec<u8>,
    /// The inputs in order: the given ones, then inputs of the graph that were reached.
    pub inputs: Vec<CutPort>,
    /// The outputs, each once, in the given order.
    pub outputs: Vec<CutPort>,
}

/// An input or output of a [`Cut`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutPort {
    /// The value in the graph that was cut.
    pub value: ValueId,
    /// Its name in both models.
    pub name: String,
    /// Its element type; `None` for an output that declares none.
    pub dtype: Option<DType>,
    /// Its shape; `None` where the graph declares none.
    pub dims: Option<Vec<Dim>>,
}

impl Model {
    /// Cuts out the nodes that compute `outputs` from `inputs`, as a model of its own.
    ///
    /// Walks backwards from the outputs and stops at the inputs. The new model contains the nodes that
    /// were reached with their bodies and captures, the constants, and the functions that are
    /// called. Other inputs of the graph that are reached become inputs with their declared type;
    /// inputs with a default become constants. Values keep their names; outputs have no type.
    /// `inputs` that no node reads are inputs too.
    ///
    /// # Errors
    /// When constants and nodes together take more than `limit` bytes (the walk reached large
    /// weights), an input of unknown type or a sparse tensor is reached, two different values have
    /// one name (from different bodies), or an output was removed from the graph.
    pub fn cut(&self, inputs: &[CutInput], outputs: &[ValueId], limit: usize) -> Result<Cut> {
        let graph = self.graph();
        let mut walk = Walk::new(graph);
        for input in inputs {
            walk.stop_at(input)?;
        }
        for output in outputs {
            walk.reach(*output)?;
        }
        walk.check_names()?;
        let mut left = ByteLimit::new(limit);
        let splice = Splice::new(self);
        let mut proto = GraphProto {
            name: Some("cut".to_owned()),
            ..Default::default()
        };
        for port in &walk.inputs {
            proto.input.push(info(port));
        }
        for value in &walk.constants {
            let tensor = self.embed(*value, &mut left)?;
            proto.initializer.push(tensor);
        }
        for node in &walk.nodes {
            let encoded = splice.node_message(*node)?;
            left.take(encoded.len(), || graph.place(*node))?;
            let encoded = encoded.to_vec(self.source());
            let mut message = decode::<NodeProto>(&encoded)?;
            if message.attribute.iter().any(|a| a.ref_attr_name.is_some()) {
                let why = "an attribute of the node refers to an attribute of its function";
                return Err(Error::unsupported(why).at(graph.place(*node)));
            }
            inline::node(self, &mut message, &mut left).map_err(|e| e.at(graph.place(*node)))?;
            proto.node.push(message);
        }
        let mut named = FxHashSet::default();
        let mut ports = vec![];
        for value in outputs.iter().filter(|v| named.insert(**v)) {
            ports.push(CutPort {
                value: *value,
                name: graph.name(*value).to_owned(),
                dtype: graph.dtype(*value),
                dims: graph.value(*value).shape().map(<[_]>::to_vec),
            });
            proto.output.push(ValueInfoProto {
                name: Some(graph.name(*value).to_owned()),
                ..Default::default()
            });
        }
        let functions = self.called(&walk, &splice, &mut left)?;
        let model = ModelProto {
            // Before version 4, initializers must be listed as inputs too.
            ir_version: Some(self.ir_version().max(4)),
            opset_import: self
                .opsets()
                .into_iter()
                .map(|(domain, version)| OperatorSetIdProto {
                    domain: Some(domain),
                    version: Some(version),
                })
                .collect(),
            graph: Some(proto),
            functions,
            ..Default::default()
        };
        Ok(Cut {
            bytes: model.encode_to_vec(),
            inputs: walk.inputs,
            outputs: ports,
        })
    }

    /// The message of a constant, with its payload embedded.
    fn embed(&self, value: ValueId, left: &mut ByteLimit) -> Result<TensorProto> {
        let graph = self.graph();
        let name = graph.name(value);
        let wrong = |why: &str| Error::unsupported(why.to_owned()).at(name);
        let stored: &Stored = graph
            .stored(value)
            .ok_or_else(|| wrong("the value has no payload"))?;
        let message = |raw: bytes::Bytes| -> Result<TensorProto> {
            let dtype = stored
                .dtype
                .ok_or_else(|| wrong("the element type of the tensor is not known"))?;
            Ok(TensorProto {
                dims: stored.dims.iter().map(|d| *d as i64).collect(),
                data_type: Some(dtype.code()),
                raw_data: Some(raw),
                ..Default::default()
            })
        };
        let mut tensor = match &stored.payload {
            Payload::Raw(bytes) => {
                left.take(bytes.len(), || name.to_owned())?;
                message(bytes.clone())?
            }
            Payload::External(external) => {
                message(inline::load(self, name, stored, external, left)?)?
            }
            Payload::Typed(bytes) => {
                left.take(bytes.len(), || name.to_owned())?;
                decode::<TensorProto>(bytes)?
            }
            Payload::Sparse => return Err(wrong("the tensor is sparse")),
        };
        tensor.name = Some(name.to_owned());
        Ok(tensor)
    }

    /// The functions that the nodes call, and those that these call.
    fn called(
        &self,
        walk: &Walk<'_>,
        splice: &Splice<'_>,
        left: &mut ByteLimit,
    ) -> Result<Vec<FunctionProto>> {
        let graph = self.graph();
        let mut by_name: FxHashMap<(&str, &str), Vec<ScopeId>> = FxHashMap::default();
        for id in graph.scopes() {
            if let ScopeKind::Function { domain, .. } = graph.scope(id).kind() {
                let domain = if &**domain == "ai.onnx" { "" } else { domain };
                let key = (domain, graph.scope(id).name());
                by_name.entry(key).or_default().push(id);
            }
        }
        if by_name.is_empty() {
            return Ok(vec![]);
        }
        let mut taken = BTreeSet::new();
        let mut stack = walk.nodes.clone();
        while let Some(id) = stack.pop() {
            let node = graph.node(id);
            stack.extend(
                node.bodies()
                    .flat_map(|(_, body)| graph.scope(body).nodes()),
            );
            for scope in by_name
                .get(&(node.domain(), node.op()))
                .into_iter()
                .flatten()
            {
                if taken.insert(*scope) {
                    stack.extend(graph.scope(*scope).nodes());
                }
            }
        }
        let mut out = vec![];
        for scope in taken {
            let encoded = splice.scope(scope)?;
            let name = graph.scope(scope).name();
            left.take(encoded.len(), || name.to_owned())?;
            let mut message = decode::<FunctionProto>(&encoded.to_vec(self.source()))?;
            for node in &mut message.node {
                inline::node(self, node, left).map_err(|e| e.at(name))?;
            }
            out.push(message);
        }
        Ok(out)
    }
}

/// The walk from outputs back to inputs.
struct Walk<'g> {
    graph: &'g Graph,
    inputs: Vec<CutPort>,
    seen: FxHashSet<ValueId>,
    /// In topological order.
    nodes: Vec<NodeId>,
    /// Visited nodes; `false` until everything that they read is in `nodes`.
    done: FxHashMap<NodeId, bool>,
    constants: Vec<ValueId>,
    /// The bodies of `nodes`.
    bodies: FxHashSet<ScopeId>,
}

impl<'g> Walk<'g> {
    fn new(graph: &'g Graph) -> Self {
        Self {
            graph,
            inputs: vec![],
            seen: FxHashSet::default(),
            nodes: vec![],
            done: FxHashMap::default(),
            constants: vec![],
            bodies: FxHashSet::default(),
        }
    }

    fn stop_at(&mut self, input: &CutInput) -> Result<()> {
        if input.value.index() >= self.graph.value_count() {
            return Err(Error::unsupported(
                "an input of the cut is not a value of the graph",
            ));
        }
        let name = self.graph.name(input.value);
        if !self.seen.insert(input.value) {
            return Err(
                Error::unsupported("the value is given twice as an input of the cut").at(name),
            );
        }
        self.inputs.push(CutPort {
            value: input.value,
            name: name.to_owned(),
            dtype: Some(input.dtype),
            dims: Some(input.dims.clone()),
        });
        Ok(())
    }

    /// Adds the nodes that compute `value`, without recursion: graphs are deep.
    fn reach(&mut self, value: ValueId) -> Result<()> {
        if value.index() >= self.graph.value_count() {
            return Err(Error::unsupported(
                "an output of the cut is not a value of the graph",
            ));
        }
        let mut stack: Vec<NodeId> = self.enter(value)?.into_iter().collect();
        while let Some(id) = stack.last().copied() {
            match self.done.get(&id) {
                Some(true) => {
                    stack.pop();
                }
                Some(false) => {
                    stack.pop();
                    self.done.insert(id, true);
                    self.nodes.push(id);
                }
                None => {
                    self.done.insert(id, false);
                    let (reads, bodies) = outer_reads(self.graph, id);
                    self.bodies.extend(bodies);
                    for value in reads.into_iter().rev() {
                        if let Some(producer) = self.enter(value)? {
                            if self.done.get(&producer) == Some(&false) {
                                let why = "the node depends on its own output";
                                return Err(Error::invalid(why).at(self.graph.place(producer)));
                            }
                            stack.push(producer);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Visits a value; returns the node that computes it, when that is not visited yet.
    fn enter(&mut self, value: ValueId) -> Result<Option<NodeId>> {
        let graph = self.graph;
        if self.seen.contains(&value) {
            return Ok(None);
        }
        let v = graph.value(value);
        let gone = || Error::unsupported("the value was removed from the graph").at(v.name());
        match v.def() {
            Def::Node(node, _) if graph.is_removed(node) => Err(gone()),
            Def::Node(node, _) => Ok(Some(node)),
            Def::Initializer if graph.dropped.contains(&value) => Err(gone()),
            Def::Initializer => Ok(self.constant(value)),
            Def::Input(_) if v.stored.is_some() => Ok(self.constant(value)),
            Def::Input(_) => {
                let Some(Type::Tensor {
                    dtype: Some(dtype),
                    shape,
                }) = v.ty()
                else {
                    let why = "the cut reaches an input of unknown type";
                    return Err(Error::unsupported(why).at(v.name()));
                };
                self.seen.insert(value);
                self.inputs.push(CutPort {
                    value,
                    name: v.name().to_owned(),
                    dtype: Some(*dtype),
                    dims: shape.clone(),
                });
                Ok(None)
            }
        }
    }

    fn constant(&mut self, value: ValueId) -> Option<NodeId> {
        self.seen.insert(value);
        self.constants.push(value);
        None
    }

    /// Values of different scopes become values of one graph: their names must differ, and none
    /// may also be defined in a body of the cut.
    fn check_names(&self) -> Result<()> {
        let graph = self.graph;
        let computed = self.nodes.iter().flat_map(|n| graph.node(*n).outputs());
        let defined = self.inputs.iter().map(|p| p.value);
        let defined = defined.chain(self.constants.iter().copied());
        let mut names: BTreeMap<&str, ValueId> = BTreeMap::new();
        for value in defined.chain(computed.flatten().copied()) {
            let name = graph.name(value);
            if self.bodies.contains(&graph.value(value).scope()) {
                let why = "the cut contains the value twice: in the graph and in a body";
                return Err(Error::unsupported(why).at(name));
            }
            match names.insert(name, value) {
                Some(other) if other != value => {
                    let why = "two values of the cut have this name";
                    return Err(Error::unsupported(why).at(name));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M> {
    M::decode(bytes).map_err(|e| Error::decode(e.to_string()))
}

fn info(port: &CutPort) -> ValueInfoProto {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let dim = |d: &Dim| Dimension {
        denotation: None,
        value: match d {
            Dim::Known(n) => Some(Value::DimValue(*n as i64)),
            Dim::Symbol(s) => Some(Value::DimParam(s.to_string())),
            Dim::Unknown => None,
        },
    };
    let tensor = type_proto::Tensor {
        elem_type: port.dtype.map(DType::code),
        shape: port.dims.as_ref().map(|dims| TensorShapeProto {
            dim: dims.iter().map(dim).collect(),
        }),
    };
    ValueInfoProto {
        name: Some(port.name.clone()),
        r#type: Some(TypeProto {
            denotation: None,
            value: Some(type_proto::Value::TensorType(tensor)),
        }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
