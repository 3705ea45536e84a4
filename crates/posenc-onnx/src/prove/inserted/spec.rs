//! The encoding that a record describes, made by its family again.

use posenc_encodings::encoding::{Common, GivenTensors, SiteShape, same_params};
use posenc_encodings::family::{Entry, Family};
use posenc_encodings::param::Given;
use posenc_encodings::params::Params;
use posenc_ir::{DType, Tensor};
use serde_json::Value;
use std::sync::Arc;

use super::miss::Miss;
use super::numbers::Tensors;
use crate::detect::context::Context;
use crate::plan::numbers::Numbers;
use crate::plan::swap::spec::{BiasSpec, EncodingSpec, InputSpec, TermSpec};
use crate::record::swap::{GroupRecord, SwapRecord};
use crate::request::read_param;

/// The encoding of a group, at those of its sites that read.
pub(super) fn rebuilt(
    context: &Context<'_>,
    record: &SwapRecord,
    (group, sites): (&GroupRecord, &[usize]),
    tensors: &Tensors,
) -> Result<EncodingSpec, Miss> {
    let to = record.to;
    let site = sites.first().map(|site| context.site(*site));
    let (Some(family), Some(site)) = (to.family(), site) else {
        return Err(Miss::Unchecked(format!("{to} is no family")));
    };
    let shape = SiteShape {
        heads: site.heads,
        head_dim: site.head_dim,
        causal: site.mask.causal == Some(true),
    };
    let tensors = with_recorded(family, tensors, &group.params);
    let given = given(record, family, &group.params);
    let common = common(&group.params);
    let spec = spec(family, &shape, &given, &common, &tensors);
    let mut spec = spec.map_err(|why| Miss::Differs(site.name.clone(), why))?;
    let factor = group.params.get("factor").and_then(Value::as_f64);
    if let (EncodingSpec::ScoreBias(own), Some(factor)) = (&mut spec, factor) {
        let divided = own.bias.stretch(factor);
        let why = || Miss::Unchecked(format!("{to} is not divided by {factor}"));
        own.bias = divided.ok_or_else(why)?;
    }
    let (was, is) = (&group.params, spec.encoding().params());
    if !same_params(was, &is) {
        let [was, is] = [was, &is].map(|p| Value::from(p.clone()).to_string());
        let why = format!("{to} {was} was recorded, and its numbers make it {is}");
        return Err(Miss::Differs(site.name.clone(), why));
    }
    Ok(spec)
}

/// The tensors of the model, and those that the record gives as parameters.
fn with_recorded(family: &Family, tensors: &Tensors, params: &Params) -> Tensors {
    let mut all = tensors.clone();
    for learned in family.tensors {
        let list = params.get(learned.name).and_then(|v| v.as_array());
        let list: Option<Vec<f64>> = list.and_then(|l| l.iter().map(Value::as_f64).collect());
        if let Some(list) = list.filter(|_| !all.contains_key(learned.name)) {
            let tensor = Tensor::from_f64(DType::F64, &[list.len()], &list);
            all.insert(learned.name.to_owned(), Arc::new(tensor));
        }
    }
    all
}

/// The values of the family's parameters: those that were recorded, or else asked for.
fn given(record: &SwapRecord, family: &Family, params: &Params) -> Given {
    let mut given = Given::default();
    for param in family.params {
        let recorded = params.get(&param.key()).and_then(|v| read_param(param, v));
        let asked = || record.parameters.get(param.name).cloned();
        if let Some(value) = recorded.or_else(asked) {
            given.set(param, value);
        }
    }
    given
}

/// The values that families share.
fn common(params: &Params) -> Common {
    let count = |name: &str| {
        params
            .get(name)?
            .as_u64()
            .and_then(|n| usize::try_from(n).ok())
    };
    let theta = params.get("theta").or(params.get("base"));
    let layout = params.get("layout").cloned();
    Common {
        theta: theta.and_then(Value::as_f64),
        layout: layout.and_then(|word| serde_json::from_value(word).ok()),
        rotary_dim: count("rotary_dim"),
        max_length: count("max_positions"),
    }
}

/// What the family makes of them.
fn spec(
    family: &Family,
    shape: &SiteShape,
    given: &Given,
    common: &Common,
    tensors: &Tensors,
) -> Result<EncodingSpec, String> {
    let mut all = GivenTensors::default();
    for learned in family.tensors {
        if let Some(tensor) = tensors.get(learned.name) {
            all.set(learned, learned.name.to_owned(), tensor.clone());
        }
    }
    let numbers = |name: &str| {
        let tensor = tensors
            .get(name)
            .ok_or(format!("its {name} is not there"))?;
        Ok::<_, String>(Numbers::given((name.to_owned(), tensor.clone())))
    };
    let words = |e: posenc_encodings::encoding::PlanError| e.to_string();
    Ok(match &family.entry {
        Entry::ScoreBias(functions) => {
            let bias = (functions.plan)(shape, given, &all).map_err(words)?;
            let count = bias.tensors().len();
            let names = family.tensors.iter().take(count);
            let tensors = names.map(|l| numbers(l.name)).collect::<Result<_, _>>()?;
            EncodingSpec::ScoreBias(BiasSpec { bias, tensors })
        }
        Entry::ScoreTerm(functions) => {
            let term = (functions.plan)(shape, given, &all).map_err(words)?;
            let used = family.tensors.iter().zip(term.tensors());
            let tensors = used.map(|(l, dims)| dims.map(|_| numbers(l.name)).transpose());
            let tensors = tensors.collect::<Result<_, _>>()?;
            EncodingSpec::ScoreTerm(TermSpec { term, tensors })
        }
        Entry::InputTerm(functions) => {
            let term = (functions.plan)(common, &all).map_err(words)?;
            let tensors = family.tensors.iter().map(|l| numbers(l.name));
            let tensors = tensors.collect::<Result<_, _>>()?;
            EncodingSpec::InputTerm(InputSpec { term, tensors })
        }
        Entry::Rotation(_) | Entry::FoundOnly => return Err("it is not added to scores".into()),
    })
}
