//! Inputs of a run: checks, conversions and random tensors.

use posenc_ir::{DType, Tensor};

use crate::backend::{Dim, Port};
use crate::error::{Result, RuntimeError};

/// The feeds in the order of the ports.
///
/// # Errors
/// `Feed` names the first feed that is no input or is given twice, else the first port that has no
/// feed or whose feed has another type, another rank or another size in a fixed dimension.
pub fn check<'a>(ports: &[Port], feeds: &'a [(&str, Tensor)]) -> Result<Vec<&'a Tensor>> {
    for (i, (name, _)) in feeds.iter().enumerate() {
        if !ports.iter().any(|port| port.name == *name) {
            return Err(RuntimeError::feed(*name, "the model has no such input"));
        }
        if feeds[..i].iter().any(|(other, _)| other == name) {
            return Err(RuntimeError::feed(*name, "it is given twice"));
        }
    }
    ports
        .iter()
        .map(|port| {
            let feed = feeds.iter().find(|(name, _)| *name == port.name);
            let (_, tensor) =
                feed.ok_or_else(|| RuntimeError::feed(&port.name, "it is missing"))?;
            if let Some(dtype) = port.dtype
                && dtype != tensor.dtype()
            {
                let got = tensor.dtype();
                let why = format!("the model takes {dtype}, and {got} is given");
                return Err(RuntimeError::feed(&port.name, why));
            }
            check_dims(port, tensor)?;
            Ok(tensor)
        })
        .collect()
}

fn check_dims(port: &Port, tensor: &Tensor) -> Result<()> {
    let Some(dims) = &port.dims else {
        return Ok(());
    };
    let fits = dims.len() == tensor.dims().len()
        && (dims.iter().zip(tensor.dims()))
            .all(|(dim, size)| dim.size().is_none_or(|d| d == *size));
    if fits {
        return Ok(());
    }
    let want: Vec<String> = dims.iter().map(Dim::to_string).collect();
    let want = want.join(", ");
    let got = tensor.dims();
    let why = format!("the model takes the shape [{want}], and {got:?} is given");
    Err(RuntimeError::feed(&port.name, why))
}

/// `tensor` in the element type of `port`. Floats are rounded; other values must stay the same.
///
/// # Errors
/// `Feed` where a value does not fit the type, or there is no conversion between the two.
pub fn fit(port: &Port, tensor: &Tensor) -> Result<Tensor> {
    let from = tensor.dtype();
    let to = match port.dtype {
        Some(to) if to != from => to,
        _ => return Ok(tensor.clone()),
    };
    let refused = || RuntimeError::feed(&port.name, format!("{from} cannot be converted to {to}"));
    if !is_plain(to) {
        return Err(refused());
    }
    let values = tensor.to_f64s().ok_or_else(refused)?;
    let integers = tensor.to_i64s();
    let converted = match (to, &integers) {
        (DType::I64, Some(integers)) => Tensor::from_i64(tensor.dims(), integers),
        _ => Tensor::from_f64(to, tensor.dims(), &values),
    };
    if from.is_float() && to.is_float() {
        return Ok(converted);
    }
    for (i, value) in values.iter().enumerate() {
        let kept = match &integers {
            // Values of uint64 above the largest int64 read as negative.
            Some(integers) if from == DType::U64 && integers[i] < 0 => false,
            Some(integers) if !to.is_float() => converted.get_i64(i) == Some(integers[i]),
            Some(integers) => {
                converted.get_f64(i).map(|c| c as i128) == Some(i128::from(integers[i]))
            }
            None => converted.get_f64(i) == Some(*value),
        };
        if !kept {
            let why = format!("element {i} is {value}, which {to} cannot represent");
            return Err(RuntimeError::feed(&port.name, why));
        }
    }
    Ok(converted)
}

/// Whether [`Tensor::from_f64`] makes tensors of this type.
fn is_plain(dtype: DType) -> bool {
    dtype == DType::Bool
        || dtype.epsilon().is_some()
        || (dtype.is_int() && dtype.bits().is_some_and(|bits| bits >= 8))
}

/// The most elements of a generated feed.
pub const MOST_ELEMENTS: usize = 1 << 27;

