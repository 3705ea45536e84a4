//! Numbers of a constant that go on by a rule: lines, slopes, masks by distance.

use ndarray::{ArrayD, IxDyn};

/// The most elements of an extended buffer: a mask of 8,192 tokens. A buffer that would be larger
/// is not changed and is reported as a limit.
const MAX_ELEMENTS: usize = 1 << 26;

/// Whether a buffer of these dimensions is not too large.
pub(crate) fn fits(dims: &[usize]) -> bool {
    let all = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    all.is_some_and(|all| all <= MAX_ELEMENTS)
}

/// Numbers along an axis that grow by a constant step, which may be another one in each row, with more of
/// them at the end, or at the front; `None` if they do not grow so, within a share of the largest, or if
/// the result would be too large.
pub(crate) fn extend_line(
    data: &ArrayD<f64>,
    axis: usize,
    wanted: usize,
    from_end: bool,
    share: f64,
) -> Option<ArrayD<f64>> {
    let count = data.shape()[axis];
    let last = count.checked_sub(1)?;
    let at = |index: &[usize], along: usize| {
        let mut index = index.to_vec();
        index[axis] = along;
        data[IxDyn(&index)]
    };
    let line = |index: &[usize], along: i64| {
        let step = match last {
            0 => 0.0,
            _ => (at(index, last) - at(index, 0)) / last as f64,
        };
        at(index, 0) + step * along as f64
    };
    let bound = share * largest(data);
    let is_line = data.indexed_iter().all(|(index, v)| {
        let index: &[usize] = ndarray::Dimension::slice(&index);
        (v - line(index, index[axis] as i64)).abs() <= bound
    });
    let mut dims = data.shape().to_vec();
    dims[axis] = wanted;
    let front = match from_end {
        true => wanted.checked_sub(count)?,
        false => 0,
    };
    (is_line && fits(&dims)).then(|| {
        ArrayD::from_shape_fn(dims, |index| {
            let index: &[usize] = ndarray::Dimension::slice(&index);
            match index[axis].checked_sub(front) {
                Some(along) if along < count => at(index, along),
                _ => line(index, index[axis] as i64 - front as i64),
            }
        })
    })
}

/// Numbers that grow by a constant step with the distance of a row and a column, to both sides, for more
/// of both; `None` if they do not, within a share of the largest.
pub(crate) fn extend_slopes(
    data: &ArrayD<f64>,
    [rows, columns]: [usize; 2],
    wanted: usize,
    share: f64,
) -> Option<ArrayD<f64>> {
    let length = data.shape()[rows];
    if data.shape()[columns] != length || length < 2 {
        return None;
    }
    let last = length as i64 - 1;
    let at = |index: &[usize], distance: i64| {
        let mut index = index.to_vec();
        index[rows] = usize::try_from(-distance).unwrap_or(0);
        index[columns] = usize::try_from(distance).unwrap_or(0);
        data[IxDyn(&index)]
    };
    let line = |index: &[usize], distance: i64| {
        let (here, end) = (at(index, 0), at(index, last * distance.signum()));
        here + (end - here) / last as f64 * distance.abs() as f64
    };
    let distance = |index: &[usize]| index[columns] as i64 - index[rows] as i64;
    let bound = share * largest(data);
    let is_slope = data.indexed_iter().all(|(index, v)| {
        let index: &[usize] = ndarray::Dimension::slice(&index);
        (v - line(index, distance(index))).abs() <= bound
    });
    let mut dims = data.shape().to_vec();
    (dims[rows], dims[columns]) = (wanted, wanted);
    (is_slope && fits(&dims)).then(|| {
        ArrayD::from_shape_fn(dims, |index| {
            let index: &[usize] = ndarray::Dimension::slice(&index);
            match index[rows] < length && index[columns] < length {
                true => data[IxDyn(index)],
                false => line(index, distance(index)),
            }
        })
    })
}

fn largest(data: &ArrayD<f64>) -> f64 {
    data.iter().fold(0.0, |most, v| most.max(v.abs()))
}

