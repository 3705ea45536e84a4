//! Inputs of models, as NumPy saves them.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use half::f16;
use npyz::{DType as Stored, Deserialize, NpyFile, Order, TypeChar};
use posenc_ir::{DType, Tensor};
use zip::ZipArchive;

use crate::exit::Failure;

/// The arrays of an `.npz` file, by name.
///
/// # Errors
/// Where the file cannot be read, or an array holds something other than numbers.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<(String, Tensor)>> {
    let broken = |why: String| Failure::usage(format!("this is no .npz file: {why}"));
    let file = File::open(path).map_err(|why| Failure::usage(why.to_string()))?;
    let archive = ZipArchive::new(BufReader::new(file));
    let mut archive = archive.map_err(|why| broken(why.to_string()))?;
    let mut arrays = vec![];
    for at in 0..archive.len() {
        let entry = archive
            .by_index(at)
            .map_err(|why| broken(why.to_string()))?;
        let Some(name) = entry.name().strip_suffix(".npy").map(str::to_owned) else {
            continue;
        };
        let wrong = |why: String| Failure::usage(format!("array {name}: {why}"));
        let array = NpyFile::new(entry).map_err(|why| wrong(why.to_string()))?;
        let tensor = tensor(array).map_err(wrong)?;
        arrays.push((name, tensor));
    }
    match arrays.is_empty() {
        true => Err(Failure::usage("there are no arrays in it").into()),
        false => Ok(arrays),
    }
}

fn tensor(array: NpyFile<impl Read>) -> Result<Tensor, String> {
    let dtype = array.dtype();
    let Stored::Plain(text) = &dtype else {
        return Err("it is a record, and an input is an array of numbers".to_owned());
    };
    let (kind, bytes) = (text.type_char(), text.num_bytes().unwrap_or(0));
    match (kind, bytes) {
        (TypeChar::Float, 2) => of(array, DType::F16, |x: f16| x.to_le_bytes()),
        (TypeChar::Float, 4) => of(array, DType::F32, f32::to_le_bytes),
        (TypeChar::Float, 8) => of(array, DType::F64, f64::to_le_bytes),
        (TypeChar::Int, 1) => of(array, DType::I8, i8::to_le_bytes),
        (TypeChar::Int, 2) => of(array, DType::I16, i16::to_le_bytes),
        (TypeChar::Int, 4) => of(array, DType::I32, i32::to_le_bytes),
        (TypeChar::Int, 8) => of(array, DType::I64, i64::to_le_bytes),
        (TypeChar::Uint, 1) => of(array, DType::U8, u8::to_le_bytes),
        (TypeChar::Uint, 2) => of(array, DType::U16, u16::to_le_bytes),
        (TypeChar::Uint, 4) => of(array, DType::U32, u32::to_le_bytes),
        (TypeChar::Uint, 8) => of(array, DType::U64, u64::to_le_bytes),
        (TypeChar::Bool, 1) => of(array, DType::Bool, |x: bool| [u8::from(x)]),
        _ => Err(format!("its type {text} is none of numbers")),
    }
}

fn of<T: Deserialize, const N: usize>(
    array: NpyFile<impl Read>,
    dtype: DType,
    bytes: fn(T) -> [u8; N],
) -> Result<Tensor, String> {
    let dims: Option<Vec<usize>> = array.shape().iter().map(|n| (*n).try_into().ok()).collect();
    let dims = dims.ok_or("it is too large")?;
    let is_turned = array.order() == Order::Fortran && dims.len() > 1;
    let elements: Vec<T> = array.into_vec().map_err(|why| why.to_string())?;
    let elements: Vec<[u8; N]> = elements.into_iter().map(bytes).collect();
    let count = dims.iter().try_fold(1usize, |n, size| n.checked_mul(*size));
    if count != Some(elements.len()) {
        return Err("it has another number of elements than its shape".to_owned());
    }
    let data: Vec<u8> = match is_turned {
        false => elements.concat(),
        true => turned(&elements, &dims),
    };
    Tensor::new(dtype, dims, data.into()).ok_or_else(|| "its shape does not fit".to_owned())
}

/// Elements whose first axis is the fastest, with the last one as the fastest.
fn turned<const N: usize>(elements: &[[u8; N]], dims: &[usize]) -> Vec<u8> {
    let mut data = Vec::with_capacity(elements.len() * N);
    let mut index = vec![0; dims.len()];
    for _ in 0..elements.len() {
        let place = index
            .iter()
            .zip(dims)
            .rev()
            .fold(0, |all, (at, size)| all * size + at);
        data.extend_from_slice(&elements[place]);
        for (at, size) in index.iter_mut().zip(dims).rev() {
            *at += 1;
            if *at < *size {
                break;
            }
            *at = 0;
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_axis_becomes_the_fastest() {
        let elements = [0u8, 3, 1, 4, 2, 5].map(|n| [n]);
        assert_eq!(turned(&elements, &[2, 3]), [0, 1, 2, 3, 4, 5]);
        let elements: Vec<[u8; 1]> = (0..24).map(|n| [n]).collect();
        let all = turned(&elements, &[2, 3, 4]);
        assert_eq!(all[..5], [0, 6, 12, 18, 2]);
    }
}
