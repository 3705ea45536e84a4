//! Operators of one operand, element by element.

use super::Value;
use super::array::Array;
use super::call::{Call, Outputs};
use super::cast::rounded_to_f32;
use super::data::Shared;
use crate::dtype::DType;

/// Applies a function of floats.
fn float(c: &Call<'_>, f: impl Fn(f64) -> f64) -> Outputs {
    c.map(c.dtype(0), |a| map(a.floats()?, f))
}

/// Applies a function of floats or one of integers.
fn number(c: &Call<'_>, f: impl Fn(f64) -> f64, g: impl Fn(i64) -> i64) -> Outputs {
    c.map(c.dtype(0), |a| match a {
        Array::Float(a) => map(a, f),
        Array::Int(a) => Some(Array::Int(a.mapv(g).into_shared())),
        Array::Bool(_) => None,
    })
}

fn map(a: Shared<f64>, f: impl Fn(f64) -> f64) -> Option<Array> {
    Some(Array::Float(a.mapv(f).into_shared()))
}

/// Applies a test of floats.
fn test(c: &Call<'_>, f: impl Fn(f64) -> bool) -> Outputs {
    c.map(Some(DType::Bool), |a| {
        Some(Array::Bool(a.floats()?.mapv(f).into_shared()))
    })
}

macro_rules! floats {
    ($($name:ident = $f:expr;)*) => {
        $(pub(super) fn $name(c: &Call<'_>) -> Outputs {
            float(c, $f)
        })*
    };
}

floats! {
    sqrt = f64::sqrt;
    reciprocal = f64::recip;
    exp = f64::exp;
    log = f64::ln;
    sin = f64::sin;
    cos = f64::cos;
    tan = f64::tan;
    sinh = f64::sinh;
    cosh = f64::cosh;
    tanh = f64::tanh;
    asin = f64::asin;
    acos = f64::acos;
    atan = f64::atan;
    asinh = f64::asinh;
    acosh = f64::acosh;
    atanh = f64::atanh;
    erf = error_function;
    sigmoid = logistic;
    softplus = |x| x.max(0.0) + (-x.abs()).exp().ln_1p();
    softsign = |x| x / (1.0 + x.abs());
    hard_swish = |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0);
    mish = |x| x * (x.max(0.0) + (-x.abs()).exp().ln_1p()).tanh();
}

/// Applies a step function of floats.
fn stepped(c: &Call<'_>, f: impl Fn(f64) -> f64) -> Outputs {
    let dtype = c.dtype(0);
    float(c, |x| f(rounded_to_f32(x, dtype)))
}

pub(super) fn floor(c: &Call<'_>) -> Outputs {
    stepped(c, f64::floor)
}

pub(super) fn ceil(c: &Call<'_>) -> Outputs {
    stepped(c, f64::ceil)
}

pub(super) fn round(c: &Call<'_>) -> Outputs {
    stepped(c, f64::round_ties_even)
}

pub(super) fn abs(c: &Call<'_>) -> Outputs {
    number(c, f64::abs, i64::wrapping_abs)
}

pub(super) fn neg(c: &Call<'_>) -> Outputs {
    number(c, |x| -x, i64::wrapping_neg)
}

pub(super) fn sign(c: &Call<'_>) -> Outputs {
    let of = |x: f64| {
        if x == 0.0 || x.is_nan() {
            x
        } else {
            x.signum()
        }
    };
    number(c, of, i64::signum)
}

pub(super) fn relu(c: &Call<'_>) -> Outputs {
    let positive = |x: f64| if x.is_nan() { x } else { x.max(0.0) };
    number(c, positive, |x| x.max(0))
}

pub(super) fn leaky_relu(c: &Call<'_>) -> Outputs {
    let alpha = c.float("alpha")?.unwrap_or(0.01);
    float(c, |x| if x < 0.0 { alpha * x } else { x })
}

pub(super) fn elu(c: &Call<'_>) -> Outputs {
    let alpha = c.float("alpha")?.unwrap_or(1.0);
    float(c, |x| if x < 0.0 { alpha * x.exp_m1() } else { x })
}

pub(super) fn hard_sigmoid(c: &Call<'_>) -> Outputs {
    let alpha = c.float("alpha")?.unwrap_or(0.2);
    let beta = c.float("beta")?.unwrap_or(0.5);
    float(c, |x| (alpha * x + beta).clamp(0.0, 1.0))
}

/// x · sigmoid(αx); the fused operator has another default of α.
pub(super) fn swish(c: &Call<'_>) -> Outputs {
    let alpha = c.float("alpha")?.unwrap_or(1.0);
    float(c, |x| x * logistic(alpha * x))
}

pub(super) fn quick_gelu(c: &Call<'_>) -> Outputs {
    let alpha = c.float("alpha")?.unwrap_or(1.702);
    float(c, |x| x * logistic(alpha * x))
}

pub(super) fn gelu(c: &Call<'_>) -> Outputs {
    match c.string("approximate")? {
        Some("tanh") => float(c, gelu_tanh),
        _ => float(c, gelu_erf),
    }
}

/// With an optional bias as input 1: dimensions only.
pub(super) fn fast_gelu(c: &Call<'_>) -> Outputs {
    match c.at(1) {
        None => float(c, gelu_tanh),
        Some(_) => c.map(c.dtype(0), |_| None),
    }
}

pub(super) fn is_nan(c: &Call<'_>) -> Outputs {
    test(c, f64::is_nan)
}

pub(super) fn is_inf(c: &Call<'_>) -> Outputs {
    let negative = c.int("detect_negative")?.unwrap_or(1) != 0;
    let positive = c.int("detect_positive")?.unwrap_or(1) != 0;
    test(c, |x| {
        x == f64::INFINITY && positive || x == f64::NEG_INFINITY && negative
    })
}

pub(super) fn not(c: &Call<'_>) -> Outputs {
    c.map(Some(DType::Bool), |a| {
        Some(Array::Bool(a.bools()?.mapv(|x| !x).into_shared()))
    })
}

pub(super) fn bitwise_not(c: &Call<'_>) -> Outputs {
    c.map(c.dtype(0), |a| {
        Some(Array::Int(a.ints()?.mapv(|x| !x).into_shared()))
    })
}

/// Input 0, unchanged.
pub(super) fn identity(c: &Call<'_>) -> Outputs {
    Ok(vec![c.need(0)?.clone()])
}

/// Input 0, unchanged, and a mask that keeps everything; unknown in training mode.
pub(super) fn dropout(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?.clone();
    let training = c.at(2).is_some_and(|t| t.scalar_bool() != Some(false));
    let mask = Value::shaped(Some(DType::Bool), x.dims.clone());
    Ok(vec![if training { x.without_data() } else { x }, mask])
}

/// The dimensions and type of input 0; the content is unknown.
pub(super) fn like(c: &Call<'_>) -> Outputs {
    c.map(c.dtype(0), |_| None)
}

fn logistic(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        let e = x.exp();
        e / (1.0 + e)
    }
}

/// `x · Φ(x)`, Φ being the normal distribution (Hendrycks and Gimpel, arXiv:1606.08415).
pub fn gelu_erf(x: f64) -> f64 {
    0.5 * x * (1.0 + error_function(x * std::f64::consts::FRAC_1_SQRT_2))
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

/// erf(x) = 2/√π · exp(−x²) · Σ 2ⁿ x²ⁿ⁺¹ / (1·3·…·(2n+1)): every term has the sign of x, so the
/// sum loses nothing to cancellation. Beyond 6 the result is ±1 in f64.
fn error_function(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > f64::EPSILON * 0.1 * sum.abs() {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}
