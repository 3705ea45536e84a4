//! The law that the scaling dict of a Hugging Face config means.

use super::law::Law;
use super::plain::Plain;
use super::{LawName, Scaling};
use crate::hf::{Dict, HfConfigError, HfType, Reader};
use crate::inferred::Inferred;
use crate::words::Word;

/// Keys that every scaling dict may have: the type and, in version 5 of transformers, what was
/// outside of the dict before.
pub const EVERYWHERE: [&str; 4] = ["rope_type", "type", "rope_theta", "partial_rotary_factor"];

/// The type of plain RoPE.
const DEFAULT: &str = "default";

/// The scaling that a dict means, by the rules of transformers 4.57; `config` is what it is part
/// of, `inferred` gets each value with its key.
///
/// # Errors
/// An unknown type, a key that the type does not have, a missing or impossible value.
pub fn scaling_of_config(
    config: &Dict<'_>,
    section: &Dict<'_>,
    inferred: &mut Vec<Inferred>,
) -> Result<Scaling, HfConfigError> {
    let Some(law) = law(section)? else {
        refuse_unknown_keys(section, DEFAULT, &[], &[])?;
        return Ok(Scaling::None);
    };
    let facts = law.facts();
    refuse_unknown_keys(section, facts.word, facts.hf_keys, facts.hf_zeros)?;
    let mut reader = Reader {
        config: *config,
        section: *section,
        law: facts.word,
        inferred,
    };
    Scaling::of_hf(law, &mut reader)
}

/// The law of a dict; nothing for plain RoPE.
fn law(section: &Dict<'_>) -> Result<Option<LawName>, HfConfigError> {
    let of = |key| Ok::<_, HfConfigError>(section.str(key)?.map(|word| (key, word)));
    let (given, older) = (of("rope_type")?, of("type")?);
    let Some((key, word)) = given.or(older) else {
        // Version 5 may leave the default out.
        if section.keys().all(|key| EVERYWHERE.contains(&key)) {
            return Ok(None);
        }
        return section.needed("rope_type", None, "a scaling");
    };
    let unknown = || HfConfigError::UnknownType {
        key: section.path(key),
        got: word.to_owned(),
        known: known_types().join(", "),
    };
    let law = law_of(word, section).ok_or_else(unknown)?;
    if older.is_some_and(|(_, other)| other != word && law_of(other, section) != Some(law)) {
        let (first, second) = (section.path("type"), section.path(key));
        return Err(HfConfigError::Conflict { first, second });
    }
    Ok(law)
}

/// The law of a type, nothing for plain RoPE; `None` where no law has that type.
fn law_of(word: &str, section: &Dict<'_>) -> Option<Option<LawName>> {
    if Plain::facts().hf_types.iter().any(|hf| hf.word == word) {
        return Some(None);
    }
    let met = LawName::ALL.iter().flat_map(|&law| {
        let types = law.facts().hf_types.iter();
        types
            .filter(|hf| hf.is_met(word, section))
            .map(move |hf| (hf.with.len(), law))
    });
    met.max_by_key(|(keys, _)| *keys).map(|(_, law)| Some(law))
}

/// Every type once.
fn known_types() -> Vec<&'static str> {
    let mut known = vec![DEFAULT];
    for HfType { word, .. } in LawName::ALL.iter().flat_map(|law| law.facts().hf_types) {
        if !known.contains(word) {
            known.push(word);
        }
    }
    known
}

fn refuse_unknown_keys(
    section: &Dict<'_>,
    kind: &str,
    keys: &[&str],
    zeros: &[&str],
) -> Result<(), HfConfigError> {
    let is_known = |key: &str| {
        let is_zero = zeros.contains(&key) && !section.is_set(key);
        EVERYWHERE.contains(&key) || keys.contains(&key) || is_zero
    };
    match section.keys().find(|key| !is_known(key)) {
        None => Ok(()),
        Some(key) => Err(HfConfigError::UnknownKey {
            key: section.path(key),
            kind: kind.to_owned(),
            known: [keys, &EVERYWHERE[..]].concat().join(", "),
        }),
    }
}
