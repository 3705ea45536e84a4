//! Numbers for each token, or for each pair, that follow a rule: counts, and masks by distance.

use ndarray::{ArrayD, IxDyn};

/// Counts are lower.
const MOST: f64 = 1e9;

/// Numbers that follow from places along one axis or two.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    /// A number, and for each of some axes a step × the place along it.
    Line {
        /// The number of the first place.
        start: i64,
        /// The axes, in rising order, and what each further place along them adds.
        steps: Vec<(usize, i64)>,
    },
    /// One number for each distance from a row to a column: near ones have the same.
    Band {
        /// The axes of rows and columns, whatever the others are.
        axes: [usize; 2],
        /// The number of distance 0.
        near: f64,
        /// The least distance with that number, and the number of those before it.
        before: Option<(i64, f64)>,
        /// The largest distance with that number, and the number of those behind it.
        behind: Option<(i64, f64)>,
    },
}

impl Rule {
    /// The rule that numbers follow along an axis; `None` where there is none that is known.
    pub(super) fn along(numbers: &ArrayD<f64>, axis: usize) -> Option<Self> {
        let count = *numbers.shape().get(axis)?;
        let others = (0..numbers.ndim()).filter(|other| *other != axis);
        let same = others.filter(|other| numbers.shape()[*other] == count);
        let bands = same.map(|other| Self::band(numbers, [axis.min(other), axis.max(other)]));
        let mut all = std::iter::once(Self::line(numbers, axis))
            .chain(bands)
            .flatten();
        all.find(|own| count > 1 && own.numbers(numbers.shape()) == *numbers)
    }

    fn line(numbers: &ArrayD<f64>, axis: usize) -> Option<Self> {
        let whole = |v: f64| (v.fract() == 0.0 && v.abs() < MOST).then_some(v as i64);
        let at = |along: Option<usize>| {
            let index = (0..numbers.ndim()).map(|axis| usize::from(Some(axis) == along));
            let index: Vec<usize> = index.collect();
            numbers.get(IxDyn(&index)).copied().and_then(whole)
        };
        let start = at(None)?;
        let count = numbers.shape()[axis];
        let mut steps = vec![];
        for other in (0..numbers.ndim()).filter(|other| numbers.shape()[*other] == count) {
            let step = at(Some(other))?.checked_sub(start)?;
            if other == axis || step != 0 {
                steps.push((other, step));
            }
        }
        Some(Self::Line { start, steps })
    }

    fn band(numbers: &ArrayD<f64>, axes: [usize; 2]) -> Option<Self> {
        let count = numbers.shape()[axes[0]];
        let last = i64::try_from(count).ok()?.checked_sub(1)?;
        if numbers.is_empty() {
            return None;
        }
        let of = |distance: i64| {
            let mut index = vec![0; numbers.ndim()];
            index[axes[0]] = usize::try_from(-distance).unwrap_or(0);
            index[axes[1]] = usize::try_from(distance).unwrap_or(0);
            numbers[IxDyn(&index)]
        };
        let near = of(0);
        let reach = |sign: i64| (1..=last).find(|d| of(sign * d).to_bits() != near.to_bits());
        Some(Self::Band {
            axes,
            near,
            before: reach(-1).map(|d| (1 - d, of(-d))),
            behind: reach(1).map(|d| (d - 1, of(d))),
        })
    }

    /// The distance at which a mask ends that may follow from this length; `None` where there is none.
    pub(super) fn end_of(&self, length: usize) -> Option<i64> {
        let Self::Band { before, behind, .. } = self else {
            return None;
        };
        let ends = before.iter().chain(behind).map(|(end, _)| *end);
        ends.into_iter()
            .find(|end| is_of_length(end.abs() as f64, length))
    }

    /// The axes along which the numbers follow.
    pub(crate) fn axes(&self) -> Vec<usize> {
        match self {
            Self::Line { steps, .. } => steps.iter().map(|(axis, _)| *axis).collect(),
            Self::Band { axes, .. } => axes.to_vec(),
        }
    }

    /// The numbers of these dimensions.
    pub(crate) fn numbers(&self, dims: &[usize]) -> ArrayD<f64> {
        ArrayD::from_shape_fn(dims.to_vec(), |index| {
            let index: &[usize] = ndarray::Dimension::slice(&index);
            match self {
                Self::Line { start, steps } => {
                    let steps = steps.iter().map(|(axis, step)| step * index[*axis] as i64);
                    (start + steps.sum::<i64>()) as f64
                }
                Self::Band {
                    axes: [rows, columns],
                    near,
                    before,
                    behind,
                } => {
                    let distance = index[*columns] as i64 - index[*rows] as i64;
                    match (before, behind) {
                        (Some((least, far)), _) if distance < *least => *far,
                        (_, Some((most, far))) if distance > *most => *far,
                        _ => *near,
                    }
                }
            }
        })
    }
}

