//! Sizes that the graph computes of the grid of patches.

use std::collections::BTreeMap;

use posenc_ir::{Attr, DType, Emitter, ValueId};

use crate::plan::resize::{Following, Number, Whole};

/// Sizes that follow from the grid of patches, each computed once.
pub(super) struct Sizes<'g> {
    pub(super) out: Emitter<'g>,
    /// The shape of a value with the grid, and the axes of it.
    shape: ValueId,
    axes: [usize; 2],
    made: BTreeMap<Number, ValueId>,
    products: BTreeMap<[bool; 2], ValueId>,
    lists: BTreeMap<Vec<Number>, ValueId>,
}

impl<'g> Sizes<'g> {
    /// Sizes of a grid that a value has as these two axes.
    pub(super) fn new(mut out: Emitter<'g>, (grid, axes): (ValueId, [usize; 2])) -> Self {
        let shape = out.op("Shape", &[grid]);
        Self {
            out,
            shape,
            axes,
            made: BTreeMap::new(),
            products: BTreeMap::new(),
            lists: BTreeMap::new(),
        }
    }

    /// A number as a list of one, in int64.
    fn number(&mut self, number: Number) -> ValueId {
        if let Some(made) = self.made.get(&number) {
            return *made;
        }
        let made = match number {
            Number::Fixed(n) => self.out.ints("size", &[n]),
            Number::Grid {
                sides,
                factor,
                more,
            } => {
                let one = self.product(sides);
                let times = self.with("Mul", one, (factor, 1));
                self.with("Add", times, (more, 0))
            }
        };
        self.made.insert(number, made);
        made
    }

    /// The rows of the grid, its columns, or how many patches there are.
    fn product(&mut self, sides: [bool; 2]) -> ValueId {
        if let Some(made) = self.products.get(&sides) {
            return *made;
        }
        let made = match sides {
            [true, true] => {
                let own = [[true, false], [false, true]].map(|side| self.product(side));
                self.out.op("Mul", &own)
            }
            [is_rows, _] => {
                let axis = self.axes[usize::from(!is_rows)];
                let at = self.out.ints("axis", &[axis as i64]);
                self.out.op("Gather", &[self.shape, at])
            }
        };
        self.products.insert(sides, made);
        made
    }

    /// A number with another, unless that changes nothing.
    fn with(&mut self, op: &str, one: ValueId, (other, neutral): (i64, i64)) -> ValueId {
        if other == neutral {
            return one;
        }
        let other = self.out.ints("size", &[other]);
        self.out.op(op, &[one, other])
    }

    /// Numbers behind each other, in int64; those that are fixed are one constant.
    pub(super) fn joined(&mut self, each: &[Number]) -> ValueId {
        if let Some(made) = self.lists.get(each) {
            return *made;
        }
        let mut parts = vec![];
        for run in each.chunk_by(|a, b| !a.follows() && !b.follows()) {
            let fixed = |number: &Number| match number {
                Number::Fixed(n) => Some(*n),
                Number::Grid { .. } => None,
            };
            let all: Option<Vec<i64>> = run.iter().map(fixed).collect();
            match (all, run) {
                (Some(all), _) => parts.push(self.out.ints("size", &all)),
                (None, run) => {
                    for number in run {
                        let own = self.number(*number);
                        parts.push(own);
                    }
                }
            }
        }
        let made = match parts[..] {
            [one] => one,
            _ => self
                .out
                .op_with("Concat", &parts, &[("axis", Attr::Int(0))]),
        };
        self.lists.insert(each.to_vec(), made);
        made
    }

    /// What replaces a constant of this type.
    pub(super) fn constant(&mut self, own: &Following, dtype: DType, is_expanded: bool) -> ValueId {
        let made = match &own.whole {
            Whole::List => self.joined(&own.each),
            Whole::Number => {
                let made = self.joined(&own.each);
                self.out.op("Squeeze", &[made])
            }
            Whole::Dims(one) => {
                let one = self.out.constant("constant", one.clone());
                if is_expanded {
                    return one;
                }
                let dims = self.joined(&own.each);
                return self.out.op("Expand", &[one, dims]);
            }
        };
        match dtype {
            DType::I64 => made,
            other => self.out.cast(made, other),
        }
    }
}
