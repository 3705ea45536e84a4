//! Learned numbers of a swapped model, by the names that its record gives.

use std::collections::BTreeMap;
use std::sync::Arc;

use posenc_ir::{DType, Model, Tensor, ValueId};

use super::miss::Miss;
use crate::plan::numbers::{Init, Numbers};
use crate::record::swap::{BranchRecord, LearnedRecord};

/// The learned tensors of a group, by their names in the family.
pub(super) type Tensors = BTreeMap<String, Arc<Tensor>>;

/// A model whose learned numbers are not zero.
pub(super) struct Numbered {
    /// The model, where it has random numbers for zeros.
    pub(super) model: Option<Model>,
    /// The tensors of each group.
    pub(super) tensors: Vec<Tensors>,
}

impl Numbered {
    /// Reads the constants of a record; those that are zero become random.
    pub(super) fn of(model: &Model, record: &BranchRecord) -> Result<Self, Miss> {
        let graph = model.graph();
        let mut known: BTreeMap<&str, ValueId> = BTreeMap::new();
        for value in graph.values().filter(|v| graph.stored(*v).is_some()) {
            known.insert(graph.name(value), value);
        }
        let mut random: BTreeMap<ValueId, Vec<f64>> = BTreeMap::new();
        let mut tensors = vec![];
        for group in &record.groups {
            let mut own = Tensors::new();
            for learned in &group.tensors {
                let value = known.get(&*learned.constant).copied();
                let numbers = value.and_then(|v| graph.constant(v)?.to_f64s());
                let (Some(value), Some(mut numbers)) = (value, numbers) else {
                    let why = format!("it has no constant {}", learned.constant);
                    return Err(Miss::Unchecked(why));
                };
                if numbers.iter().all(|n| *n == 0.0) {
                    let seed = random.len() as u64;
                    let of = random
                        .entry(value)
                        .or_insert_with(|| drawn(numbers.len(), seed));
                    numbers.clone_from(of);
                }
                let tensor = tensor(learned, &numbers).ok_or_else(|| {
                    let why = "has other dimensions than the record says";
                    Miss::Differs(learned.constant.clone(), why.into())
                })?;
                own.entry(learned.name.clone())
                    .or_insert_with(|| Arc::new(tensor));
            }
            tensors.push(own);
        }
        let model = if random.is_empty() {
            None
        } else {
            Some(revalued(model, &random)?)
        };
        Ok(Self { model, tensors })
    }
}

/// Random numbers in place of zeros.
fn drawn(count: usize, seed: u64) -> Vec<f64> {
    let numbers = Numbers::Start(Init::Normal { std: 0.5, seed });
    numbers.values(&[count]).unwrap_or_default()
}

/// The model with these numbers in place of zeros.
fn revalued(model: &Model, random: &BTreeMap<ValueId, Vec<f64>>) -> Result<Model, Miss> {
    let refuse = |why: posenc_ir::Error| Miss::Unchecked(why.to_string());
    let graph = model.graph();
    let mut out = graph.emitter(graph.main(), "posenc");
    for (value, numbers) in random {
        let Some(old) = graph.constant(*value) else {
            continue;
        };
        let tensor = Tensor::from_f64(old.dtype(), old.dims(), numbers);
        let replaced = out.replace_constant(*value, graph.uses(*value), tensor);
        replaced.map_err(refuse)?;
    }
    let next = model.clone().with_patch(out.finish()).map_err(refuse)?;
    Ok(next.0)
}

/// The tensor of a family that a constant holds.
fn tensor(learned: &LearnedRecord, constant: &[f64]) -> Option<Tensor> {
    let numbers = learned.numbers(constant)?;
    Some(Tensor::from_f64(DType::F64, &learned.dims, &numbers))
}