/// Deterministic random tensors: the same seed gives the same tensors on every machine.
///
/// The generator is splitmix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014, figure 16).
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of `low..high`, evenly spread.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.bits() >> 11) as f64 / (1u64 << 53) as f64;
        low + (high - low) * unit
    }

    /// A tensor with elements of `low..high`; integers and bools are rounded down. `None` for
    /// strings, complex numbers, types under 8 bits, floats under 16, and more than [`MOST_ELEMENTS`] elements.
    pub fn tensor(&mut self, dtype: DType, dims: &[usize], low: f64, high: f64) -> Option<Tensor> {
        if !is_plain(dtype) {
            return None;
        }
        let count = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
        if count > MOST_ELEMENTS {
            return None;
        }
        let whole = !dtype.is_float();
        let values: Vec<f64> = (0..count)
            .map(|_| {
                let value = self.uniform(low, high);
                if whole { value.floor() } else { value }
            })
            .collect();
        Some(Tensor::from_f64(dtype, dims, &values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, dtype: DType, dims: &[Dim]) -> Port {
        Port {
            name: name.into(),
            dtype: Some(dtype),
            dims: Some(dims.to_vec()),
        }
    }

    #[test]
    fn feeds_are_sorted_in_the_order_of_the_ports() {
        let ports = [
            port("a", DType::F32, &[Dim::Unknown]),
            port("b", DType::I64, &[]),
        ];
        let feeds = [
            ("b", Tensor::from_i64(&[], &[7])),
            ("a", Tensor::from_f32(&[2], &[1.0, 2.0])),
        ];
        let sorted = check(&ports, &feeds).unwrap();
        assert_eq!(sorted, [&feeds[1].1, &feeds[0].1]);
    }

    #[test]
    fn a_feed_that_does_not_fit_is_named() {
        let ports = [
            port("a", DType::F32, &[Dim::Symbol("n".into()), Dim::Fixed(2)]),
            port("b", DType::I64, &[]),
        ];
        let a = Tensor::from_f32(&[1, 2], &[1.0, 2.0]);
        let b = Tensor::from_i64(&[], &[7]);
        let cases = [
            ("missing", vec![("a", a.clone())], "b"),
            (
                "unknown",
                vec![("a", a.clone()), ("b", b.clone()), ("c", b.clone())],
                "c",
            ),
            (
                "twice",
                vec![("a", a.clone()), ("b", b.clone()), ("a", a.clone())],
                "a",
            ),
            ("type", vec![("a", b.clone()), ("b", b.clone())], "a"),
            (
                "rank",
                vec![("a", a.clone()), ("b", Tensor::from_i64(&[1], &[7]))],
                "b",
            ),
            (
                "size",
                vec![("a", Tensor::from_f32(&[2, 1], &[1.0, 2.0])), ("b", b)],
                "a",
            ),
        ];
        for (case, feeds, want) in cases {
            match check(&ports, &feeds) {
                Err(RuntimeError::Feed { name, .. }) => assert_eq!(name, want, "{case}"),
                other => panic!("{case}: {other:?}"),
            }
        }
    }

    /// The first element after a conversion, or the reason of its refusal.
    fn converted(tensor: &Tensor, to: DType) -> Result<f64, String> {
        match fit(&port("x", to, &[Dim::Fixed(1)]), tensor) {
            Ok(tensor) => Ok(tensor.get_f64(0).unwrap()),
            Err(RuntimeError::Feed { name, why }) if name == "x" => Err(why),
            Err(error) => panic!("{error:?}"),
        }
    }

    #[test]
    fn conversions_keep_the_value() {
        let f64s = |value| Tensor::from_f64(DType::F64, &[1], &[value]);
        let cases = [
            (
                Tensor::from_f64(DType::I32, &[1], &[-3.0]),
                DType::I64,
                -3.0,
            ),
            (Tensor::from_i64(&[1], &[1]), DType::Bool, 1.0),
            (Tensor::from_bool(&[1], &[true]), DType::F32, 1.0),
            // Floats are rounded.
            (f64s(2049.0), DType::F16, 2048.0),
        ];
        for (tensor, to, want) in cases {
            assert_eq!(
                converted(&tensor, to),
                Ok(want),
                "{} to {to}",
                tensor.dtype()
            );
        }
    }

    #[test]
    fn conversions_that_change_the_value_are_refused() {
        let integer = |value| Tensor::from_i64(&[1], &[value]);
        let half = Tensor::from_f32(&[1], &[0.5]);
        let largest = Tensor::new(DType::U64, vec![1], vec![0xff; 8].into()).unwrap();
        let cases = [
            (integer(256), DType::U8, "element 0 is 256"),
            (integer(-1), DType::U64, "element 0 is -1"),
            (integer(2), DType::Bool, "element 0 is 2"),
            (half, DType::I64, "element 0 is 0.5"),
            (integer(1), DType::I4, "cannot be converted to int4"),
            (largest, DType::I64, "element 0 is "),
            (
                integer((1 << 53) + 1),
                DType::F32,
                "element 0 is 9007199254740992",
            ),
        ];
        for (tensor, to, want) in cases {
            let why = converted(&tensor, to).unwrap_err();
            assert!(why.contains(want), "{} to {to}: {why}", tensor.dtype());
        }
    }

    #[test]
    fn random_tensors_are_those_of_the_published_generator() {
        let mut random = Random::new(1234567);
        // The reference values that the generator's authors' C code prints for this seed.
        let want = [
            6457827717110365317,
            3203168211198807973,
            9817491932198370423,
        ];
        assert_eq!([random.bits(), random.bits(), random.bits()], want);
    }

    #[test]
    fn random_tensors_stay_in_their_range() {
        let mut random = Random::new(1);
        let t = random.tensor(DType::I64, &[1000], 0.0, 3.0).unwrap();
        let values = t.to_i64s().unwrap();
        assert!([0, 1, 2].iter().all(|v| values.contains(v)));
        assert!(values.iter().all(|v| (0..3).contains(v)));
        let t = random.tensor(DType::F32, &[1000], -1.0, 1.0).unwrap();
        let values = t.to_f64s().unwrap();
        assert!(values.iter().all(|v| (-1.0..=1.0).contains(v)));
        assert!(values.iter().sum::<f64>().abs() < 100.0);
        assert!(random.tensor(DType::String, &[1], 0.0, 1.0).is_none());
        for dims in [[usize::MAX, 2], [1 << 31, 4], [1 << 62, 1]] {
            assert!(random.tensor(DType::F32, &dims, 0.0, 1.0).is_none());
        }
    }
}
