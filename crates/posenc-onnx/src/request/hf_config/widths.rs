//! The base θ and the widths of heads.

use posenc_encodings::hf::{Dict, HfConfigError};
use posenc_encodings::inferred::Inferred;
use posenc_encodings::laws::ScalingError;

/// Base that transformers uses where a config has none.
const DEFAULT_THETA: f64 = 10_000.0;

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
        && let Some(theta) = section.f64("rope_theta")?
    {
        inferred.push(Inferred::new("theta", theta, section.path("rope_theta")));
        return Ok(theta);
    }
    let keys = ["rope_theta", "rotary_emb_base", "global_rope_theta"];
    let (theta, source) = match dict.first_f64(&keys)? {
        Some((key, theta)) => (theta, dict.path(key)),
        None => (DEFAULT_THETA, "Hugging Face's default".to_owned()),
    };
    inferred.push(Inferred::new("theta", theta, source));
    Ok(theta)
}

/// Widths of a head and of its rotated part.
pub(crate) struct Widths {
    pub(crate) rotary: Option<usize>,
    pub(crate) head: Option<usize>,
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
            source,
        });
    }
    let (head, of) = match dict.usize("head_dim")?.filter(|&head| head > 0) {
        Some(head) => (Some(head), "head_dim"),
        None => (computed_head(dict)?, "hidden_size / num_attention_heads"),
    };
    if let Some(rotary) = dict.usize("rotary_dim")? {
        return Ok(Widths {
            rotary: Some(rotary),
            head,
            source: dict.path("rotary_dim"),
        });
    }
    let inner = match section {
        Some(section) => section.f64("partial_rotary_factor")?,
        None => None,
    };
    let share = match inner {
        Some(share) => Some(("partial_rotary_factor", share)),
        None => dict.first_f64(&["partial_rotary_factor", "rotary_pct"])?,
    };
    let Some((key, share)) = share else {
        return Ok(Widths {
            rotary: head,
            head,
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
    // Truncated as Python's int() does.
    let rotary = head.map(|head| (head as f64 * share) as usize);
    Ok(Widths {
        rotary,
        head,
        source: format!("{of} · {key}"),
    })
}

fn computed_head(dict: &Dict<'_>) -> Result<Option<usize>, HfConfigError> {
    let hidden = dict.first_usize(&["hidden_size", "n_embd"])?;
    let heads = dict.first_usize(&["num_attention_heads", "n_head"])?;
    Ok(hidden
        .zip(heads)
        .and_then(|((_, hidden), (_, heads))| hidden.checked_div(heads)))
}
