//! Roles that a request gives, against the inputs that there are.

use std::collections::BTreeMap;

use posenc_ir::{DType, Def, Dim, Graph, ValueId};

use super::Role;
use super::uses::is_cache;
use crate::error::Refusal;

/// Names in a refusal.
const MOST_NAMES: usize = 12;

/// Refuses a role of a name that is no input, and one that the type, the rank or the use of the
/// input contradicts. What these leave open, the request decides.
///
/// # Errors
/// With the first such name.
pub(crate) fn check(graph: &Graph, given: &BTreeMap<String, Role>) -> Result<(), Refusal> {
    let inputs = inputs(graph);
    for (name, role) in given {
        let Some(value) = inputs.iter().find(|v| graph.name(**v) == name) else {
            let why = format!(
                "`input-role` names {name}, which is no input of the model; {}",
                listed(graph, &inputs)
            );
            return Err(Refusal::invalid(why));
        };
        if let Some(why) = contradiction(graph, *value, *role) {
            let why = format!("`input-role` cannot make {name} {}: {why}", words(*role));
            return Err(Refusal::invalid(why));
        }
    }
    Ok(())
}

/// The inputs that a caller feeds.
fn inputs(graph: &Graph) -> Vec<ValueId> {
    let all = graph.scope(graph.main()).inputs().iter().copied();
    let is_fed =
        |v: &ValueId| matches!(graph.value(*v).def(), Def::Input(_)) && graph.stored(*v).is_none();
    all.filter(is_fed).collect()
}

fn listed(graph: &Graph, inputs: &[ValueId]) -> String {
    let names: Vec<&str> = inputs.iter().map(|v| graph.name(*v)).collect();
    match names.len().saturating_sub(MOST_NAMES) {
        0 if names.is_empty() => "it has none".to_owned(),
        0 => format!("its inputs are {}", names.join(", ")),
        more => format!(
            "its inputs are {} and {more} more",
            names[..MOST_NAMES].join(", ")
        ),
    }
}

/// What an input of a role contains.
pub(crate) fn words(role: Role) -> &'static str {
    match role {
        Role::Tokens => "token ids",
        Role::Positions => "position ids",
        Role::Padding => "a padding mask",
        Role::Counts => "lengths of sequences",
        Role::TokenTypes => "token types",
        Role::Past => "a cache",
        Role::CacheFlag => "the flag of the cache",
        // No flag gives this one.
        Role::Table => "a table",
        Role::Content => "content",
    }
}

