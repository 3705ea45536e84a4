//! An order of elements along some axes of a value.

use bytes::Bytes;
use posenc_ir::{DType, Tensor};

/// The most elements of the axes that an order spans.
const MOST: usize = 1 << 24;

/// Another order of the elements along some axes: `new[i] = old[from[i]]`, where `i` counts the elements of these
/// axes alone, those of the last axis first. Axes along which nothing moves and nothing differs are left out, so
/// that equal orders are equal values; an order that moves nothing has no axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// Increasing.
    axes: Vec<usize>,
    sizes: Vec<usize>,
    from: Vec<usize>,
}

impl Order {
    /// The order along one axis.
    pub(crate) fn along(axis: usize, from: Vec<usize>) -> Self {
        Self {
            axes: vec![axis],
            sizes: vec![from.len()],
            from,
        }
        .reduced()
    }

    /// The order of nothing moved.
    pub(crate) fn unmoved() -> Self {
        Self {
            axes: vec![],
            sizes: vec![],
            from: vec![0],
        }
    }

    pub(crate) fn is_unmoved(&self) -> bool {
        self.axes.is_empty()
    }

    pub(crate) fn axes(&self) -> &[usize] {
        &self.axes
    }

    pub(crate) fn has(&self, axis: usize) -> bool {
        self.axes.contains(&axis)
    }

    /// Whether a value of these dimensions can have it.
    pub(crate) fn fits(&self, dims: &[usize]) -> bool {
        let mut sizes = self.axes.iter().zip(&self.sizes);
        sizes.all(|(axis, size)| dims.get(*axis) == Some(size))
    }

    /// The order along an axis, where it is the only one.
    pub(crate) fn of_axis(&self, axis: usize) -> Option<&[usize]> {
        (self.axes == [axis]).then_some(&self.from)
    }

    /// The same on other axes: `to` says which axis becomes which.
    pub(crate) fn moved(&self, to: impl Fn(usize) -> usize) -> Self {
        let named: Vec<usize> = self.axes.iter().map(|axis| to(*axis)).collect();
        let mut places: Vec<usize> = (0..named.len()).collect();
        places.sort_by_key(|at| named[*at]);
        let pick = |all: &[usize]| places.iter().map(|at| all[*at]).collect::<Vec<_>>();
        let sizes = pick(&self.sizes);
        let mut own = vec![0; places.len()];
        let from = indices(&sizes).map(|index| {
            for (at, place) in index.iter().zip(&places) {
                own[*place] = *at;
            }
            let old = place(self.from[flat(&own, &self.sizes)], &self.sizes);
            flat(&pick(&old), &sizes)
        });
        Self {
            from: from.collect(),
            axes: pick(&named),
            sizes,
        }
    }

    /// The order after elements keep their place in memory and get other dimensions; `None` where it cannot be
    /// told, or where there are too many of them.
    pub(crate) fn reshaped(&self, dims: &[usize], to: &[usize]) -> Option<Self> {
        let groups = groups(dims, to)?;
        let is_own = |(from, _): &&(Vec<usize>, Vec<usize>)| from.iter().any(|a| self.has(*a));
        let own: Vec<_> = groups.iter().filter(is_own).collect();
        let from: Vec<usize> = own.iter().flat_map(|(from, _)| from).copied().collect();
        let axes: Vec<usize> = own.iter().flat_map(|(_, to)| to).copied().collect();
        let wide = self.spanning(&from, dims)?;
        let sizes = axes.iter().map(|axis| to[*axis]).collect();
        Some(
            Self {
                axes,
                sizes,
                from: wide.from,
            }
            .reduced(),
        )
    }

    /// The order of a part of the elements along an axis, counted in the part; `None` where elements enter or
    /// leave it.
    pub(crate) fn within(&self, axis: usize, part: &[usize]) -> Option<Self> {
        let Some(at) = self.axes.iter().position(|own| *own == axis) else {
            return Some(self.clone());
        };
        if part.is_empty() {
            return Some(Self::unmoved());
        }
        let mut places = vec![None; self.sizes[at]];
        for (own, old) in part.iter().enumerate() {
            *places.get_mut(*old)? = Some(own);
        }
        let mut sizes = self.sizes.clone();
        sizes[at] = part.len();
        let mut from = Vec::with_capacity(sizes.iter().product());
        for mut index in indices(&sizes) {
            index[at] = part[index[at]];
            let mut old = place(self.from[flat(&index, &self.sizes)], &self.sizes);
            old[at] = places[old[at]]?;
            from.push(flat(&old, &sizes));
        }
        let axes = self.axes.clone();
        Some(Self { axes, sizes, from }.reduced())
    }

