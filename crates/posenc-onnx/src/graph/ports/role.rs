//! The role of an input, from its name, its type and its uses.

use posenc_ir::{DType, Dim, Graph, ValueId};

use super::counts::{is_compared_with_places, is_range, less_than_tokens, meets_places};
use super::masks::masks_scores;
use super::uses::{
    Step, are_features, feeds_rotation, feeds_sines, feeds_weighted_sines, is_cache, is_position,
    may_be_positions, moves, picked_tables, picks_factors, picks_waves, reaches, rows,
};
use super::{Port, Role};
use crate::graph::operators::gather_axis;
use crate::graph::sizes::is_of_sizes_and;

/// Words in the names of token ids.
const TOKENS: &[&str] = &["ids", "tokens"];

/// Words in the names of masks.
const MASKS: &[&str] = &["mask", "padding"];

/// Words in the names of positions.
const POSITIONS: &[&str] = &["position", "pos_id", "input_pos", "pos_ids"];

/// Words in the names of token types.
const TYPES: &[&str] = &["token_type", "segment"];

/// Words in the names of lengths of sequences.
const LENGTHS: &[&str] = &["seqlen", "seq_len", "length"];

/// The most rows of a table of types; one of positions has more.
const MOST_TYPES: usize = 4;

/// Whether the name of an input has one of these words.
fn is_named(graph: &Graph, value: ValueId, words: &[&str]) -> bool {
    let name = graph.name(value).to_lowercase();
    words.iter().any(|word| name.contains(word)) || words == POSITIONS && name == "pos"
}

/// The role of an input. Uses that only positions have come first; else a name is evidence where it has a word of the
/// field, and uses decide for all others.
pub(crate) fn role(graph: &Graph, value: ValueId, dtype: DType, rank: usize) -> Role {
    let named = |words: &[&str]| is_named(graph, value, words);
    if dtype == DType::Bool && rank <= 1 {
        return if named(&["mask"]) {
            Role::Padding
        } else {
            Role::CacheFlag
        };
    }
    let position = named(POSITIONS);
    let is_placed = dtype.is_int() && is_placed(graph, value, rank);
    if named(MASKS) && rank >= 1 && !is_placed {
        return Role::Padding;
    }
    if dtype.is_int() && less_than_tokens(graph, value).is_some() {
        return Role::Counts;
    }
    if dtype.is_float() && position && rank <= 2 {
        return Role::Positions;
    }
    // Keys and values of earlier tokens may be stored as integers.
    let is_small = matches!(dtype, DType::I8 | DType::U8);
    let is_said = || named(&["past", "cache"]) && !are_features(graph, value);
    let is_past = match dtype.is_float() || is_small {
        true => rank >= 3 && (is_cache(graph, value, rank) || is_said()),
        // Larger integers of three axes may be ids.
        false => dtype.is_int() && rank > 3 && is_cache(graph, value, rank),
    };
    if is_past {
        return Role::Past;
    }
    if dtype.is_float() {
        return match rank {
            1 if is_compared_with_places(graph, value) => Role::Counts,
            2 if is_compared_with_places(graph, value) => Role::Positions,
            // One of more axes, or of queries and keys, may be a bias by position.
            2 if is_by_key(graph, value) && masks_scores(graph, value) => Role::Padding,
            _ => Role::Content,
        };
    }
    if position || is_placed {
        Role::Positions
    } else if named(TYPES) {
        Role::TokenTypes
    } else if rank == 1 && is_compared_with_places(graph, value) {
        Role::Counts
    } else if is_for_each_token(graph, value) && is_compared_with_places(graph, value) {
        // As a mask compares the position of a query with those of keys.
        Role::Positions
    } else if rank == 0 || named(LENGTHS) {
        Role::Content
    } else if named(TOKENS) {
        Role::Tokens
    } else if are_types(graph, value) {
        Role::TokenTypes
    } else if !picked_tables(graph, value).is_empty() {
        Role::Tokens
    } else if rank >= 2 && masks_scores(graph, value) {
        Role::Padding
    } else {
        Role::Content
    }
}

