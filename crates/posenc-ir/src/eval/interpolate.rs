//! Resizing between elements: linear and cubic.
//!
//! Source: the definition of `Resize` in ONNX; the cubic kernel is that of Keys,
//! 10.1109/TASSP.1981.1163711, section II.

use ndarray::{ArrayD, Axis};

use super::array::Array;
use super::call::Call;
use super::{EvalError, Value};

/// The kernel of a mode.
#[derive(Clone, Copy)]
struct Kernel {
    /// The coefficient of the cubic one; `None` for the linear one.
    cubic: Option<f64>,
    /// Whether elements beyond the ends count as none, rather than as the last ones.
    is_within: bool,
    /// Whether the kernel gets wider where elements become fewer.
    antialias: bool,
}

/// Each element a weighted sum of those around its place.
pub(super) fn between(c: &Call<'_>, dims: Vec<usize>, scales: &[f64]) -> Result<Value, EvalError> {
    let x = c.need(0)?;
    let shaped = Value::shaped(x.dtype, Some(dims.clone()));
    let mode = c
        .string("coordinate_transformation_mode")?
        .unwrap_or("half_pixel");
    let coefficient = c.node.float("cubic_coeff_a").ok().flatten();
    let is_cubic = c.string("mode")? == Some("cubic");
    let flag = |name: &str| matches!(c.node.int(name), Ok(Some(n)) if n != 0);
    let kernel = Kernel {
        cubic: is_cubic.then(|| coefficient.map_or(-0.75, f64::from)),
        is_within: flag("exclude_outside"),
        antialias: flag("antialias"),
    };
    let data = c.budget.allows(&dims).then(|| x.array(c.budget)).flatten();
    let (Some(Array::Float(data)), Some(old)) = (data, x.dims.as_deref()) else {
        return Ok(shaped);
    };
    let mut data: ArrayD<f64> = data.into_owned();
    for (axis, scale) in scales.iter().enumerate() {
        let sides = [old[axis], dims[axis]];
        if sides[0] == sides[1] && *scale == 1.0 {
            continue;
        }
        if sides[0] == 0 || scale.is_nan() || *scale <= 0.0 {
            return Ok(shaped);
        }
        let row = |at: usize| {
            let place = coordinate(mode, at, *scale, sides)?;
            Some(kernel.weights(place, *scale, sides[0]))
        };
        let rows: Option<Vec<Vec<(usize, f64)>>> = (0..sides[1]).map(row).collect();
        let Some(rows) = rows else {
            return Ok(shaped);
        };
        let mut made_dims = data.shape().to_vec();
        made_dims[axis] = sides[1];
        let mut made = ArrayD::zeros(made_dims);
        for (mut to, weights) in made.axis_iter_mut(Axis(axis)).zip(rows) {
            for (from, weight) in weights {
                to.scaled_add(weight, &data.index_axis(Axis(axis), from));
            }
        }
        data = made;
    }
    Ok(Value::of(x.dtype, Array::Float(data.into_shared())))
}

/// Where an element of the result lies along an axis of `old` elements; `None` in a mode that needs more
/// than that.
pub(super) fn coordinate(mode: &str, at: usize, scale: f64, [old, new]: [usize; 2]) -> Option<f64> {
    let at = at as f64;
    Some(match mode {
        "asymmetric" => at / scale,
        "pytorch_half_pixel" if new == 1 => 0.0,
        "half_pixel" | "pytorch_half_pixel" => (at + 0.5) / scale - 0.5,
        "align_corners" if new == 1 => 0.0,
        "align_corners" => at * old.saturating_sub(1) as f64 / (new - 1) as f64,
        _ => return None,
    })
}

impl Kernel {
    /// Elements with their weights, which sum to 1.
    fn weights(self, place: f64, scale: f64, length: usize) -> Vec<(usize, f64)> {
        let width = if self.antialias {
            (1.0 / scale).max(1.0)
        } else {
            1.0
        };
        let reach = width * if self.cubic.is_some() { 2.0 } else { 1.0 };
        let last = length as i64 - 1;
        let around = (place - reach).floor() as i64..=(place + reach).ceil() as i64;
        let own = around.filter(|at| !self.is_within || (0..=last).contains(at));
        let own: Vec<(usize, f64)> = own
            .map(|at| {
                (
                    at.clamp(0, last) as usize,
                    self.of((at as f64 - place) / width),
                )
            })
            .filter(|(_, weight)| *weight != 0.0)
            .collect();
        let all: f64 = own.iter().map(|(_, weight)| weight).sum();
        own.into_iter()
            .map(|(at, weight)| (at, weight / all))
            .collect()
    }

