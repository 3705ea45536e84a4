//! The axes of heads, queries and keys in a value, and how numbers for each head are aligned with
//! them.

use posenc_ir::{Attr, Emitter, ValueId};

use posenc_encodings::opset::Opset;

/// The axes of a value that numbers for each head are aligned with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    rank: usize,
    /// Axes of heads with their sizes, outermost first; none for one head.
    heads: Vec<(usize, usize)>,
    /// Whether the first of these axes also contains the sequences of the batch.
    folded: bool,
    /// The other two axes: queries and keys, or tokens and features.
    plane: [usize; 2],
}

/// The role of an axis of numbers to align with a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayoutAxis {
    /// One of the axes of heads, by index.
    Head(usize),
    /// The first axis of the plane.
    Row,
    /// The second axis of the plane.
    Column,
    /// The sequences of the batch, which are the first axis.
    Sequence,
}

impl Layout {
    /// The layout of a value with these dimensions. Axes outside the plane are sequences, then
    /// heads. `None` if the number of heads does not fit.
    pub(crate) fn of(dims: &[usize], plane: [usize; 2], heads: usize) -> Option<Self> {
        let mut left = heads;
        let mut found = vec![];
        let mut folded = false;
        let lead = (0..dims.len()).rev().filter(|a| !plane.contains(a));
        for (axis, size) in lead.map(|a| (a, dims[a])) {
            if left == 1 {
                break;
            }
            if size > 0 && left.is_multiple_of(size) {
                left /= size;
                found.extend((size > 1).then_some((axis, size)));
            } else if size.is_multiple_of(left) {
                found.push((axis, left));
                folded = true;
                left = 1;
            } else {
                return None;
            }
        }
        found.reverse();
        let inside = plane.iter().all(|a| *a < dims.len()) && plane[0] != plane[1];
        (left == 1 && heads > 0 && inside).then_some(Self {
            rank: dims.len(),
            heads: found,
            folded,
            plane,
        })
    }

    /// The layout of the bias input of a fused operator, `[batch, heads, queries, keys]`; `differ`
    /// means that sequences have different biases.
    pub(crate) fn of_operator(heads: usize, differ: bool) -> Self {
        let heads = if differ {
            vec![(1, heads)]
        } else {
            vec![(0, 1), (1, heads)]
        };
        Self {
            rank: 4,
            heads,
            folded: false,
            plane: [2, 3],
        }
    }

    /// The sizes of the axes of heads.
    pub(crate) fn lead(&self) -> Vec<usize> {
        self.heads.iter().map(|(_, size)| *size).collect()
    }

    /// Heads first, then the plane: the order of most biases.
    pub(crate) fn heads_first(&self) -> Vec<LayoutAxis> {
        let heads = (0..self.heads.len()).map(LayoutAxis::Head);
        heads.chain([LayoutAxis::Row, LayoutAxis::Column]).collect()
    }

    /// The plane first, then heads: the order of rows of a table.
    pub(crate) fn heads_last(&self) -> Vec<LayoutAxis> {
        let heads = (0..self.heads.len()).map(LayoutAxis::Head);
        [LayoutAxis::Row, LayoutAxis::Column]
            .into_iter()
            .chain(heads)
            .collect()
    }

    /// Whether the axes of heads are directly before the plane, which is last.
    pub(crate) fn is_plain(&self) -> bool {
        let rank = self.rank;
        let near =
            |(i, (axis, _)): (usize, &(usize, usize))| axis + 2 + self.heads.len() - i == rank;
        self.plane == [rank.wrapping_sub(2), rank.wrapping_sub(1)]
            && self.heads.iter().enumerate().all(near)
    }

    /// Whether sequences and heads share an axis.
    pub(crate) fn is_folded(&self) -> bool {
        self.folded
    }

    /// The axes of heads.
    pub(crate) fn head_axes(&self) -> impl Iterator<Item = usize> {
        self.heads.iter().map(|(axis, _)| *axis)
    }

    fn index_of(&self, axis: LayoutAxis) -> usize {
        match axis {
            LayoutAxis::Head(i) => self.heads[i].0,
            LayoutAxis::Row => self.plane[0],
            LayoutAxis::Column => self.plane[1],
            LayoutAxis::Sequence => 0,
        }
    }

    /// Aligns `x`, whose axes have the roles `axes`, with this layout; missing axes in between get
    /// length 1. `like` has the layout.
    pub(crate) fn bring(
        &self,
        out: &mut Emitter<'_>,
        opset: Opset,
        mut x: ValueId,
        axes: &[LayoutAxis],
        like: ValueId,
    ) -> ValueId {
        let mut order: Vec<usize> = (0..axes.len()).collect();
        order.sort_unstable_by_key(|i| self.index_of(axes[*i]));
        if order.iter().enumerate().any(|(i, from)| i != *from) {
            let perm = order.iter().map(|i| *i as i64).collect();
            x = out.op_with("Transpose", &[x], &[("perm", Attr::Ints(perm))]);
        }
        let indices: Vec<usize> = order.iter().map(|i| self.index_of(axes[*i])).collect();
        let first = indices.first().copied().unwrap_or(self.rank);
        let gaps: Vec<i64> = (first..self.rank)
            .filter(|a| !indices.contains(a))
            .map(|a| (a - first) as i64)
            .collect();
        if !gaps.is_empty() {
            x = opset.unsqueeze(out, x, &gaps);
        }
        match self.heads.first() {
            Some((axis, _)) if axes.contains(&LayoutAxis::Head(0)) => {
                self.spread(out, x, like, [axis - first, self.rank - axis - 1])
            }
            _ => x,
        }
    }

