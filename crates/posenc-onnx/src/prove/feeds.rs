//! Inputs for whole models: tokens that are the same in every run, equal tokens, and different tokens
//! in two orders.

use std::fmt;

use posenc_ir::{DType, Graph, Tensor, ValueId};
use posenc_runtime::feeds::{MOST_ELEMENTS, Random};

use super::VerifyError;
use crate::graph::lane::wrap;
use crate::graph::mixing::{is_image, token_axes};
use crate::graph::ports::{Lengths, Port, Ports, Role, place};

/// Which tokens of a run are padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Padding {
    /// None of them.
    None,
    /// The last quarter of every sequence but the first.
    Right,
    /// The first quarter of every sequence but the first; the positions of its tokens start after it.
    Left,
}

impl fmt::Display for Padding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Right => "right",
            Self::Left => "left",
        })
    }
}

impl Padding {
    /// Whether a token of a sequence with so many tokens is padding.
    fn hides(self, sequence: usize, token: usize, total: usize) -> bool {
        sequence > 0
            && match self {
                Self::None => false,
                Self::Right => token >= total - padded(total),
                Self::Left => token < padded(total),
            }
    }
}

/// The tokens of a padded sequence that are padding.
fn padded(tokens: usize) -> usize {
    tokens / 4
}

/// Whether a token is padding.
pub(crate) fn is_padding(sequence: usize, token: usize, at: Lengths, padding: Padding) -> bool {
    padding.hides(sequence, token, at.past + at.sequence)
}

/// Feeds for every input of a model, by name, in the order of its inputs.
///
/// Token ids are random within the vocabulary, the same at the same position of every run;
/// positions start after the cached tokens; cached keys and values are zero.
///
/// # Errors
/// When values of an input's type cannot be generated.
pub(crate) fn feeds(
    graph: &Graph,
    ports: &Ports,
    at: Lengths,
    padding: Padding,
) -> Result<Vec<(String, Tensor)>, VerifyError> {
    let mut content = 0;
    ports
        .iter()
        .map(|port| {
            let name = graph.name(port.value);
            let dims = ports.dims(port, at);
            if port.role == Role::Content {
                content += 1;
            }
            let from = (graph, ports);
            let tensor = feed(from, port, &dims, at, padding, content).ok_or_else(|| {
                let why = format!("cannot generate values of type {}{dims:?}", port.dtype);
                VerifyError::unsupported(name, why)
            })?;
            Ok((name.to_owned(), tensor))
        })
        .collect()
}

/// The feeds with other tokens in every sequence but the first; `nth` chooses one of several. `None` where no
/// input has tokens of its own for each sequence.
pub(crate) fn with_other_sequences(
    graph: &Graph,
    ports: &Ports,
    feeds: &[(String, Tensor)],
    nth: u64,
) -> Option<Vec<(String, Tensor)>> {
    let mut all = feeds.to_vec();
    let mut is_any = false;
    for (port, (_, tensor)) in ports.iter().zip(&mut all) {
        let dims = tensor.dims().to_vec();
        let Some(axis) = port.batch_axis().filter(|_| tensor.dtype().is_writable()) else {
            continue;
        };
        let mut random = Random::new(0x6f74_6865_7200 + nth);
        let (first, rows) = ids(graph, port);
        let picked = ports.picked_token(graph, port).map(|id| id as f64);
        let number = |(i, number): (usize, f64)| match port.role {
            _ if place(i, &dims, axis) == 0 || picked == Some(number) => number,
            Role::Tokens => match random.uniform(first as f64, rows as f64).floor() {
                own if picked == Some(own) => (own + 1.0) % rows as f64,
                own => own,
            },
            Role::Content if tensor.dtype().is_float() => random.uniform(-1.0, 1.0),
            _ => number,
        };
        let numbers = tensor.to_f64s()?;
        let numbers: Vec<f64> = numbers.into_iter().enumerate().map(number).collect();
        is_any |= matches!(port.role, Role::Tokens | Role::Content);
        *tensor = Tensor::from_f64(tensor.dtype(), &dims, &numbers);
    }
    is_any.then_some(all)
}

