//! The roles of a model's inputs, and their lengths in a trial run.
//!
//! Input names are an interface, so words of the field in them count as evidence; what reads an input
//! decides otherwise. No other name counts.

mod channels;
mod counts;
pub(crate) mod exchanged;
pub(crate) mod given;
mod ids;
mod image;
mod masks;
mod oversized;
mod port;
mod readings;
mod role;
mod setting;
mod stacks;
mod symbols;
#[cfg(test)]
mod tests;
mod uses;

use counts::compared_places;
pub(crate) use masks::decides_mask;
use port::Reading;
pub(crate) use port::{Lengths, Port, Role};
pub(crate) use role::contains_time_steps;
use role::role;
use symbols::{Axis, symbols};
use uses::picked_tables;

use std::collections::BTreeMap;

use posenc_ir::eval::Value;
use posenc_ir::{DType, Def, Dim, Graph, Tensor, ValueId};
use rustc_hash::FxHashMap;

/// The inputs of a model with their roles.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    ports: Vec<Port>,
    /// What the symbols of the declared shapes mean.
    symbols: BTreeMap<Box<str>, Axis>,
    /// The side of an image of open size, where a table of patches determines it.
    image: Option<usize>,
    /// How open dimensions are read.
    reading: Reading,
    /// Features of a head in caches that declare them with a symbol.
    width: Option<usize>,
    /// Open axes that weights or windows fix, with their sizes.
    fixed: BTreeMap<(ValueId, usize), usize>,
    /// The only length of a sequence that the graph takes, whatever its inputs are declared to be.
    only: Option<usize>,
    /// One sentence for each input whose role neither its name nor its use decides.
    unclear: Vec<String>,
    /// One sentence for each declared dimension that no run can have.
    oversized: Vec<String>,
}

impl Ports {
    /// Reads the inputs of the main graph; `overrides` gives roles by input name.
    pub(crate) fn of(graph: &Graph, overrides: &BTreeMap<String, Role>) -> Self {
        let (mut ports, mut oversized) = (vec![], vec![]);
        for value in graph.scope(graph.main()).inputs() {
            let v = graph.value(*value);
            if !matches!(v.def(), Def::Input(_)) || graph.stored(*value).is_some() {
                continue;
            }
            let dtype = graph.dtype(*value).unwrap_or(DType::F32);
            let mut dims = v.shape().unwrap_or_default().to_vec();
            let opened = oversized::open(dtype, &mut dims).into_iter();
            oversized.extend(opened.map(|at| oversized::warning(v.name(), at)));
            let role = match overrides.get(v.name()) {
                // Ids are content too.
                Some(Role::Content)
                    if dtype.is_int() && !picked_tables(graph, *value).is_empty() =>
                {
                    Role::Tokens
                }
                // A number of each sequence hides the tokens behind it.
                Some(Role::Padding)
                    if dims.len() == 1 && !compared_places(graph, *value).is_empty() =>
                {
                    Role::Counts
                }
                Some(given) => *given,
                None => role(graph, *value, dtype, dims.len()),
            };
            ports.push(Port {
                value: *value,
                role,
                dtype,
                dims,
                turned: false,
            });
        }
        let given = |port: &Port| overrides.contains_key(graph.name(port.value));
        role::only_ids(graph, &mut ports);
        role::only_cache_flags(graph, &mut ports);
        for at in role::tables(graph, &ports) {
            if !given(&ports[at]) {
                ports[at].role = Role::Table;
            }
        }
        for at in role::no_positions(graph, &ports) {
            if !given(&ports[at]) {
                ports[at].role = Role::Content;
            }
        }
        for at in role::times(graph, &ports) {
            if !given(&ports[at]) {
                ports[at].role = Role::Positions;
            }
        }
        let fixed = ports.iter().filter_map(|port| {
            let (axis, size) = channels::fixed(graph, port)?;
            Some(((port.value, axis), size))
        });
        let fixed: BTreeMap<(ValueId, usize), usize> = fixed.collect();
        let mut symbols = symbols(&ports, &fixed);
        // Numbers of new tokens are no lengths of sequences.
        let is_place = |port: &&mut Port| match &port.dims[..] {
            [Dim::Symbol(s)] => {
                port.role == Role::Counts && symbols.get(s) == Some(&Axis::Sequence)
            }
            _ => false,
        };
        let places: Vec<&mut Port> = ports.iter_mut().filter(is_place).collect();
        if !places.is_empty() {
            for port in places {
                port.role = Role::Positions;
            }
            symbols = self::symbols(&ports, &fixed);
        }
        let image = image::side(graph, &ports);
        let mut unclear = role::unclear(graph, &ports, given);
        unclear.extend(role::met_by_places(graph, &ports, given));
        Self {
            unclear,
            oversized,
            ports,
            symbols,
            image,
            reading: Reading::default(),
            width: None,
            fixed,
            only: None,
        }
    }

