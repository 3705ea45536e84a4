//! The scaling dict: `rope_scaling` or `rope_parameters`.

use super::Sources;
use super::dict::Dict;
use super::error::HfConfigError;
use super::layers::LayerKind;
use posenc_encodings::laws::{
    Dynamic, Linear, Llama3, LongRope, LongRopeAttention, Ntk, Proportional, RampBounds, Scaling,
    Yarn,
};

const SPELLINGS: [&str; 2] = ["rope_scaling", "rope_parameters"];

/// Keys that every type may carry: the type's name and, in version 5, what
/// else stood outside.
const EVERYWHERE: [&str; 4] = ["rope_type", "type", "rope_theta", "partial_rotary_factor"];

/// The types and the keys that each knows.
const TYPES: [(&str, &[&str]); 9] = [
    ("default", &[]),
    ("linear", &["factor"]),
    (
        "dynamic",
        &["factor", "original_max_position_embeddings", "alpha"],
    ),
    ("ntk", &["factor"]),
    (
        "yarn",
        &[
            "factor",
            "original_max_position_embeddings",
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
        ],
    ),
    (
        "longrope",
        &[
            "short_factor",
            "long_factor",
            "factor",
            "attention_factor",
            "original_max_position_embeddings",
            "short_mscale",
            "long_mscale",
        ],
    ),
    (
        "llama3",
        &[
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_max_position_embeddings",
        ],
    ),
    ("proportional", &["factor"]),
    ("su", &[]),
];

/// Keys that Hunyuan's dynamic configs carry beside `alpha`, without effect.
const BESIDE_ALPHA: [&str; 4] = ["beta_fast", "beta_slow", "mscale", "mscale_all_dim"];

/// Keys of forms that need more than frequencies.
const UNSUPPORTED: [(&str, &str); 3] = [
    ("mrope_section", "multimodal positions (mRoPE)"),
    ("mrope_interleaved", "multimodal positions (mRoPE)"),
    ("llama_4_scaling_beta", "queries scaled by position"),
];

/// The dict that holds for a kind of layer, if the config has one.
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

/// The type of a dict, with the older names replaced.
fn kind(section: &Dict<'_>) -> Result<&'static str, HfConfigError> {
    for (key, what) in UNSUPPORTED {
        if section.has(key) {
            return Err(HfConfigError::NotSupported {
                key: section.path(key),
                what,
            });
        }
    }
    let given = match section.str("rope_type")? {
        Some(word) => Some(("rope_type", word)),
        None => section.str("type")?.map(|word| ("type", word)),
    };
    let Some((key, word)) = given else {
        // Version 5 may leave the default out.
        if section.keys().all(|key| EVERYWHERE.contains(&key)) {
            return Ok("default");
        }
        return section.needed("rope_type", None, "a scaling");
    };
    if word == "mrope" {
        let (key, what) = (section.path(key), "multimodal positions (mRoPE)");
        return Err(HfConfigError::NotSupported { key, what });
    }
    // Early Phi-3 configs said `su`, and `yarn` with lists of divisors.
    let lists = section.has("short_factor") && section.has("long_factor");
    let word = match word {
        "su" => "longrope",
        "yarn" if lists => "longrope",
        "none" => "default",
        word => word,
    };
    let known = || TYPES.iter().map(|(name, _)| *name);
    let unknown = || HfConfigError::UnknownType {
        key: section.path(key),
        got: word.to_owned(),
        known: known().collect::<Vec<_>>().join(", "),
    };
    known().find(|name| *name == word).ok_or_else(unknown)
}

fn refuse_unknown_keys(section: &Dict<'_>, kind: &str) -> Result<(), HfConfigError> {
    let own = TYPES
        .iter()
        .find(|(name, _)| *name == kind)
        .map_or(&[][..], |(_, keys)| keys);
    let beside = if kind == "dynamic" && section.has("alpha") {
        &BESIDE_ALPHA[..]
    } else {
        &[]
    };
    let known =
        |key: &str| EVERYWHERE.contains(&key) || own.contains(&key) || beside.contains(&key);
    match section.keys().find(|key| !known(key)) {
        None => Ok(()),
        Some(key) => Err(HfConfigError::UnknownKey {
            key: section.path(key),
            kind: kind.to_owned(),
            known: [own, &EVERYWHERE[..]].concat().join(", "),
        }),
    }
}

/// The scaling that a dict asks for, by the rules of transformers 4.57.
pub(crate) fn scaling(
    config: &Dict<'_>,
    section: &Dict<'_>,
    sources: &mut Sources,
) -> Result<Scaling, HfConfigError> {
    let kind = kind(section)?;
    refuse_unknown_keys(section, kind)?;
    let mut read = Reader {
        config,
        section,
        kind,
        sources,
    };
    let scaling = match kind {
        "linear" => Scaling::Linear(Linear::new(read.factor()?)?),
        "ntk" => Scaling::Ntk(Ntk::new(read.factor()?)?),
        "dynamic" => read.dynamic()?,
        "yarn" => read.yarn()?,
        "longrope" => read.longrope()?,
        "llama3" => read.llama3()?,
        "proportional" => read.proportional()?,
        _ => Scaling::None,
    };
    Ok(scaling)
}

struct Reader<'a> {
    config: &'a Dict<'a>,
    section: &'a Dict<'a>,
    kind: &'static str,
    sources: &'a mut Sources,
}

