//! What rules know of a graph.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use ndarray::{ArrayD, ArrayViewD};
use posenc_encodings::opset::Opset;
use posenc_ir::eval::{Budget, Trace, trace};
use posenc_ir::{DType, Graph, Model, Node, NodeId, ScopeId, Stored, Tensor, ValueId};
use rustc_hash::FxHashMap;

use super::runs::{Runs, is_default};
use crate::graph::bodies::holder;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::wrap;
use crate::graph::ports::{Ports, Role};

/// The most elements of a constant that is read.
const MOST: usize = 1 << 16;

/// The most elements of what is computed of constants: four integers for each of 2,048 × 2,048 pairs.
const MANY: Budget = Budget { elements: 1 << 24 };

/// Axes are inputs of all operators that most rules write from here on.
const OPSET: i64 = 13;

/// The first version with `QuantizeLinear`.
const QUANTIZE: i64 = 10;

/// A graph before a round. Trial runs are made when the first rule asks for a size.
pub(super) struct View<'a> {
    model: &'a Model,
    roles: &'a BTreeMap<String, Role>,
    ports: OnceCell<Ports>,
    classes: OnceCell<Classes>,
    runs: OnceCell<Runs>,
    /// What is computed of constants.
    computed: OnceCell<Trace>,
}

impl<'a> View<'a> {
    pub(super) fn new(model: &'a Model, roles: &'a BTreeMap<String, Role>) -> Self {
        Self {
            model,
            roles,
            ports: OnceCell::new(),
            classes: OnceCell::new(),
            runs: OnceCell::new(),
            computed: OnceCell::new(),
        }
    }

