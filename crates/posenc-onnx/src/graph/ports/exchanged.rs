//! Inputs in which some tokens are others, to see what follows the tokens.

use ndarray::ArrayD;
use posenc_ir::eval::{Trace, Value};
use posenc_ir::{DType, Graph, ValueId};
use rustc_hash::FxHashMap;

use super::{Port, Ports, Role};
use crate::graph::dataflow::fed_by;

/// The tokens at an end of each row that are exchanged.
const ENDS: usize = 2;

/// By how many places they are moved.
const MOVED: usize = 3;

/// The fewest tokens of a row whose ends can be exchanged and moved.
const FEWEST: usize = ENDS + MOVED;

/// The most other tokens to try at one input.
const MOST: usize = 16;

/// The most numbers of a value that ids are compared with.
const MOST_NUMBERS: usize = 8;

/// Inputs of a run.
pub(crate) type Seeds = FxHashMap<ValueId, Value>;

/// One input with tokens exchanged; all others are as in the trial run.
#[derive(Clone, Debug)]
pub(crate) struct Exchanged {
    /// With tokens at one end of each row exchanged: positions that skip them keep the distances
    /// of all others.
    pub(crate) ends: Seeds,
    /// The same tokens, moved round the row; `None` for an input with other axes of tokens.
    pub(crate) moved: Option<Seeds>,
    /// The tokens of a row.
    pub(crate) tokens: usize,
}

impl Exchanged {
    /// Where a token of `ends` is in `moved`.
    pub(crate) fn place(&self, token: usize) -> usize {
        (token + MOVED) % self.tokens.max(1)
    }

    /// Where a token of `moved` is in `ends`.
    pub(crate) fn origin(&self, token: usize) -> usize {
        (token + self.tokens - MOVED) % self.tokens.max(1)
    }
}

/// The runs that show whether a value follows the tokens: ids on both sides of every number that
/// the graph compares them with, other types of tokens, and tokens that do not count.
pub(crate) fn exchanged(graph: &Graph, ports: &Ports, trace: &Trace) -> Vec<Exchanged> {
    let mut runs = vec![];
    for port in ports.iter() {
        let Some(base) = trace.get(port.value).to_f64() else {
            continue;
        };
        if port.role == Role::Counts {
            runs.push(Exchanged {
                ends: Seeds::from_iter([(port.value, fewer(port, &base, ENDS))]),
                moved: None,
                tokens: 0,
            });
            continue;
        }
        let tokens = base.shape().get(port.token_axis()).copied();
        let Some(tokens) = tokens.filter(|n| *n >= FEWEST) else {
            continue;
        };
        let others = match port.role {
            Role::Tokens | Role::TokenTypes => other_tokens(graph, ports, trace, port),
            Role::Padding if port.dtype.is_float() && base.ndim() > 2 => vec![-1e9],
            Role::Padding => vec![0.0],
            _ => continue,
        };
        let with = |number: f64, moved: bool| {
            let mut data = base.clone();
            for (at, cell) in data.iter_mut().enumerate() {
                let (row, token) = if port.turned {
                    let rows = base.len() / tokens;
                    (at % rows, at / rows)
                } else {
                    (at / tokens, at % tokens)
                };
                let token = if moved {
                    (token + tokens - MOVED) % tokens
                } else {
                    token
                };
                let last = row % 2 == 1;
                if !last && token < ENDS || last && token + ENDS >= tokens {
                    *cell = number;
                }
            }
            let value = match port.dtype {
                DType::Bool => Value::bool(data.mapv(|v| v != 0.0)),
                dtype if dtype.is_float() => Value::float(data),
                _ => Value::int(data.mapv(|v| v as i64)),
            };
            Seeds::from_iter([(port.value, value.with_dtype(port.dtype))])
        };
        for number in others {
            runs.push(Exchanged {
                ends: with(number, false),
                moved: (base.ndim() <= 2).then(|| with(number, true)),
                tokens,
            });
        }
    }
    runs
}

/// Lengths of sequences of which so many last tokens do not count.
pub(crate) fn fewer(port: &Port, lengths: &ArrayD<f64>, by: usize) -> Value {
    let fewer = lengths.mapv(|n| (n as i64 - by as i64).max(1));
    Value::int(fewer).with_dtype(port.dtype)
}

/// Ids other than those of the trial run: an ordinary one, and those that the graph tells from others.
fn other_tokens(graph: &Graph, ports: &Ports, trace: &Trace, port: &Port) -> Vec<f64> {
    let ordinary = ports.ordinary_tokens(graph).nth(1).map(|id| id as f64);
    let ordinary = ordinary.filter(|_| port.role == Role::Tokens && port.dtype.is_int());
    let mut all = told_apart(graph, trace, port);
    all.extend(ordinary.filter(|id| !all.contains(id)));
    all
}

/// Ids that the graph tells from that of the trial run: those on both sides of every number that it
/// compares ids with, and another type. None for an input of floats.
pub(crate) fn told_apart(graph: &Graph, trace: &Trace, port: &Port) -> Vec<f64> {
    if !port.dtype.is_int() {
        return vec![];
    }
    let is_types = port.role == Role::TokenTypes;
    let mut numbers: Vec<f64> = is_types.then_some(1.0).into_iter().collect();
    for (_, node) in graph.nodes() {
        let compares = matches!(
            node.op(),
            "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual"
        );
        let [Some(a), Some(b)] = *node.inputs() else {
            continue;
        };
        for (ids, other) in [(a, b), (b, a)] {
            let known = trace.get(other);
            let few = known.elements().is_some_and(|n| n <= MOST_NUMBERS);
            if compares && few && fed_by(graph, ids) == Some(port.value) {
                let known = known.to_f64().into_iter().flatten();
                numbers.extend(known.flat_map(|n| [n, n - 1.0, n + 1.0]));
            }
        }
    }
    let base = trace.get(port.value).to_f64();
    let base = base.and_then(|data| data.first().copied());
    let mut own: Vec<f64> = vec![];
    for number in numbers {
        if Some(number) != base && !own.contains(&number) && own.len() < MOST {
            own.push(number);
        }
    }
    own
}
