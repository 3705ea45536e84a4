//! Sizes, and numbers for each token, that the graph computes of the grid of patches or of the length.

use std::collections::BTreeMap;

use posenc_ir::{Attr, DType, Emitter, Use, ValueId};

use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::plan::resize::{Following, Number, Rule, Whole};

/// Sizes that follow from the grid of patches, each computed once.
pub(super) struct Sizes<'g> {
    pub(super) out: Emitter<'g>,
    /// The shape of a value with the grid, and the axes of it.
    shape: ValueId,
    axes: [usize; 2],
    made: BTreeMap<Number, ValueId>,
    products: BTreeMap<[bool; 2], ValueId>,
    lists: BTreeMap<Vec<Number>, ValueId>,
    /// Counts, by their length, their axis from the last, and how many axes they have.
    counts: BTreeMap<(Number, usize, usize), ValueId>,
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
            counts: BTreeMap::new(),
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

    /// Lets constants be computed where they are read.
    ///
    /// # Errors
    /// When one is not read there.
    pub(super) fn replace(
        &mut self,
        context: &Context<'_>,
        constants: &BTreeMap<Use, Following>,
    ) -> Result<(), RewriteError> {
        for (at, own) in constants {
            // This one repeats what it reads itself.
            let is_expanded = context.graph().node(at.node).is("Expand") && at.slot() == 0;
            let new = self.constant(own, context.dtype(own.value), is_expanded);
            self.out.redirect_use(own.value, *at, new)?;
            self.out.remove_if_unused(own.value)?;
        }
        Ok(())
    }

    /// What replaces a constant of this type.
    fn constant(&mut self, own: &Following, dtype: DType, is_expanded: bool) -> ValueId {
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
            Whole::Rule(rule) => return self.ruled(rule, &own.each, dtype),
            Whole::Rows => return self.first_rows(own),
        };
        match dtype {
            DType::I64 => made,
            other => self.out.cast(made, other),
        }
    }

    /// The first rows of a constant along the axes that follow.
    fn first_rows(&mut self, own: &Following) -> ValueId {
        let along: Vec<usize> = (0..own.each.len())
            .filter(|axis| own.each[*axis].follows())
            .collect();
        let ends: Vec<Number> = along.iter().map(|axis| own.each[*axis]).collect();
        let ends = self.joined(&ends);
        let starts = self.out.ints("rows", &vec![0; along.len()]);
        let along: Vec<i64> = along.into_iter().map(|axis| axis as i64).collect();
        let along = self.out.ints("rows", &along);
        self.out.op("Slice", &[own.value, starts, ends, along])
    }

    /// Numbers of these dimensions that follow a rule.
    fn ruled(&mut self, rule: &Rule, dims: &[Number], dtype: DType) -> ValueId {
        match rule {
            Rule::Line { start, steps } => {
                let mut sum: Option<ValueId> = None;
                for (axis, step) in steps.iter().copied() {
                    let count = self.counted(dims, axis);
                    let own = self.with("Mul", count, (step, 1));
                    sum = Some(match sum {
                        Some(sum) => self.out.op("Add", &[sum, own]),
                        None => own,
                    });
                }
                let sum = sum.unwrap_or_else(|| self.out.ints("position", &[0]));
                let sum = self.with("Add", sum, (*start, 0));
                let sum = match dtype {
                    DType::I64 => sum,
                    other => self.out.cast(sum, other),
                };
                self.repeated(sum, dims, &rule.axes())
            }
            Rule::Band {
                axes,
                near,
                before,
                behind,
            } => {
                let [rows, columns] = axes.map(|axis| self.counted(dims, axis));
                let distance = self.out.op("Sub", &[columns, rows]);
                // Runtimes choose between numbers, and not between truth values.
                let chosen = if dtype == DType::Bool {
                    DType::U8
                } else {
                    dtype
                };
                let mut made = self.out.scalar("mask", chosen, *near);
                let sides = [("Less", before), ("Greater", behind)];
                for (compares, (end, far)) in sides
                    .into_iter()
                    .filter_map(|(op, own)| Some((op, (*own)?)))
                {
                    let end = self.out.ints("distance", &[end]);
                    let is_far = self.out.op(compares, &[distance, end]);
                    let far = self.out.scalar("mask", chosen, far);
                    made = self.out.op("Where", &[is_far, far, made]);
                }
                if chosen != dtype {
                    made = self.out.cast(made, dtype);
                }
                self.repeated(made, dims, axes)
            }
        }
    }

    /// What is as long as these dimensions along some axes, and has one element along the others, for all of
    /// them.
    fn repeated(&mut self, value: ValueId, dims: &[Number], axes: &[usize]) -> ValueId {
        let is_one =
            |(at, number): (usize, &Number)| axes.contains(&at) || *number == Number::Fixed(1);
        if dims.iter().enumerate().all(is_one) {
            return value;
        }
        let dims = self.joined(dims);
        self.out.op("Expand", &[value, dims])
    }

    /// 0, 1, 2, … in int64, as many as this axis of the dimensions is long, along it.
    fn counted(&mut self, dims: &[Number], axis: usize) -> ValueId {
        let key = (dims[axis], dims.len() - axis, dims.len());
        if let Some(made) = self.counts.get(&key) {
            return *made;
        }
        let length = self.number(dims[axis]);
        let length = self.out.op("Squeeze", &[length]);
        let [zero, one] = [0.0, 1.0].map(|n| self.out.scalar("position", DType::I64, n));
        let count = self.out.op("Range", &[zero, length, one]);
        let mut shape = vec![1; dims.len()];
        shape[axis] = -1;
        let made = match shape.len() {
            1 => count,
            _ => {
                let shape = self.out.ints("shape", &shape);
                self.out.op("Reshape", &[count, shape])
            }
        };
        self.counts.insert(key, made);
        made
    }
}