/// The feeds with one id, or one type, in place of every token of an input; `None` for an id beyond the
/// vocabulary.
pub(crate) fn with_id(
    graph: &Graph,
    feeds: &[(String, Tensor)],
    port: &Port,
    id: f64,
) -> Option<Vec<(String, Tensor)>> {
    let rows = vocabulary(graph, port.value);
    let is_known = id >= 0.0 && rows.is_none_or(|rows| id < rows as f64);
    let mut all = feeds.to_vec();
    let name = graph.name(port.value);
    let (_, tensor) = all.iter_mut().find(|(of, _)| is_known && of == name)?;
    *tensor = Tensor::from_f64(tensor.dtype(), tensor.dims(), &vec![id; tensor.len()]);
    Some(all)
}

/// Feeds in which every token of an input has the same content; `nth` chooses one of several
/// contents.
///
/// # Errors
/// When values of an input's type cannot be generated.
pub(crate) fn equal_tokens(
    graph: &Graph,
    ports: &Ports,
    at: Lengths,
    nth: usize,
) -> Result<Vec<(String, Tensor)>, VerifyError> {
    let mut all = feeds(graph, ports, at, Padding::None)?;
    for (port, (_, tensor)) in ports.iter().zip(&mut all) {
        let dims = tensor.dims().to_vec();
        let (dtype, count) = (tensor.dtype(), dims.iter().product::<usize>());
        let values = match port.role {
            Role::Tokens => {
                let rows = vocabulary(graph, port.value).unwrap_or(8) as i64;
                // From the middle of each half of the vocabulary: what acts on some ids is most often seen.
                let ids = ports.spread_tokens(graph, rows, 4);
                let id = ids.get((2 * nth + 1) % 4).copied();
                vec![id.unwrap_or(nth as i64 % rows.max(1)) as f64; count]
            }
            Role::Content if dtype.is_float() => {
                let axes = match is_image(graph, port) {
                    true => vec![1, 2],
                    false => token_axes((graph, ports), port, &dims, at).unwrap_or_default(),
                };
                let random = Random::new(1 + nth as u64).tensor(dtype, &dims, -1.0, 1.0);
                let Some(random) = random.and_then(|t| t.to_f64s()) else {
                    continue;
                };
                (0..count)
                    .map(|i| random[first_token(i, &dims, &axes)])
                    .collect()
            }
            _ => continue,
        };
        *tensor = Tensor::from_f64(dtype, &dims, &values);
    }
    Ok(all)
}

/// Feeds in which every token has another content, in the order of the inputs or in another one;
/// `None` where tokens cannot be put in another order.
///
/// # Errors
/// When values of an input's type cannot be generated.
pub(crate) fn different_tokens(
    graph: &Graph,
    ports: &Ports,
    at: Lengths,
    is_moved: bool,
) -> Result<Option<Vec<(String, Tensor)>>, VerifyError> {
    let mut all = feeds(graph, ports, at, Padding::None)?;
    for (port, (_, tensor)) in ports.iter().zip(&mut all) {
        let axes = match port.role {
            Role::Tokens | Role::Content => token_axes((graph, ports), port, tensor.dims(), at),
            _ => continue,
        };
        if axes.is_none() && ports.is_setting(port) {
            continue;
        }
        let dims = tensor.dims().to_vec();
        let Some([axis]) = axes.as_deref() else {
            return Ok(None);
        };
        let values = match port.role {
            Role::Tokens => {
                let rows = vocabulary(graph, port.value).unwrap_or(8) as i64;
                let ids = ports.spread_tokens(graph, rows, dims[*axis]);
                let id = |i: usize| ids.get(i % ids.len().max(1)).copied().unwrap_or(0) as f64;
                let own = |i: usize| id(place(i, &dims, *axis));
                (0..tensor.len()).map(own).collect()
            }
            _ if tensor.dtype().is_float() => tensor.to_f64s().unwrap_or_default(),
            _ => continue,
        };
        let order = order(dims[*axis]);
        let stride: usize = dims[axis + 1..].iter().product();
        let moved = |i: usize| {
            let to = place(i, &dims, *axis);
            values[i - to * stride + order[to] * stride]
        };
        let moved: Vec<f64> = if is_moved {
            (0..values.len()).map(moved).collect()
        } else {
            values.clone()
        };
        *tensor = Tensor::from_f64(tensor.dtype(), &dims, &moved);
    }
    Ok(Some(all))
}

