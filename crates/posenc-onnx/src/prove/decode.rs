//! Prefill against decode: the last row of n tokens at once is that of one token after n − 1 in
//! the cache.

use posenc_ir::{Graph, Tensor, ValueId};
use posenc_runtime::Optimization;

use super::VerifyError;
use super::compare::compare;
use super::feeds::{Padding, feeds};
use super::run::{Outputs, Target, run, words};
use super::sweep::{Subject, row};
use crate::graph::ports::{Lengths, Role};
use crate::report::Run;

/// Compares prefill with decode at one length of two or more; a row for every output that has one
/// row a token. Nothing where the model has no cache.
///
/// # Errors
/// Where the cache that a run leaves cannot be told, or the runtime fails.
pub(crate) fn decode(
    subject: &Subject<'_>,
    length: usize,
    target: &Target<'_>,
) -> Result<Vec<Run>, VerifyError> {
    if !subject.ports.has_past() || subject.ports.fixed_sequence().is_some() || length < 2 {
        return Ok(vec![]);
    }
    let graph = subject.model.graph();
    let optimization = Optimization::On;
    let Some(mut session) = subject.load(target, optimization)? else {
        return Ok(vec![]);
    };
    let name = target.name(optimization);
    let whole = subject.ports.fit(Lengths {
        batch: 2,
        sequence: length,
        past: 0,
    });
    let mut go = |at: Lengths, cache: &[(String, Tensor)]| -> Result<Outputs, VerifyError> {
        let mut fed = feeds(graph, &subject.ports, at, Padding::None)?;
        for (name, tensor) in cache {
            if let Some(feed) = fed.iter_mut().find(|(n, _)| n == name) {
                feed.1 = tensor.clone();
            }
        }
        let site = format!("decode after {}, {name}", at.past);
        run(session.as_mut(), &fed, &site)
    };
    let at_once = go(whole, &[])?;
    let before = go(
        Lengths {
            sequence: length - 1,
            ..whole
        },
        &[],
    )?;
    let mut cache = vec![];
    for port in subject.ports.iter().filter(|p| p.role == Role::Past) {
        let past = graph.name(port.value);
        let kept = present(graph, port.value).and_then(|v| {
            let found = before.iter().find(|(name, _)| name == graph.name(v));
            found.map(|(_, tensor)| tensor.clone())
        });
        let kept = kept.ok_or_else(|| {
            let why = "no output can be told to hold this cache after a run";
            VerifyError::unsupported(past, why)
        })?;
        cache.push((past.to_owned(), kept));
    }
    let step = Lengths {
        sequence: 1,
        past: length - 1,
        ..whole
    };
    let stepped = go(step, &cache)?;
    let mut runs = vec![];
    for (name, all) in &at_once {
        let one = stepped.iter().find(|(n, _)| n == name).map(|(_, t)| t);
        let Some(one) = one.filter(|t| t.dims().get(1) == Some(&1)) else {
            continue;
        };
        if all.dims().get(1) != Some(&length) {
            continue;
        }
        let Some(want) = last_row(all) else { continue };
        runs.push(Run {
            runtime: target.backend.name().to_owned(),
            provider: target.provider.to_string(),
            optimization: words(optimization).to_owned(),
            length,
            batch: whole.batch,
            output: format!("{name} (prefill = decode)"),
            ..row(compare(one, &want, subject.tolerance))
        });
    }
    Ok(runs)
}

/// The last of axis 1, which stays with length 1.
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
    let plain = tensor.dtype().is_float();
    plain.then(|| Tensor::from_f64(tensor.dtype(), &dims, &last))
}

/// The output of the model that holds the keys or values after a run: what the earlier ones are
/// joined into.
fn present(graph: &Graph, past: ValueId) -> Option<ValueId> {
    let outputs = graph.scope(graph.main()).outputs();
    let mut stack = vec![past];
    let mut seen = std::collections::BTreeSet::new();
    while let Some(value) = stack.pop() {
        if outputs.contains(&value) {
            return Some(value);
        }
        if !seen.insert(value) {
            continue;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            let next = match (node.op(), at.slot()) {
                ("Concat" | "Identity" | "Cast" | "Transpose" | "Reshape", _) => node.output(0),
                ("GroupQueryAttention", 3) | ("Attention", 4) => node.output(1),
                ("GroupQueryAttention", 4) | ("Attention", 5) => node.output(2),
                _ => None,
            };
            stack.extend(next);
        }
    }
    None
}
