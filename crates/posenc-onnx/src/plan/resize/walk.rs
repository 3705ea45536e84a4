//! The sizes of all values, from the inputs on: every node is evaluated as far as sizes go.

use std::collections::BTreeMap;

use posenc_ir::eval::{Budget, Value, apply};
use posenc_ir::{Node, NodeId, Tensor, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::table::{GridTable, Interpolation};
use crate::detect::context::Context;
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::{Extent, regrouped};
use crate::graph::lane::wrap;
use crate::graph::operators::{is_elementwise, is_reshape};
use crate::graph::region::reads;

/// Elements of shapes, positions and masks that are computed.
const BUDGET: Budget = Budget { elements: 1 << 22 };

/// Numbers up to so many are compared to tell whether they change.
const COMPARED: usize = 1 << 12;

/// What follows from inputs of another size.
pub(super) struct Walk<'a> {
    pub(super) context: &'a Context<'a>,
    /// How rows of tables become others.
    rows: Interpolation,
    /// The axes of every value of which one changes.
    pub(super) axes: BTreeMap<ValueId, Vec<Extent>>,
    /// Every value that is not what it was in the trial run.
    pub(super) values: FxHashMap<ValueId, Value>,
    pub(super) tables: Vec<GridTable>,
    /// Constants that follow, by where they are read.
    pub(super) constants: Vec<(ValueId, Use, Tensor)>,
    /// Where a position table is added, with its finding.
    entries: FxHashMap<Use, usize>,
    /// Nodes that were evaluated.
    pub(super) done: FxHashSet<NodeId>,
    /// The place of every node in the order of computation.
    order: FxHashMap<NodeId, usize>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(context: &'a Context<'a>, rows: Interpolation) -> Self {
        let findings = context.found.findings.iter().enumerate();
        let findings = findings.filter(|(_, finding)| finding.encoding.is_absolute());
        let entries = findings.flat_map(|(at, f)| f.entries.iter().map(move |entry| (*entry, at)));
        Self {
            context,
            rows,
            axes: BTreeMap::new(),
            values: FxHashMap::default(),
            tables: vec![],
            constants: vec![],
            entries: entries.collect(),
            done: FxHashSet::default(),
            order: FxHashMap::default(),
        }
    }

    /// The place of a node in the order of computation; nodes of bodies come last.
    pub(super) fn place(&self, id: NodeId) -> usize {
        self.order.get(&id).copied().unwrap_or(usize::MAX)
    }

    /// Lets a constant have other numbers where it is read here.
    pub(super) fn set(&mut self, value: ValueId, at: Use, tensor: Tensor) {
        self.constants.retain(|(_, known, _)| *known != at);
        self.constants.push((value, at, tensor));
    }

    /// Gives an input other axes.
    pub(super) fn start(&mut self, input: ValueId, axes: Vec<Extent>) {
        let dims: Vec<usize> = axes.iter().map(Extent::after).collect();
        self.values
            .insert(input, Value::opaque(self.context.dtype(input), dims));
        self.axes.insert(input, axes);
    }

    /// Evaluates every node that a changed value reaches.
    pub(super) fn run(&mut self) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        let order = graph.order(graph.main())?;
        self.order = order
            .iter()
            .enumerate()
            .map(|(place, id)| (*id, place))
            .collect();
        for id in order {
            let read = reads(graph, id);
            if !read.iter().any(|v| self.values.contains_key(v)) {
                continue;
            }
            self.node(id)?;
            self.done.insert(id);
        }
        Ok(())
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
        self.entry(id)?;
        self.check_numbers(id)?;
        if is_elementwise(op) && node.domain().is_empty() {
            self.widen_inputs(id)?;
        }
        let outputs = match (op, node.domain()) {
            ("Reshape", "") => self.reshape(id)?,
            _ => self.evaluate(id)?,
        };
        for (place, out) in node.outputs().iter().enumerate() {
            let Some(out) = *out else { continue };
            let value = outputs.get(place).cloned().unwrap_or_else(Value::unknown);
            self.record(id, out, value)?;
        }
        Ok(())
    }

    /// The value that a node reads.
    pub(super) fn input(&self, id: NodeId, slot: usize) -> Option<Value> {
        let value = self.context.graph().node(id).input(slot)?;
        let at = Use::new(id, slot);
        let set = self.constants.iter().find(|(_, known, _)| *known == at);
        if let Some((.., tensor)) = set {
            return Some(Value::from_tensor(tensor));
        }
        let known = self.values.get(&value);
        Some(
            known
                .unwrap_or_else(|| self.context.found.trace.get(value))
                .clone(),
        )
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
                "this {} has a size that does not follow the image: {error}",
                node.op()
            );
            self.refuse(id, why)
        })
    }

    /// Records what a node computes now.
    fn record(&mut self, id: NodeId, out: ValueId, value: Value) -> Result<(), RewriteError> {
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
                "the sizes that this {} would give to another image are not known",
                graph.node(id).op()
            );
            return Err(self.refuse(id, why));
        };
        let axes = self.axes_of(id, &old, &new);
        if axes.iter().any(Extent::changes) {
            self.axes.insert(out, axes);
            self.values.insert(out, value);
        } else if !same(before, &value) {
            self.values.insert(out, value);
        }
        Ok(())
    }

    /// The axes of what a node computes.
    fn axes_of(&self, id: NodeId, old: &[usize], new: &[usize]) -> Vec<Extent> {
        let graph = self.context.graph();
        let node = graph.node(id);
        let plain = || {
            let pairs = old.iter().zip(new);
            pairs
                .map(|(old, new)| Extent::One {
                    old: *old,
                    new: *new,
                })
                .collect()
        };
        let fits = |axes: &Vec<Extent>| {
            let pairs = axes.iter().zip(old.iter().zip(new));
            axes.len() == old.len()
                && pairs
                    .into_iter()
                    .all(|(a, (o, n))| (a.before(), a.after()) == (*o, *n))
        };
        let first = node.input(0).and_then(|v| self.axes(v));
        let own = match node.op() {
            _ if !node.domain().is_empty() => None,
            "Transpose" => first.as_ref().and_then(|first| {
                let rank = first.len();
                let order: Vec<usize> = match node.ints("perm").ok()? {
                    Some(perm) => perm.iter().map(|a| wrap(*a, rank)).collect::<Option<_>>()?,
                    None => (0..rank).rev().collect(),
                };
                Some(order.into_iter().map(|a| first[a].clone()).collect())
            }),
            op if is_reshape(op) => first.as_ref().and_then(|first| regrouped(first, old)),
            "Concat" => self.joined(node, old.len()),
            "Slice" => first.as_ref().map(|first| {
                let pairs = first.iter().zip(old).enumerate();
                pairs
                    .map(|(axis, (extent, old))| self.cut(id, axis, extent, *old))
                    .collect()
            }),
            _ => None,
        };
        if let Some(own) = own.filter(fits) {
            return own;
        }
        let mut axes: Vec<Extent> = plain();
        for (back, axis) in axes.iter_mut().rev().enumerate() {
            let mut inputs = node.inputs().iter().flatten().filter_map(|v| self.axes(*v));
            let same = inputs.find_map(|own| {
                let at = own.len().checked_sub(back + 1)?;
                let one = own.into_iter().nth(at)?;
                (one.changes() && (one.before(), one.after()) == (axis.before(), axis.after()))
                    .then_some(one)
            });
            if let Some(same) = same {
                *axis = same;
            }
        }
        axes
    }

    /// The axes of parts that are joined.
    fn joined(&self, node: &Node, rank: usize) -> Option<Vec<Extent>> {
        let along = wrap(node.int("axis").ok()??, rank)?;
        let parts = node.inputs().iter().flatten().map(|v| self.axes(*v));
        let parts: Vec<Vec<Extent>> = parts.collect::<Option<_>>()?;
        let one = |axis: usize| {
            let mut all = parts.iter().map(|part| part.get(axis));
            if axis == along {
                let all: Option<Vec<&Extent>> = all.collect();
                return Some(Extent::concat(all?.into_iter()));
            }
            // What is as long before must be so after.
            let first = all.next()??;
            let mut changed = parts.iter().filter_map(|part| part.get(axis));
            Some(
                changed
                    .rfind(|axis| axis.changes())
                    .unwrap_or(first)
                    .clone(),
            )
        };
        (0..rank).map(one).collect()
    }

    /// The axes of a value.
    pub(super) fn axes(&self, value: ValueId) -> Option<Vec<Extent>> {
        if let Some(axes) = self.axes.get(&value) {
            return Some(axes.clone());
        }
        let dims = self.context.dims(value)?;
        Some(dims.iter().map(|n| Extent::same(*n)).collect())
    }

    /// Gives a position table that is added here the axes of what it is added to.
    fn entry(&mut self, id: NodeId) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        let node = graph.node(id);
        for slot in 0..node.inputs().len() {
            let entry = Use::new(id, slot);
            let (Some(&finding), Some(value)) = (self.entries.get(&entry), node.input(slot)) else {
                continue;
            };
            let others = (0..node.inputs().len()).filter(|other| *other != slot);
            let others = others.filter_map(|other| self.axes(node.input(other)?));
            let Some(content) = others
                .max_by_key(Vec::len)
                .filter(|_| is_elementwise(node.op()))
            else {
                return Err(self.refuse(id, "what the position table is added to is not known"));
            };
            let dims = self.context.dims(value).unwrap_or_default();
            let missing = content.len().saturating_sub(dims.len());
            let own = dims.iter().zip(&content[missing.min(content.len())..]);
            let own: Vec<Extent> = own
                .map(|(n, axis)| {
                    if axis.before() == *n {
                        axis.clone()
                    } else {
                        Extent::same(*n)
                    }
                })
                .collect();
            let follows = self.axes.contains_key(&value);
            if !own.iter().any(Extent::changes) {
                continue;
            }
            let table = GridTable {
                finding,
                value,
                entry,
                axes: own,
                rows: self.rows,
                is_computed: follows,
            };
            if !follows {
                self.check_table(&table)?;
                let dims: Vec<usize> = table.axes.iter().map(Extent::after).collect();
                self.values
                    .insert(value, Value::opaque(self.context.dtype(value), dims));
                self.axes.insert(value, table.axes.clone());
            }
            self.tables.push(table);
        }
        Ok(())
    }

    /// Refuses a table whose rows are not those of the grid that was found.
    fn check_table(&self, table: &GridTable) -> Result<(), RewriteError> {
        use crate::detect::finding::Encoding;
        let id = table.entry.node;
        let encoding = &self.context.found.findings[table.finding].encoding;
        let grid = match encoding {
            Encoding::Learned(e) => e.grid,
            Encoding::Sinusoidal(_) => {
                let why =
                    "sinusoids of a grid of patches are not supported yet for another image size";
                return Err(self.refuse(id, why));
            }
            _ => None,
        };
        let sides = table.sides(Extent::before);
        let is_constant = self
            .context
            .found
            .classes
            .of_value(table.value)
            .is_constant();
        match sides {
            Some(sides) if grid.is_none_or(|grid| grid == sides) && is_constant => Ok(()),
            Some(_) if !is_constant => Err(self.refuse(id, "the position table is no constant")),
            _ => Err(self.refuse(
                id,
                "the rows of the position table are not those of the grid of patches",
            )),
        }
    }

    /// The refusal to give a node other sizes.
    pub(super) fn refuse(&self, id: NodeId, why: impl std::fmt::Display) -> RewriteError {
        self.context.refuse(id, why)
    }

    /// Refuses windows over which attention would be cut in another way than where the model was made
    /// for images of this size.
    pub(super) fn windows(&self) -> Result<(), RewriteError> {
        for site in &self.context.found.attention {
            let Some(scores) = site.scores else { continue };
            let (Some(axes), Some([queries, _])) = (self.axes(scores), site.plane) else {
                continue;
            };
            let tokens = axes.get(queries).map_or(0, Extent::before);
            let others = axes.iter().enumerate().filter(|(axis, _)| *axis != queries);
            let windows = others.map(|(_, axis)| axis).filter(|axis| axis.changes());
            let is_cut = !axes.get(queries).is_some_and(Extent::changes) && windows.count() > 0;
            if is_cut && tokens > 0 {
                let why = "attention within windows is not supported yet for another image size";
                return Err(Refusal::unsupported(why)
                    .at(self.context.graph().place(site.node))
                    .into());
            }
        }
        Ok(())
    }
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
