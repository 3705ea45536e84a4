//! Lengths of axes before and after a change of size, with what they are made of: a product of grid
//! sides, or parts behind each other.

/// The length of an axis, before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// One number.
    One {
        /// Before.
        old: usize,
        /// After.
        new: usize,
    },
    /// Axes flattened into one, the outermost first; none is a product, and none is 1.
    Product(Vec<Extent>),
    /// Parts behind each other; none is a sum.
    Sum(Vec<Extent>),
}

impl Extent {
    /// A length that stays.
    pub(crate) fn same(length: usize) -> Self {
        Self::One {
            old: length,
            new: length,
        }
    }

    /// The same as a side of a grid of which only the other side changes.
    pub(crate) fn as_kept_side(&self) -> Self {
        Self::Product(vec![self.clone()])
    }

    /// Whether it is a side of a grid: it changes, or the other side does.
    pub(crate) fn is_of_grid(&self) -> bool {
        self.changes() || matches!(self, Self::Product(sides) if sides.len() == 1)
    }

    /// The length before.
    pub(crate) fn before(&self) -> usize {
        match self {
            Self::One { old, .. } => *old,
            Self::Product(parts) => parts.iter().map(Self::before).product(),
            Self::Sum(parts) => parts.iter().map(Self::before).sum(),
        }
    }

    /// The length after.
    pub(crate) fn after(&self) -> usize {
        match self {
            Self::One { new, .. } => *new,
            Self::Product(parts) => parts.iter().map(Self::after).product(),
            Self::Sum(parts) => parts.iter().map(Self::after).sum(),
        }
    }

    /// Whether anything in it has another length, also where the whole has the same.
    pub(crate) fn changes(&self) -> bool {
        match self {
            Self::One { old, new } => old != new,
            Self::Product(parts) | Self::Sum(parts) => parts.iter().any(Self::changes),
        }
    }

    /// The parts behind each other.
    pub(crate) fn parts(&self) -> &[Self] {
        match self {
            Self::Sum(parts) => parts,
            one => std::slice::from_ref(one),
        }
    }

    /// The sides of a grid that was flattened.
    pub(crate) fn factors(&self) -> &[Self] {
        match self {
            Self::Product(parts) => parts,
            one => std::slice::from_ref(one),
        }
    }

    /// An axis of these parts behind each other.
    pub(crate) fn concat<'a>(parts: impl Iterator<Item = &'a Self>) -> Self {
        let all: Vec<Self> = parts.flat_map(|part| part.parts().to_vec()).collect();
        if let [one] = &all[..] {
            one.clone()
        } else if all.iter().any(Self::changes) {
            Self::Sum(all)
        } else {
            Self::same(all.iter().map(Self::before).sum())
        }
    }

    fn flattened(mut factors: Vec<Self>) -> Self {
        match factors.len() {
            0 => Self::same(1),
            1 => factors.remove(0),
            _ => Self::Product(factors),
        }
    }
}

/// The axes of a value of dimensions `to` before the change, whose elements are those of axes `from` in
/// the same order; `None` where it is not known which of them get longer.
pub(crate) fn regrouped(from: &[Extent], to: &[usize]) -> Option<Vec<Extent>> {
    if may_be_windows(from, to) {
        return None;
    }
    let mut left: Vec<Extent> = vec![];
    for axis in from.iter().rev() {
        let factors = axis.factors().iter().rev();
        left.extend(factors.filter(|f| f.before() != 1 || f.changes()).cloned());
    }
    let mut made = vec![];
    for length in to {
        let (mut taken, mut product) = (vec![], 1);
        while product < *length {
            let next = left.pop()?;
            // What is 1 before may belong to the axis before or to this one.
            if next.before() == 1 {
                return None;
            }
            let wanted = length
                .checked_div(product)
                .filter(|n| n * product == *length)?;
            if wanted.is_multiple_of(next.before()) {
                product *= next.before();
                taken.push(next);
            } else if !next.changes() && next.before().is_multiple_of(wanted) {
                left.push(Extent::same(next.before() / wanted));
                product *= wanted;
                taken.push(Extent::same(wanted));
            } else {
                return None;
            }
        }
        made.push(Extent::flattened(taken));
    }
    left.is_empty().then_some(made)
}