/// Another order of so many tokens, which keeps no distances: for each place, where its token was.
/// The last stays.
pub(crate) fn order(count: usize) -> Vec<usize> {
    let Some(others) = count.checked_sub(1).filter(|n| *n > 0) else {
        return (0..count).collect();
    };
    let reaches_all = |step: &usize| {
        let (mut a, mut b) = (*step, others);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a == 1
    };
    let step = (others / 2 + 1..).find(reaches_all).unwrap_or(1);
    let moved = (0..others).map(|i| (i * step + 1) % others);
    moved.chain([others]).collect()
}

/// The index of the element of the first token that is at the place of an element of any token.
fn first_token(index: usize, dims: &[usize], axes: &[usize]) -> usize {
    let (mut rest, mut stride, mut first) = (index, 1, 0);
    for (axis, size) in dims.iter().enumerate().rev() {
        let at = rest % size;
        rest /= size;
        if !axes.contains(&axis) {
            first += at * stride;
        }
        stride *= size;
    }
    first
}

fn feed(
    (graph, ports): (&Graph, &Ports),
    port: &Port,
    dims: &[usize],
    at: Lengths,
    padding: Padding,
    content: u64,
) -> Option<Tensor> {
    let last = dims.last().copied().unwrap_or(1).max(1);
    let (row, column) = (|i: usize| i / last, |i: usize| i % last);
    let total = at.past + at.sequence;
    match port.role {
        Role::Tokens => {
            let (first, rows) = ids(graph, port);
            let picked = ports.picked_token(graph, port).filter(|_| !port.turned);
            let picked = picked.map(|id| id as f64);
            fill(port.dtype, dims, |i| {
                let own = token(row(i), at.past + column(i), first, rows);
                match picked {
                    // Each sequence has one, at its end.
                    Some(id) if column(i) + 1 == last => id,
                    Some(id) if own == id => (id + 1.0) % rows as f64,
                    _ => own,
                }
            })
        }
        Role::Positions => {
            let axis = ports.position_axis(port);
            let is_batched = dims.len() == 2 && !port.turned && dims[0] == at.batch;
            let before = |i: usize| match padding {
                Padding::Left if is_batched && row(i) > 0 => padded(total),
                _ => 0,
            };
            fill(port.dtype, dims, |i| {
                (at.past + place(i, dims, axis)).saturating_sub(before(i)) as f64
            })
        }
        // Such a mask is added to the scores.
        Role::Padding if port.dtype.is_float() && dims.len() > 2 => fill(port.dtype, dims, |_| 0.0),
        Role::Padding => fill(port.dtype, dims, |i| {
            let hidden = padding.hides(row(i), column(i), last);
            f64::from(u8::from(!hidden))
        }),
        Role::Counts => {
            let total = ports.counted(graph, port, at);
            fill(port.dtype, dims, |i| {
                let hidden = padding == Padding::Right && i > 0;
                (total - if hidden { padded(total) } else { 0 }) as f64
            })
        }
        Role::TokenTypes | Role::Past => fill(port.dtype, dims, |_| 0.0),
        Role::CacheFlag => fill(port.dtype, dims, |_| f64::from(u8::from(at.past > 0))),
        Role::Table => Random::new(1).tensor(port.dtype, dims, -1.0, 1.0),
        Role::Content if port.dtype.is_float() => {
            Random::new(content).tensor(port.dtype, dims, -1.0, 1.0)
        }
        // It may be a length.
        Role::Content => fill(port.dtype, dims, |_| total as f64),
    }
}

/// The first id of ordinary tokens, and the size of the vocabulary.
fn ids(graph: &Graph, port: &Port) -> (usize, usize) {
    let rows = vocabulary(graph, port.value).unwrap_or(8);
    // The first ids are often special: padding, separators.
    (if rows > 8 { 3 } else { 0 }, rows)
}

fn token(row: usize, position: usize, first: usize, rows: usize) -> f64 {
    let seed = (row as u64) << 32 | position as u64;
    Random::new(seed).uniform(first as f64, rows as f64).floor()
}

fn fill(dtype: DType, dims: &[usize], at: impl Fn(usize) -> f64) -> Option<Tensor> {
    if !dtype.is_writable() {
        return None;
    }
    let count = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
    if count > MOST_ELEMENTS {
        return None;
    }
    let values: Vec<f64> = (0..count).map(at).collect();
    Some(Tensor::from_f64(dtype, dims, &values))
}

