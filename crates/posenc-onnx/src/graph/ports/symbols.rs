//! What the symbols of declared shapes mean, by the roles of the inputs that have them.

use std::collections::BTreeMap;

use posenc_ir::{Dim, ValueId};

use super::role::is_by_sequence;
use super::{Port, Role};

/// What a symbol of a declared shape counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Batch,
    Sequence,
    Past,
    Total,
    Encoder,
}

/// What each symbol means. `fixed` are the axes that weights or windows fix, with their sizes.
pub(super) fn symbols(
    ports: &[Port],
    fixed: &BTreeMap<(ValueId, usize), usize>,
) -> BTreeMap<Box<str>, Axis> {
    let is_fixed = |port: &Port, axis: usize| fixed.contains_key(&(port.value, axis));
    let mut symbols = BTreeMap::new();
    let mut learn = |dim: Option<&Dim>, axis: Axis| {
        if let Some(Dim::Symbol(s)) = dim
            && !s.contains('+')
        {
            symbols.entry(s.clone()).or_insert(axis);
        }
    };
    let tokens = || ports.iter().filter(|p| p.role == Role::Tokens);
    // The input of another stack has a length of its own.
    let length = |port: &Port| port.dims.get(port.token_axis()).cloned();
    let sequences = || tokens().filter(|port| port.dims.len() > 1);
    let differs = |first: &Port| sequences().any(|port| length(port) != length(first));
    let encoder = sequences().next().filter(|first| differs(first));
    learn(encoder.and_then(length).as_ref(), Axis::Encoder);
    let mut ordered: Vec<&Port> = ports.iter().collect();
    // Tokens take precedence over positions, these over masks; without ids, embeddings come first.
    let has_tokens = tokens().any(|port| !is_by_sequence(ports, port));
    let is_single = |p: &Port| p.dims.len() < 2 && p.role == Role::Tokens;
    ordered.sort_by_key(|p| (is_single(p), has_tokens || p.role != Role::Content, p.role));
    for port in ordered {
        let rank = port.dims.len();
        match port.role {
            _ if port.turned => {
                let is_other = has_tokens && port.role == Role::Content;
                let axis = if is_other {
                    Axis::Encoder
                } else {
                    Axis::Sequence
                };
                learn(port.dims.first(), axis);
                learn(
                    port.batch_axis().and_then(|at| port.dims.get(at)),
                    Axis::Batch,
                );
            }
            Role::Tokens | Role::Positions | Role::TokenTypes => {
                learn(port.dims.last(), Axis::Sequence);
                if rank >= 2 {
                    learn(port.dims.get(rank - 2), Axis::Batch);
                }
            }
            Role::Padding => {
                if rank >= 2 {
                    learn(port.dims.first(), Axis::Batch);
                }
                let is_of =
                    |ids: &Port| follows(ports, port).is_some_and(|of| of.value == ids.value);
                let axis = match encoder.is_some_and(is_of) {
                    true => Axis::Encoder,
                    false => Axis::Total,
                };
                learn(port.dims.last(), axis);
            }
            Role::Past => {
                learn(port.dims.first(), Axis::Batch);
                for dim in port.dims.iter().skip(1) {
                    learn(Some(dim), Axis::Past);
                }
            }
            Role::Content if rank >= 2 => {
                learn(port.dims.first(), Axis::Batch);
                let axis = if has_tokens {
                    Axis::Encoder
                } else {
                    Axis::Sequence
                };
                let tokens = usize::from(rank == 3 && is_fixed(port, 1)) + 1;
                learn(port.dims.get(tokens), axis);
            }
            Role::Content | Role::Counts | Role::CacheFlag | Role::Table => {}
        }
    }
    symbols
}

/// The ids that are before a mask in the list of inputs, which it is about where no symbol says so and nothing is
/// cached.
fn follows<'a>(ports: &'a [Port], mask: &Port) -> Option<&'a Port> {
    if ports.iter().any(|port| port.role == Role::Past) {
        return None;
    }
    let before = ports.iter().take_while(|port| port.value != mask.value);
    before.filter(|port| port.role == Role::Tokens).last()
}
