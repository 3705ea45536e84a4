//! Operators of attention, which take the features of a head in any order that queries and keys share.

use posenc_ir::Node;

use super::order::Order;
use super::rules::View;
use super::spread::{End, Spread};

/// Where an operator of attention holds features that move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// The heads of queries, or of keys, one after another along the last axis.
    Heads(usize),
    /// The features of one head along the last axis.
    Head,
    /// Queries, keys and values one after another along the last axis: heads that move, and others.
    Packed { moved: usize, others: usize },
    /// `[.., head, part, feature]`, of which only the last part, the values, does not move.
    Parts(usize),
}

impl View<'_> {
    /// What the order of one value of an operator of attention says of the others; `None` for other operators.
    pub(super) fn attention(&self, end: End, order: &Order) -> Option<Result<Spread, String>> {
        let held = self.held()?;
        Some(self.of_attention(&held, end, order))
    }

    fn of_attention(
        &self,
        held: &[(End, Held)],
        end: End,
        order: &Order,
    ) -> Result<Spread, String> {
        let node = self.node();
        if !self.is_turned && self.int("do_rotary").unwrap_or(0) != 0 {
            return Err("it rotates features, and keeps their order".to_owned());
        }
        let own = held.iter().find(|(own, _)| *own == end);
        let Some((_, own)) = own else {
            return Err(format!("{} takes these features in their order", node.op()));
        };
        let dims = self
            .dims(end)
            .ok_or("the sizes of its values are unknown")?;
        let head = own.head(dims, order);
        let head = head.ok_or("its heads would have features in different orders")?;
        let mut ends = vec![];
        for (end, held) in held {
            if let Some(dims) = self.dims(*end) {
                let order = held.order(dims, &head);
                let order = order.ok_or("cannot tell the features of a head apart")?;
                ends.push((*end, order));
            }
        }
        Ok(Spread::of(ends))
    }

    /// Where the operator holds features of queries and keys.
    fn held(&self) -> Option<Vec<(End, Held)>> {
        let node = self.node();
        let number = |name: &str| usize::try_from(self.int(name)?).ok().filter(|n| *n > 0);
        let rank = |slot: usize| self.dims(End::In(slot)).map(<[usize]>::len);
        // Heads on an axis of their own, or one after another.
        let apart = |slot: usize, heads: usize| match rank(slot) {
            Some(4) => Held::Head,
            _ => Held::Heads(heads),
        };
        let is_alone = node.input(1).is_none();
        match (node.domain(), node.op()) {
            ("", "Attention") => {
                let heads = number("q_num_heads").unwrap_or(1);
                let kv_heads = number("kv_num_heads").unwrap_or(1);
                Some(vec![
                    (End::In(0), apart(0, heads)),
                    (End::In(1), apart(1, kv_heads)),
                    (End::In(4), Held::Head),
                    (End::Out(1), Held::Head),
                ])
            }
            ("com.microsoft", "MultiHeadAttention") => {
                let heads = number("num_heads")?;
                let bias = Held::Packed {
                    moved: 2 * heads,
                    others: heads,
                };
                let mut all = match (rank(0), rank(1)) {
                    (Some(5), _) => vec![(End::In(0), Held::Parts(3))],
                    (_, Some(5)) => {
                        vec![
                            (End::In(0), Held::Heads(heads)),
                            (End::In(1), Held::Parts(2)),
                        ]
                    }
                    _ => vec![
                        (End::In(0), Held::Heads(heads)),
                        (End::In(1), apart(1, heads)),
                    ],
                };
                all.extend([
                    (End::In(3), bias),
                    (End::In(6), Held::Head),
                    (End::Out(1), Held::Head),
                ]);
                Some(all)
            }
            ("com.microsoft", "DecoderMaskedMultiHeadAttention") => {
                let heads = number("num_heads")?;
                let bias = Held::Packed {
                    moved: 2 * heads,
                    others: heads,
                };
                Some(vec![
                    (End::In(0), Held::Heads(heads)),
                    (End::In(1), apart(1, heads)),
                    (End::In(5), Held::Head),
                    (End::In(10), bias),
                    (End::Out(1), Held::Head),
                ])
            }
            ("com.microsoft", "GroupQueryAttention" | "SparseAttention" | "PagedAttention") => {
                let (heads, kv_heads) = (number("num_heads")?, number("kv_num_heads")?);
                let mut all = match is_alone {
                    true => vec![(
                        End::In(0),
                        Held::Packed {
                            moved: heads + kv_heads,
                            others: kv_heads,
                        },
                    )],
                    false => vec![
                        (End::In(0), Held::Heads(heads)),
                        (End::In(1), Held::Heads(kv_heads)),
                    ],
                };
                all.extend([(End::In(3), Held::Head), (End::Out(1), Held::Head)]);
                if node.op() == "GroupQueryAttention" {
                    all.extend(norms(node).map(|slot| (End::In(slot), Held::Head)));
                    // Scales of keys of 8 bits, of each feature or of all.
                    let scales = self.dims(End::In(12)).unwrap_or_default();
                    if scales.iter().product::<usize>() > 1 {
                        all.push((End::In(12), Held::Heads(kv_heads)));
                    }
                }
                Some(all)
            }
            _ => None,
        }
    }
}

