//! Values as `[slot, token, feature]`: heads and sequences in row-major order are the slots.

use ndarray::{Array3, ArrayD, IxDyn};

use super::Lane;

/// How a value's axes become slots, tokens and features.
struct Axes {
    /// The dimensions with heads on an axis of their own.
    apart: Vec<usize>,
    /// Those axes: first the ones of the slots, then tokens, then features.
    order: Vec<usize>,
    /// Slots, tokens and features.
    count: (usize, usize, usize),
}

impl Lane {
    fn axes(&self, dims: &[usize]) -> Option<Axes> {
        let mut feature = self.feature?;
        let mut sequence = self.sequence;
        let (tokens, all) = (*dims.get(sequence)?, *dims.get(feature)?);
        let mut apart = dims.to_vec();
        let width = self.group.unwrap_or(all);
        if self.group.is_some() {
            let heads = all.checked_div(width).filter(|n| n * width == all)?;
            apart.splice(feature..=feature, [heads, width]);
            sequence += usize::from(sequence > feature);
            feature += 1;
        }
        let rest = (0..apart.len()).filter(|a| *a != sequence && *a != feature);
        let order: Vec<usize> = rest.chain([sequence, feature]).collect();
        let slots = order[..order.len() - 2].iter().map(|a| apart[*a]).product();
        (sequence != feature).then_some(Axes {
            apart,
            order,
            count: (slots, tokens, width),
        })
    }

    /// A value by slot, token and feature; `None` where the features are not known.
    pub(crate) fn split(&self, value: ArrayD<f64>) -> Option<Array3<f64>> {
        let axes = self.axes(value.shape())?;
        let apart = standard(value)
            .into_shape_with_order(IxDyn(&axes.apart))
            .ok()?;
        let moved = standard(apart.permuted_axes(IxDyn(&axes.order)));
        moved.into_shape_with_order(axes.count).ok()
    }

    /// The value of dimensions `dims` that [`Lane::split`] takes apart like this.
    pub(crate) fn join(&self, values: Array3<f64>, dims: &[usize]) -> Option<ArrayD<f64>> {
        let axes = self.axes(dims)?;
        let moved: Vec<usize> = axes.order.iter().map(|a| axes.apart[*a]).collect();
        let values = values.into_shape_with_order(IxDyn(&moved)).ok()?;
        let mut back = vec![0; moved.len()];
        for (at, axis) in axes.order.iter().enumerate() {
            back[*axis] = at;
        }
        let apart = standard(values.permuted_axes(IxDyn(&back)));
        apart.into_shape_with_order(IxDyn(dims)).ok()
    }
}

/// The elements in row-major order; copied only where they are not.
fn standard(array: ArrayD<f64>) -> ArrayD<f64> {
    if array.is_standard_layout() {
        array
    } else {
        let mut ordered = ArrayD::zeros(array.raw_dim());
        ordered.assign(&array);
        ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(sequence: usize, feature: Option<usize>, group: Option<usize>) -> Lane {
        Lane {
            sequence,
            feature,
            group,
            offset: 0,
        }
    }

    #[test]
    fn elements_are_located_by_head_token_and_feature() {
        // Dimensions, lane, an element, and where it belongs.
        type Case = (&'static [usize], Lane, &'static [usize], [usize; 3]);
        let cases: [Case; 5] = [
            (
                &[2, 3, 5, 4],
                lane(2, Some(3), None),
                &[1, 2, 4, 3],
                [5, 4, 3],
            ),
            (
                &[2, 5, 3, 4],
                lane(1, Some(3), None),
                &[1, 4, 0, 2],
                [3, 4, 2],
            ),
            (
                &[2, 5, 12],
                lane(1, Some(2), Some(4)),
                &[1, 2, 9],
                [5, 2, 1],
            ),
            (
                &[2, 12, 5],
                lane(2, Some(1), Some(4)),
                &[0, 6, 3],
                [1, 3, 2],
            ),
            (
                &[5, 2, 12],
                lane(0, Some(2), Some(6)),
                &[4, 1, 7],
                [3, 4, 1],
            ),
        ];
        for (dims, lane, from, to) in cases {
            let len = dims.iter().product::<usize>();
            let counted = (0..len).map(|i| i as f64).collect();
            let value = ArrayD::from_shape_vec(IxDyn(dims), counted).unwrap();
            let split = lane.split(value.clone()).unwrap();
            assert_eq!(split[to], value[IxDyn(from)], "{dims:?} {lane:?}");
            let mut sorted: Vec<f64> = split.iter().copied().collect();
            sorted.sort_by(f64::total_cmp);
            assert!(value.iter().eq(&sorted), "{dims:?}: every element once");
            assert_eq!(lane.join(split, dims).unwrap(), value, "{dims:?}");
        }
    }

    #[test]
    fn what_has_no_such_axes_is_not_split() {
        let cases = [
            ("features unknown", lane(1, None, None)),
            ("no such sequence axis", lane(3, Some(2), None)),
            ("no such feature axis", lane(1, Some(4), None)),
            ("heads of another width", lane(1, Some(2), Some(5))),
            ("heads of no width", lane(1, Some(2), Some(0))),
            ("tokens on the axis of the features", lane(2, Some(2), None)),
        ];
        for (name, lane) in cases {
            let value = ArrayD::zeros(IxDyn(&[2, 7, 12]));
            assert!(lane.split(value).is_none(), "{name}");
            assert!(
                lane.join(Array3::zeros((2, 7, 12)), &[2, 7, 12]).is_none(),
                "{name}"
            );
        }
    }
}