impl Reader<'_> {
    fn needed_for(&self) -> String {
        format!("{} scaling", self.kind)
    }

    fn number(&mut self, key: &str, flag: &str) -> Result<Option<f64>, HfConfigError> {
        let value = self.section.f64(key)?;
        if let Some(value) = value {
            self.sources.add(flag, value, self.section.path(key));
        }
        Ok(value)
    }

    fn needed_number(&mut self, key: &str, flag: &str) -> Result<f64, HfConfigError> {
        let value = self.number(key, flag)?;
        self.section.needed(key, value, &self.needed_for())
    }

    fn factor(&mut self) -> Result<f64, HfConfigError> {
        self.needed_number("factor", "factor")
    }

    fn length(&mut self, dict: &Dict<'_>, key: &str) -> Result<Option<usize>, HfConfigError> {
        let value = dict.usize(key)?;
        if let Some(value) = value {
            self.sources.add("original-length", value, dict.path(key));
        }
        Ok(value)
    }

    /// The length inside the dict, else the model's.
    fn original_or_max(&mut self) -> Result<usize, HfConfigError> {
        let (section, config) = (*self.section, *self.config);
        let inner = self.length(&section, "original_max_position_embeddings")?;
        if let Some(length) = inner.filter(|&length| length > 0) {
            return Ok(length);
        }
        let outer = self.length(&config, "max_position_embeddings")?;
        section.needed(
            "original_max_position_embeddings",
            outer,
            &self.needed_for(),
        )
    }

    /// Scales from `max_position_embeddings`; `alpha` is Hunyuan's fixed form.
    fn dynamic(&mut self) -> Result<Scaling, HfConfigError> {
        if let Some(alpha) = self.section.f64("alpha")?.filter(|&alpha| alpha != 0.0) {
            self.sources
                .add("factor", alpha, self.section.path("alpha"));
            return Ok(Scaling::Ntk(Ntk::new(alpha)?));
        }
        let factor = self.factor()?;
        let config = *self.config;
        let length = self.length(&config, "max_position_embeddings")?;
        let length = config.needed("max_position_embeddings", length, &self.needed_for())?;
        Ok(Scaling::Dynamic(Dynamic::new(factor, length)?))
    }

    fn yarn(&mut self) -> Result<Scaling, HfConfigError> {
        let factor = self.factor()?;
        let original_length = self.original_or_max()?;
        let mut yarn = Yarn::new(factor, original_length)?;
        // Zero counts as absent.
        let beta = |value: Option<f64>| value.filter(|&beta| beta != 0.0);
        yarn.beta_fast = beta(self.number("beta_fast", "beta-fast")?).unwrap_or(yarn.beta_fast);
        yarn.beta_slow = beta(self.number("beta_slow", "beta-slow")?).unwrap_or(yarn.beta_slow);
        yarn.attention_factor = self.number("attention_factor", "attention-factor")?;
        yarn.mscale = self.number("mscale", "mscale")?;
        yarn.mscale_all_dim = self.number("mscale_all_dim", "mscale-all-dim")?;
        if self.section.bool("truncate")? == Some(false) {
            yarn.bounds = RampBounds::Exact;
            self.sources
                .add("no-truncate", true, self.section.path("truncate"));
        }
        Ok(Scaling::Yarn(yarn))
    }

    fn llama3(&mut self) -> Result<Scaling, HfConfigError> {
        let factor = self.factor()?;
        let low = self.needed_number("low_freq_factor", "low-freq-factor")?;
        let high = self.needed_number("high_freq_factor", "high-freq-factor")?;
        let section = *self.section;
        let key = "original_max_position_embeddings";
        let length = self.length(&section, key)?;
        let length = section.needed(key, length, &self.needed_for())?;
        Ok(Scaling::Llama3(Llama3::new(factor, low, high, length)?))
    }

    /// A length beside `max_position_embeddings` is the original one and gives
    /// the extension by their ratio, whatever `factor` says. A length inside
    /// the dict is the original one too, and gives the extension where there is
    /// no `factor`; without either the model's length is the original one.
    fn longrope(&mut self) -> Result<Scaling, HfConfigError> {
        let (section, config) = (*self.section, *self.config);
        let key = "original_max_position_embeddings";
        let max = config.usize("max_position_embeddings")?;
        let factor = section.f64("factor")?;
        let outer = self.length(&config, key)?.filter(|&length| length > 0);
        let inner = match outer {
            None => self.length(&section, key)?.filter(|&length| length > 0),
            Some(_) => None,
        };
        let ratio = |length: usize| max.map(|max| max as f64 / length as f64);
        let (original_length, extension) = match (outer, inner) {
            (Some(length), _) => (length, ratio(length)),
            (None, Some(length)) => (length, factor.or_else(|| ratio(length))),
            (None, None) => {
                let length = self.length(&config, "max_position_embeddings")?;
                (
                    config.needed("max_position_embeddings", length, &self.needed_for())?,
                    factor,
                )
            }
        };
        let attention = self.longrope_attention(extension, original_length)?;
        let list = |key: &str| section.needed(key, section.numbers(key)?, &self.needed_for());
        let (short_factor, long_factor) = (list("short_factor")?, list("long_factor")?);
        self.sources.add(
            "short-factor",
            short_factor.clone(),
            section.path("short_factor"),
        );
        self.sources.add(
            "long-factor",
            long_factor.clone(),
            section.path("long_factor"),
        );
        let longrope = LongRope {
            short_factor,
            long_factor,
            original_length,
            attention,
        };
        Ok(Scaling::LongRope(longrope))
    }

    fn longrope_attention(
        &mut self,
        extension: Option<f64>,
        original_length: usize,
    ) -> Result<LongRopeAttention, HfConfigError> {
        let explicit = self.number("attention_factor", "attention-factor")?;
        let short = self.number("short_mscale", "short-mscale")?;
        let long = self.number("long_mscale", "long-mscale")?;
        if let Some(m) = explicit {
            let switched = [("short_mscale", short), ("long_mscale", long)];
            if let Some((key, _)) = switched.iter().find(|(_, value)| value.is_some()) {
                let (first, second) = (
                    self.section.path("attention_factor"),
                    self.section.path(key),
                );
                return Err(HfConfigError::Conflict { first, second });
            }
            return Ok(LongRopeAttention::Explicit(m));
        }
        if let (Some(short), Some(long)) = (short, long) {
            return Ok(LongRopeAttention::Switched { short, long });
        }
        let extension = self
            .section
            .needed("factor", extension, &self.needed_for())?;
        self.sources
            .add("factor", extension, "length ratio or factor".to_owned());
        let computed = LongRopeAttention::Extension(extension);
        if short.is_none() && long.is_none() {
            return Ok(computed);
        }
        // The one that is missing is the computed one.
        let plain = LongRope {
            short_factor: Vec::new(),
            long_factor: Vec::new(),
            original_length,
            attention: computed,
        };
        let m = plain.attention_factor(original_length);
        let (short, long) = (short.unwrap_or(m), long.unwrap_or(m));
        Ok(LongRopeAttention::Switched { short, long })
    }

    fn proportional(&mut self) -> Result<Scaling, HfConfigError> {
        let factor = self.number("factor", "factor")?.unwrap_or(1.0);
        let share = match self.section.f64("partial_rotary_factor")? {
            Some(share) => share,
            None => self.config.f64("partial_rotary_factor")?.unwrap_or(1.0),
        };
        Ok(Scaling::Proportional(Proportional::new(share, factor)?))
    }
}
