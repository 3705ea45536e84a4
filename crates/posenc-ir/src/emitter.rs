//! Recording edits of a graph as a patch.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Def, Dim, Graph, Type, Use};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::node::Node;
use crate::patch::{Init, NewInput, NewNode, NewValue, Patch};
use crate::proto::{AttributeProto, attribute_proto::AttributeType};
use crate::tensor::Tensor;

/// Records nodes, constants and redirected uses as a [`Patch`]; the graph itself does not change.
///
/// New values have ids beyond those of the graph and can be inputs of further nodes at once. New
/// names are `{prefix}/{op}_{n}`, with the first `n` that is free, and those of copies are
/// `{module}/{prefix}_{op}_{n}`, in the module of what was copied.
#[derive(Debug)]
pub struct Emitter<'g> {
    graph: &'g Graph,
    scope: ScopeId,
    prefix: String,
    patch: Patch,
    next_name: FxHashMap<String, usize>,
    /// The names of the graph that new ones may be equal to.
    taken: FxHashSet<&'g str>,
}

impl Graph {
    /// Starts a patch with new nodes in `scope`, whose names contain `prefix`.
    pub fn emitter(&self, scope: ScopeId, prefix: &str) -> Emitter<'_> {
        let copied = format!("/{prefix}_");
        let values = self.values.iter().map(|v| &*v.name);
        let names = values.chain(self.nodes.iter().map(|n| &*n.name));
        Emitter {
            taken: names
                .filter(|n| n.starts_with(prefix) || n.contains(&copied))
                .collect(),
            graph: self,
            scope,
            prefix: prefix.to_owned(),
            patch: Patch::new(self),
            next_name: FxHashMap::default(),
        }
    }
}

/// An attribute of a new node.
#[derive(Clone, Debug, PartialEq)]
pub enum Attr {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f32),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A string.
    Str(String),
}

impl Attr {
    fn proto(self, name: &str) -> AttributeProto {
        let mut a = AttributeProto {
            name: Some(name.to_owned()),
            ..Default::default()
        };
        match self {
            Self::Int(i) => {
                a.i = Some(i);
                a.set_type(AttributeType::Int);
            }
            Self::Float(f) => {
                a.f = Some(f);
                a.set_type(AttributeType::Float);
            }
            Self::Ints(v) => {
                a.ints = v;
                a.set_type(AttributeType::Ints);
            }
            Self::Str(s) => {
                a.s = Some(s.into_bytes().into());
                a.set_type(AttributeType::String);
            }
        }
        a
    }
}