/// Extends a mask that depends only on the distance and has one number up to some distance and another
/// beyond: larger distances get the number of the largest one.
pub(crate) fn extend_square(
    data: &ArrayD<f64>,
    [rows, columns]: [usize; 2],
    wanted: usize,
) -> Option<ArrayD<f64>> {
    let length = data.shape()[rows];
    if data.shape()[columns] != length || data.len() != length * length {
        return None;
    }
    if length == 0 {
        return None;
    }
    let last = length as i64 - 1;
    let of = |distance: i64| {
        let distance = distance.clamp(-last, last);
        let mut index = vec![0; data.ndim()];
        index[rows] = usize::try_from(-distance).unwrap_or(0);
        index[columns] = usize::try_from(distance).unwrap_or(0);
        data[IxDyn(&index)]
    };
    let distance = |index: &[usize]| index[columns] as i64 - index[rows] as i64;
    let by_distance = data.indexed_iter().all(|(index, v)| {
        let index: &[usize] = ndarray::Dimension::slice(&index);
        *v == of(distance(index))
    });
    // Numbers that come again and again would not go on by the last one.
    let is_step = |sign: i64| {
        let changes = (1..=last).filter(|d| of(sign * d) != of(sign * (d - 1)));
        changes.count() < 2
    };
    let mut dims = data.shape().to_vec();
    (dims[rows], dims[columns]) = (wanted, wanted);
    (by_distance && is_step(1) && is_step(-1) && fits(&dims)).then(|| {
        ArrayD::from_shape_fn(dims, |index| {
            let index: &[usize] = ndarray::Dimension::slice(&index);
            of(distance(index))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dims: &[usize], f: impl Fn(&[usize]) -> f64) -> ArrayD<f64> {
        ArrayD::from_shape_fn(dims.to_vec(), |index| f(ndarray::Dimension::slice(&index)))
    }

    #[test]
    fn sequences_with_a_constant_step_are_extended() {
        for (start, step) in [(0.0, 1.0), (2.0, 1.0), (0.0, 0.0), (7.0, -1.0)] {
            let row = |n| of(&[1, n], |i| start + step * i[1] as f64);
            assert_eq!(extend_line(&row(6), 1, 9, false, 0.0), Some(row(9)));
        }
    }

    #[test]
    fn slopes_of_heads_are_extended() {
        let slopes = [0.3, 0.1];
        let line = |n: usize| {
            of(&[2, 1, n], |i| {
                slopes[i[0]] * (i[2] as f64 - (n - 1) as f64)
            })
        };
        let made = extend_line(&line(6), 2, 9, true, 1e-12).unwrap();
        let far = (&made - &line(9))
            .iter()
            .fold(0.0, |m: f64, v| m.max(v.abs()));
        assert!(far < 1e-12, "{made}");
        assert_eq!(extend_line(&line(6), 2, 5, true, 1e-12), None);
        let square = |n| of(&[2, n, n], |i| -slopes[i[0]] * i[1].abs_diff(i[2]) as f64);
        let made = extend_slopes(&square(6), [1, 2], 9, 1e-12).unwrap();
        let far = (&made - &square(9))
            .iter()
            .fold(0.0, |m: f64, v| m.max(v.abs()));
        assert!(far < 1e-12, "{made}");
        let bent = of(&[2, 6, 6], |i| (i[1].abs_diff(i[2]) as f64).sqrt());
        assert_eq!(extend_slopes(&bent, [1, 2], 9, 1e-6), None);
        let oblong = of(&[2, 6, 7], |_| 0.0);
        assert_eq!(extend_slopes(&oblong, [1, 2], 9, 1e-6), None);
    }

    #[test]
    fn buffers_that_would_be_too_large_are_not_extended() {
        let row = of(&[1, 6], |i| i[1] as f64);
        for wanted in [MAX_ELEMENTS + 1, 1_000_000_000_000, usize::MAX] {
            assert_eq!(extend_line(&row, 1, wanted, false, 0.0), None);
            let rows = of(&[2, 6], |i| i[1] as f64);
            assert_eq!(extend_line(&rows, 1, wanted, false, 0.0), None);
        }
        assert!(extend_line(&row, 1, 7, false, 0.0).is_some());
    }

    #[test]
    fn masks_by_distance_are_extended() {
        let causal = |i: &[usize]| f64::from(u8::from(i[3] <= i[2]));
        let window = |i: &[usize]| f64::from(u8::from(i[3] <= i[2] && i[2] - i[3] < 3));
        for mask in [causal, window] {
            let wide = |n| of(&[1, 1, n, n], mask);
            assert_eq!(extend_square(&wide(6), [2, 3], 11), Some(wide(11)));
        }
    }

    #[test]
    fn numbers_without_a_rule_are_not_extended() {
        let learned = of(&[6, 2], |i| (i[0] * i[0]) as f64);
        assert_eq!(extend_line(&learned, 0, 9, false, 0.0), None);
        let jump = of(&[1, 6], |i| if i[1] == 5 { 9.0 } else { i[1] as f64 });
        assert_eq!(extend_line(&jump, 1, 9, false, 0.0), None);
        let hole = of(&[6, 6], |i| {
            f64::from(u8::from(i[1] <= i[0] && i != [4, 2]))
        });
        assert_eq!(extend_square(&hole, [0, 1], 9), None);
        let dilated = of(&[6, 6], |i| {
            f64::from(u8::from(i[0].abs_diff(i[1]) % 3 == 0))
        });
        assert_eq!(extend_square(&dilated, [0, 1], 9), None);
        let prefix = of(&[6, 6], |i| f64::from(u8::from(i[1] <= i[0] || i[1] < 2)));
        assert_eq!(extend_square(&prefix, [0, 1], 9), None);
        let two = of(&[2, 6, 6], |i| i[0] as f64);
        assert_eq!(extend_square(&two, [1, 2], 9), None);
        let oblong = of(&[6, 7], |_| 1.0);
        assert_eq!(extend_square(&oblong, [0, 1], 9), None);
        let mask = of(&[6, 6], |i| f64::from(u8::from(i[1] <= i[0])));
        for wanted in [1 << 14, 200_000, usize::MAX] {
            assert_eq!(extend_square(&mask, [0, 1], wanted), None);
        }
        let empty = of(&[0, 0], |_| 0.0);
        assert_eq!(extend_square(&empty, [0, 1], 9), None);
        assert_eq!(extend_line(&empty, 1, 9, false, 0.0), None);
    }
}