/// The inputs of a `GroupQueryAttention` that normalize queries and keys.
fn norms(node: &Node) -> impl Iterator<Item = usize> {
    [14, 15]
        .into_iter()
        .filter(|slot| node.input(*slot).is_some())
}

impl Held {
    /// The order of the features of each head; `None` where heads differ, or something else moves.
    fn head(self, dims: &[usize], order: &Order) -> Option<Order> {
        let last = dims.len().checked_sub(1)?;
        let head = match self {
            Self::Head => order.clone(),
            Self::Heads(heads) => order.reshaped(dims, &split(dims, heads)?)?,
            Self::Packed { moved, others } => {
                let width = dims[last] / (moved + others);
                let own: Vec<usize> = (0..moved * width).collect();
                let rest: Vec<usize> = (moved * width..dims[last]).collect();
                if !order.within(last, &rest)?.is_unmoved() {
                    return None;
                }
                let own_dims = [&dims[..last], &[own.len()]].concat();
                let own = order.within(last, &own)?;
                own.reshaped(&own_dims, &split(&own_dims, moved)?)?
            }
            Self::Parts(parts) => {
                let axis = last.checked_sub(1)?;
                if !order.within(axis, &[parts - 1])?.is_unmoved() {
                    return None;
                }
                order.within(axis, &(0..parts - 1).collect::<Vec<_>>())?
            }
        };
        let at = *head.axes().last()?;
        let from = head.of_axis(at)?;
        let ends = matches!(self, Self::Heads(_) | Self::Packed { .. });
        let is_feature = at == if ends { last + 1 } else { last };
        is_feature.then(|| Order::along(0, from.to_vec()))
    }

    /// The order of a value in which every head has this one.
    fn order(self, dims: &[usize], head: &Order) -> Option<Order> {
        let last = dims.len().checked_sub(1)?;
        let on = |axis: usize| head.moved(|_| axis);
        Some(match self {
            Self::Head if dims[last] == head.of_axis(0)?.len() => on(last),
            // Several features in each element.
            Self::Head => return None,
            Self::Heads(heads) => on(last + 1).reshaped(&split(dims, heads)?, dims)?,
            Self::Packed { moved, others } => {
                let width = dims[last] / (moved + others);
                let own: Vec<usize> = (0..moved * width).collect();
                let own_dims = [&dims[..last], &[own.len()]].concat();
                let part = on(last + 1).reshaped(&split(&own_dims, moved)?, &own_dims)?;
                Order::of_parts(dims, last, &[(own, part)])?
            }
            Self::Parts(parts) => {
                let own: Vec<usize> = (0..parts - 1).collect();
                Order::of_parts(dims, last.checked_sub(1)?, &[(own, on(last))])?
            }
        })
    }
}

/// The dimensions with so many heads on an axis of their own.
fn split(dims: &[usize], heads: usize) -> Option<Vec<usize>> {
    let (last, rest) = dims.split_last()?;
    let width = last
        .checked_div(heads)
        .filter(|width| width * heads == *last)?;
    Some([rest, &[heads, width]].concat())
}