    /// The masks and positions that their names do not tell.
    pub(crate) fn told_by_use<'a>(&'a self, graph: &'a Graph) -> impl Iterator<Item = &'a Port> {
        let is_told = |port: &&Port| role::is_told_by_use(graph, port);
        self.ports.iter().filter(is_told)
    }

    /// One sentence for each input whose role neither its name nor its use decides.
    pub(crate) fn unclear(&self) -> &[String] {
        &self.unclear
    }

    /// One sentence for each declared dimension that no run can have.
    pub(crate) fn oversized(&self) -> &[String] {
        &self.oversized
    }

    /// The same inputs where the graph takes sequences of one length only, as after a trace that wrote
    /// it down. The length of sounds and pictures is not that of their tokens, and stays open.
    pub(crate) fn of_length(&self, length: usize) -> Self {
        let are_tokens = self.ports.iter().any(|port| match port.role {
            Role::Tokens => true,
            Role::Content => matches!(port.dims[..], [_, _, Dim::Known(_)]),
            _ => false,
        });
        Self {
            only: Some(length).filter(|_| are_tokens),
            ..self.clone()
        }
    }

    /// Says how many features a head has, which attention shows and a cache may not declare.
    pub(crate) fn set_width(&mut self, width: Option<usize>) {
        self.width = width;
    }

    /// Whether an axis of a cache is that of features: the last one, where the one before it is open
    /// too.
    fn is_width(port: &Port, axis: usize) -> bool {
        let open = |i: usize| match port.dims.get(i) {
            Some(Dim::Symbol(s)) => Some(s),
            _ => None,
        };
        let before = axis.checked_sub(1).filter(|before| *before > 0);
        port.role == Role::Past
            && axis + 1 == port.dims.len()
            && before
                .and_then(open)
                .zip(open(axis))
                .is_some_and(|(a, b)| a != b)
    }