/// The same where all but the first of these dimensions are the last axes as they are: the first is what
/// comes before them.
pub(crate) fn gathered(from: &[Extent], to: &[usize]) -> Option<Vec<Extent>> {
    let lead = from.len().checked_sub(to.len().checked_sub(1)?)?;
    let (before, kept) = from.split_at_checked(lead)?;
    let stays = |(axis, length): (&Extent, &usize)| !axis.changes() && axis.before() == *length;
    let is_rest = before.iter().map(Extent::before).product::<usize>() == to[0];
    if !is_rest || lead < 2 || !kept.iter().zip(&to[1..]).all(stays) {
        return None;
    }
    let factors = before.iter().flat_map(Extent::factors);
    let factors = factors.filter(|f| f.before() != 1 || f.changes());
    let factors = factors.cloned().collect();
    Some([&[Extent::flattened(factors)], kept].concat())
}

/// Whether axes that change get more than one new 1 before or behind them: these are numbers of windows or
/// of cells, and may be what changes.
fn may_be_windows(from: &[Extent], to: &[usize]) -> bool {
    let ones = |lengths: &mut dyn Iterator<Item = usize>| lengths.filter(|n| *n == 1).count();
    let before = ones(&mut from.iter().map(Extent::before));
    let after = ones(&mut to.iter().copied());
    let factors = from
        .iter()
        .flat_map(Extent::parts)
        .flat_map(Extent::factors);
    let changed = factors.filter(|factor| factor.changes()).count();
    changed > 0 && after > before + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(old: usize, new: usize) -> Extent {
        Extent::One { old, new }
    }

    fn lengths(made: Option<Vec<Extent>>) -> Option<Vec<usize>> {
        made.map(|axes| axes.iter().map(Extent::after).collect())
    }

    #[test]
    fn a_grid_is_flattened_and_taken_apart_again() {
        let image = [Extent::same(2), Extent::same(64), one(4, 5), one(4, 8)];
        let flat = regrouped(&image, &[2, 64, 16]).expect("flat");
        assert_eq!(lengths(Some(flat.clone())), Some(vec![2, 64, 40]));
        assert_eq!(regrouped(&flat, &[2, 64, 4, 4]), Some(image.to_vec()));
        let merged = regrouped(&flat, &[128, 16]);
        assert_eq!(lengths(merged), Some(vec![128, 40]));
    }

    #[test]
    fn an_equal_number_of_patches_in_another_grid_is_a_change() {
        let image = [one(4, 2), one(4, 8)];
        let [flat] = &regrouped(&image, &[16]).expect("flat")[..] else {
            panic!("one axis");
        };
        assert_eq!((flat.before(), flat.after()), (16, 16));
        assert!(flat.changes());
    }

    #[test]
    fn heads_are_told_from_patches_of_the_same_number() {
        let class = Extent::same(1);
        let tokens = Extent::concat([class, one(16, 40)].iter());
        let heads = regrouped(
            &[Extent::same(2), tokens.clone(), Extent::same(64)],
            &[2, 17, 4, 16],
        );
        assert_eq!(lengths(heads), Some(vec![2, 41, 4, 16]));
        let batched = regrouped(&[Extent::same(2), tokens, Extent::same(64)], &[34, 64]);
        let again = regrouped(&batched.expect("one batch"), &[2, 17, 64]);
        assert_eq!(lengths(again), Some(vec![2, 41, 64]));
    }

    #[test]
    fn windows_are_gathered_before_what_stays() {
        let windows = [Extent::same(2), Extent::same(1), one(1, 2), Extent::same(4)];
        assert_eq!(lengths(gathered(&windows, &[2, 4])), Some(vec![4, 4]));
        assert_eq!(regrouped(&windows, &[2, 4]), None);
        assert_eq!(lengths(gathered(&windows, &[8])), Some(vec![16]));
        for to in [&[4, 2][..], &[2, 2, 2], &[4], &[]] {
            assert_eq!(gathered(&windows, to), None, "{to:?}");
        }
        let rows = [Extent::same(2), one(4, 8)];
        assert_eq!(gathered(&rows, &[2, 4]), None);
    }

    #[test]
    fn what_gets_longer_is_not_guessed() {
        let cases: [(&[Extent], &[usize]); 5] = [
            (&[one(8, 16)], &[2, 4]),
            (&[one(4, 8), one(4, 8)], &[2, 8]),
            (&[Extent::Sum(vec![Extent::same(1), one(15, 24)])], &[4, 4]),
            (&[one(1, 2), Extent::same(4)], &[2, 2]),
            (&[one(4, 8)], &[4, 2]),
        ];
        for (from, to) in cases {
            assert_eq!(regrouped(from, to), None, "{from:?} {to:?}");
        }
    }
}
