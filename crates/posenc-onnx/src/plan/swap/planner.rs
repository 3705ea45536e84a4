//! From flags, files and the model to the encoding that each site gets.

use serde_json::json;

use super::{EncodingSpec, Group, THETA};
use crate::attention::Site;
use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::error::{Refusal, RewriteError};
use crate::plan::numbers::{Init, Numbers};
use crate::plan::swap::size::numbers_in;
use crate::report::{Inferred, LimitCause};
use crate::request::hf_config::{HfConfig, RopeRequest};
use crate::request::params::Params;
use crate::request::{Parameters, Request};
use posenc_encodings::families::alibi::{self, Alibi};
use posenc_encodings::families::t5_bias::T5Bias;
use posenc_encodings::kind::{Kind, Layout};
use posenc_encodings::laws::Rope;

/// Buckets of T5.
const BUCKETS: usize = 32;

/// Distance from which on T5's buckets, and clipped biases, are alike.
const FAR: usize = 128;

/// The clip of Shaw's vectors (section 4.1 of the paper).
const CLIP: usize = 16;

/// Width of a convolution.
const KERNEL: usize = 3;
/// Makes a kind of encoding out of flags, files and what the model has.
pub(crate) struct Planner<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) request: &'a Request,
    pub(crate) parameters: &'a Parameters,
    pub(crate) params: Params,
    /// What `--hf-config` names.
    pub(crate) config: Option<HfConfig>,
    pub(crate) sites: &'a [usize],
    pub(crate) inferred: Vec<Inferred>,
}