impl<'g> Emitter<'g> {
    /// The graph.
    pub fn graph(&self) -> &'g Graph {
        self.graph
    }

    /// Sets the scope of the nodes that are added next.
    pub fn set_scope(&mut self, scope: ScopeId) {
        self.scope = scope;
    }

    /// Adds a node of ai.onnx with one output, and returns the output.
    pub fn op(&mut self, op: &str, inputs: &[ValueId]) -> ValueId {
        self.op_with(op, inputs, &[])
    }

    /// Adds a node of ai.onnx with attributes and one output, and returns the output.
    pub fn op_with(&mut self, op: &str, inputs: &[ValueId], attrs: &[(&str, Attr)]) -> ValueId {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        self.node("", op, &inputs, attrs, 1)[0]
    }

    /// Adds a node of any domain, and returns its outputs; `None` is an omitted input.
    pub fn node(
        &mut self,
        domain: &str,
        op: &str,
        inputs: &[Option<ValueId>],
        attrs: &[(&str, Attr)],
        outputs: usize,
    ) -> Vec<ValueId> {
        let name = self.fresh(&op.to_lowercase());
        self.named(name, (domain, op), inputs, attrs, outputs)
    }

    /// The same, with a name in the module of another node, in whose place it is.
    pub fn node_for(
        &mut self,
        old: NodeId,
        (domain, op): (&str, &str),
        inputs: &[Option<ValueId>],
        attrs: &[(&str, Attr)],
        outputs: usize,
    ) -> Vec<ValueId> {
        let name = self.fresh_beside(self.graph.node(old), op);
        self.named(name, (domain, op), inputs, attrs, outputs)
    }

    fn named(
        &mut self,
        name: String,
        (domain, op): (&str, &str),
        inputs: &[Option<ValueId>],
        attrs: &[(&str, Attr)],
        outputs: usize,
    ) -> Vec<ValueId> {
        let outputs: Vec<ValueId> = (0..outputs).map(|i| self.computed(&name, i)).collect();
        self.patch.nodes.push(NewNode {
            scope: self.scope,
            name,
            domain: domain.to_owned(),
            op: op.to_owned(),
            inputs: inputs.to_vec(),
            outputs: outputs.iter().copied().map(Some).collect(),
            attributes: attrs.iter().map(|(n, a)| a.clone().proto(n)).collect(),
        });
        outputs
    }

    /// Adds a copy of a node with other inputs, and returns its outputs (`None` where the node omits
    /// one). `attrs` replace attributes of the same names.
    ///
    /// # Errors
    /// When the node has bodies, which nodes cannot share, or calls an overload.
    pub fn copy(
        &mut self,
        node: NodeId,
        inputs: &[Option<ValueId>],
        attrs: &[(&str, Attr)],
    ) -> Result<Vec<Option<ValueId>>> {
        self.copy_without(node, inputs, attrs, &[])
    }

    /// The same, without attributes of these names.
    pub(crate) fn copy_without(
        &mut self,
        node: NodeId,
        inputs: &[Option<ValueId>],
        attrs: &[(&str, Attr)],
        without: &[&str],
    ) -> Result<Vec<Option<ValueId>>> {
        let old = self.graph.node(node);
        if old.bodies().next().is_some() || !self.graph.overload(node).is_empty() {
            let why = "a node with bodies or an overload cannot be copied";
            return Err(Error::patch(why).at(self.graph.place(node)));
        }
        let name = self.fresh_beside(old, old.op());
        let outputs = old.outputs().iter().enumerate();
        let outputs: Vec<Option<ValueId>> = outputs
            .map(|(i, v)| v.map(|_| self.computed(&name, i)))
            .collect();
        let kept = old.attributes().iter();
        let replaced = |a: &AttributeProto| attrs.iter().any(|(n, _)| *n == a.name());
        let kept = kept.filter(|a| !replaced(a) && !without.contains(&a.name()));
        let mut attributes: Vec<AttributeProto> = kept.cloned().collect();
        attributes.extend(attrs.iter().map(|(n, a)| a.clone().proto(n)));
        self.patch.nodes.push(NewNode {
            scope: self.scope,
            name,
            domain: old.domain().to_owned(),
            op: old.op().to_owned(),
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            attributes,
        });
        Ok(outputs)
    }

    /// Output `i` of the new node `name`.
    fn computed(&mut self, name: &str, i: usize) -> ValueId {
        let name = match i {
            0 => name.to_owned(),
            i => format!("{name}.{i}"),
        };
        self.patch.value(self.scope, name, NewValue::Computed)
    }

    /// Adds an initializer; equal ones of a patch are shared within a scope.
    pub fn constant(&mut self, label: &str, tensor: Tensor) -> ValueId {
        let same = |i: &&Init| i.scope == self.scope && i.tensor == tensor;
        if let Some(init) = self.patch.initializers.iter().find(same) {
            return init.value;
        }
        let name = self.fresh(label);
        let value = self.patch.value(self.scope, name, NewValue::Initial);
        self.patch.initializers.push(Init {
            scope: self.scope,
            value,
            tensor,
        });
        value
    }

    /// Adds a scalar of type `dtype`, rounded from `value`.
    pub fn scalar(&mut self, label: &str, dtype: DType, value: f64) -> ValueId {
        self.constant(label, Tensor::from_f64(dtype, &[], &[value]))
    }

    /// Adds an int64 list.
    pub fn ints(&mut self, label: &str, values: &[i64]) -> ValueId {
        self.constant(label, Tensor::from_i64(&[values.len()], values))
    }

    /// Adds a `Cast`.
    pub fn cast(&mut self, x: ValueId, to: DType) -> ValueId {
        self.op_with("Cast", &[x], &[("to", Attr::Int(to.code().into()))])
    }

    /// Adds an input to the main graph, after the existing ones. Its name is used as it is.
    ///
    /// # Errors
    /// When the graph or the patch has a value with this name.
    pub fn input(&mut self, name: &str, dtype: DType, dims: &[Dim]) -> Result<ValueId> {
        let taken = self.graph.values().any(|v| self.graph.name(v) == name);
        let mut added = self.patch.inputs.iter();
        if taken || added.any(|i| self.patch.name(self.graph, i.value) == name) {
            return Err(Error::patch(format!(
                "the graph already has a value {name}"
            )));
        }
        let main = self.graph.main();
        let value = self.patch.value(main, name.to_owned(), NewValue::Fed);
        self.patch.inputs.push(NewInput {
            value,
            dtype,
            dims: dims.to_vec(),
        });
        Ok(value)
    }

    /// Removes a value and the nodes that only it needs, if nothing uses it when the patch is
    /// committed.
    ///
    /// # Errors
    /// When `value` belongs to the patch.
    pub fn remove_if_unused(&mut self, value: ValueId) -> Result<()> {
        self.known(value)?;
        self.patch.released.push(value);
        Ok(())
    }

    /// Leaves out those of the nodes and constants recorded so far that nothing uses when the patch
    /// is committed.
    pub fn omit_unused(&mut self) {
        let made = self
            .patch
            .nodes
            .iter()
            .flat_map(|n| n.outputs.iter().flatten());
        let constants = self.patch.initializers.iter().map(|i| i.value);
        let released = &mut self.patch.released;
        released.extend(made.copied().chain(constants));
    }

    /// Replaces every use of `old` in the graph by `new`, and `old` as an output. Nodes of this patch
    /// keep reading `old`.
    ///
    /// # Errors
    /// When the two have different element types, or `old` belongs to the patch.
    pub fn redirect(&mut self, old: ValueId, new: ValueId) -> Result<()> {
        let uses = self.known(old)?;
        self.check_types(old, new)?;
        self.patch
            .redirects
            .extend(uses.iter().map(|at| (*at, new)));
        if self.graph.value(old).is_output() {
            self.patch.outputs.push((old, new));
        }
        Ok(())
    }

    /// Lets the nodes recorded so far read other values: those that `of` gives for theirs. They must
    /// not depend on the nodes that read them.
    pub fn redirect_recorded(&mut self, of: impl Fn(ValueId) -> ValueId) {
        for node in &mut self.patch.nodes {
            for input in node.inputs.iter_mut().flatten() {
                *input = of(*input);
            }
        }
    }

    /// Replaces `old` by `new` as an output, and no use of it.
    ///
    /// # Errors
    /// When `old` is not an output, or the two have different element types.
    pub fn redirect_output(&mut self, old: ValueId, new: ValueId) -> Result<()> {
        self.known(old)?;
        if !self.graph.value(old).is_output() {
            let why = format!("{} is not an output", self.graph.name(old));
            return Err(Error::patch(why));
        }
        self.check_types(old, new)?;
        self.patch.outputs.push((old, new));
        Ok(())
    }

    /// The scope of a value of the graph or the patch.
    pub fn scope_of(&self, value: ValueId) -> ScopeId {
        if value.index() < self.graph.value_count() {
            self.graph.value(value).scope()
        } else {
            self.patch.scope_of(value)
        }
    }

    /// Whether a node of the patch computes a value.
    pub fn is_computed(&self, value: ValueId) -> bool {
        value.index() >= self.graph.value_count() && self.patch.is_computed(value)
    }

    /// Replaces one use of `old` by `new`.
    ///
    /// # Errors
    /// When `at` is not a use of `old`, or the two have different element types.
    pub fn redirect_use(&mut self, old: ValueId, at: Use, new: ValueId) -> Result<()> {
        if !self.known(old)?.contains(&at) {
            let place = self.graph.place(at.node);
            return Err(
                Error::patch("the node does not read the value that is redirected").at(place),
            );
        }
        self.check_types(old, new)?;
        self.patch.redirects.push((at, new));
        Ok(())
    }

    fn check_types(&self, old: ValueId, new: ValueId) -> Result<()> {
        if new.index() < self.graph.value_count()
            && let (Some(a), Some(b)) = (self.graph.dtype(old), self.graph.dtype(new))
            && a != b
        {
            let why = format!(
                "{} has type {a}, but its replacement has type {b}",
                self.graph.name(old)
            );
            return Err(Error::patch(why));
        }
        Ok(())
    }

    /// Gives the constant `old` another payload for the uses in `seen_by`. Where these are all its
    /// uses, the constant is changed; otherwise they get a new constant. Returns the constant that
    /// they read.
    ///
    /// # Errors
    /// When `old` is not a constant, the element type differs, or `seen_by` contains a use of another
    /// value.
    pub fn replace_constant(
        &mut self,
        old: ValueId,
        seen_by: &[Use],
        tensor: Tensor,
    ) -> Result<ValueId> {
        let uses = self.known(old)?;
        let value = self.graph.value(old);
        let Some(stored) = self.graph.stored(old) else {
            return Err(Error::patch(format!("{} is not a constant", value.name())));
        };
        if stored.dtype != Some(tensor.dtype()) {
            let why = format!("{} would change its element type", value.name());
            return Err(Error::patch(why));
        }
        // Inputs with a default keep their declared type.
        let fixed = matches!(value.def(), Def::Input(_)) && stored.dims != tensor.dims();
        let seen: FxHashSet<&Use> = seen_by.iter().collect();
        let whole = uses.iter().all(|u| seen.contains(u)) && !value.is_output() && !fixed;
        if whole {
            self.patch.revalued.insert(old, tensor);
            return Ok(old);
        }
        let scope = std::mem::replace(&mut self.scope, value.scope());
        let own = self.constant("constant", tensor);
        self.scope = scope;
        for at in seen_by {
            self.redirect_use(old, *at, own)?;
        }
        Ok(own)
    }

    /// Declares other dimensions of an input or an output. The declaration of an inner value is left
    /// out.
    ///
    /// # Errors
    /// When `value` belongs to the patch, or is declared as no tensor.
    pub fn redeclare(&mut self, value: ValueId, dims: Vec<Dim>) -> Result<()> {
        self.known(value)?;
        match self.graph.value(value).ty() {
            Some(Type::Tensor { .. }) => {
                self.patch.redeclared.insert(value, dims);
                Ok(())
            }
            _ => {
                let name = self.graph.name(value);
                Err(Error::patch(format!("{name} is declared as no tensor")))
            }
        }
    }

    /// The recorded patch.
    pub fn finish(self) -> Patch {
        self.patch
    }

    fn known(&self, old: ValueId) -> Result<&'g [Use]> {
        if old.index() < self.graph.value_count() {
            Ok(self.graph.uses(old))
        } else {
            Err(Error::patch(
                "a value of the patch cannot be redirected or removed",
            ))
        }
    }

    fn fresh(&mut self, label: &str) -> String {
        let prefix = self.prefix.clone();
        self.unused(format!("{prefix}/{label}"))
    }

    /// A name for a node in place of another: in the module of its name or, without one, below its name.
    fn fresh_beside(&mut self, old: &Node, op: &str) -> String {
        let label = op.to_lowercase();
        let module = match old.name().rsplit_once('/') {
            Some((module, _)) if !module.is_empty() => module,
            _ => old.name(),
        };
        match module {
            module if module.is_empty() || module == self.prefix => self.fresh(&label),
            module => self.unused(format!("{module}/{}_{label}", self.prefix)),
        }
    }

    /// This name with the first number that makes it a new one.
    fn unused(&mut self, stem: String) -> String {
        let n = self.next_name.entry(stem.clone()).or_default();
        loop {
            let name = format!("{stem}_{n}");
            *n += 1;
            if !self.taken.contains(name.as_str()) {
                return name;
            }
        }
    }
}
