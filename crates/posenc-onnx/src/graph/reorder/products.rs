//! Products, with weights and of queries and keys.

use super::order::Order;
use super::rules::View;
use super::spread::{End, Spread};
use crate::graph::einsum::Equation;

/// Which inputs of a node are multiplied as matrices.
pub(super) struct Product {
    /// The slots of both matrices.
    matrices: [usize; 2],
    /// Whether each is transposed.
    turned: [bool; 2],
    /// Inputs with a number for each column of the second, or one for all.
    columns: &'static [usize],
    /// Whether the second has its columns as rows of blocks.
    in_blocks: bool,
}

impl View<'_> {
    /// The product that a node is.
    pub(super) fn product(&self) -> Option<Product> {
        let node = self.node();
        let flag = |name: &str| self.int(name).unwrap_or(0) != 0;
        let of = |matrices, columns| Product {
            matrices,
            turned: [false; 2],
            columns,
            in_blocks: false,
        };
        Some(match (node.domain(), node.op()) {
            ("", "MatMul") => of([0, 1], &[]),
            ("", "Gemm") | ("com.microsoft", "FusedGemm") => Product {
                turned: [flag("transA"), flag("transB")],
                ..of([0, 1], &[2])
            },
            ("com.microsoft", "FusedMatMul") if !flag("transBatchA") && !flag("transBatchB") => {
                Product {
                    turned: [flag("transA"), flag("transB")],
                    ..of([0, 1], &[])
                }
            }
            ("", "MatMulInteger") => of([0, 1], &[3]),
            ("", "QLinearMatMul") => of([0, 3], &[4, 5]),
            ("com.microsoft", "MatMulIntegerToFloat") => of([0, 1], &[3, 5, 6]),
            ("com.microsoft", "DynamicQuantizeMatMul") => of([0, 1], &[2, 3, 4]),
            ("com.microsoft", "QGemm") => Product {
                turned: [flag("transA"), flag("transB")],
                ..of([0, 3], &[4, 5, 6])
            },
            ("com.microsoft", "MatMulNBits") => Product {
                turned: [false, true],
                in_blocks: true,
                ..of([0, 1], &[2, 3, 5])
            },
            _ => return None,
        })
    }

    pub(super) fn multiplied(
        &self,
        product: &Product,
        end: End,
        order: &Order,
    ) -> Result<Spread, String> {
        let ranks = product.matrices.map(|slot| self.rank(End::In(slot)));
        let [a, b] = [ranks[0].clone()?, ranks[1].clone()?];
        let rank = self.rank(End::Out(0))?;
        if a < 2 || b < 2 {
            return Err("it multiplies vectors with features that move".to_owned());
        }
        let [first, second] = product.matrices;
        // The axes of the rows, of what is summed over, and of the columns.
        let of_a = if product.turned[0] {
            [a - 1, a - 2]
        } else {
            [a - 2, a - 1]
        };
        let of_b = match product.in_blocks {
            true => [usize::MAX, 0],
            false if product.turned[1] => [b - 1, b - 2],
            false => [b - 2, b - 1],
        };
        let along = |axis: usize| order.of_axis(axis);
        let one = |axis: usize, from: &[usize]| Order::along(axis, from.to_vec());
        let column = match end {
            End::Out(0) => along(rank - 1),
            End::In(slot) if slot == second => along(of_b[1]),
            End::In(slot) if product.columns.contains(&slot) => {
                along(self.rank(end)?.saturating_sub(1))
            }
            _ => None,
        };
        if let Some(from) = column {
            let mut ends = vec![
                (End::Out(0), one(rank - 1, from)),
                (End::In(second), one(of_b[1], from)),
            ];
            for slot in product.columns {
                if let Some(own) = self.of_columns(*slot, from, product.in_blocks)? {
                    ends.push((End::In(*slot), own));
                }
            }
            return Ok(Spread::of(ends));
        }
        let row = match end {
            End::Out(0) if rank >= 2 => along(rank - 2),
            End::In(slot) if slot == first => along(of_a[0]),
            _ => None,
        };
        if let Some(from) = row {
            return Ok(Spread::of(vec![
                (End::Out(0), one(rank - 2, from)),
                (End::In(first), one(of_a[0], from)),
            ]));
        }
        let summed = match end {
            End::In(slot) if slot == first => along(of_a[1]),
            End::In(slot) if slot == second => along(of_b[0]),
            _ => None,
        };
        match summed {
            Some(_) if product.in_blocks => {
                Err("its weights are quantized in blocks along features that move".to_owned())
            }
            Some(from) => Ok(Spread::of(vec![
                (End::In(first), one(of_a[1], from)),
                (End::In(second), one(of_b[0], from)),
            ])),
            None => Err("it multiplies features that move in an order for each head".to_owned()),
        }
    }

    /// The order of an input with numbers for each column; `None` where it is one for all.
    fn of_columns(
        &self,
        slot: usize,
        from: &[usize],
        in_blocks: bool,
    ) -> Result<Option<Order>, String> {
        let Some(dims) = self.dims(End::In(slot)) else {
            return match self.node().input(slot) {
                None => Ok(None),
                Some(_) => Err("the size of a scale or bias is unknown".to_owned()),
            };
        };
        let (count, last) = (from.len(), dims.len().saturating_sub(1));
        // Blocks of each column follow each other, in one row or not.
        let axis = if in_blocks { 0 } else { last };
        match dims.get(axis) {
            _ if dims.iter().all(|size| *size == 1) && count > 1 => Ok(None),
            Some(size) if *size == count => Ok(Some(Order::along(axis, from.to_vec()))),
            Some(all) if in_blocks && dims.len() == 1 && all % count == 0 => {
                let blocks = all / count;
                let each = |at: &usize| {
                    let first = at * blocks;
                    first..first + blocks
                };
                let each = from.iter().flat_map(each).collect();
                Ok(Some(Order::along(0, each)))
            }
            _ => Err("a scale or bias has no place for each feature".to_owned()),
        }
    }

    /// A convolution of width 1 along the sequence, as a projection.
    pub(super) fn convolved(&self, end: End, order: &Order) -> Result<Spread, String> {
        if self.int("group").unwrap_or(1) != 1 {
            return Err("it convolves features in groups".to_owned());
        }
        let axis = match end {
            End::Out(0) => 1,
            _ => return Err("it convolves features that move".to_owned()),
        };
        let from = order
            .of_axis(axis)
            .ok_or("it convolves features that move")?;
        let own = Order::along(0, from.to_vec());
        Ok(Spread::of(vec![
            (End::In(1), own.clone()),
            (End::In(2), own),
        ]))
    }

    pub(super) fn summed(&self, end: End, order: &Order) -> Result<Spread, String> {
        let equation = Equation::of(self.graph, self.trace, self.id);
        let equation = equation.ok_or("its equation cannot be read")?;
        let own = match end {
            End::In(slot) => equation.operands.get(slot),
            End::Out(_) => Some(&equation.result),
        };
        let own = own.ok_or("its equation cannot be read")?;
        let (axis, from) = match order.axes() {
            [axis] => (*axis, order.of_axis(*axis).unwrap_or_default()),
            _ => {
                return Err("it multiplies features that move in an order for each head".to_owned());
            }
        };
        let letter = own.get(axis).ok_or("its equation cannot be read")?;
        let operands = equation.operands.iter().enumerate();
        let operands = operands.map(|(slot, letters)| (End::In(slot), letters));
        let mut ends = vec![];
        for (end, letters) in operands.chain([(End::Out(0), &equation.result)]) {
            let places = letters.iter().enumerate().filter(|(_, own)| *own == letter);
            let dims = self.dims(end).unwrap_or_default();
            for (at, _) in places.filter(|(at, _)| dims.get(*at) == Some(&from.len())) {
                ends.push((end, Order::along(at, from.to_vec())));
            }
        }
        Ok(Spread::of(ends))
    }
}
