//! Numbers that are the same whatever the lengths of the inputs are, and sizes that follow them in one way.

use posenc_ir::eval::Trace;
use posenc_ir::{Def, Graph, ValueId};
use rustc_hash::FxHashSet;

use crate::graph::operators::{is_layout, is_random};

/// Two runs, whose lengths differ wherever they are open.
#[derive(Clone, Copy)]
pub(super) struct Sizes<'a> {
    pub(super) graph: &'a Graph,
    pub(super) run: &'a Trace,
    /// `None` where the model does not run at other lengths: then no size is known to be fixed.
    pub(super) other: Option<&'a Trace>,
}

/// What is known of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Known {
    /// They are the same for all lengths.
    Fixed,
    /// They are sums and products of sizes: those that two runs have alike are fixed.
    Plain,
}

impl Sizes<'_> {
    /// Whether the numbers of a value are the same for all lengths: they are made of constants, and of sizes that are
    /// the same in both runs. What chooses by a length is not, even where both runs choose alike.
    pub(super) fn is_fixed(self, value: ValueId) -> bool {
        self.is(value, Known::Fixed)
    }

    /// Whether the numbers of a value follow lengths by sums and products alone, where they are not fixed.
    pub(super) fn is_plain(self, value: ValueId) -> bool {
        self.is(value, Known::Plain)
    }

    fn is(self, value: ValueId, known: Known) -> bool {
        let mut seen = FxHashSet::default();
        let mut open = vec![(value, known)];
        while let Some((value, known)) = open.pop() {
            if !seen.insert((value, known)) {
                continue;
            }
            let Some((id, _)) = self.graph.producer(value) else {
                // The default of an input may be another number.
                match self.graph.value(value).def() {
                    Def::Initializer => continue,
                    _ => return false,
                }
            };
            if self.graph.stored(value).is_some() {
                continue;
            }
            let node = self.graph.node(id);
            if !node.domain().is_empty() || node.bodies().next().is_some() || is_random(node) {
                return false;
            }
            let op = node.op();
            let is_picked = matches!(op, "Gather" | "Slice");
            let is_sum = matches!(op, "Concat" | "Cast" | "Add" | "Sub" | "Mul") || is_layout(op);
            let is_size = matches!(op, "Shape" | "Size");
            match known {
                Known::Fixed if is_picked || is_sum || is_size => {
                    if !self.is_same(value) {
                        return false;
                    }
                    open.push((value, Known::Plain));
                }
                Known::Plain if is_size => {}
                Known::Plain if is_picked => {
                    open.extend(node.input(0).map(|data| (data, Known::Plain)));
                    let places = node.inputs().iter().skip(1).flatten();
                    open.extend(places.map(|places| (*places, Known::Fixed)));
                }
                Known::Plain if is_sum => {
                    let inputs = node.inputs().iter().flatten();
                    open.extend(inputs.map(|input| (*input, Known::Plain)));
                }
                Known::Fixed | Known::Plain => {
                    let inputs = node.inputs().iter().flatten();
                    open.extend(inputs.map(|input| (*input, Known::Fixed)));
                }
            }
        }
        true
    }

    fn is_same(self, value: ValueId) -> bool {
        let numbers = |run: &Trace| run.get(value).to_f64();
        let other = self.other.and_then(numbers);
        other.is_some() && other == numbers(self.run)
    }
}