/// Whether integers are used as positions are, and as no tokens, types or masks, whatever their name says: angles are
/// computed from them, or they pick rows of cosines and sines. Where the name says positions, rows of a table of many
/// are enough.
fn is_placed(graph: &Graph, value: ValueId, rank: usize) -> bool {
    let named = |words: &[&str]| is_named(graph, value, words);
    let picks_many = || may_be_positions(graph, &picked_tables(graph, value));
    let picks = match named(TOKENS) {
        true => picks_waves,
        false => picks_factors,
    };
    feeds_sines(graph, value)
        || rank >= 1 && is_position(graph, value)
        || rank >= 2 && picks(graph, value)
        || named(POSITIONS) && picks_many()
        || rank == 0 && starts_places(graph, value)
}

/// Whether a number is added to the places of tokens, which then pick rows of a table of many.
fn starts_places(graph: &Graph, value: ValueId) -> bool {
    let mut places = vec![];
    reaches(graph, [value], |node, at| {
        let is_sum = node.is("Add");
        let other = node.input(1 - at.slot().min(1)).filter(|_| is_sum);
        match other {
            Some(other) if is_range(graph, other) => places.extend(node.output(0)),
            _ if moves(node, at) => return Step::On,
            _ => {}
        }
        Step::Stop
    });
    let picks = |places: &ValueId| {
        picks_factors(graph, *places) || may_be_positions(graph, &picked_tables(graph, *places))
    };
    places.iter().any(picks)
}

/// Whether an input of two axes may have a number for each token, and not one for each sequence.
fn is_for_each_token(graph: &Graph, value: ValueId) -> bool {
    matches!(graph.value(value).shape(), Some([_, tokens]) if *tokens != Dim::Known(1))
}

/// Whether an input of two axes may have a number for each key of a sequence, and has none for pairs of queries and keys.
fn is_by_key(graph: &Graph, value: ValueId) -> bool {
    match graph.value(value).shape() {
        Some([a, b]) => (a != b || *a == Dim::Unknown) && *b != Dim::Known(1),
        _ => true,
    }
}

/// Whether an input picks rows of small tables alone.
fn are_types(graph: &Graph, value: ValueId) -> bool {
    let tables = picked_tables(graph, value);
    let is_small = |rows: Option<usize>| rows.is_some_and(|n| n <= MOST_TYPES);
    !tables.is_empty() && rows(graph, &tables).all(is_small)
}

/// Inputs that pick rows of small tables are types beside ids alone; without any, they are the ids.
pub(super) fn only_ids(graph: &Graph, ports: &mut [Port]) {
    let is_content = |port: &Port| match port.role {
        Role::Tokens => true,
        Role::Content => port.dtype.is_float(),
        _ => false,
    };
    if ports.iter().any(is_content) {
        return;
    }
    let types = ports
        .iter_mut()
        .filter(|port| port.role == Role::TokenTypes);
    for port in types.filter(|port| !is_named(graph, port.value, TYPES)) {
        port.role = Role::Tokens;
    }
}

/// Flags without a cache to switch on are content, whichever branch they choose.
pub(super) fn only_cache_flags(graph: &Graph, ports: &mut [Port]) {
    if ports.iter().any(|port| port.role == Role::Past) {
        return;
    }
    let flags = ports.iter_mut().filter(|port| port.role == Role::CacheFlag);
    for port in flags.filter(|port| !is_named(graph, port.value, &["cache", "past"])) {
        port.role = Role::Content;
    }
}

/// Whether an input has one number for each sequence of another, which has features, pixels or samples.
pub(super) fn is_by_sequence(ports: &[Port], port: &Port) -> bool {
    let [count] = &port.dims[..] else {
        return false;
    };
    // Beside ids or a cache, content of another stack tells nothing about this one.
    let is_of_text = |other: &Port| match other.role {
        Role::Tokens => other.dims.len() > 1,
        role => role == Role::Past,
    };
    if ports.iter().any(is_of_text) {
        return false;
    }
    let is_counted = |other: &Port| match &other.dims[..] {
        // Samples of sound; features of tokens without a batch are so many.
        [batch, samples] => batch == count && !matches!(samples, Dim::Known(_)) && samples != count,
        [batch, tokens, _] => batch == count && tokens != count,
        [batch, _, _, ..] => batch == count,
        [_] | [] => false,
    };
    let is_content = |other: &&Port| other.role == Role::Content && other.dtype.is_float();
    let mut content = ports.iter().filter(is_content);
    *count != Dim::Unknown && content.any(is_counted)
}

