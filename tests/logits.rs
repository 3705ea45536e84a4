//! Runs of language models, and the distance between logits.

use std::collections::BTreeMap;
use std::path::Path;

use posenc_ir::{DType, Tensor};
use posenc_runtime::{Backend, ModelSource, Options, Port, Session};

/// The largest accepted error of logits, relative to the largest one.
pub(crate) const TOLERANCE: f64 = 5e-5;

pub(crate) fn load(backend: &dyn Backend, model: &Path) -> Box<dyn Session> {
    try_load(backend, model).unwrap_or_else(|e| panic!("{e}"))
}

pub(crate) fn try_load(backend: &dyn Backend, model: &Path) -> Result<Box<dyn Session>, String> {
    let loaded = backend.load(ModelSource::File(model), &Options::default());
    loaded.map_err(|e| format!("{}: {e}", model.display()))
}

/// The first output of a run; cache inputs are fed empty, position ids count from 0. What has no ids is
/// fed as it is.
pub(crate) fn logits(
    session: &mut dyn Session,
    inputs: &BTreeMap<String, Tensor>,
) -> Result<Tensor, String> {
    let Some(ids) = inputs.get("input_ids") else {
        let feeds: Vec<_> = inputs.clone().into_iter().collect();
        return Ok(run_all(session, &feeds)?.swap_remove(0).1);
    };
    let [batch, length] = ids.dims()[..] else {
        panic!("ids have two axes");
    };
    let mut feeds = vec![];
    for port in session.inputs() {
        let tensor = match inputs.get(&port.name) {
            Some(tensor) => tensor.clone(),
            None if port.name == "position_ids" => counting(batch, 0, length),
            None if port.name == "token_type_ids" => {
                Tensor::from_i64(&[batch, length], &vec![0; batch * length])
            }
            None => empty_cache(port, batch),
        };
        feeds.push((port.name.clone(), tensor));
    }
    Ok(run_all(session, &feeds)?.swap_remove(0).1)
}

/// The logits of one sequence that is fed in pieces of these lengths, with the cache of the previous
/// pieces.
pub(crate) fn in_pieces(
    session: &mut dyn Session,
    ids: &[i64],
    pieces: impl IntoIterator<Item = usize>,
) -> Result<Tensor, String> {
    let mut cache: BTreeMap<String, Tensor> = BTreeMap::new();
    let (mut start, mut bytes, mut width) = (0, vec![], 0);
    for piece in pieces {
        let end = start + piece;
        let mut feeds = vec![];
        for port in session.inputs() {
            let tensor = match &port.name[..] {
                "input_ids" => Tensor::from_i64(&[1, piece], &ids[start..end]),
                "attention_mask" => Tensor::from_i64(&[1, end], &vec![1; end]),
                "position_ids" => counting(1, start, piece),
                name if start > 0 => cache.remove(name).ok_or(format!("no {name}"))?,
                _ => empty_cache(port, 1),
            };
            feeds.push((port.name.clone(), tensor));
        }
        for (name, tensor) in run_all(session, &feeds)? {
            if let Some(rest) = name.strip_prefix("present") {
                cache.insert(format!("past_key_values{rest}"), tensor);
            } else {
                width = *tensor.dims().last().expect("logits have axes");
                bytes.extend_from_slice(tensor.bytes());
            }
        }
        start = end;
    }
    let all = Tensor::new(DType::F32, vec![1, start, width], bytes.into());
    all.ok_or_else(|| "the pieces do not make up logits".into())
}

pub(crate) fn run_all(
    session: &mut dyn Session,
    feeds: &[(String, Tensor)],
) -> Result<Vec<(String, Tensor)>, String> {
    let feeds: Vec<(&str, Tensor)> = feeds.iter().map(|(n, t)| (&n[..], t.clone())).collect();
    session.run(&feeds, &[]).map_err(|e| e.to_string())
}

/// An empty cache.
pub(crate) fn empty_cache(port: &Port, batch: usize) -> Tensor {
    let dims = port.dims.as_ref().expect("caches have a shape");
    let [heads, width] = [1, 3].map(|i| dims[i].size().expect("of fixed heads"));
    Tensor::from_f32(&[batch, heads, 0, width], &[])
}

fn counting(batch: usize, start: usize, length: usize) -> Tensor {
    let [start, end] = [start, start + length].map(|n| i64::try_from(n).expect("a length fits"));
    let values: Vec<i64> = (0..batch).flat_map(|_| start..end).collect();
    Tensor::from_i64(&[batch, length], &values)
}

/// The largest difference, relative to the largest wanted number or 1.
///
/// # Errors
/// Where the shapes differ or a number is not finite, on either side.
pub(crate) fn distance(got: &Tensor, want: &Tensor) -> Result<f64, String> {
    if got.dims() != want.dims() {
        return Err(format!("shape {:?}, not {:?}", got.dims(), want.dims()));
    }
    let [got, want] = [got, want].map(|t| t.to_f64s().expect("logits are numbers"));
    let scale = want.iter().fold(1f64, |m, v| m.max(v.abs()));
    let mut largest = 0f64;
    for (got, want) in got.iter().zip(want) {
        if !got.is_finite() || !want.is_finite() {
            return Err(format!("{got} where {want} is wanted"));
        }
        largest = largest.max((got - want).abs());
    }
    Ok(largest / scale)
}

#[test]
fn distances_are_relative_and_need_finite_numbers_of_one_shape() {
    let tensor = |values: [f32; 2]| Tensor::from_f32(&[2], &values);
    let want = tensor([1.0, -4.0]);
    assert_eq!(distance(&want, &want), Ok(0.0));
    assert_eq!(distance(&tensor([1.0, 4.0]), &want), Ok(2.0));
    assert_eq!(distance(&tensor([-4.0, 1.0]), &want), Ok(1.25));
    // Small logits are not divided by their size.
    assert_eq!(
        distance(&tensor([0.25, 0.0]), &tensor([0.0, 0.0])),
        Ok(0.25)
    );
    for (bad, want) in [
        (tensor([f32::NAN, -4.0]), want.clone()),
        (tensor([f32::INFINITY, -4.0]), want.clone()),
        (want.clone(), tensor([1.0, f32::NAN])),
    ] {
        let why = distance(&bad, &want).unwrap_err();
        assert!(why.contains("is wanted"), "{why}");
    }
    let why = distance(&Tensor::from_f32(&[1, 2], &[1.0, -4.0]), &want).unwrap_err();
    assert!(why.contains("shape [1, 2], not [2]"), "{why}");
}
