//! Nodes that turn queries and keys.
//!
//! Where the whole head turns, `x · cos + swap(x) · ±sin`, with cos and sin for every feature and
//! the sign of each product in the sines. Where part of the head turns in halves, the halves are
//! turned apart, which copies less.

use posenc_ir::{Attr, DType, Emitter, Tensor, ValueId};

use crate::kind::Layout;
use crate::opset::Opset;
use crate::scaling::{Rope, Scaling};

/// A rotation to be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Turn {
    pub(crate) rope: Rope,
    pub(crate) layout: Layout,
}

/// The axes of what turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rank: usize,
    /// Where the features of a head stand.
    pub(crate) feature: usize,
}

impl Turn {
    fn is_apart(&self) -> bool {
        self.layout == Layout::Half && self.rope.rotary_dim < self.rope.head_dim
    }

    /// For each column of cos and sin the pair, and the sign of the sine.
    fn columns(&self) -> Vec<(usize, f64)> {
        let pairs = self.rope.pairs();
        if self.is_apart() {
            return (0..pairs).map(|i| (i, 1.0)).collect();
        }
        let column = |c: usize| match self.layout {
            Layout::Half => (c % pairs, if c < pairs { -1.0 } else { 1.0 }),
            Layout::Interleaved => (c / 2, if c.is_multiple_of(2) { -1.0 } else { 1.0 }),
        };
        (0..2 * pairs).map(column).collect()
    }

    /// Frequencies and signs by column.
    fn frequencies(&self) -> (Vec<f64>, Vec<f64>) {
        let pairs = Scaling::None.frequencies(&self.rope, 1).inv_freq;
        let columns = self.columns().into_iter();
        columns
            .map(|(pair, sign)| (pairs.get(pair).copied().unwrap_or(0.0), sign))
            .unzip()
    }

    /// cos and sin `[token, column]` of the first positions.
    pub(crate) fn tables(&self, count: usize, dtype: DType) -> [Tensor; 2] {
        let (frequencies, signs) = self.frequencies();
        let dims = [count, frequencies.len()];
        let table = |wave: &dyn Fn(f64, f64) -> f64| {
            let rows = (0..count).flat_map(|p| {
                let columns = frequencies.iter().zip(&signs);
                columns.map(move |(f, sign)| wave(p as f64 * f, *sign))
            });
            Tensor::from_f64(dtype, &dims, &rows.collect::<Vec<f64>>())
        };
        [
            table(&|angle, _| angle.cos()),
            table(&|angle, sign| sign * angle.sin()),
        ]
    }

    /// cos and sin `[.., token, column]` of positions `[.., token]` in floats of this type, f32 or
    /// f64; `lead` is the number of axes before the tokens.
    pub(crate) fn waves(
        &self,
        out: &mut Emitter<'_>,
        opset: Opset,
        positions: ValueId,
        lead: usize,
        dtype: DType,
    ) -> [ValueId; 2] {
        let (frequencies, signs) = self.frequencies();
        let row = |values: &[f64]| Tensor::from_f64(dtype, &[values.len()], values);
        let column = opset.unsqueeze(out, positions, &[lead as i64 + 1]);
        let list = out.constant("inv_freq", row(&frequencies));
        let angles = out.op("Mul", &[column, list]);
        let cos = out.op("Cos", &[angles]);
        let mut sin = out.op("Sin", &[angles]);
        if signs.iter().any(|sign| *sign < 0.0) {
            let signs = out.constant("signs", row(&signs));
            sin = out.op("Mul", &[sin, signs]);
        }
        [cos, sin]
    }

    /// Turns `x`; cos and sin broadcast with the part of it that turns, or with half of that where
    /// the halves are turned apart.
    pub(crate) fn turned(
        &self,
        out: &mut Emitter<'_>,
        opset: Opset,
        x: ValueId,
        shape: Shape,
        waves: [ValueId; 2],
    ) -> ValueId {
        let Rope {
            rotary_dim,
            head_dim,
            ..
        } = self.rope;
        if self.is_apart() {
            return self.apart(out, opset, x, shape, waves);
        }
        if rotary_dim == head_dim {
            return self.whole(out, opset, x, shape, waves);
        }
        let sizes = [rotary_dim, head_dim - rotary_dim];
        let parts = opset.split(out, x, shape.feature, &sizes);
        let mut joined: Vec<ValueId> = parts;
        if let Some(first) = joined.first_mut() {
            *first = self.whole(out, opset, *first, shape, waves);
        }
        concat(out, &joined, shape.feature)
    }

    /// `x · cos + swap(x) · ±sin`.
    fn whole(
        &self,
        out: &mut Emitter<'_>,
        opset: Opset,
        x: ValueId,
        shape: Shape,
        [cos, sin]: [ValueId; 2],
    ) -> ValueId {
        let swapped = match self.layout {
            Layout::Half => {
                let half = self.rope.pairs();
                let mut parts = opset.split(out, x, shape.feature, &[half, half]);
                parts.reverse();
                concat(out, &parts, shape.feature)
            }
            Layout::Interleaved => self.neighbors(out, opset, x, shape),
        };
        let along = out.op("Mul", &[x, cos]);
        let across = out.op("Mul", &[swapped, sin]);
        out.op("Add", &[along, across])
    }

    /// Each feature in the place of its neighbor.
    fn neighbors(&self, out: &mut Emitter<'_>, opset: Opset, x: ValueId, shape: Shape) -> ValueId {
        let pairs = self.rope.pairs();
        if shape.feature + 1 < shape.rank {
            // Whole rows are picked.
            let order: Vec<i64> = (0..2 * pairs as i64).map(|i| i ^ 1).collect();
            let order = out.ints("order", &order);
            let axis = ("axis", Attr::Int(shape.feature as i64));
            return out.op_with("Gather", &[x, order], &[axis]);
        }
        // Single features are picked more slowly than moved.
        let lead = vec![0; shape.feature];
        let apart = out.ints("pairs", &[&lead[..], &[pairs as i64, 2]].concat());
        let apart = out.op("Reshape", &[x, apart]);
        let mut parts = opset.split(out, apart, shape.feature + 1, &[1, 1]);
        parts.reverse();
        let swapped = concat(out, &parts, shape.feature + 1);
        let whole = out.ints("features", &[&lead[..], &[2 * pairs as i64]].concat());
        out.op("Reshape", &[swapped, whole])
    }

    /// `(a, b) → (a cos − b sin, b cos + a sin)`, and the rest as it is.
    fn apart(
        &self,
        out: &mut Emitter<'_>,
        opset: Opset,
        x: ValueId,
        shape: Shape,
        [cos, sin]: [ValueId; 2],
    ) -> ValueId {
        let half = self.rope.pairs();
        let sizes = [half, half, self.rope.head_dim - 2 * half];
        let parts = opset.split(out, x, shape.feature, &sizes);
        let [a, b, rest] = parts[..] else {
            return x;
        };
        let mut product = |x: ValueId, y: ValueId| out.op("Mul", &[x, y]);
        let [ac, bs, bc, as_] = [
            product(a, cos),
            product(b, sin),
            product(b, cos),
            product(a, sin),
        ];
        let first = out.op("Sub", &[ac, bs]);
        let second = out.op("Add", &[bc, as_]);
        concat(out, &[first, second, rest], shape.feature)
    }
}

fn concat(out: &mut Emitter<'_>, parts: &[ValueId], axis: usize) -> ValueId {
    out.op_with("Concat", parts, &[("axis", Attr::Int(axis as i64))])
}
