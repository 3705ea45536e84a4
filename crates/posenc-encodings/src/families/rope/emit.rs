//! Nodes that rotate queries and keys.
//!
//! Where the whole head rotates, `x · cos + swap(x) · ±sin`, with cos and sin for every feature and
//! the sign of each product in the sines. Where part of the head rotates in halves, the halves are
//! turned apart, which copies less.

use posenc_ir::{Attr, DType, Emitter, Tensor, ValueId};

use super::Rotary;
use crate::laws::{Rope, Scaling};
use crate::layout::Layout;
use crate::opset::Opset;
use crate::rotation::Shape;

impl Rotary {
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

    /// cos and sin `[.., token, column]` as [`Self::emit_rotated`] reads them, of those of every pair
    /// `[.., token, pair]`; `lead` is the number of axes before the tokens.
    pub fn emit_columns(
        &self,
        out: &mut Emitter<'_>,
        opset: Opset,
        [cos, sin]: [ValueId; 2],
        lead: usize,
    ) -> [ValueId; 2] {
        if self.is_apart() {
            return [cos, sin];
        }
        let opposite = out.op("Neg", &[sin]);
        [[cos, cos], [opposite, sin]].map(|both| match self.layout {
            Layout::Half => concat(out, &both, lead + 1),
            Layout::Interleaved => {
                let pairs = both.map(|wave| opset.unsqueeze(out, wave, &[lead as i64 + 2]));
                let pairs = concat(out, &pairs, lead + 2);
                let shape = out.ints("features", &[&vec![0; lead + 1][..], &[-1]].concat());
                out.op("Reshape", &[pairs, shape])
            }
        })
    }

