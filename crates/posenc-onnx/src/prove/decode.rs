//! Prefill against decode: the last row of n tokens at once equals that of one token after n − 1
//! tokens in the cache.

use posenc_ir::Tensor;
use posenc_runtime::{Optimization, Session};

use super::VerifyError;
use super::caches::present;
use super::feeds::{Padding, feeds};
use super::noise::noise;
use super::row::Judge;
use super::run::{Outputs, RuntimeTarget, run};
use super::subject::Subject;
use crate::graph::ports::{Lengths, Role};
use crate::report::Run;

/// Compares prefill with decode at one length of two or more; a row for every output that has one
/// row per token. Empty for a model without a cache.
///
/// # Errors
/// When the output that contains a cache after a run cannot be identified, or the runtime fails.
pub(crate) fn decode(
    subject: &Subject<'_>,
    length: usize,
    target: &RuntimeTarget<'_>,
) -> Result<Vec<Run>, VerifyError> {
    let ports = subject.ports();
    if !ports.has_past() || ports.fixed_sequence().is_some() || length < 2 {
        return Ok(vec![]);
    }
    let optimization = Optimization::On;
    let Some(mut session) = subject.load(target, optimization)? else {
        return Ok(vec![]);
    };
    let session = session.as_mut();
    let name = target.setting(optimization);
    let whole = ports.fit(Lengths {
        batch: 2,
        sequence: length,
        past: 0,
    });
    let noise = noise(subject, session, whole);
    let at_once = step(subject, session, whole, &[], &name)?;
    let shorter = Lengths {
        sequence: length - 1,
        ..whole
    };
    let before = step(subject, session, shorter, &[], &name)?;
    let cache = cache(subject, &before)?;
    let last = Lengths {
        sequence: 1,
        past: length - 1,
        ..whole
    };
    let stepped = step(subject, session, last, &cache, &name)?;
    let judge = Judge {
        tolerance: subject.tolerance,
        noise: Some(&noise),
        vocabulary: subject.vocabulary,
    };
    let compared = at_once.iter().filter_map(|(name, all)| {
        let (_, one) = stepped.iter().find(|(n, _)| n == name)?;
        let rows = [one, all].map(|tensor| tensor.dims().get(1).copied());
        let want = (rows == [Some(1), Some(length)]).then(|| last_row(all))??;
        let row = judge.row(name, one, &want);
        let output = format!("{name} (prefill = decode)");
        Some(target.row(optimization, (whole, Padding::None), output, row))
    });
    Ok(compared.collect())
}

/// One run with the given caches.
fn step(
    subject: &Subject<'_>,
    session: &mut dyn Session,
    at: Lengths,
    cache: &[(String, Tensor)],
    target: &str,
) -> Result<Outputs, VerifyError> {
    let mut fed = feeds(subject.model.graph(), subject.ports(), at, Padding::None)?;
    for (name, tensor) in cache {
        if let Some(feed) = fed.iter_mut().find(|(n, _)| n == name) {
            feed.1 = tensor.clone();
        }
    }
    let site = format!("decode after {}, {target}", at.past);
    run(session, &fed, &site)
}

/// The caches to feed after a run with these outputs.
fn cache(subject: &Subject<'_>, outputs: &Outputs) -> Result<Vec<(String, Tensor)>, VerifyError> {
    let graph = subject.model.graph();
    let past = subject.ports().iter().filter(|p| p.role == Role::Past);
    let kept = past.map(|port| {
        let name = graph.name(port.value);
        let tensor = present(graph, port.value).and_then(|v| {
            let found = outputs.iter().find(|(name, _)| name == graph.name(v));
            found.map(|(_, tensor)| tensor.clone())
        });
        let tensor = tensor.ok_or_else(|| {
            let why = "cannot identify the output that contains this cache after a run";
            VerifyError::unsupported(name, why)
        })?;
        Ok((name.to_owned(), tensor))
    });
    kept.collect()
}

/// The last row along axis 1, which keeps length 1.
fn last_row(tensor: &Tensor) -> Option<Tensor> {
    let mut dims = tensor.dims().to_vec();
    let below: usize = dims[2..].iter().product();
    let length = dims[1];
    let values = tensor.to_f64s()?;
    let rows = values.chunks(length * below);
    let last: Vec<f64> = rows
        .flat_map(|r| r[(length - 1) * below..].to_vec())
        .collect();
    dims[1] = 1;
    let is_float = tensor.dtype().is_float();
    is_float.then(|| Tensor::from_f64(tensor.dtype(), &dims, &last))
}