/// Why an input cannot have a role, where its type, its rank or its use decides that.
fn contradiction(graph: &Graph, value: ValueId, role: Role) -> Option<String> {
    let dtype = graph.dtype(value);
    let dims = graph.value(value).shape();
    let rank = dims.map(<[Dim]>::len);
    let is_float = dtype.is_some_and(DType::is_float);
    if is_float && rank.is_some_and(|rank| rank >= 3 && is_cache(graph, value, rank)) {
        return Some("new keys or values are appended to it, so it is a cache".to_owned());
    }
    let is_number = dtype.is_none_or(DType::is_writable);
    let allowed = match role {
        // Rotations by several coordinates have ids of three dimensions.
        Role::Positions => {
            let most = if is_float { 2 } else { 3 };
            let fits = is_number && dtype != Some(DType::Bool);
            let allowed = "position ids are whole numbers of at most three dimensions, or \
                           fractions of at most two";
            (fits && rank.is_none_or(|rank| rank <= most), allowed)
        }
        Role::Padding => {
            let allowed = "a mask has numbers or booleans, and at least one dimension";
            (is_number && rank != Some(0), allowed)
        }
        _ => return None,
    };
    let (fits, allowed) = allowed;
    if fits {
        return None;
    }
    let dims: Vec<String> = dims
        .unwrap_or_default()
        .iter()
        .map(Dim::to_string)
        .collect();
    let dtype = dtype.map_or("of an unknown type".to_owned(), |dtype| dtype.to_string());
    Some(format!(
        "it is {dtype} [{}], and {allowed}",
        dims.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::sketch::Sketch;

    /// What is said of a role for an input of a small decoder with a cache.
    fn said(name: &str, role: Role) -> Result<(), String> {
        let mut s = Sketch::default();
        s.input("ids", DType::I64, &["batch", "sequence"]);
        s.input("where", DType::I64, &["3", "batch", "sequence"]);
        s.input("times", DType::F32, &["batch", "sequence"]);
        s.input("vectors", DType::F32, &["batch", "sequence", "8"]);
        s.input("image", DType::F32, &["batch", "3", "side", "side"]);
        s.input("bias", DType::F32, &["batch", "1", "sequence", "total"]);
        s.input("kept", DType::Bool, &["batch", "sequence"]);
        s.input("count", DType::I64, &[]);
        s.input("text", DType::String, &["batch"]);
        s.input("earlier", DType::F32, &["batch", "2", "past", "4"]);
        let new = s.weights(&[1, 2, 1, 4]);
        let keys = s.concat(&["earlier", &new], 2);
        let model = s.model(17, &[&keys]);
        let given = [(name.to_owned(), role)].into();
        check(model.graph(), &given).map_err(|why| why.to_string())
    }

    #[test]
    fn a_name_that_is_no_input_is_refused_with_those_that_are() {
        for name in ["position_ids", "", "Ids", "constant_0"] {
            let why = said(name, Role::Positions).unwrap_err();
            let want = format!("`input-role` names {name}, which is no input of the model; ");
            assert!(why.starts_with(&want), "{why}");
            assert!(
                why.contains("its inputs are ids, where, times, vectors"),
                "{why}"
            );
        }
        assert_eq!(said("ids", Role::Positions), Ok(()));
    }

    #[test]
    fn only_a_few_of_many_inputs_are_listed() {
        let mut s = Sketch::default();
        let names: Vec<String> = (0..MOST_NAMES + 5).map(|i| format!("x{i}")).collect();
        for name in &names {
            s.input(name, DType::F32, &["n"]);
        }
        let model = s.model(17, &[&names[0]]);
        let given = [("y".to_owned(), Role::Content)].into();
        let why = check(model.graph(), &given).unwrap_err().to_string();
        assert!(why.ends_with("x10, x11 and 5 more"), "{why}");
    }

    #[test]
    fn what_type_and_rank_contradict_is_refused() {
        for (name, role, want) in [
            (
                "vectors",
                Role::Positions,
                "it is float [batch, sequence, 8], and ",
            ),
            (
                "image",
                Role::Positions,
                "it is float [batch, 3, side, side], and ",
            ),
            (
                "kept",
                Role::Positions,
                "it is bool [batch, sequence], and ",
            ),
            ("text", Role::Positions, "it is string [batch], and "),
            ("text", Role::Padding, "it is string [batch], and "),
            ("count", Role::Padding, "it is int64 [], and "),
        ] {
            let why = said(name, role).unwrap_err();
            let place = format!("`input-role` cannot make {name} {}: ", words(role));
            assert!(why.starts_with(&(place + want)), "{why}");
        }
    }

    #[test]
    fn a_cache_is_nothing_else() {
        for role in [Role::Positions, Role::Padding, Role::Content] {
            let why = said("earlier", role).unwrap_err();
            assert!(why.ends_with("so it is a cache"), "{role:?}: {why}");
        }
    }

    #[test]
    fn what_type_and_rank_leave_open_is_accepted() {
        for (name, role) in [
            ("where", Role::Positions),
            ("times", Role::Positions),
            ("count", Role::Positions),
            ("kept", Role::Padding),
            ("bias", Role::Padding),
            ("times", Role::Padding),
            ("image", Role::Content),
            ("text", Role::Content),
        ] {
            assert_eq!(said(name, role), Ok(()), "{name} {role:?}");
        }
    }
}