    pub(super) fn graph(&self) -> &'a Graph {
        self.model.graph()
    }

    pub(super) fn opset(&self) -> Opset {
        Opset(self.model.opset())
    }

    /// Whether all operators have their axes as inputs, and several scales an axis.
    pub(super) fn is_modern(&self) -> bool {
        self.model.opset() >= OPSET
    }

    /// Whether there are operators that quantize.
    pub(super) fn can_quantize(&self) -> bool {
        self.model.opset() >= QUANTIZE
    }

    /// Whether a scope is the main graph or a body in it.
    pub(super) fn is_in_main(&self, mut scope: ScopeId) -> bool {
        while let Some(node) = holder(self.graph(), scope) {
            scope = self.graph().node(node).scope();
        }
        scope == self.graph().main()
    }

    /// The node of the outermost scope that is or holds a node.
    pub(super) fn holder(&self, mut id: NodeId) -> NodeId {
        while let Some(outer) = holder(self.graph(), self.graph().node(id).scope()) {
            id = outer;
        }
        id
    }

    fn ports(&self) -> &Ports {
        let make = || Ports::of(self.graph(), self.roles);
        self.ports.get_or_init(make)
    }

    fn classes(&self) -> &Classes {
        let make = || Classes::of(self.graph(), self.ports());
        self.classes.get_or_init(make)
    }

    fn runs(&self) -> &Runs {
        let make = || Runs::of(self.model, self.ports(), self.classes());
        self.runs.get_or_init(make)
    }

    /// The only number of tokens that the graph takes, where there is one.
    pub(super) fn fixed_sequence(&self) -> Option<usize> {
        self.ports().fixed_sequence()
    }

    /// The stored tensor of a constant; that of an input with a default is none.
    pub(super) fn stored(&self, value: ValueId) -> Option<&'a Stored> {
        let graph = self.graph();
        graph.stored(value).filter(|_| !is_default(graph, value))
    }

    /// The numbers of [`Self::stored`].
    pub(super) fn constant(&self, value: ValueId) -> Option<Tensor> {
        self.stored(value)
            .and_then(|_| self.graph().constant(value))
    }

    /// The truth of a constant of one element.
    pub(super) fn flag(&self, value: ValueId) -> Option<bool> {
        Some(self.int(value)? != 0)
    }

    /// Whether a value depends on content.
    pub(super) fn is_content(&self, value: ValueId) -> bool {
        self.classes().of_value(value).has(Class::CONTENT)
    }

    /// The integers of what is stored or computed of constants, also where they are many.
    pub(super) fn constants(&self, value: ValueId) -> Option<ArrayD<i64>> {
        let classes = self.classes();
        let opaque = |v| !classes.of_value(v).is_constant();
        let make = || trace(self.model, &FxHashMap::default(), &opaque, &MANY);
        let is_constant = classes.of_value(value).is_constant();
        is_constant.then(|| self.computed.get_or_init(make).get(value).to_i64())?
    }

    /// Whether a value depends on positions.
    pub(super) fn is_position(&self, value: ValueId) -> bool {
        self.classes().of_value(value).has(Class::POSITION)
    }

    /// The node that computes a value, copies left out.
    pub(super) fn maker(&self, mut value: ValueId) -> Option<(NodeId, &'a Node)> {
        loop {
            let (id, _) = self.graph().producer(value)?;
            let node = self.graph().node(id);
            if !node.is("Identity") {
                return node.domain().is_empty().then_some((id, node));
            }
            value = node.input(0)?;
        }
    }

    /// A value without the sums with 0 and the products with 1 behind it, and without copies.
    pub(super) fn unchanged(&self, mut value: ValueId) -> ValueId {
        while let Some((_, node)) = self.maker(value) {
            let neutral = match node.op() {
                "Add" | "Sub" => 0.0,
                "Mul" | "Div" => 1.0,
                _ => break,
            };
            // What is not stored would be known by trial runs, which most models do not need.
            let is_neutral = |slot: usize| {
                let single = |v: &ValueId| self.stored(*v).is_some_and(|s| s.elements() == Some(1));
                let number = node.input(slot).filter(single);
                let rank = |slot: usize| node.input(slot).and_then(|v| self.rank(v));
                number.is_some_and(|v| self.number(v) == Some(neutral))
                    && rank(slot) <= rank(1 - slot)
            };
            let commutes = matches!(node.op(), "Add" | "Mul");
            value = match (node.input(0), node.input(1)) {
                (Some(x), _) if is_neutral(1) => x,
                (_, Some(x)) if commutes && is_neutral(0) => x,
                _ => break,
            };
        }
        self.origin(value)
    }

    /// The node that computes a value, copies left out, where it is this operator.
    pub(super) fn made_by(&self, value: ValueId, op: &str) -> Option<&'a Node> {
        let (_, node) = self.maker(value)?;
        node.is(op).then_some(node)
    }

    /// A value without the copies and changes of its type behind it, and the values on the way.
    pub(super) fn uncast(&self, mut value: ValueId) -> (ValueId, Vec<ValueId>) {
        let mut passed = vec![value];
        while let Some((_, node)) = self.maker(value)
            && node.is("Cast")
            && let Some(before) = node.input(0)
        {
            value = before;
            passed.push(value);
        }
        (self.origin(value), passed)
    }

    /// A value without the copies behind it.
    pub(super) fn origin(&self, mut value: ValueId) -> ValueId {
        while let Some((id, _)) = self.graph().producer(value)
            && self.graph().node(id).is("Identity")
            && let Some(before) = self.graph().node(id).input(0)
        {
            value = before;
        }
        value
    }

    /// Whether two values are one, copies left out.
    pub(super) fn same(&self, a: ValueId, b: ValueId) -> bool {
        self.origin(a) == self.origin(b)
    }

    /// The number of axes.
    pub(super) fn rank(&self, value: ValueId) -> Option<usize> {
        let rank = self.dims(value)?.len();
        self.all(&[value], |d| d[0].len() == rank).then_some(rank)
    }

    /// Whether something holds for the dimensions of these values at all sizes.
    pub(super) fn all(&self, values: &[ValueId], holds: impl Fn(&[&[usize]]) -> bool) -> bool {
        self.runs().all(values, holds)
    }

    /// What the integers of a value and the dimensions of others give, where it is the same at all sizes.
    pub(super) fn same_of_numbers<T: PartialEq>(
        &self,
        value: ValueId,
        others: &[ValueId],
        of: impl Fn(&ArrayViewD<'_, i64>, &[&[usize]]) -> Option<T>,
    ) -> Option<T> {
        self.runs().same(value, others, of)
    }

    /// The dimensions in one run.
    fn dims(&self, value: ValueId) -> Option<&[usize]> {
        let [first, _] = self.runs().first();
        first.get(value).dims.as_deref()
    }

    /// The size of an axis that has the same in every run.
    pub(super) fn size(&self, value: ValueId, axis: usize) -> Option<usize> {
        let size = *self.dims(value)?.get(axis)?;
        let same = |d: &[&[usize]]| d[0].get(axis) == Some(&size);
        self.all(&[value], same).then_some(size)
    }

    /// The sizes of all axes, where each has the same in every run.
    pub(super) fn sizes(&self, value: ValueId) -> Option<Vec<usize>> {
        let axes = 0..self.rank(value)?;
        axes.map(|axis| self.size(value, axis)).collect()
    }

    /// The element type.
    pub(super) fn dtype(&self, value: ValueId) -> Option<DType> {
        let declared = self.graph().dtype(value);
        declared.or_else(|| {
            let [a, b] = self.runs().first().map(|run| run.get(value).dtype);
            a.filter(|_| a == b)
        })
    }

    /// The integers of a constant, stored or computed.
    pub(super) fn ints(&self, value: ValueId) -> Option<Vec<i64>> {
        if let Some(stored) = self.stored(value) {
            let few = stored.elements() <= Some(MOST);
            let tensor = few.then(|| self.constant(value)).flatten()?;
            return (0..tensor.len()).map(|i| tensor.get_i64(i)).collect();
        }
        let fixed = self.classes().of_value(value).is_constant();
        let [a, b] = self.runs().first().map(|run| run.get(value).to_i64());
        let known = a.filter(|a| fixed && b.as_ref() == Some(a))?;
        Some(known.iter().copied().collect())
    }

    /// The integer of a constant of one element.
    pub(super) fn int(&self, value: ValueId) -> Option<i64> {
        match self.ints(value)?[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    /// The number of a constant of one element.
    pub(super) fn number(&self, value: ValueId) -> Option<f64> {
        if let Some(stored) = self.stored(value) {
            let one = stored.elements() == Some(1);
            return one.then(|| self.constant(value)?.get_f64(0)).flatten();
        }
        let fixed = self.classes().of_value(value).is_constant();
        let [a, b] = self.runs().first().map(|run| run.get(value).scalar_f64());
        a.filter(|_| fixed && a == b)
    }

    /// The axes that a reduction, a `Squeeze` or an `Unsqueeze` names, counted from the front of
    /// `rank` axes; `None` where it names none.
    pub(super) fn axes(&self, node: &Node, rank: usize) -> Option<Vec<usize>> {
        let named = match node.input(1) {
            Some(axes) => self.ints(axes)?,
            None => node.ints("axes").ok()??.to_vec(),
        };
        named.iter().map(|a| wrap(*a, rank)).collect()
    }

    /// The only axis of a reduction that keeps it, or drops it where `keeps` is false.
    pub(super) fn reduced(&self, node: &Node, keeps: bool) -> Option<usize> {
        let rank = self.rank(node.input(0)?)?;
        let kept = node.int("keepdims").ok()?.unwrap_or(1) != 0;
        match self.axes(node, rank)?[..] {
            [axis] if kept == keeps => Some(axis),
            _ => None,
        }
    }

    /// An integer attribute as an axis of `rank` ones.
    pub(super) fn axis(&self, node: &Node, default: i64, rank: usize) -> Option<usize> {
        wrap(node.int("axis").ok()?.unwrap_or(default), rank)
    }

    /// The order of the axes of a `Transpose`.
    pub(super) fn order(&self, node: &Node) -> Option<Vec<usize>> {
        match node.ints("perm").ok()? {
            Some(perm) => perm.iter().map(|a| wrap(*a, perm.len())).collect(),
            None => Some((0..self.rank(node.input(0)?)?).rev().collect()),
        }
    }

    /// The part of an axis that a `Slice` of step 1 or a `Split` takes: the value, the axis, and
    /// the first index and the one after the last.
    pub(super) fn part(&self, value: ValueId) -> Option<Part> {
        let value = self.origin(value);
        let (id, output) = self.graph().producer(value)?;
        let node = self.graph().node(id);
        let of = node.input(0)?;
        if !node.is("Split") && !node.is("Slice") {
            return None;
        }
        let rank = self.rank(of)?;
        if node.is("Split") {
            let axis = self.axis(node, 0, rank)?;
            let widths: Option<Vec<usize>> = (node.outputs()[..=output].iter())
                .map(|v| self.size((*v)?, axis))
                .collect();
            let widths = widths?;
            let end = widths
                .iter()
                .try_fold(0usize, |n, width| n.checked_add(*width))?;
            let begin = end - widths.last()?;
            return Part::new(self, of, axis, begin, Some(end));
        }
        let one = |slot: usize| self.int(node.input(slot)?);
        if node.input(4).is_some() && one(4)? != 1 {
            return None;
        }
        let axis = wrap(one(3)?, rank)?;
        let size = self.size(of, axis);
        let place = |at: i64| match size {
            Some(n) => {
                let n = i64::try_from(n).ok()?;
                usize::try_from(if at < 0 { at + n } else { at }.clamp(0, n)).ok()
            }
            None => usize::try_from(at).ok(),
        };
        let end = match one(2)? {
            FAR.. => None,
            end => Some(place(end)?),
        };
        Part::new(self, of, axis, place(one(1)?)?, end)
    }
}

/// Ends of slices from here on mean the end of the axis.
const FAR: i64 = 1 << 31;

/// The order of axes that exchanges the last two.
pub(super) fn last_exchanged(rank: usize) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(rank.checked_sub(1)?, rank.checked_sub(2)?);
    Some(order)
}

/// A part of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) of: ValueId,
    pub(super) axis: usize,
    pub(super) begin: usize,
    /// `None` for the end of the axis.
    pub(super) end: Option<usize>,
}

impl Part {
    fn new(
        view: &View<'_>,
        of: ValueId,
        axis: usize,
        begin: usize,
        end: Option<usize>,
    ) -> Option<Self> {
        let size = view.size(of, axis);
        Some(Self {
            of: view.origin(of),
            axis,
            begin,
            end: end.filter(|_| size.is_none() || end < size),
        })
    }

    /// The value and axis that these parts are, in this order.
    pub(super) fn whole(parts: &[Self]) -> Option<(ValueId, usize)> {
        let first = parts.first()?;
        let mut at = Some(0);
        for part in parts {
            let follows = part.of == first.of && part.axis == first.axis && at == Some(part.begin);
            if !follows || part.end.is_some_and(|end| end < part.begin) {
                return None;
            }
            at = part.end;
        }
        at.is_none().then_some((first.of, first.axis))
    }
}