    /// The inputs in the order of the graph.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter()
    }

    /// Whether a value is one of the inputs.
    pub(crate) fn is_input(&self, value: ValueId) -> bool {
        self.ports.iter().any(|port| port.value == value)
    }

    /// The first input of a role.
    pub(crate) fn first(&self, role: Role) -> Option<&Port> {
        let mut all = self.ports.iter().filter(|p| p.role == role);
        let first = all.next();
        // Ids of one axis may be a number for each sequence, as that of a voice.
        let more = first.filter(|p| role == Role::Tokens && p.dims.len() < 2);
        more.and_then(|_| all.find(|p| p.dims.len() > 1)).or(first)
    }

    /// Whether the model takes keys and values of earlier steps.
    pub(crate) fn has_past(&self) -> bool {
        self.first(Role::Past).is_some()
    }

    /// Whether the inputs are sound or pictures of an open size, and no ids.
    pub(crate) fn has_free_content(&self) -> bool {
        let ids = [Role::Tokens, Role::Positions];
        let open = |p: &Port| p.dims.iter().skip(1).any(|d| !matches!(d, Dim::Known(_)));
        !self.ports.iter().any(|p| ids.contains(&p.role))
            && self
                .ports
                .iter()
                .any(|p| p.role == Role::Content && open(p))
    }

    /// The sequence length that the declared shapes or the graph fix, if they do.
    pub(crate) fn fixed_sequence(&self) -> Option<usize> {
        self.only.or_else(|| self.declared_sequence())
    }

    fn declared_sequence(&self) -> Option<usize> {
        // One number is the step of a process, as in diffusion, or the position of one token.
        let is_one = |port: &&Port| port.dims == [Dim::Known(1)];
        let positions = self.first(Role::Positions).filter(|port| !is_one(port));
        // A class of each image is none of its tokens.
        let is_class = |port: &&Port| role::is_by_sequence(&self.ports, port);
        let tokens = self.first(Role::Tokens).filter(|port| !is_class(port));
        let port = tokens.or(positions)?;
        match port.dims.get(port.token_axis()) {
            Some(Dim::Known(n)) => Some(*n),
            _ => None,
        }
    }

    /// The batch size that the declared shapes fix, if they do.
    pub(crate) fn fixed_batch(&self) -> Option<usize> {
        if self.reading.batch.is_some() {
            return self.reading.batch;
        }
        let port = self
            .first(Role::Tokens)
            .or_else(|| self.ports.first())
            .filter(|p| p.dims.len() > 1)?;
        let Some(axis) = port.batch_axis() else {
            return Some(1);
        };
        match port.dims.get(axis) {
            Some(Dim::Known(n)) => Some(*n),
            _ => None,
        }
    }

    /// The axis of tokens of an input of positions: that which is declared as that of ids, and else the
    /// usual one.
    pub(crate) fn position_axis(&self, port: &Port) -> usize {
        let usual = port.token_axis();
        let other = match port.dims.len() {
            // Coordinates of each token are last.
            3 => 1,
            _ => 1usize.saturating_sub(usual),
        };
        let is = |at: usize, what: Axis| match port.dims.get(at) {
            Some(Dim::Symbol(symbol)) => self.symbols.get(symbol) == Some(&what),
            Some(Dim::Known(size)) => match what {
                Axis::Sequence => self.fixed_sequence() == Some(*size),
                _ => self.fixed_batch() == Some(*size),
            },
            _ => false,
        };
        let fits = |at: usize| is(at, Axis::Sequence) && !is(at, Axis::Batch);
        let is_turned = fits(other) && !fits(usual)
            || is(usual, Axis::Batch) && !is(usual, Axis::Sequence) && !is(other, Axis::Batch);
        let has_several = port.dims.len() == 3 && fits(other) && !fits(usual);
        if port.dims.len() == 2 && is_turned || has_several {
            other
        } else {
            usual
        }
    }

    /// The lengths nearest to `wanted` that the declared shapes allow.
    pub(crate) fn fit(&self, wanted: Lengths) -> Lengths {
        Lengths {
            batch: self.fixed_batch().unwrap_or(wanted.batch),
            sequence: self.fixed_sequence().unwrap_or(wanted.sequence),
            past: if self.has_past() { wanted.past } else { 0 },
        }
    }

    /// The same lengths with one sequence, where the declared shapes allow it.
    pub(crate) fn alone(&self, at: Lengths) -> Lengths {
        self.fit(Lengths { batch: 1, ..at })
    }

    /// Caches of a window that so many tokens do not fill.
    pub(crate) fn unfilled(&self, graph: &Graph, at: Lengths) -> impl Iterator<Item = &Port> {
        let is_unfilled = move |port: &&Port| {
            let holds = self.dims(port, at).get(channels::TOKENS).copied();
            let is_window = port.role == Role::Past && channels::window(graph, port).is_some();
            is_window && holds.is_some_and(|size| at.past + at.sequence < size)
        };
        self.ports.iter().filter(is_unfilled)
    }

    /// Whether content is sound of an open length, and nothing else is an input.
    pub(crate) fn is_sound(&self) -> bool {
        let is_flat = |p: &Port| p.role != Role::Content || p.dims.len() < 4;
        self.has_free_content() && self.ports.iter().all(is_flat)
    }

    /// The dimensions of an input at these lengths.
    pub(crate) fn dims(&self, port: &Port, at: Lengths) -> Vec<usize> {
        let rank = port.dims.len();
        let longer = !self.reading.short_mask && self.is_short_mask(port);
        let axis = |i: usize, d: &Dim| match d {
            Dim::Known(n) => *n,
            _ if self.fixed.contains_key(&(port.value, i)) => self.fixed[&(port.value, i)],
            Dim::Symbol(_) if self.width.is_some() && Self::is_width(port, i) => {
                self.width.unwrap_or_default()
            }
            Dim::Symbol(_) if i + 1 == rank && longer => at.past + at.sequence,
            Dim::Symbol(s) => self
                .symbol(s, at)
                .unwrap_or_else(|| guess(port, i, rank, at, self.image)),
            Dim::Unknown => guess(port, i, rank, at, self.image),
        };
        port.dims
            .iter()
            .enumerate()
            .map(|(i, d)| axis(i, d))
            .collect()
    }

    fn symbol(&self, symbol: &str, at: Lengths) -> Option<usize> {
        if let Some(axis) = self.symbols.get(symbol) {
            return Some(match axis {
                Axis::Batch => at.batch,
                Axis::Sequence => at.sequence,
                Axis::Past => at.past,
                Axis::Total => at.past + at.sequence,
                Axis::Encoder => at.sequence + usize::from(!self.reading.tied),
            });
        }
        // Sums of symbols and numbers: `past_sequence_length + 1`.
        let parts: Vec<&str> = symbol.split('+').map(str::trim).collect();
        if parts.len() < 2 {
            return symbol.parse().ok().filter(|size| *size <= MOST);
        }
        let mut sizes = parts.iter().map(|p| self.symbol(p, at));
        sizes.try_fold(0usize, |sum, size| sum.checked_add(size?))
    }

    /// Values to start a partial evaluation with: positions and masks are known (every token
    /// counts), content is not; token ids are some id that no comparison in the graph names.
    pub(crate) fn seeds(&self, graph: &Graph, at: Lengths) -> FxHashMap<ValueId, Value> {
        let token = self.ordinary_tokens(graph).next().unwrap_or(3) as f64;
        let mut seeds = FxHashMap::default();
        for port in &self.ports {
            let dims = self.dims(port, at);
            let value = match port.role {
                Role::Tokens => known(port.dtype, &dims, |_| token),
                Role::Positions => {
                    let axis = self.position_axis(port);
                    known(port.dtype, &dims, |i| {
                        (at.past + place(i, &dims, axis)) as f64
                    })
                }
                Role::Padding if port.dtype.is_float() && dims.len() > 2 => {
                    known(port.dtype, &dims, |_| 0.0)
                }
                Role::Padding => known(port.dtype, &dims, |_| 1.0),
                Role::Counts => {
                    let tokens = self.counted(graph, port, at);
                    known(port.dtype, &dims, |_| tokens as f64)
                }
                Role::TokenTypes => known(port.dtype, &dims, |_| 0.0),
                // The cache is used where something is in it.
                Role::CacheFlag => known(port.dtype, &dims, |_| f64::from(u8::from(at.past > 0))),
                Role::Past | Role::Table | Role::Content => Value::opaque(port.dtype, dims),
            };
            seeds.insert(port.value, value);
        }
        seeds
    }
}

