//! Inputs that a caller gives for whole runs.

use posenc_ir::{DType, Dim, Graph, Tensor};
use rustc_hash::FxHashSet;

use super::VerifyError;
use super::feeds::{Padding, feeds, vocabulary};
use super::subject::Subject;
use crate::graph::ports::{Lengths, Port, Ports, Role};

/// The inputs of a run of a model: those of the `given` ones that it has, in its order and its types, or random
/// ones where none are given.
///
/// # Errors
/// Where one is missing, or has another rank, size or type.
pub(super) fn fed(
    (graph, ports): (&Graph, &Ports),
    (at, padding): (Lengths, Padding),
    given: &[(String, Tensor)],
) -> Result<Vec<(String, Tensor)>, VerifyError> {
    if given.is_empty() {
        return feeds(graph, ports, at, padding);
    }
    let each = ports.iter().map(|port| {
        let name = graph.name(port.value);
        let own = given.iter().find(|(other, _)| other == name);
        let Some((_, tensor)) = own else {
            return Err(wrong(
                name,
                "the given inputs have no numbers for it".to_owned(),
            ));
        };
        let fitted = fitted(port, name, tensor)?;
        check_numbers(graph, port, &fitted)?;
        Ok((name.to_owned(), fitted))
    });
    each.collect()
}

/// Refuses names that no model has.
///
/// # Errors
/// Where one of them is unknown.
pub(super) fn check_names<'a>(
    graphs: impl IntoIterator<Item = &'a Graph>,
    given: &[(String, Tensor)],
) -> Result<(), VerifyError> {
    let inputs = graphs.into_iter().flat_map(|graph| {
        let inputs = graph.scope(graph.main()).inputs().iter();
        inputs.map(|value| graph.name(*value))
    });
    let mut seen = FxHashSet::default();
    let inputs: Vec<&str> = inputs.filter(|name| seen.insert(*name)).collect();
    match given.iter().find(|(name, _)| !inputs.contains(&&**name)) {
        Some((name, _)) => {
            let why = format!("no model has this input; there are: {}", inputs.join(", "));
            Err(wrong(name, why))
        }
        None => Ok(()),
    }
}

/// How many sequences, tokens and earlier tokens inputs have.
pub(super) fn lengths(subject: &Subject<'_>, inputs: &[(String, Tensor)]) -> Lengths {
    let graph = subject.model.graph();
    let of = |role: Role, axis: &dyn Fn(&Port) -> Option<usize>| {
        let port = subject.ports().first(role)?;
        let name = graph.name(port.value);
        let (_, tensor) = inputs.iter().find(|(own, _)| own == name)?;
        tensor.dims().get(axis(port)?).copied()
    };
    let tokens = |port: &Port| match port.role {
        Role::Content => Some(usize::from(!port.turned)),
        _ => Some(port.token_axis()),
    };
    let roles = [Role::Tokens, Role::Positions, Role::Content];
    let first =
        |axis: &dyn Fn(&Port) -> Option<usize>| roles.iter().find_map(|role| of(*role, axis));
    Lengths {
        batch: first(&Port::batch_axis).unwrap_or(1),
        sequence: first(&tokens).unwrap_or(1),
        past: of(Role::Past, &|port| port.dims.len().checked_sub(2)).unwrap_or(0),
    }
}

/// Refuses inputs without numbers, but for an empty cache, and tokens that no table has.
fn check_numbers(graph: &Graph, port: &Port, tensor: &Tensor) -> Result<(), VerifyError> {
    let name = graph.name(port.value);
    if tensor.is_empty() && port.role != Role::Past {
        return Err(wrong(name, "the given array has no numbers".to_owned()));
    }
    let known = vocabulary(graph, port.value).filter(|_| port.role == Role::Tokens);
    let Some((known, ids)) = known.zip(tensor.to_f64s()) else {
        return Ok(());
    };
    match ids.iter().find(|id| **id >= known as f64) {
        Some(id) => {
            let why = format!("the given tokens contain {id}, and the model knows {known}");
            Err(wrong(name, why))
        }
        None => Ok(()),
    }
}

/// Numbers in the type of an input.
fn fitted(port: &Port, name: &str, tensor: &Tensor) -> Result<Tensor, VerifyError> {
    let declared = &port.dims;
    let fits = |(declared, given): (&Dim, &usize)| match declared {
        Dim::Known(size) => size == given,
        _ => true,
    };
    let is_shaped = declared.len() == tensor.dims().len();
    if !is_shaped || !declared.iter().zip(tensor.dims()).all(fits) {
        let why = format!(
            "the given numbers have the sizes {:?}, and the input is declared as {}",
            tensor.dims(),
            shape(declared)
        );
        return Err(wrong(name, why));
    }
    if tensor.dtype() == port.dtype {
        return Ok(tensor.clone());
    }
    let same = converted(tensor, port.dtype);
    same.ok_or_else(|| {
        let why = format!(
            "the given numbers are {}, which {} does not hold exactly",
            tensor.dtype(),
            port.dtype
        );
        wrong(name, why)
    })
}

/// The same numbers in another type; `None` where it does not hold them.
fn converted(tensor: &Tensor, dtype: DType) -> Option<Tensor> {
    let numbers = tensor.to_f64s()?;
    let whole = numbers.iter().all(|x| x.fract() == 0.0);
    if !dtype.is_float() && !whole {
        return None;
    }
    let made = Tensor::from_f64(dtype, tensor.dims(), &numbers);
    (made.to_f64s()? == numbers).then_some(made)
}

fn shape(dims: &[Dim]) -> String {
    let each = dims.iter().map(|dim| match dim {
        Dim::Known(size) => size.to_string(),
        Dim::Symbol(name) => name.to_string(),
        Dim::Unknown => "?".to_owned(),
    });
    format!("[{}]", each.collect::<Vec<_>>().join(", "))
}

fn wrong(name: &str, why: String) -> VerifyError {
    VerifyError::option(format!("input {name}"), why)
}