impl Planner<'_> {
    /// What the chosen sites get.
    pub(crate) fn groups(&mut self, kind: Kind) -> Result<Vec<Group>, RewriteError> {
        let mut groups: Vec<Group> = vec![];
        if kind == Kind::None {
            return Ok(groups);
        }
        for &i in self.sites {
            let site = self.context.site(i);
            let new = self.encoding(kind, site)?;
            let stack = site.place.stack;
            let same = |g: &&mut Group| {
                // What stands before all sites stands before those of one stack.
                let beside = !EncodingSpec::is_absolute(kind)
                    || self.context.site(g.sites[0]).place.stack == stack;
                beside && g.new == new
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.sites.push(i),
                None => groups.push(Group {
                    sites: vec![i],
                    new,
                }),
            }
        }
        Ok(groups)
    }

    fn encoding(&mut self, kind: Kind, site: &Site) -> Result<EncodingSpec, RewriteError> {
        let p = self.parameters;
        let place = || self.context.graph().place(site.node);
        let unknown = |what: &str| -> RewriteError {
            Refusal::unsupported(format!("{}: {what} of its attention is not known", place()))
                .into()
        };
        let heads = || site.heads.ok_or_else(|| unknown("the number of heads"));
        let head_dim = || site.head_dim.ok_or_else(|| unknown("the width of a head"));
        let given = |name: &str| self.params.at(site.place, name);
        let first_dim = |n: &Option<Numbers>| n.as_ref().and_then(|n| n.dims()?.first().copied());
        Ok(match kind {
            Kind::Learned => {
                let table = given("position_embedding");
                let rows = match first_dim(&table) {
                    Some(rows) => rows,
                    None => self.rows(site)?,
                };
                let table = table.unwrap_or(self.start(site, 0, 0.02));
                EncodingSpec::Learned { rows, table }
            }
            Kind::Sinusoidal => EncodingSpec::Sinusoidal {
                layout: p.layout.unwrap_or(Layout::Interleaved),
                base: p.theta.unwrap_or(THETA),
                rows: p.max_length,
            },
            Kind::Conv => {
                let weight = given("weight");
                let kernel = weight.as_ref().and_then(|w| w.dims()?.get(2).copied());
                let kernel = kernel.unwrap_or(KERNEL);
                EncodingSpec::Conv {
                    kernel,
                    // wav2vec 2.0 starts with a deviation of 2/√(k · dim), dim being 1 here.
                    weight: weight.unwrap_or(self.start(site, 1, (4.0 / kernel as f64).sqrt())),
                    bias: given("bias").unwrap_or(Numbers::Start(Init::Zero)),
                }
            }
            Kind::Rope => {
                let head_dim = head_dim()?;
                let config = self.configured(site)?;
                let of_config = config.as_ref().and_then(|c| c.rotary_dim);
                let rotary_dim = p.rotary_dim.or(of_config).unwrap_or(head_dim);
                let theta = p.theta.or(config.map(|c| c.theta)).unwrap_or(THETA);
                let rope = Rope::new(theta, rotary_dim, head_dim)
                    .map_err(|e| Refusal::invalid(format!("{}: {e}", place())))?;
                EncodingSpec::Rope {
                    rope,
                    layout: p.layout.unwrap_or(Layout::Half),
                }
            }
            Kind::Alibi => EncodingSpec::Alibi(self.alibi(site, heads()?)?),
            Kind::T5Bias => {
                let heads = heads()?;
                let table = given("relative_attention_bias");
                let rows = first_dim(&table).or(p.num_buckets).unwrap_or(BUCKETS);
                let asked = p.num_buckets.unwrap_or(rows);
                if asked != rows {
                    let why = format!("`num-buckets` is {asked}, and the table has {rows} rows");
                    return Err(Refusal::invalid(why).into());
                }
                let bias = T5Bias {
                    num_buckets: rows,
                    max_distance: Some(p.max_distance.unwrap_or(FAR)),
                    max_distance_range: None,
                    bidirectional: self.bidirectional(site),
                    heads,
                };
                let least = if bias.bidirectional { 4 } else { 2 };
                if rows < least || bias.max_distance <= Some(rows / least) {
                    let why = format!(
                        "{rows} buckets and a maximum distance of {} leave nothing between them; give \
                         a larger `max-distance` or `num-buckets`",
                        bias.max_distance.unwrap_or(0)
                    );
                    return Err(Refusal::invalid(why).into());
                }
                // The bucket of each distance is an int64.
                numbers_in(&[2, p.max_distance.unwrap_or(FAR), 2])?;
                let std = ((heads * site.head_dim.unwrap_or(1)) as f64).powf(-0.5);
                let table = table.unwrap_or(self.start(site, 2, std));
                EncodingSpec::T5Bias { bias, table }
            }
            Kind::RelativeBias => {
                let table = given("relative_bias");
                let max_distance = self.clip(first_dim(&table), FAR, "relative_bias")?;
                EncodingSpec::RelativeBias {
                    max_distance,
                    heads: heads()?,
                    table: table.unwrap_or(self.start(site, 3, 0.02)),
                }
            }
            Kind::Shaw => {
                let (key, value) = (given("relative_key"), given("relative_value"));
                let rows = first_dim(&key).or(first_dim(&value));
                let max_distance = self.clip(rows, CLIP, "relative_key")?;
                let none = key.is_none() && value.is_none();
                // Glorot's deviation for a table of such rows.
                let wide = (2 * max_distance + 1 + head_dim()?) as f64;
                let start = |n| none.then(|| self.start(site, n, (2.0 / wide).sqrt()));
                EncodingSpec::Shaw {
                    max_distance,
                    key: key.or(start(4)),
                    value: value.or(start(5)),
                }
            }
            Kind::TransformerXl => {
                let (heads, head_dim) = (heads()?, head_dim()?);
                let projection = given("position_projection");
                let dim = projection.as_ref().and_then(|w| w.dims()?.get(1).copied());
                let dim = dim.unwrap_or(heads * head_dim);
                let or = |name: &str, n| given(name).unwrap_or(self.start(site, n, 0.02));
                EncodingSpec::TransformerXl {
                    content_bias: or("content_bias", 6),
                    position_bias: or("position_bias", 7),
                    position_projection: projection.unwrap_or(self.start(site, 8, 0.02)),
                    heads,
                    head_dim,
                    dim,
                }
            }
            Kind::None | Kind::Disentangled | Kind::Unknown => {
                let why = format!("{kind} is found, not written; give another `to`");
                return Err(Refusal::invalid(why).into());
            }
        })
    }

    /// What the configuration that is to be followed says of a layer.
    fn configured(&self, site: &Site) -> Result<Option<RopeRequest>, RewriteError> {
        let (Some(source), Some(config)) = (&self.request.hf_config, &self.config) else {
            return Ok(None);
        };
        let asked = config.rope_for(site.place.layer);
        Ok(asked.map_err(|e| source.refuse(e))?)
    }

    /// What a table starts from: zeros, or with a seed what the papers start from.
    fn start(&self, site: &Site, table: u64, std: f64) -> Numbers {
        Numbers::Start(match self.parameters.seed {
            None => Init::Zero,
            Some(seed) => {
                let place = (
                    site.place.layer as u64,
                    site.place.stack.map_or(0, |s| s as u64 + 1),
                );
                // Where a layer shares nothing with its neighbors, it starts elsewhere.
                let own = [place.0 * u64::from(!shared(table)), place.1, table];
                let mix = own.iter().fold(seed, |s, n| {
                    s.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(n + 1)
                });
                Init::Normal { std, seed: mix }
            }
        })
    }

    /// The clip that a table of so many rows has, or the one that is asked for.
    fn clip(&self, rows: Option<usize>, default: usize, name: &str) -> Result<usize, RewriteError> {
        let asked = self.parameters.max_distance;
        let Some(rows) = rows else {
            return Ok(asked.unwrap_or(default));
        };
        if rows % 2 == 0 {
            let why = format!("{name} of `params` has {rows} rows; a clip of ±k has 2k + 1");
            return Err(Refusal::invalid(why).into());
        }
        let clip = rows / 2;
        match asked {
            Some(asked) if asked != clip => {
                let why = format!("`max-distance` is {asked}, and {name} of `params` has ±{clip}");
                Err(Refusal::invalid(why).into())
            }
            _ => Ok(clip),
        }
    }

    fn bidirectional(&self, site: &Site) -> bool {
        let seen = site.mask.causal != Some(true);
        self.parameters.bidirectional.unwrap_or(seen)
    }

    fn alibi(&self, site: &Site, heads: usize) -> Result<Alibi, RewriteError> {
        let slopes = match self.params.at(site.place, "slopes") {
            Some(given) => given.values(&[heads])?,
            None => match &self.parameters.slopes {
                Some(slopes) if slopes.len() == heads => slopes.clone(),
                Some(slopes) => {
                    let why = format!("`slopes` has {}, and attention {heads} heads", slopes.len());
                    return Err(Refusal::invalid(why).into());
                }
                None => alibi::slopes(heads),
            },
        };
        Ok(Alibi {
            heads,
            slopes,
            symmetric: self.bidirectional(site).then_some(true),
        })
    }

    /// Rows of a table that no file gives.
    fn rows(&mut self, site: &Site) -> Result<usize, RewriteError> {
        if let Some(rows) = self.parameters.max_length {
            return Ok(rows);
        }
        let reaches = |f: &&Finding| f.sites.contains(&site.index);
        let table = self
            .context
            .found
            .findings
            .iter()
            .filter(reaches)
            .find_map(|f| match &f.encoding {
                Encoding::Learned(table) => Some(table.max_positions),
                _ => f.max_length,
            });
        let limits = &self.context.found.limits;
        let limit = limits
            .iter()
            .filter(|l| l.cause != LimitCause::Runtime)
            .map(|l| l.length);
        let (rows, source) = match (table, limit.min()) {
            (Some(rows), _) => (rows, "the table that it replaces"),
            (None, Some(rows)) => (rows, "the shortest of the graph's limits"),
            (None, None) => {
                let why =
                    "how many positions the table is to hold stands nowhere; give `max-length`";
                return Err(Refusal::missing("max-length", why).into());
            }
        };
        let inferred = Inferred {
            name: "max-length".into(),
            value: json!(rows),
            source: source.into(),
        };
        if !self.inferred.contains(&inferred) {
            self.inferred.push(inferred);
        }
        Ok(rows)
    }
}

/// Whether the layers of a stack share a table that no file gives: all but Shaw's and
/// Transformer-XL's.
fn shared(table: u64) -> bool {
    table < 4
}