    /// The order of a value of these dimensions of which some parts along an axis have orders of their own, each
    /// counted in the part; `None` where two parts say different things, or there are too many elements.
    pub(crate) fn of_parts(
        dims: &[usize],
        axis: usize,
        parts: &[(Vec<usize>, Order)],
    ) -> Option<Self> {
        let mut axes: Vec<usize> = parts
            .iter()
            .flat_map(|(_, own)| &own.axes)
            .copied()
            .collect();
        axes.push(axis);
        axes.sort_unstable();
        axes.dedup();
        let at = axes.iter().position(|own| *own == axis)?;
        let whole = Self::unmoved().spanning(&axes, dims)?;
        let mut from = whole.from.clone();
        let mut is_told = vec![false; from.len()];
        for (part, own) in parts.iter().filter(|(part, _)| !part.is_empty()) {
            let mut part_dims = dims.to_vec();
            part_dims[axis] = part.len();
            let own = own.spanning(&axes, &part_dims)?;
            for index in indices(&own.sizes) {
                let mut to = index.clone();
                to[at] = part[index[at]];
                let mut old = place(own.from[flat(&index, &own.sizes)], &own.sizes);
                old[at] = part[old[at]];
                let (to, old) = (flat(&to, &whole.sizes), flat(&old, &whole.sizes));
                if is_told[to] && from[to] != old {
                    return None;
                }
                (is_told[to], from[to]) = (true, old);
            }
        }
        let order = Self { from, ..whole };
        order.is_whole().then(|| order.reduced())
    }

    /// The order of a value that has this along the other axes and is equal along this one; `None` where it
    /// would have to differ.
    pub(crate) fn without(&self, axis: usize) -> Option<Self> {
        let Some(at) = self.axes.iter().position(|own| *own == axis) else {
            return Some(self.clone());
        };
        let gone = |all: &[usize]| {
            let mut all = all.to_vec();
            all.remove(at);
            all
        };
        let sizes = gone(&self.sizes);
        let mut from = vec![None; sizes.iter().product()];
        for index in indices(&self.sizes) {
            let old = place(self.from[flat(&index, &self.sizes)], &self.sizes);
            let old = flat(&gone(&old), &sizes);
            let known = &mut from[flat(&gone(&index), &sizes)];
            if known.is_some_and(|known| known != old) {
                return None;
            }
            *known = Some(old);
        }
        let order = Self {
            axes: gone(&self.axes),
            sizes,
            from: from.into_iter().collect::<Option<_>>()?,
        };
        order.is_whole().then(|| order.reduced())
    }

    /// Whether elements keep their place along every axis that is not among these.
    pub(crate) fn stays_outside(&self, axes: &[usize]) -> bool {
        let outside = |at: &usize| !axes.contains(&self.axes[*at]);
        indices(&self.sizes).enumerate().all(|(to, index)| {
            let old = place(self.from[to], &self.sizes);
            let mut all = (0..self.axes.len()).filter(outside);
            all.all(|at| index[at] == old[at])
        })
    }

    /// A tensor in this order.
    pub(crate) fn apply(&self, tensor: &Tensor) -> Option<Tensor> {
        let dims = tensor.dims();
        if !self.fits(dims) {
            return None;
        }
        let width = match tensor.dtype().bits()? {
            bits if bits % 8 == 0 => bits / 8,
            4 => return self.apply_to_nibbles(tensor),
            _ => return None,
        };
        // Elements behind the last axis move together, and in the same way behind each place before the first.
        let (first, last) = match self.axes[..] {
            [] => return Some(tensor.clone()),
            [first, .., last] => (first, last + 1),
            [only] => (only, only + 1),
        };
        let span: Vec<usize> = (first..last).collect();
        let own = self.spanning(&span, dims)?;
        let run = dims[last..].iter().product::<usize>() * width;
        let (bytes, mut out) = (tensor.bytes(), Vec::with_capacity(tensor.bytes().len()));
        for before in 0..dims[..first].iter().product() {
            for at in &own.from {
                let start = (before * own.from.len() + at) * run;
                out.extend_from_slice(&bytes[start..start + run]);
            }
        }
        Tensor::new(tensor.dtype(), dims.to_vec(), Bytes::from(out))
    }

    /// The same for elements of half a byte.
    fn apply_to_nibbles(&self, tensor: &Tensor) -> Option<Tensor> {
        let halves = tensor
            .bytes()
            .iter()
            .flat_map(|byte| [byte & 15, byte >> 4]);
        let bytes: Vec<u8> = halves.take(tensor.len()).collect();
        let wide = Tensor::new(DType::U8, tensor.dims().to_vec(), Bytes::from(bytes))?;
        let wide = self.apply(&wide)?;
        let pairs = wide.bytes().chunks(2);
        let packed = pairs.map(|pair| pair[0] | pair.get(1).map_or(0, |high| high << 4));
        let packed: Vec<u8> = packed.collect();
        Tensor::new(tensor.dtype(), tensor.dims().to_vec(), Bytes::from(packed))
    }