/// Where an element is along an axis.
pub(crate) fn place(index: usize, dims: &[usize], axis: usize) -> usize {
    let stride: usize = dims.iter().skip(axis + 1).product();
    let size = dims.get(axis).copied().unwrap_or(1);
    index / stride.max(1) % size.max(1)
}

/// Numbers of an input that are fed.
const MOST: usize = 1 << 26;

/// The numbers of an input; opaque where they are too many or of no number type.
fn known(dtype: DType, dims: &[usize], at: impl Fn(usize) -> f64) -> Value {
    let count = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    let Some(n) = count.filter(|n| dtype.is_writable() && *n <= MOST) else {
        return Value::opaque(dtype, dims);
    };
    let values: Vec<f64> = (0..n).map(at).collect();
    Value::from_tensor(&Tensor::from_f64(dtype, dims, &values))
}

/// The length of an open dimension without a known symbol.
fn guess(port: &Port, axis: usize, rank: usize, at: Lengths, image: Option<usize>) -> usize {
    match port.role {
        Role::CacheFlag => 1,
        Role::Past if axis == 0 => at.batch,
        Role::Past => at.past,
        Role::Padding if axis + 1 == rank => at.past + at.sequence,
        _ if port.turned && port.batch_axis() == Some(axis) => at.batch,
        _ if port.turned => at.sequence,
        _ if axis == 0 && (rank > 1 || port.role == Role::Counts) => at.batch,
        // Images: square, and large enough for a few patches.
        Role::Content if rank == 4 && axis >= 2 => image.unwrap_or(at.sequence.clamp(64, 1024)),
        Role::Content if rank == 4 => 3,
        _ => at.sequence,
    }
}
