//! The base θ and the widths of heads.

use posenc_encodings::hf::{Dict, HfConfigError};
use posenc_encodings::inferred::Inferred;
use posenc_encodings::laws::ScalingError;

/// Base that transformers uses where a config has none.
pub(crate) const DEFAULT_THETA: f64 = 10_000.0;

/// The source of that base.
const DEFAULT_SOURCE: &str = "Hugging Face's default";

/// The keys of the base outside of the scaling dict, the first of which counts.
pub(crate) const THETAS: [&str; 3] = ["rope_theta", "rotary_emb_base", "global_rope_theta"];

/// The keys of the base of layers with a window, which are never scaled.
pub(crate) const LOCAL_THETAS: [&str; 2] = ["rope_local_base_freq", "local_rope_theta"];

/// The keys of the share of a head that rotates, outside of the scaling dict, the first of which counts.
pub(crate) const SHARES: [&str; 2] = ["partial_rotary_factor", "rotary_pct"];

/// Whether a base that was read is that of a key, and not the default.
pub(crate) fn is_stated(inferred: &[Inferred]) -> bool {
    let is_default = |value: &Inferred| value.name == "theta" && value.source == DEFAULT_SOURCE;
    !inferred.iter().any(is_default)
}

/// The base of a layer: its own, the scaling dict's, the model's.
pub(crate) fn theta(
    dict: &Dict<'_>,
    section: Option<&Dict<'_>>,
    local: Option<(&str, f64)>,
    inferred: &mut Vec<Inferred>,
) -> Result<f64, HfConfigError> {
    if let Some((key, theta)) = local {
        inferred.push(Inferred::new("theta", theta, dict.path(key)));
        return Ok(theta);
    }
    if let Some(section) = section
        && let Some(theta) = section.f64(THETAS[0])?
    {
        inferred.push(Inferred::new("theta", theta, section.path(THETAS[0])));
        return Ok(theta);
    }
    let (theta, source) = match dict.first_f64(&THETAS)? {
        Some((key, theta)) => (theta, dict.path(key)),
        None => (DEFAULT_THETA, DEFAULT_SOURCE.to_owned()),
    };
    inferred.push(Inferred::new("theta", theta, source));
    Ok(theta)
}

/// Widths of a head and of its rotated part.
pub(crate) struct Widths {
    pub(crate) rotary: Option<usize>,
    pub(crate) head: Option<usize>,
    /// The share of a head that rotates, where its width is not said.
    pub(crate) share: Option<f64>,
    /// The keys that `rotary` came from.
    pub(crate) source: String,
}

/// `qk_rope_head_dim`, else `rotary_dim`, else the share of the head.
pub(crate) fn widths(
    dict: &Dict<'_>,
    section: Option<&Dict<'_>>,
    inferred: &mut Vec<Inferred>,
) -> Result<Widths, HfConfigError> {
    if let Some(rotary) = dict.usize("qk_rope_head_dim")? {
        let source = dict.path("qk_rope_head_dim");
        return Ok(Widths {
            rotary: Some(rotary),
            head: Some(rotary),
            share: None,
            source,
        });
    }
    let (head, of) = match dict.usize("head_dim")?.filter(|&head| head > 0) {
        Some(head) => (Some(head), "head_dim"),
        None => (computed_head(dict)?, "hidden_size / num_attention_heads"),
    };
    let inner = match section {
        Some(section) => section
            .f64(SHARES[0])?
            .map(|share| (section.path(SHARES[0]), share)),
        None => None,
    };
    let share = match inner {
        Some(share) => Some(share),
        None => {
            let outer = dict.first_f64(&SHARES)?;
            outer.map(|(key, share)| (dict.path(key), share))
        }
    };
    if let Some(rotary) = dict.usize("rotary_dim")? {
        if let (Some(head), Some((first, share))) = (head, share)
            && rotated(head, share) != rotary
        {
            let second = dict.path("rotary_dim");
            return Err(HfConfigError::Conflict { first, second });
        }
        return Ok(Widths {
            rotary: Some(rotary),
            head,
            share: None,
            source: dict.path("rotary_dim"),
        });
    }
    let Some((key, share)) = share else {
        return Ok(Widths {
            rotary: head,
            head,
            share: None,
            source: of.to_owned(),
        });
    };
    if !(share > 0.0 && share <= 1.0) {
        return Err(ScalingError::Share {
            name: "partial_rotary_factor",
            value: share,
        }
        .into());
    }
    inferred.push(Inferred::new(
        "partial-rotary-factor",
        share,
        key.to_owned(),
    ));
    Ok(Widths {
        rotary: head.map(|head| rotated(head, share)),
        head,
        share: head.is_none().then_some(share),
        source: format!("{of} · {key}"),
    })
}

/// A share of a head, truncated as Python's int() does.
pub(crate) fn rotated(head: usize, share: f64) -> usize {
    (head as f64 * share) as usize
}

fn computed_head(dict: &Dict<'_>) -> Result<Option<usize>, HfConfigError> {
    let hidden = dict.first_usize(&["hidden_size", "n_embd"])?;
    let heads = dict.first_usize(&["num_attention_heads", "n_head"])?;
    Ok(hidden
        .zip(heads)
        .and_then(|((_, hidden), (_, heads))| hidden.checked_div(heads)))
}
