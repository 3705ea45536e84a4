//! The scaling dict: `rope_scaling` or `rope_parameters`.

use super::layers::LayerKind;
use posenc_encodings::hf::{Dict, HfConfigError};
use posenc_encodings::inferred::Inferred;
use posenc_encodings::laws::{Scaling, scaling_of_config};

/// The names of the dict: that of version 4 of transformers, and that of version 5.
pub(crate) const SPELLINGS: [&str; 2] = ["rope_scaling", "rope_parameters"];

/// Keys of forms that need more than frequencies.
const UNSUPPORTED: [(&str, &str); 3] = [
    ("mrope_section", MROPE),
    ("mrope_interleaved", MROPE),
    ("llama_4_scaling_beta", "queries scaled by position"),
];

const MROPE: &str = "multimodal positions (mRoPE)";

/// The dict for a kind of layer, if the config has one.
pub(crate) fn section<'a>(
    dict: &Dict<'a>,
    kind: &LayerKind,
) -> Result<Option<Dict<'a>>, HfConfigError> {
    let mut found = None;
    for spelling in SPELLINGS {
        let Some(map) = dict.object(spelling)?.filter(|map| !map.is_empty()) else {
            continue;
        };
        match found {
            Some((first, other)) if other != map => {
                let (first, second) = (dict.path(first), dict.path(spelling));
                return Err(HfConfigError::Conflict { first, second });
            }
            _ => found = Some((spelling, map)),
        }
    }
    let Some((spelling, map)) = found else {
        return Ok(None);
    };
    let per_kind = map.values().any(|value| value.is_object())
        && map
            .values()
            .all(|value| value.is_object() || value.is_null());
    if !per_kind {
        return Ok(Some(Dict::new(map, spelling)));
    }
    let outer = Dict::new(map, spelling);
    let inner = outer.object(kind.key())?;
    let needed_for = "a layer of that type";
    let present = map.contains_key(kind.key());
    match inner {
        Some(inner) => Ok(Some(Dict::new(inner, spelling))),
        None if present => Ok(None),
        None => outer.needed(kind.key(), None, needed_for),
    }
}

/// The scaling that a dict means; each value is added to `inferred`.
pub(crate) fn scaling(
    config: &Dict<'_>,
    section: &Dict<'_>,
    inferred: &mut Vec<Inferred>,
) -> Result<Scaling, HfConfigError> {
    let unsupported = |key: &str, what| {
        let key = section.path(key);
        Err(HfConfigError::NotSupported { key, what })
    };
    for (key, what) in UNSUPPORTED {
        if section.has(key) {
            return unsupported(key, what);
        }
    }
    for key in ["rope_type", "type"] {
        match section.str(key)? {
            Some("mrope") => return unsupported(key, MROPE),
            Some(_) => break,
            None => {}
        }
    }
    scaling_of_config(config, section, inferred)
}