    fn of(self, x: f64) -> f64 {
        let x = x.abs();
        match self.cubic {
            None => (1.0 - x).max(0.0),
            Some(a) if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            Some(a) if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
            Some(_) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::eval::{Budget, Value, apply};
    use crate::model::Model;

    const ROWS: [f64; 4] = [1.0, -2.0, 4.0, 0.5];

    fn resized(attributes: &str, length: usize) -> Vec<f64> {
        let text = format!(
            "<ir_version: 8, opset_import: [\"\" : 18]> g (float[1, 4] x, int64[2] n) => (float[1, m] y) \
             {{ y = Resize <{attributes}> (x, , , n) }}"
        );
        let model = Model::parse(&text).unwrap();
        let (_, node) = model.graph().nodes().next().unwrap();
        let x = ndarray::ArrayD::from_shape_vec(vec![1, 4], ROWS.to_vec()).unwrap();
        let n = ndarray::ArrayD::from_shape_vec(vec![2], vec![1, length as i64]).unwrap();
        let (x, n) = (Value::float(x), Value::int(n));
        let budget = Budget { elements: 1000 };
        let made = apply(node, 18, &[Some(&x), None, None, Some(&n)], &budget).unwrap();
        made[0].to_f64().unwrap().iter().copied().collect()
    }

    /// From PyTorch 2.15 in float64, as the tests of tables that are resized.
    #[test]
    fn elements_are_interpolated_as_in_pytorch() {
        let cubic = "mode = \"cubic\", cubic_coeff_a = -0.75";
        let smooth = "mode = \"cubic\", cubic_coeff_a = -0.5, antialias = 1, exclude_outside = 1";
        let aligned = "mode = \"cubic\", coordinate_transformation_mode = \"align_corners\"";
        let cases: [(&str, &[f64]); 6] = [
            (
                cubic,
                &[
                    1.2976494, -0.3912172, -2.1055029, 1.046875, 4.076895, 2.0615889, 0.1527423,
                ],
            ),
            (cubic, &[0.4652778, 1.046875, 1.1064815]),
            (aligned, &[1.0, -1.0625, -2.0, 1.046875, 4.0, 2.8125, 0.5]),
            (
                "mode = \"linear\"",
                &[1.0, -0.0714286, -1.7857143, 1.0, 3.75, 1.75, 0.5],
            ),
            (
                smooth,
                &[
                    1.2379808, -0.1352452, -2.0485366, 1.03125, 4.0259044, 1.7862718, 0.2223558,
                ],
            ),
            (smooth, &[-0.0846682, 1.0176006, 1.708238]),
        ];
        for (attributes, want) in cases {
            let got = resized(attributes, want.len());
            let near = got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6);
            assert!(near && got.len() == want.len(), "{attributes}: {got:?}");
        }
    }

    #[test]
    fn a_mode_that_needs_more_is_not_computed() {
        let text = "<ir_version: 8, opset_import: [\"\" : 18]> g (float[1, 4] x) => (float[1, 8] y) \
                    <float[2] s = {1.0, 2.0}> \
                    { y = Resize <mode = \"linear\", coordinate_transformation_mode = \"half_pixel_symmetric\"> (x, , s) }";
        let model = Model::parse(text).unwrap();
        let (_, node) = model.graph().nodes().next().unwrap();
        let x = Value::float(ndarray::ArrayD::zeros(vec![1, 4]));
        let s = Value::float(ndarray::ArrayD::from_shape_vec(vec![2], vec![1.0, 2.0]).unwrap());
        let budget = Budget { elements: 1000 };
        let made = apply(node, 18, &[Some(&x), None, Some(&s)], &budget).unwrap();
        assert_eq!(made[0].dims, Some(vec![1, 8]));
        assert!(made[0].data.is_none());
    }
}