    /// Repeats the first axis of heads for every sequence, if both share an axis. `before` and
    /// `after` count the other axes of `x`. `like` has the layout.
    pub(crate) fn spread(
        &self,
        out: &mut Emitter<'_>,
        x: ValueId,
        like: ValueId,
        [before, after]: [usize; 2],
    ) -> ValueId {
        let Some((axis, size)) = self.heads.first().filter(|_| self.folded) else {
            return x;
        };
        let shape = out.op("Shape", &[like]);
        let axis = out.ints("axis", &[*axis as i64]);
        let all = out.op("Gather", &[shape, axis]);
        let heads = out.ints("heads", &[*size as i64]);
        let sequences = out.op("Div", &[all, heads]);
        let ones = |out: &mut Emitter<'_>, n: usize| (n > 0).then(|| out.ints("once", &vec![1; n]));
        let (first, last) = (ones(out, before), ones(out, after));
        let repeats: Vec<ValueId> = [first, Some(sequences), last]
            .into_iter()
            .flatten()
            .collect();
        let repeats = match repeats[..] {
            [one] => one,
            _ => out.op_with("Concat", &repeats, &[("axis", Attr::Int(0))]),
        };
        out.op("Tile", &[x, repeats])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Found = Option<(Vec<(usize, usize)>, bool)>;

    fn layout(dims: &[usize], plane: [usize; 2], heads: usize) -> Found {
        Layout::of(dims, plane, heads).map(|l| (l.heads, l.folded))
    }

    #[test]
    fn heads_are_found_among_other_axes() {
        let cases: [(&[usize], [usize; 2], usize, Found); 9] = [
            (&[2, 3, 7, 9], [2, 3], 3, Some((vec![(1, 3)], false))),
            (&[6, 7, 9], [1, 2], 3, Some((vec![(0, 3)], true))),
            (
                &[2, 3, 4, 7, 9],
                [3, 4],
                12,
                Some((vec![(1, 3), (2, 4)], false)),
            ),
            (
                &[6, 4, 7, 9],
                [2, 3],
                12,
                Some((vec![(0, 3), (1, 4)], true)),
            ),
            (&[7, 9, 2, 3], [0, 1], 3, Some((vec![(3, 3)], false))),
            (&[2, 7, 3, 9], [1, 3], 3, Some((vec![(2, 3)], false))),
            (&[2, 3, 1, 7, 9], [3, 4], 3, Some((vec![(1, 3)], false))),
            // As many heads as sequences, and one head.
            (&[2, 2, 7, 9], [2, 3], 2, Some((vec![(1, 2)], false))),
            (&[2, 1, 7, 9], [2, 3], 1, Some((vec![], false))),
        ];
        for (dims, plane, heads, want) in cases {
            assert_eq!(
                layout(dims, plane, heads),
                want,
                "{dims:?} {plane:?} {heads}"
            );
        }
    }

    #[test]
    fn heads_that_do_not_fit_are_refused() {
        for (dims, plane, heads) in [
            (&[2, 3, 7, 9][..], [2, 3], 4),
            (&[2, 7, 9], [1, 2], 3),
            (&[7, 9], [0, 1], 2),
            (&[2, 3, 7, 9], [2, 3], 0),
            (&[2, 3, 7, 9], [2, 4], 3),
            (&[2, 3, 7, 9], [3, 3], 3),
        ] {
            assert_eq!(
                layout(dims, plane, heads),
                None,
                "{dims:?} {plane:?} {heads}"
            );
        }
    }

    #[test]
    fn plain_is_heads_right_before_their_plane() {
        let plain =
            |dims: &[usize], plane, heads| Layout::of(dims, plane, heads).unwrap().is_plain();
        assert!(plain(&[2, 3, 7, 9], [2, 3], 3));
        assert!(plain(&[6, 7, 9], [1, 2], 3));
        assert!(plain(&[2, 3, 4, 7, 9], [3, 4], 12));
        assert!(plain(&[2, 7, 9], [1, 2], 1));
        assert!(!plain(&[2, 3, 1, 7, 9], [3, 4], 3));
        assert!(!plain(&[2, 7, 3, 9], [1, 3], 3));
        assert!(!plain(&[7, 9, 2, 3], [0, 1], 3));
        assert!(!plain(&[2, 3, 9, 7], [3, 2], 3));
    }
}
