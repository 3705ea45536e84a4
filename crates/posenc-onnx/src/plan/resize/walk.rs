//! The sizes of all values, from the inputs on: every node is evaluated as far as sizes go.

use std::collections::BTreeMap;

use posenc_encodings::inferred::Inferred;
use posenc_ir::eval::{Budget, Value, apply};
use posenc_ir::{NodeId, Tensor, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::offsets::{self, ResizedBias};
use super::positional::positional;
use super::rotations::{self, ResizedRotation};
use super::sizes::{Plan, Wanted};
use super::table::ResizedTable;
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::extent::Extent;
use crate::graph::region::{above, reads};

/// Elements of shapes, positions and masks that are computed.
const BUDGET: Budget = Budget { elements: 1 << 22 };

/// How many nodes are named that do not follow, besides the first.
const NAMED: usize = 8;

/// Numbers up to so many are compared to tell whether they change.
const COMPARED: usize = 1 << 12;

/// What follows from inputs of another size.
pub(super) struct Walk<'a> {
    pub(super) context: &'a Context<'a>,
    /// How rows of tables become others.
    pub(super) wanted: Wanted,
    /// The axes of every value of which one changes.
    pub(super) axes: BTreeMap<ValueId, Vec<Extent>>,
    /// Every value that is not what it was in the trial run.
    pub(super) values: FxHashMap<ValueId, Value>,
    pub(super) tables: Vec<ResizedTable>,
    pub(super) biases: Vec<ResizedBias>,
    pub(super) rotations: Vec<ResizedRotation>,
    /// Constants that follow, by where they are read.
    pub(super) constants: BTreeMap<Use, (ValueId, Tensor)>,
    /// Constants of which the first rows are read, by where they are.
    pub(super) cuts: BTreeMap<Use, (ValueId, Vec<Extent>)>,
    /// Values that encode positions, and what these are computed from; none but where a length is left open.
    pub(super) positional: FxHashSet<ValueId>,
    /// Where a position table is added, with its finding.
    pub(super) entries: FxHashMap<Use, usize>,
    /// Where a bias by the offset of patches may be read, with its finding.
    pub(super) windowed: FxHashMap<Use, usize>,
    /// Where a rotation by rows and columns meets content, with its place in `Found::axial` and its side.
    pub(super) rotated: FxHashMap<Use, (usize, usize)>,
    /// What such rotations are computed from.
    pub(super) rotating: FxHashSet<ValueId>,
    /// The nodes that compute such biases, and nothing else.
    pub(super) made: FxHashSet<NodeId>,
    /// The axes of tables, biases and rotations that get other rows, where they are added.
    pub(super) resized: FxHashMap<Use, Vec<Extent>>,
    /// The nodes that enlarge a map to sizes that follow.
    pub(super) enlarged: FxHashSet<NodeId>,
    /// What was taken to follow, though the graph does not show that it does.
    pub(super) inferred: Vec<Inferred>,
    /// The place of every node in the order of computation.
    order: FxHashMap<NodeId, usize>,
    /// The place of the node that is evaluated.
    now: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(context: &'a Context<'a>, wanted: Wanted) -> Self {
        let findings = context.found.findings.iter().enumerate();
        let findings = findings.filter(|(_, finding)| finding.encoding.is_absolute());
        let entries = findings.flat_map(|(at, f)| f.entries.iter().map(move |entry| (*entry, at)));
        let positional = match wanted {
            Wanted::OpenLength { .. } => positional(context),
            Wanted::Image { .. } | Wanted::Length { .. } => FxHashSet::default(),
        };
        let windowed = offsets::entries(context);
        let made = match wanted {
            Wanted::Image { .. } => offsets::makers(context, &windowed),
            Wanted::Length { .. } | Wanted::OpenLength { .. } => FxHashSet::default(),
        };
        let rotated = match wanted {
            Wanted::Image { .. } => rotations::entries(context),
            Wanted::Length { .. } | Wanted::OpenLength { .. } => FxHashMap::default(),
        };
        let graph = context.graph();
        let read = |at: &Use| graph.node(at.node).input(at.slot());
        let rotating = rotated.keys().filter_map(read).collect();
        let rotating = above(graph, rotating, |_| true).into_iter().collect();
        Self {
            context,
            wanted,
            axes: BTreeMap::new(),
            values: FxHashMap::default(),
            tables: vec![],
            biases: vec![],
            rotations: vec![],
            constants: BTreeMap::new(),
            cuts: BTreeMap::new(),
            positional,
            entries: entries.collect(),
            windowed,
            rotated,
            rotating,
            made,
            resized: FxHashMap::default(),
            enlarged: FxHashSet::default(),
            inferred: vec![],
            order: FxHashMap::default(),
            now: 0,
        }
    }

    /// Whether a value was read already, but for this node: its readers would have to be evaluated
    /// again if it changed.
    pub(super) fn was_read(&self, value: ValueId, besides: NodeId) -> bool {
        let uses = self.context.graph().uses(value).iter();
        let mut nodes = uses.map(|at| at.node).filter(|id| *id != besides);
        // A node of a body has no place, and may have run.
        nodes.any(|id| self.order.get(&id).is_none_or(|place| *place < self.now))
    }

    /// What follows from the sizes that were given.
    pub(super) fn plan(self, inferred: Vec<Inferred>) -> Plan {
        Plan {
            wanted: self.wanted,
            tables: self.tables,
            biases: self.biases,
            rotations: self.rotations,
            constants: self.constants,
            cuts: self.cuts,
            axes: self.axes,
            inferred: inferred.into_iter().chain(self.inferred).collect(),
        }
    }

    /// Gives an input other axes.
    pub(super) fn start(&mut self, input: ValueId, axes: Vec<Extent>) {
        let dims: Vec<usize> = axes.iter().map(Extent::after).collect();
        self.values
            .insert(input, Value::opaque(self.context.dtype(input), dims));
        self.axes.insert(input, axes);
    }

    /// Evaluates every node that a changed value reaches.
    ///
    /// # Errors
    /// With every node that does not follow, but for those that read what such a node computes.
    pub(super) fn run(&mut self) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        let order = graph.order(graph.main())?;
        self.order = order
            .iter()
            .enumerate()
            .map(|(place, id)| (*id, place))
            .collect();
        let (mut errors, mut unknown) = (vec![], FxHashSet::default());
        for (place, id) in order.into_iter().enumerate() {
            let read = reads(graph, id);
            let is_unknown = read.iter().any(|v| unknown.contains(v));
            if !is_unknown && !read.iter().any(|v| self.values.contains_key(v)) {
                continue;
            }
            self.now = place;
            let error = match is_unknown {
                true => None,
                false if self.made.contains(&id) => self.by_numbers(id).err(),
                false => self.node(id).err(),
            };
            if is_unknown || error.is_some() {
                unknown.extend(graph.node(id).outputs().iter().flatten().copied());
            }
            errors.extend(error);
        }
        errors.extend(self.not_compared());
        all(errors)
    }

    /// Evaluates a node that computes a bias by offsets and nothing else: its numbers are compared where it is added,
    /// and the rules of sizes do not hold for them.
    fn by_numbers(&mut self, id: NodeId) -> Result<(), RewriteError> {
        let outputs = self.evaluate(id)?;
        for (out, value) in self.context.graph().node(id).outputs().iter().zip(outputs) {
            let Some(out) = *out else { continue };
            let sizes = self.context.dims(out).zip(value.dims.as_deref());
            let Some((old, new)) = sizes.filter(|(old, new)| old.len() == new.len()) else {
                return Err(self.refuse(id, "the sizes that are computed here are not known"));
            };
            let axis = |(old, new): (&usize, &usize)| Extent::One {
                old: *old,
                new: *new,
            };
            let axes: Vec<Extent> = old.iter().zip(new).map(axis).collect();
            if axes.iter().any(Extent::changes) {
                self.axes.insert(out, axes);
            }
            self.values.insert(out, value);
        }
        Ok(())
    }

    /// The refusal of a bias that is computed for the image, and whose numbers are not compared.
    fn not_compared(&self) -> Option<RewriteError> {
        let graph = self.context.graph();
        let computed = self.biases.iter().filter(|bias| bias.is_computed);
        let computed: FxHashSet<Use> = computed.map(|bias| bias.entry).collect();
        let is_changed = |at: &&Use| {
            let value = graph.node(at.node).input(at.slot());
            let maker = value.and_then(|value| graph.producer(value));
            let is_made = maker.is_some_and(|(maker, _)| self.made.contains(&maker));
            is_made && value.is_some_and(|value| self.values.contains_key(&value))
        };
        let ends = self
            .windowed
            .keys()
            .filter(|at| !self.made.contains(&at.node));
        let mut left = ends.filter(is_changed).filter(|at| !computed.contains(at));
        let why = "the bias that the graph computes here for other images cannot be compared";
        left.next().map(|at| self.refuse(at.node, why))
    }

    fn node(&mut self, id: NodeId) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        let node = graph.node(id);
        let op = node.op();
        if node.bodies().next().is_some() {
            return Err(self.refuse(
                id,
                format!("sizes are not followed into the bodies of {op}"),
            ));
        }
        self.whole_numbers(id)?;
        self.table(id)?;
        self.window_bias(id)?;
        self.rotation(id)?;
        self.check_numbers(id)?;
        self.check_meets(id)?;
        let outputs = match (op, node.domain()) {
            ("Reshape", "") => self.reshape(id)?,
            _ => self.evaluate(id)?,
        };
        for (place, out) in node.outputs().iter().enumerate() {
            let Some(out) = *out else { continue };
            let value = outputs.get(place).cloned().unwrap_or_else(Value::unknown);
            self.record((id, place), out, value)?;
        }
        Ok(())
    }

    /// The value that a node reads.
    pub(super) fn input(&self, id: NodeId, slot: usize) -> Option<Value> {
        let value = self.context.graph().node(id).input(slot)?;
        let at = Use::new(id, slot);
        if let Some((_, tensor)) = self.constants.get(&at) {
            return Some(Value::from_tensor(tensor));
        }
        if let Some(axes) = self.resized.get(&at) {
            let dims: Vec<usize> = axes.iter().map(Extent::after).collect();
            return Some(Value::opaque(self.context.dtype(value), dims));
        }
        let known = self.values.get(&value);
        Some(
            known
                .unwrap_or_else(|| self.context.found.trace.get(value))
                .clone(),
        )
    }

    /// The numbers that a node reads, of a shape or an index.
    pub(super) fn list(&self, id: NodeId, slot: usize) -> Option<Vec<i64>> {
        Some(self.input(id, slot)?.to_i64()?.iter().copied().collect())
    }

    /// The outputs of a node, with the sizes that it gets now.
    pub(super) fn evaluate(&self, id: NodeId) -> Result<Vec<Value>, RewriteError> {
        let node = self.context.graph().node(id);
        let inputs: Vec<Option<Value>> = (0..node.inputs().len())
            .map(|slot| self.input(id, slot))
            .collect();
        let inputs: Vec<Option<&Value>> = inputs.iter().map(Option::as_ref).collect();
        let model = self.context.model;
        let opset = match node.domain() {
            "" => model.opset(),
            domain => model.opsets().get(domain).copied().unwrap_or(1),
        };
        apply(node, opset, &inputs, &BUDGET).map_err(|error| {
            let why = format!(
                "this {} has a size that does not follow the {}: {error}",
                node.op(),
                self.wanted.name()
            );
            self.refuse(id, why)
        })
    }

    /// Records what a node computes now.
    fn record(
        &mut self,
        (id, place): (NodeId, usize),
        out: ValueId,
        value: Value,
    ) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        let before = self.context.found.trace.get(out);
        let Some(old) = before.dims.clone() else {
            let why = format!(
                "the sizes that this {} gives are not known",
                graph.node(id).op()
            );
            return Err(self.refuse(id, why));
        };
        let Some(new) = value.dims.clone().filter(|new| new.len() == old.len()) else {
            let why = format!(
                "the sizes that this {} would give to another {} are not known",
                graph.node(id).op(),
                self.wanted.name()
            );
            return Err(self.refuse(id, why));
        };
        let (axes, follows) = self.axes_of((id, place), &old, &new);
        let op = graph.node(id).op();
        if !follows && !matches!(op, "Shape" | "Size") && self.loses_order(id, &axes) {
            let what = self.wanted.name();
            let why = format!("which axes of this {op} follow the {what} is not known");
            return Err(self.refuse(id, why));
        }
        if axes.iter().any(Extent::changes) {
            self.axes.insert(out, axes);
            self.values.insert(out, value);
        } else if !same(before, &value) {
            self.values.insert(out, value);
        }
        Ok(())
    }

    /// The axes of a value.
    pub(super) fn axes(&self, value: ValueId) -> Option<Vec<Extent>> {
        if let Some(axes) = self.axes.get(&value) {
            return Some(axes.clone());
        }
        let dims = self.context.dims(value)?;
        Some(dims.iter().map(|n| Extent::same(*n)).collect())
    }

    /// The axes of what a node reads.
    pub(super) fn axes_in(&self, id: NodeId, slot: usize) -> Option<Vec<Extent>> {
        let value = self.context.graph().node(id).input(slot)?;
        let own = self.resized.get(&Use::new(id, slot));
        own.cloned().or_else(|| self.axes(value))
    }

    /// The refusal to give a node other sizes.
    pub(super) fn refuse(&self, id: NodeId, why: impl std::fmt::Display) -> RewriteError {
        self.context.refuse(id, why)
    }
}

/// One error for all; the first that is no refusal, where there is one.
fn all(errors: Vec<RewriteError>) -> Result<(), RewriteError> {
    let mut refusals = vec![];
    for error in errors {
        match error {
            RewriteError::Refused(refusal) => refusals.push(refusal),
            other => return Err(other),
        }
    }
    let mut refusals = refusals.into_iter();
    let Some(first) = refusals.next() else {
        return Ok(());
    };
    let others: Vec<String> = refusals.map(|refusal| refusal.to_string()).collect();
    let more = match others.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; {more} more"),
    };
    let named = others.iter().take(NAMED).map(|other| format!("; {other}"));
    Err(first.with(&(named.collect::<String>() + &more)).into())
}

/// Whether numbers are those of the trial run.
fn same(before: &Value, after: &Value) -> bool {
    let few = |v: &Value| v.elements().is_some_and(|n| n <= COMPARED);
    match (&before.data, &after.data) {
        (None, _) => true,
        (Some(_), Some(_)) if few(before) && few(after) => before.to_f64() == after.to_f64(),
        _ => false,
    }
}