/// Whether a number that positions are compared with may follow from how many there are: it is about as large,
/// half of it, or twice.
pub(super) fn is_of_length(number: f64, length: usize) -> bool {
    let length = length as f64;
    let is_near = length - 8.0 <= number && number <= length + 2.0 && number >= length / 2.0;
    let others = [
        (length / 2.0).floor(),
        (length / 2.0).ceil(),
        length / 2.0 - 1.0,
        2.0 * length - 1.0,
        2.0 * length,
    ];
    number > 2.0 && (is_near || others.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dims: &[usize], f: impl Fn(&[usize]) -> f64) -> ArrayD<f64> {
        ArrayD::from_shape_fn(dims.to_vec(), |index| f(ndarray::Dimension::slice(&index)))
    }

    #[test]
    fn counts_are_read_along_their_axis() {
        let row = of(&[1, 6], |i| i[1] as f64);
        let line = |start, steps: &[(usize, i64)]| {
            let steps = steps.to_vec();
            Some(Rule::Line { start, steps })
        };
        assert_eq!(Rule::along(&row, 1), line(0, &[(1, 1)]));
        let odd = of(&[6, 2], |i| 3.0 + 2.0 * i[0] as f64);
        assert_eq!(Rule::along(&odd, 0), line(3, &[(0, 2)]));
        let shorter = line(3, &[(0, 2)]).unwrap().numbers(&[4, 2]);
        assert_eq!(shorter, of(&[4, 2], |i| 3.0 + 2.0 * i[0] as f64));
        let distance = of(&[6, 6], |i| i[1] as f64 - i[0] as f64);
        assert_eq!(Rule::along(&distance, 0), line(0, &[(0, -1), (1, 1)]));
        let same = of(&[6, 6], |_| 7.0);
        assert_eq!(Rule::along(&same, 1), line(7, &[(1, 0)]));
    }

    #[test]
    fn masks_by_distance_are_read_with_their_window() {
        let hides = f64::from(f32::MIN);
        let causal = |i: &[usize]| if i[3] > i[2] { hides } else { 0.0 };
        let window = |i: &[usize]| if i[2] > i[3] + 2 { hides } else { causal(i) };
        for (f, before) in [
            (&causal as &dyn Fn(&[usize]) -> f64, None),
            (&window, Some((-2, hides))),
        ] {
            let rule = Rule::along(&of(&[1, 1, 6, 6], f), 2).unwrap();
            let want = Rule::Band {
                axes: [2, 3],
                near: 0.0,
                before,
                behind: Some((0, hides)),
            };
            assert_eq!(rule, want);
            assert_eq!(rule.numbers(&[1, 1, 4, 4]), of(&[1, 1, 4, 4], f));
        }
    }

    #[test]
    fn ends_that_may_follow_from_the_length_are_told() {
        for number in [30.0, 54.0, 59.0, 60.0, 62.0, 119.0, 120.0] {
            assert!(is_of_length(number, 60), "{number}");
        }
        for number in [0.0, 1.0, 2.0, 16.0, 40.0, 63.0, 128.0] {
            assert!(!is_of_length(number, 60), "{number}");
        }
        let ends = |window: usize| {
            let mask = of(&[12, 12], |i| f64::from(u8::from(i[0] < i[1] + window)));
            Rule::along(&mask, 0).and_then(|rule| rule.end_of(12))
        };
        assert_eq!([ends(4), ends(11)], [None, Some(-10)]);
    }

    #[test]
    fn other_numbers_follow_no_rule() {
        for f in [
            |i: &[usize]| (i[1] * i[1]) as f64,
            |i: &[usize]| i[1] as f64 / 2.0,
            |i: &[usize]| (i[0] * i[1]) as f64,
            |i: &[usize]| f64::from(u8::from(i[0] % 2 == i[1] % 2)),
            |i: &[usize]| f64::from(u8::from(i[0] == 3)),
        ] {
            assert_eq!(Rule::along(&of(&[6, 6], f), 1), None);
        }
        let heads = of(&[2, 6, 6], |i| {
            f64::from(u8::from(i[1] >= i[2])) * i[0] as f64
        });
        assert_eq!(Rule::along(&heads, 1), None);
    }
}