/// The size of the vocabulary: the fewest rows of all tables that token ids index.
pub(crate) fn vocabulary(graph: &Graph, tokens: ValueId) -> Option<usize> {
    let mut rows: Option<usize> = None;
    let mut stack = vec![tokens];
    let mut seen = std::collections::BTreeSet::new();
    while let Some(value) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            match node.op() {
                "Gather" if at.slot() == 1 => {
                    let axis = node.int("axis").ok().flatten().unwrap_or(0);
                    let table = node.input(0).and_then(|t| graph.stored(t));
                    let count = table.and_then(|t| Some(t.dims[wrap(axis, t.dims.len())?]));
                    rows = [rows, count].into_iter().flatten().min();
                }
                "EmbedLayerNormalization" if at.slot() == 0 => {
                    let table = node.input(2).and_then(|t| graph.stored(t));
                    let count = table.and_then(|t| t.dims.first().copied());
                    rows = [rows, count].into_iter().flatten().min();
                }
                "Cast" | "Identity" | "Reshape" | "Unsqueeze" | "Squeeze" | "Flatten"
                | "Transpose" | "Slice" | "Clip" | "Where"
                    if at.slot() == 0 || node.op() == "Where" =>
                {
                    stack.extend(node.outputs().iter().flatten());
                }
                _ => {}
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::prove::testing::fixture;

    fn of(name: &str, at: Lengths, padding: Padding) -> BTreeMap<String, Tensor> {
        let model = fixture(name);
        let ports = Ports::of(model.graph(), &BTreeMap::new());
        let all = feeds(model.graph(), &ports, at, padding).unwrap();
        all.into_iter().collect()
    }

    const AT: Lengths = Lengths {
        batch: 2,
        sequence: 8,
        past: 0,
    };

    #[test]
    fn ids_stay_within_the_vocabulary_and_follow_their_position() {
        let all = of("llama/torchscript", AT, Padding::None);
        let ids = all["input_ids"].to_i64s().unwrap();
        assert!(ids.iter().all(|id| (3..99).contains(id)), "{ids:?}");
        assert_ne!(ids[..8], ids[8..]);
        assert_eq!(
            of("llama/torchscript", AT, Padding::None)["input_ids"]
                .to_i64s()
                .unwrap(),
            ids
        );
        // A step after seven tokens is fed the eighth.
        let step = Lengths {
            sequence: 1,
            past: 7,
            ..AT
        };
        let all = of("llama/optimum", step, Padding::None);
        assert_eq!(all["input_ids"].to_i64s().unwrap(), [ids[7], ids[15]]);
        assert_eq!(all["position_ids"].to_i64s().unwrap(), [7, 7]);
        assert_eq!(all["attention_mask"].dims(), [2, 8]);
        assert_eq!(all["past_key_values.0.key"].dims(), [2, 2, 7, 16]);
    }

    #[test]
    fn only_sequences_after_the_first_are_padded_and_only_on_request() {
        let mask = |padding| of("llama/torchscript", AT, padding)["attention_mask"].to_i64s();
        assert_eq!(mask(Padding::None).unwrap(), [1; 16]);
        let padded = |padding| mask(padding).unwrap();
        assert_eq!(padded(Padding::Right)[..8], [1; 8]);
        assert_eq!(padded(Padding::Right)[8..], [1, 1, 1, 1, 1, 1, 0, 0]);
        assert_eq!(padded(Padding::Left)[..8], [1; 8]);
        assert_eq!(padded(Padding::Left)[8..], [0, 0, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn positions_start_after_padding_on_the_left() {
        let all = of("llama/optimum", AT, Padding::Left);
        let positions = all["position_ids"].to_i64s().unwrap();
        assert_eq!(positions[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(positions[8..], [0, 0, 0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn other_sequences_change_all_but_the_first() {
        let model = fixture("llama/torchscript");
        let ports = Ports::of(model.graph(), &BTreeMap::new());
        let first = feeds(model.graph(), &ports, AT, Padding::None).unwrap();
        let other = with_other_sequences(model.graph(), &ports, &first, 1).unwrap();
        let ids = |all: &[(String, Tensor)]| all[0].1.to_i64s().unwrap();
        assert_eq!(first[0].0, "input_ids");
        assert_eq!(ids(&first)[..8], ids(&other)[..8]);
        assert_ne!(ids(&first)[8..], ids(&other)[8..]);
        assert!(ids(&other).iter().all(|id| (3..99).contains(id)));
    }
}