    /// The same, with more axes along which nothing moves. The axes may be in any order.
    fn spanning(&self, axes: &[usize], dims: &[usize]) -> Option<Self> {
        let sizes: Option<Vec<usize>> = axes.iter().map(|axis| dims.get(*axis).copied()).collect();
        let sizes = sizes?;
        let count = sizes
            .iter()
            .try_fold(1usize, |n, size| n.checked_mul(*size));
        count.filter(|n| (1..=MOST).contains(n))?;
        let places: Option<Vec<usize>> = self
            .axes
            .iter()
            .map(|axis| axes.iter().position(|own| own == axis))
            .collect();
        let places = places?;
        let is_same = |(at, size): (&usize, &usize)| sizes[*at] == *size;
        if !places.iter().zip(&self.sizes).all(is_same) {
            return None;
        }
        let from = indices(&sizes).map(|mut index| {
            let own: Vec<usize> = places.iter().map(|at| index[*at]).collect();
            let old = place(self.from[flat(&own, &self.sizes)], &self.sizes);
            for (at, old) in places.iter().zip(old) {
                index[*at] = old;
            }
            flat(&index, &sizes)
        });
        Some(Self {
            from: from.collect(),
            axes: axes.to_vec(),
            sizes,
        })
    }

    /// Whether every element is somewhere.
    fn is_whole(&self) -> bool {
        let mut seen = vec![false; self.from.len()];
        let mut all = self.from.iter();
        all.all(|at| !std::mem::replace(&mut seen[*at], true))
    }

    /// Leaves out the axes along which nothing moves and nothing differs.
    fn reduced(mut self) -> Self {
        let mut at = 0;
        while at < self.axes.len() {
            if self.is_free(at) {
                self = self.dropped(at);
            } else {
                at += 1;
            }
        }
        self
    }

    /// Whether nothing moves along an axis, and every place along it has the same order.
    fn is_free(&self, at: usize) -> bool {
        indices(&self.sizes).enumerate().all(|(to, mut index)| {
            let old = place(self.from[to], &self.sizes);
            let here = std::mem::replace(&mut index[at], 0);
            let mut first = place(self.from[flat(&index, &self.sizes)], &self.sizes);
            first[at] = here;
            old == first
        })
    }

    fn dropped(&self, at: usize) -> Self {
        let gone = |all: &[usize]| {
            let mut all = all.to_vec();
            all.remove(at);
            all
        };
        let sizes = gone(&self.sizes);
        let from = indices(&sizes).map(|mut index| {
            index.insert(at, 0);
            let old = place(self.from[flat(&index, &self.sizes)], &self.sizes);
            flat(&gone(&old), &sizes)
        });
        Self {
            from: from.collect(),
            axes: gone(&self.axes),
            sizes,
        }
    }
}

/// The axes before and after a reshape, in the smallest groups with as many elements; `None` where there are no
/// elements, or another number of them.
fn groups(dims: &[usize], to: &[usize]) -> Option<Vec<(Vec<usize>, Vec<usize>)>> {
    if dims.iter().chain(to).any(|size| *size == 0) {
        return None;
    }
    let mut groups = vec![];
    let (mut a, mut b) = (0, 0);
    while a < dims.len() && b < to.len() {
        let (first, second) = (a, b);
        let (mut left, mut right) = (dims[a], to[b]);
        (a, b) = (a + 1, b + 1);
        while left != right {
            if left < right {
                left *= dims.get(a)?;
                a += 1;
            } else {
                right *= to.get(b)?;
                b += 1;
            }
        }
        groups.push(((first..a).collect(), (second..b).collect()));
    }
    // What is left has one element.
    let left = dims[a..].iter().chain(&to[b..]);
    left.into_iter().all(|size| *size == 1).then_some(groups)
}

/// Every index of these dimensions, the last one fastest.
fn indices(sizes: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let sizes = sizes.to_vec();
    (0..sizes.iter().product()).map(move |flat| place(flat, &sizes))
}

fn flat(index: &[usize], sizes: &[usize]) -> usize {
    index
        .iter()
        .zip(sizes)
        .fold(0, |all, (at, size)| all * size + at)
}