    /// cos and sin `[token, column]` of the first positions.
    pub fn wave_tables(&self, count: usize, dtype: DType) -> [Tensor; 2] {
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
    pub fn emit_waves(
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

    /// Rotates `x`; cos and sin broadcast with the part of it that rotates, or with half of that where
    /// the halves are turned apart.
    pub fn emit_rotated(
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

#[cfg(test)]
mod tests {
    use ndarray::{Array3, Ix3};

    use super::*;
    use crate::emitted::{apart, emitted};
    use crate::families::rope;

    const TOKENS: usize = 5;
    const HEADS: usize = 3;

    fn turn(layout: Layout, rotary_dim: usize, head_dim: usize) -> Rotary {
        Rotary {
            rope: Rope::new(100.0, rotary_dim, head_dim).unwrap(),
            layout,
        }
    }

    /// The rotation as the reference knows it.
    fn reference(turn: &Rotary) -> rope::Rope {
        let n = turn.rope.pairs();
        let pair = |i: usize| match turn.layout {
            Layout::Half => (i, i + n),
            Layout::Interleaved => (2 * i, 2 * i + 1),
        };
        rope::Rope {
            inv_freq: (0..n)
                .map(|i| 100f64.powf(-(i as f64) / n as f64))
                .collect(),
            attention_factor: 1.0,
            pairs: (0..n).map(pair).collect(),
            layout: Some(turn.layout),
            rotary_dim: 2 * n,
            head_dim: turn.rope.head_dim,
        }
    }

    /// `[head, token, feature]`.
    fn content(head_dim: usize) -> Array3<f64> {
        Array3::from_shape_fn((HEADS, TOKENS, head_dim), |(h, t, f)| {
            (1.3 * h as f64 + 0.7 * t as f64 + 2.1 * f as f64).sin()
        })
    }

    const TURNS: [(Layout, usize, usize); 8] = [
        (Layout::Half, 8, 8),
        (Layout::Half, 4, 8),
        (Layout::Half, 6, 7),
        (Layout::Half, 2, 2),
        (Layout::Interleaved, 8, 8),
        (Layout::Interleaved, 4, 8),
        (Layout::Interleaved, 6, 7),
        (Layout::Interleaved, 2, 2),
    ];

    #[test]
    fn every_form_turns_as_the_formula_says() {
        let opset = Opset(17);
        for (layout, rotary_dim, head_dim) in TURNS {
            let turn = turn(layout, rotary_dim, head_dim);
            let x = content(head_dim);
            let positions: Vec<f64> = (0..TOKENS).map(|p| (p + 3) as f64).collect();
            let want = reference(&turn).rotate(&x, &positions);
            let flat = |x: &Array3<f64>| x.iter().copied().collect::<Vec<f64>>();
            let given = [
                Tensor::from_f64(DType::F64, &[HEADS, TOKENS, head_dim], &flat(&x)),
                Tensor::from_f64(DType::F64, &[TOKENS], &positions),
            ];
            let got = emitted(opset.0, &given, |out, given| {
                let waves = turn.emit_waves(out, opset, given[1], 0, DType::F64);
                let shape = Shape {
                    rank: 3,
                    feature: 2,
                };
                turn.emit_rotated(out, opset, given[0], shape, waves)
            });
            let far = apart(&got, &want);
            assert!(far < 1e-12, "{layout} {rotary_dim} of {head_dim}: {far}");
            // Keys that stand transposed.
            let moved = x.view().permuted_axes([0, 2, 1]);
            let flat: Vec<f64> = moved.iter().copied().collect();
            let given = [
                Tensor::from_f64(DType::F64, &[HEADS, head_dim, TOKENS], &flat),
                given[1].clone(),
            ];
            let got = emitted(opset.0, &given, |out, given| {
                let waves = turn.emit_waves(out, opset, given[1], 0, DType::F64);
                let waves = waves.map(|w| out.op("Transpose", &[w]));
                let shape = Shape {
                    rank: 3,
                    feature: 1,
                };
                turn.emit_rotated(out, opset, given[0], shape, waves)
            });
            let got = got.into_dimensionality::<Ix3>().unwrap();
            let far = apart(got.view().permuted_axes([0, 2, 1]), &want);
            assert!(far < 1e-12, "{layout} {rotary_dim} of {head_dim}: {far}");
        }
    }

    #[test]
    fn tables_hold_what_is_computed_elsewhere() {
        for (layout, rotary_dim, head_dim) in TURNS {
            let turn = turn(layout, rotary_dim, head_dim);
            let positions: Vec<f64> = (0..TOKENS).map(|p| p as f64).collect();
            let given = [Tensor::from_f64(DType::F64, &[TOKENS], &positions)];
            for (place, table) in turn.wave_tables(TOKENS, DType::F64).iter().enumerate() {
                let got = emitted(17, &given, |out, given| {
                    turn.emit_waves(out, Opset(17), given[0], 0, DType::F64)[place]
                });
                assert_eq!(got.shape(), table.dims());
                let far = apart(&got, &table.to_f64s().unwrap());
                assert!(far < 1e-12, "{layout} {rotary_dim}: {far}");
            }
        }
    }

    #[test]
    fn columns_of_pairs_are_those_of_waves() {
        for (layout, rotary_dim, head_dim) in TURNS {
            let turn = turn(layout, rotary_dim, head_dim);
            let positions: Vec<f64> = (0..TOKENS).map(|p| p as f64).collect();
            let given = [Tensor::from_f64(DType::F64, &[1, TOKENS], &positions)];
            let angle = |p: usize, i: usize| {
                p as f64 * 100f64.powf(-2.0 * i as f64 / turn.rope.rotary_dim as f64)
            };
            let pairs = turn.rope.pairs();
            let wave = |wave: fn(f64) -> f64| {
                let rows = (0..TOKENS * pairs).map(|at| wave(angle(at / pairs, at % pairs)));
                Tensor::from_f64(DType::F64, &[1, TOKENS, pairs], &rows.collect::<Vec<f64>>())
            };
            let half = [wave(f64::cos), wave(f64::sin)];
            for place in 0..2 {
                let want = emitted(17, &given, |out, given| {
                    turn.emit_waves(out, Opset(17), given[0], 1, DType::F64)[place]
                });
                let got = emitted(17, &half, |out, given| {
                    turn.emit_columns(out, Opset(17), [given[0], given[1]], 1)[place]
                });
                assert_eq!(got.shape(), want.shape());
                assert!(apart(&got, &want) < 1e-12, "{layout} {rotary_dim}");
            }
        }
    }

    #[test]
    fn positions_of_several_sequences_give_rows_of_each() {
        let turn = turn(Layout::Half, 8, 8);
        let positions = [0.0, 1.0, 2.0, 4.0, 5.0, 6.0];
        let given = [Tensor::from_f64(DType::F64, &[2, 3], &positions)];
        let got = emitted(13, &given, |out, given| {
            turn.emit_waves(out, Opset(13), given[0], 1, DType::F64)[0]
        });
        assert_eq!(got.shape(), [2, 3, 8]);
        assert!((got[[1, 0, 0]] - 4f64.cos()).abs() < 1e-12);
    }

    #[test]
    fn the_common_form_takes_five_nodes() {
        let count = |layout, rotary_dim| {
            let turn = turn(layout, rotary_dim, 8);
            let model = crate::emitted::empty(17);
            let graph = model.graph();
            let mut out = graph.emitter(graph.main(), "test");
            let x = graph.scope(graph.main()).inputs()[0];
            let shape = Shape {
                rank: 3,
                feature: 2,
            };
            turn.emit_rotated(&mut out, Opset(17), x, shape, [x, x]);
            let text = out.finish().text(graph);
            let nodes = text.split("@@ new nodes\n").nth(1).unwrap_or_default();
            nodes.lines().filter(|line| line.starts_with('+')).count()
        };
        assert_eq!(count(Layout::Half, 8), 5);
        assert_eq!(count(Layout::Half, 4), 8);
        assert_eq!(count(Layout::Interleaved, 8), 7);
        assert_eq!(count(Layout::Interleaved, 4), 9);
    }
}