/// Inputs that were taken for positions of tokens and are content, unless their names or operators say positions: one
/// number for each sequence, as a step in diffusion, and integers of which weights multiply the sines, as of a price.
pub(super) fn no_positions(graph: &Graph, ports: &[Port]) -> Vec<usize> {
    let is_content = |port: &Port| {
        port.role == Role::Positions
            && (is_by_sequence(ports, port) || are_weighted(graph, port))
            && !is_named(graph, port.value, POSITIONS)
            && !is_position(graph, port.value)
    };
    let all = ports.iter().enumerate();
    all.filter(|(_, port)| is_content(port))
        .map(|(at, _)| at)
        .collect()
}

/// Whether weights multiply the sines of integers, which rotate nothing.
fn are_weighted(graph: &Graph, port: &Port) -> bool {
    port.dtype.is_int()
        && feeds_weighted_sines(graph, port.value)
        && !feeds_rotation(graph, port.value)
}

/// Inputs of a real number for each token, whose sines and cosines multiply other content: times, as positions of
/// frames.
pub(super) fn times(graph: &Graph, ports: &[Port]) -> Vec<usize> {
    let is_content = |port: &Port| match port.role {
        Role::Tokens => port.dims.len() > 1,
        Role::Content => port.dtype.is_float() && port.dims.len() > 2,
        _ => false,
    };
    let is_time = |port: &Port| {
        port.role == Role::Content
            && port.dtype.is_float()
            && port.dims.len() == 2
            && port.dims[1] != Dim::Known(1)
            && feeds_rotation(graph, port.value)
    };
    let all = ports.iter().enumerate();
    all.filter(|(_, port)| ports.iter().any(is_content) && is_time(port))
        .map(|(at, _)| at)
        .collect()
}

/// One sentence for each input whose role neither its name nor its use decides: it picks rows of a table of its own
/// beside other content, as positions do, or sines are computed of it for each token: of real numbers, or of integers
/// where weights multiply these sines first.
pub(super) fn unclear(
    graph: &Graph,
    ports: &[Port],
    is_given: impl Fn(&Port) -> bool,
) -> Vec<String> {
    let tables = |port: &Port| picked_tables(graph, port.value);
    let all: Vec<(&Port, Vec<_>)> = ports.iter().map(|port| (port, tables(port))).collect();
    let is_unclear = |(port, own): &&(&Port, Vec<(ValueId, usize)>)| {
        // Ids of another sequence share their table, and one number of each sequence is no position.
        let is_rival = |other: &Port, others: &[_]| {
            let is_of_sequences = port.dims.len() == 1
                && other.dims.len() > 1
                && port.dims.first() == other.dims.first();
            let is_content = matches!(other.role, Role::Tokens | Role::Content)
                && (!others.is_empty() || other.dtype.is_float() && other.dims.len() > 2);
            let is_apart = others.iter().all(|table| !own.contains(table));
            other.value != port.value && is_content && is_apart && !is_of_sequences
        };
        let tokens = port.dims.last().filter(|dim| **dim != Dim::Known(1));
        let has_tokens = |other: &Port| other.dims.iter().skip(1).any(|dim| Some(dim) == tokens);
        let has_rival = |fits: &dyn Fn(&Port) -> bool| {
            all.iter()
                .any(|(other, others)| is_rival(other, others) && fits(other))
        };
        if is_given(port) {
            return false;
        }
        match port.role {
            Role::Content if port.dtype.is_float() || are_weighted(graph, port) => {
                (1..=2).contains(&port.dims.len())
                    && feeds_sines(graph, port.value)
                    && has_rival(&has_tokens)
            }
            Role::Tokens | Role::Content | Role::TokenTypes | Role::Padding => {
                !is_named(graph, port.value, TOKENS)
                    && may_be_positions(graph, own)
                    && has_rival(&|_| true)
            }
            _ => false,
        }
    };
    let said = |(port, _): &(&Port, Vec<_>)| {
        let name = graph.name(port.value);
        format!(
            "neither its name nor its use tells whether the input {name} contains positions; give `input-role` \
             {name}=position or {name}=content"
        )
    };
    all.iter().filter(is_unclear).map(said).collect()
}

