//! The patches of a grid as rows, whichever axes they are on.

use ndarray::{Array2, ArrayD};

use crate::graph::extent::Extent;

/// Marks the side of a grid that stays, where the other one changes and is an axis of its own; nothing where the axes
/// do not show which one it is.
pub(crate) fn mark_kept_side(axes: &mut [Extent], grid: [usize; 2]) {
    let changed: Vec<usize> = (0..axes.len())
        .filter(|axis| axes[*axis].changes())
        .collect();
    let [changed] = changed[..] else { return };
    if !matches!(axes[changed], Extent::One { .. }) {
        return;
    }
    let is_grid = |first: usize| {
        let sides = axes.get(first..first + 2);
        sides.is_some_and(|sides| [0, 1].map(|side| sides[side].before()) == grid)
    };
    let before = changed.checked_sub(1).filter(|first| is_grid(*first));
    let kept = match (before, is_grid(changed)) {
        (Some(before), false) => before,
        (None, true) => changed + 1,
        _ => return,
    };
    axes[kept] = axes[kept].as_kept_side();
}

/// The sides of the grid that changes; `None` where what changes is no grid of two sides.
pub(crate) fn sides(axes: &[Extent], of: impl Fn(&Extent) -> usize) -> Option<[usize; 2]> {
    let mut changed = axes.iter().filter(|axis| axis.is_of_grid());
    let first = changed.next()?;
    match (changed.next(), changed.next()) {
        (Some(second), None) => Some([of(first), of(second)]),
        (Some(_), Some(_)) => None,
        (None, _) => {
            let mut grids = first.parts().iter().filter(|part| part.changes());
            match (grids.next()?.factors(), grids.next()) {
                ([height, width], None) => Some([of(height), of(width)]),
                _ => None,
            }
        }
    }
}

/// Numbers by row, `[row, number]`, and how many rows come before those of the grid.
pub(crate) fn by_row(
    numbers: &ArrayD<f64>,
    axes: &[Extent],
    length: fn(&Extent) -> usize,
) -> (Array2<f64>, usize) {
    let grid: Vec<&Extent> = axes.iter().filter(|axis| axis.is_of_grid()).collect();
    let rows: usize = grid.iter().map(|axis| length(axis)).product();
    let lead = match grid[..] {
        [one] => one
            .parts()
            .iter()
            .take_while(|part| !part.changes())
            .map(length)
            .sum(),
        _ => 0,
    };
    let moved = numbers.view().permuted_axes(order(axes));
    let moved = moved.as_standard_layout().into_owned();
    let width = moved.len() / rows.max(1);
    let moved = moved.into_shape_with_order((rows, width));
    (moved.expect("rows of one width"), lead)
}

/// The numbers whose rows after the change are these.
pub(crate) fn of_rows(rows: Array2<f64>, axes: &[Extent]) -> ArrayD<f64> {
    let order = order(axes);
    let dims: Vec<usize> = order.iter().map(|axis| axes[*axis].after()).collect();
    let moved = rows.into_shape_with_order(dims);
    let moved = moved.expect("as many numbers as the axes say");
    let mut back = vec![0; order.len()];
    for (place, axis) in order.into_iter().enumerate() {
        back[axis] = place;
    }
    let numbers = moved.permuted_axes(back);
    numbers.as_standard_layout().into_owned()
}

/// The axes of the grid, then all others.
fn order(axes: &[Extent]) -> Vec<usize> {
    let is_grid = |axis: &usize| axes[*axis].is_of_grid();
    let all = 0..axes.len();
    let grid = all.clone().filter(is_grid);
    grid.chain(all.filter(|axis| !is_grid(axis))).collect()
}

#[cfg(test)]
mod tests {
    use ndarray::IxDyn;

    use super::*;

    fn with_kept_side(mut axes: Vec<Extent>, grid: [usize; 2]) -> Vec<Extent> {
        mark_kept_side(&mut axes, grid);
        axes
    }

    #[test]
    fn a_side_that_may_be_on_either_axis_is_not_marked() {
        let one = Extent::One { old: 4, new: 6 };
        let same = Extent::same(4);
        let all = [
            vec![same.clone(), one.clone(), same.clone()],
            vec![Extent::same(5), one.clone(), Extent::same(5)],
            vec![one.clone(), one, same],
        ];
        for axes in all {
            assert_eq!(with_kept_side(axes.clone(), [4, 4]), axes);
        }
    }

    #[test]
    fn patches_on_any_axes_are_rows_and_again_what_they_were() {
        let one = |old, new| Extent::One { old, new };
        let grid = Extent::Product(vec![one(2, 3), one(2, 1)]);
        let tokens = Extent::concat([Extent::same(1), grid].iter());
        let cases = [
            (vec![Extent::same(5), tokens, Extent::same(2)], [2, 2], 1),
            (vec![one(2, 3), Extent::same(5), one(3, 1)], [2, 3], 0),
            (
                with_kept_side(vec![Extent::same(5), one(2, 4), Extent::same(3)], [2, 3]),
                [2, 3],
                0,
            ),
            (
                with_kept_side(vec![Extent::same(2), one(3, 4), Extent::same(5)], [2, 3]),
                [2, 3],
                0,
            ),
        ];
        for (axes, grid, lead) in cases {
            assert_eq!(sides(&axes, Extent::before), Some(grid));
            let dims: Vec<usize> = axes.iter().map(Extent::after).collect();
            let mut n = 0.0;
            let numbers = ArrayD::from_shape_fn(IxDyn(&dims), |_| {
                n += 1.0;
                n
            });
            let (rows, before) = by_row(&numbers, &axes, Extent::after);
            assert_eq!(before, lead);
            assert_eq!(of_rows(rows, &axes), numbers);
        }
    }
}