fn place(mut flat: usize, sizes: &[usize]) -> Vec<usize> {
    let mut index = vec![0; sizes.len()];
    for (at, size) in index.iter_mut().zip(sizes).rev() {
        (*at, flat) = (flat % size, flat / size);
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Halves of 4 become neighbors.
    fn neighbors() -> Vec<usize> {
        vec![0, 2, 1, 3]
    }

    /// The numbers of a tensor of these dimensions, 0 and on, in an order.
    fn numbers(order: &Order, dims: &[usize]) -> Option<Vec<i64>> {
        let all: Vec<i64> = (0..dims.iter().product::<usize>() as i64).collect();
        order.apply(&Tensor::from_i64(dims, &all))?.to_i64s()
    }

    #[test]
    fn an_order_moves_elements_along_its_axis_alone() {
        let order = Order::along(1, neighbors());
        assert_eq!(numbers(&order, &[2, 4]), Some(vec![0, 2, 1, 3, 4, 6, 5, 7]));
        let rows = Order::along(0, vec![1, 0]);
        assert_eq!(numbers(&rows, &[2, 3]), Some(vec![3, 4, 5, 0, 1, 2]));
        assert_eq!(numbers(&order, &[2, 5]), None, "another size");
        assert!(Order::along(3, vec![0, 1, 2]).is_unmoved());
    }

    #[test]
    fn halves_of_bytes_move_too() {
        let tensor = Tensor::new(DType::U4, vec![4], Bytes::from(vec![0x21, 0x43])).unwrap();
        let moved = Order::along(0, neighbors()).apply(&tensor).unwrap();
        assert_eq!(moved.bytes()[..], [0x31, 0x42]);
        let odd = Tensor::new(DType::U4, vec![3], Bytes::from(vec![0x21, 0x03])).unwrap();
        let moved = Order::along(0, vec![2, 1, 0]).apply(&odd).unwrap();
        assert_eq!(moved.bytes()[..], [0x23, 0x01]);
    }

    #[test]
    fn heads_are_split_and_merged() {
        let heads = Order::along(2, neighbors());
        let merged = heads.reshaped(&[5, 3, 4], &[5, 12]).unwrap();
        assert_eq!(merged.of_axis(1).unwrap()[..8], [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(merged.reshaped(&[5, 12], &[5, 3, 4]), Some(heads.clone()));
        // Axes of one element are anywhere.
        let wide = heads.reshaped(&[5, 3, 4], &[1, 5, 3, 1, 4]).unwrap();
        assert_eq!(wide.axes(), [4]);
        assert_eq!(heads.reshaped(&[5, 3, 4], &[5, 11]), None);
        // A head that is cut in half has no order of its own.
        let cut = heads.reshaped(&[5, 3, 4], &[5, 3, 2, 2]).unwrap();
        assert_eq!(cut.axes(), [2, 3]);
    }

    #[test]
    fn an_order_follows_its_axes() {
        let parts = [(vec![0, 1, 2, 3], Order::along(1, neighbors()))];
        let first = Order::of_parts(&[8, 4], 0, &parts).unwrap();
        assert_eq!(first.axes(), [0, 1]);
        let turned = first.moved(|axis| 1 - axis);
        assert_eq!(turned.axes(), [0, 1]);
        let all = numbers(&first, &[8, 4]).unwrap();
        let other = numbers(&turned, &[4, 8]).unwrap();
        for (row, column) in (0..8).flat_map(|row| (0..4).map(move |column| (row, column))) {
            let (old, new) = (all[row * 4 + column], other[column * 8 + row]);
            assert_eq!((old / 4, old % 4), (new % 8, new / 8));
        }
        assert!(first.stays_outside(&[1]) && !first.stays_outside(&[0]));
    }

    #[test]
    fn parts_have_orders_within_the_whole() {
        let order = Order::along(0, vec![0, 2, 1, 3, 4, 5]);
        assert_eq!(
            order.within(0, &[0, 1, 2, 3]),
            Some(Order::along(0, neighbors()))
        );
        assert_eq!(order.within(0, &[4, 5]), Some(Order::unmoved()));
        assert_eq!(order.within(0, &[]), Some(Order::unmoved()));
        assert_eq!(order.within(0, &[0, 1]), None, "an element leaves it");
        let parts = |from: Vec<usize>| vec![(vec![0, 1, 2, 3], Order::along(0, from))];
        assert_eq!(Order::of_parts(&[6], 0, &parts(neighbors())), Some(order));
        let mut twice = parts(neighbors());
        twice.extend(parts(vec![3, 2, 1, 0]));
        assert_eq!(Order::of_parts(&[6], 0, &twice), None, "two orders at once");
    }

    #[test]
    fn a_value_that_is_equal_along_an_axis_has_the_rest_of_the_order() {
        let both = Order {
            axes: vec![0, 1],
            sizes: vec![2, 2],
            from: vec![3, 2, 1, 0],
        };
        assert_eq!(both.without(0), Some(Order::along(1, vec![1, 0])));
        let parts = [(vec![0], Order::along(1, vec![1, 0]))];
        let one = Order::of_parts(&[2, 2], 0, &parts).unwrap();
        assert_eq!(one.without(0), None, "rows differ");
    }
}