/// One sentence for each input without a role that places of tokens meet before they pick rows of a table, make
/// angles or make a bias.
pub(super) fn met_by_places(
    graph: &Graph,
    ports: &[Port],
    is_given: impl Fn(&Port) -> bool,
) -> Vec<String> {
    let is_met = |port: &&Port| {
        // A few numbers of each sequence, as where it begins and ends, are not along the tokens.
        let is_along_tokens = ports.iter().any(|other| {
            let mut dims = other.dims.iter().skip(1);
            other.value != port.value && dims.any(|dim| Some(dim) == port.dims.get(1))
        });
        let is_of_sequences = match port.dims.len() {
            0 | 1 => true,
            2 => !is_along_tokens,
            _ => false,
        };
        let is_content = port.role == Role::Content && is_of_sequences;
        is_content && !is_given(port) && meets_places(graph, port.value)
    };
    let said = |port: &Port| {
        let name = graph.name(port.value);
        format!(
            "places of tokens meet the input {name} in a way that is not read, and pick rows of a table, make angles \
             or a bias then; give `input-role` {name}=position where it contains positions, or {name}=content"
        )
    };
    ports.iter().filter(is_met).map(said).collect()
}

/// Whether what reads a mask or positions tells that they are, and their name does not.
pub(super) fn is_told_by_use(graph: &Graph, port: &Port) -> bool {
    match port.role {
        Role::Positions => !is_named(graph, port.value, POSITIONS),
        Role::Padding => !is_named(graph, port.value, MASKS),
        _ => false,
    }
}

/// Whether an input contains the time step of each token: integers, by the name. One number for a
/// whole sequence is the step of a process, as in diffusion.
pub(crate) fn contains_time_steps(graph: &Graph, port: &Port) -> bool {
    let each = port.dims.len() == 2 && port.dims[1] != Dim::Known(1);
    port.dtype.is_int() && each && is_named(graph, port.value, &["timestep", "time_step"])
}

/// The inputs that are tables: floats of one size for all sequences, beside inputs of open size, of which
/// places in the sequence pick rows, or from which angles are computed.
pub(super) fn tables(graph: &Graph, ports: &[Port]) -> Vec<usize> {
    let is_open = |port: &Port| port.dims.iter().any(|dim| !matches!(dim, Dim::Known(_)));
    if !ports.iter().any(is_open) {
        return vec![];
    }
    let is_table = |port: &Port| {
        let is_float = port.dtype.is_float() && port.role == Role::Content;
        is_float
            && match port.dims[..] {
                [Dim::Known(2..)] => feeds_sines(graph, port.value),
                [Dim::Known(2..), Dim::Known(_)] => has_rows_by_place(graph, ports, port.value),
                _ => false,
            }
    };
    let all = ports.iter().enumerate();
    all.filter(|(_, port)| is_table(port))
        .map(|(at, _)| at)
        .collect()
}

/// Whether all that reads a value picks rows of it by places in the sequence.
fn has_rows_by_place(graph: &Graph, ports: &[Port], value: ValueId) -> bool {
    let is_position = |value: ValueId| {
        let mut ports = ports.iter();
        ports.any(|port| port.value == value && port.role == Role::Positions)
    };
    let picks = |at: &posenc_ir::Use| {
        let node = graph.node(at.node);
        let rows = node.is("Gather") && at.slot() == 0 && gather_axis(node) == Some(0);
        rows && node
            .input(1)
            .is_some_and(|index| is_of_sizes_and(graph, index, is_position))
    };
    let uses = graph.uses(value);
    !uses.is_empty() && uses.iter().all(picks)
}
