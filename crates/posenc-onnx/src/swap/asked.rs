//! What a request asks to put in, for each site, with its numbers.

use serde_json::json;

use super::params::Params;
use super::{Ground, Init, Numbers};
use crate::attention::Site;
use crate::encoding::{Encoding, Finding};
use crate::encodings::alibi::{self, Alibi};
use crate::encodings::relative_bias::RelativeBias;
use crate::encodings::sinusoidal::{Denominator, Sinusoidal};
use crate::encodings::t5_bias::T5Bias;
use crate::hf_config::RopeRequest;
use crate::kind::{Kind, Layout};
use crate::plan::read_config;
use crate::report::{Inferred, LimitCause};
use crate::request::{Parameters, Request};
use crate::rewrite::{Refusal, RewriteError};
use crate::scaling::Rope;

/// What is to stand where.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The kind.
    pub(crate) kind: Kind,
    /// The sites, by their place in [`Detection::attention`](crate::detect::Detection::attention),
    /// in rising order.
    pub(crate) sites: Vec<usize>,
    /// What they get; none where nothing is put in.
    pub(crate) groups: Vec<Group>,
    /// Whether positions come from an input that is added.
    pub(crate) add_position_ids: bool,
    /// Rows of tables, caches and buffers.
    pub(crate) max_length: Option<usize>,
    /// Values that no flag gave.
    pub(crate) inferred: Vec<Inferred>,
}

impl Asked {
    /// Whether a site is asked for.
    pub(crate) fn has(&self, site: usize) -> bool {
        self.sites.binary_search(&site).is_ok()
    }

    /// Whether what a finding tells of is to go: it stands before sites that are asked for and,
    /// where it stands before all of a stack at once, before no others of self-attention.
    pub(crate) fn speaks_of(&self, ground: &Ground<'_>, finding: &Finding) -> bool {
        let own = finding.sites.iter().copied();
        let mut own = own.filter(|site| !ground.site(*site).cross).peekable();
        match finding.encoding.is_absolute() {
            true => own.peek().is_some() && own.all(|site| self.has(site)),
            false => own.any(|site| self.has(site)),
        }
    }
}

/// Sites that get the same.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) sites: Vec<usize>,
    pub(crate) new: New,
}

/// An encoding to put in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum New {
    /// A table, `[rows, dim]`.
    Learned {
        rows: usize,
        table: Numbers,
    },
    /// Sines and cosines; a table where there are `rows`, else computed.
    Sinusoidal {
        layout: Layout,
        base: f64,
        rows: Option<usize>,
    },
    /// `x + gelu(conv(x))`, with a weight `[dim, 1, kernel]` and a bias `[dim]`.
    Conv {
        kernel: usize,
        weight: Numbers,
        bias: Numbers,
    },
    Rope {
        rope: Rope,
        layout: Layout,
    },
    Alibi(Alibi),
    /// A table `[buckets, heads]`.
    T5Bias {
        bias: T5Bias,
        table: Numbers,
    },
    /// A table `[2k + 1, heads]`.
    RelativeBias {
        max_distance: usize,
        heads: usize,
        table: Numbers,
    },
    /// Tables `[2k + 1, head_dim]`.
    Shaw {
        max_distance: usize,
        key: Option<Numbers>,
        value: Option<Numbers>,
    },
    /// Biases `[heads, head_dim]` and a projection `[heads · head_dim, dim]`.
    TransformerXl {
        heads: usize,
        head_dim: usize,
        dim: usize,
        content_bias: Numbers,
        position_bias: Numbers,
        position_projection: Numbers,
    },
}

impl Asked {
    /// The same with other groups.
    pub(crate) fn with(&self, groups: Vec<Group>) -> Self {
        Self {
            groups,
            ..self.clone()
        }
    }

    /// The groups with numbers in place of zeros, which would show nothing of where they stand.
    pub(crate) fn telling(&self) -> Vec<Group> {
        let mut groups = self.groups.clone();
        for (i, group) in groups.iter_mut().enumerate() {
            for (j, numbers) in group.new.numbers().into_iter().enumerate() {
                if numbers.is_zero() {
                    let seed = (16 * i + j) as u64;
                    *numbers = Numbers::Start(Init::Normal { std: 0.5, seed });
                }
            }
        }
        groups
    }
}

impl New {
    /// The learned numbers.
    fn numbers(&mut self) -> Vec<&mut Numbers> {
        match self {
            Self::Learned { table, .. }
            | Self::T5Bias { table, .. }
            | Self::RelativeBias { table, .. } => vec![table],
            Self::Conv { weight, bias, .. } => vec![weight, bias],
            Self::Shaw { key, value, .. } => key.iter_mut().chain(value).collect(),
            Self::TransformerXl {
                content_bias,
                position_bias,
                position_projection,
                ..
            } => vec![content_bias, position_bias, position_projection],
            Self::Sinusoidal { .. } | Self::Rope { .. } | Self::Alibi(_) => vec![],
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Learned { .. } => Kind::Learned,
            Self::Sinusoidal { .. } => Kind::Sinusoidal,
            Self::Conv { .. } => Kind::Conv,
            Self::Rope { .. } => Kind::Rope,
            Self::Alibi(_) => Kind::Alibi,
            Self::T5Bias { .. } => Kind::T5Bias,
            Self::RelativeBias { .. } => Kind::RelativeBias,
            Self::Shaw { .. } => Kind::Shaw,
            Self::TransformerXl { .. } => Kind::TransformerXl,
        }
    }

    /// Whether it stands before all sites of a stack at once.
    fn is_absolute(kind: Kind) -> bool {
        matches!(kind, Kind::Learned | Kind::Sinusoidal | Kind::Conv)
    }
}

/// Base θ of rotations and sinusoids.
pub(crate) const THETA: f64 = 10_000.0;

/// Buckets of T5.
const BUCKETS: usize = 32;

/// Distance from which on T5's buckets, and clipped biases, are alike.
const FAR: usize = 128;

/// The clip of Shaw's vectors (section 4.1 of the paper).
const CLIP: usize = 16;

/// Width of a convolution.
const KERNEL: usize = 3;

/// Decides what a request means; `None` where the model already is what was asked.
///
/// # Errors
/// When the request does not fit the model, or a value that is needed is nowhere to be found.
pub(crate) fn asked(ground: &Ground<'_>, request: &Request) -> Result<Option<Asked>, RewriteError> {
    let kind = request.to.unwrap_or(Kind::None);
    let sites = chosen(ground, request)?;
    let params = match &request.params {
        Some(path) => Params::read(path)?,
        None => Params::default(),
    };
    let mut planner = Planner {
        ground,
        request,
        parameters: &request.parameters,
        params,
        sites: &sites,
        inferred: vec![],
    };
    if request.scale.is_some() && kind != Kind::Rope {
        let why = format!("{kind} is not stretched by --scale yet; leave it out");
        return Err(Refusal::Unsupported(why).into());
    }
    if New::is_absolute(kind) && request.layers.is_some() {
        let why = format!("{kind} stands before all layers; leave out --layers");
        return Err(Refusal::Usage(why).into());
    }
    let groups = planner.groups(kind)?;
    planner.params.all_read()?;
    if planner.is_already(kind, &groups) {
        return Ok(None);
    }
    let inferred = planner.inferred;
    Ok(Some(Asked {
        kind,
        groups,
        add_position_ids: request.allowances.add_position_ids,
        max_length: request.parameters.max_length,
        inferred,
        sites,
    }))
}

/// The sites that a request speaks of: self-attention, of the stack and the layers that are named.
fn chosen(ground: &Ground<'_>, request: &Request) -> Result<Vec<usize>, RewriteError> {
    let all = &ground.found.attention;
    if all.is_empty() {
        return Err(Refusal::NoSite("the model has no attention to work on".into()).into());
    }
    let own = |site: &Site| match request.stack {
        None => true,
        Some(stack) => site.place.stack == Some(stack),
    };
    let own: Vec<usize> = (0..all.len())
        .filter(|i| !all[*i].cross && own(&all[*i]))
        .collect();
    if let (true, Some(stack)) = (own.is_empty(), request.stack) {
        let why = match all.iter().any(|s| s.place.stack.is_some()) {
            true => format!("the model has no self-attention in its {stack}"),
            false => format!("the model has one stack; leave out --stack {stack}"),
        };
        return Err(Refusal::Usage(why).into());
    }
    let Some(layers) = &request.layers else {
        return Ok(own);
    };
    let count = own
        .iter()
        .map(|i| all[*i].place.layer + 1)
        .max()
        .unwrap_or(0);
    if let Some(layer) = layers.beyond(count) {
        let why = format!(
            "--layers names layer {layer}, and the last one is {}",
            count - 1
        );
        return Err(Refusal::Usage(why).into());
    }
    let named = |i: &usize| layers.contains(all[*i].place.layer);
    Ok(own.into_iter().filter(named).collect())
}

struct Planner<'a> {
    ground: &'a Ground<'a>,
    request: &'a Request,
    parameters: &'a Parameters,
    params: Params,
    sites: &'a [usize],
    inferred: Vec<Inferred>,
}

impl Planner<'_> {
    /// What the chosen sites get.
    fn groups(&mut self, kind: Kind) -> Result<Vec<Group>, RewriteError> {
        let mut groups: Vec<Group> = vec![];
        if kind == Kind::None {
            return Ok(groups);
        }
        for &i in self.sites {
            let site = self.ground.site(i);
            let new = self.new(kind, site)?;
            let stack = site.place.stack;
            let same = |g: &&mut Group| {
                // What stands before all sites stands before those of one stack.
                let beside =
                    !New::is_absolute(kind) || self.ground.site(g.sites[0]).place.stack == stack;
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

    fn new(&mut self, kind: Kind, site: &Site) -> Result<New, RewriteError> {
        let p = self.parameters;
        let place = || self.ground.graph().place(site.node);
        let unknown = |what: &str| -> RewriteError {
            Refusal::Unsupported(format!("{}: {what} of its attention is not known", place()))
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
                New::Learned { rows, table }
            }
            Kind::Sinusoidal => New::Sinusoidal {
                layout: p.layout.unwrap_or(Layout::Interleaved),
                base: p.theta.unwrap_or(THETA),
                rows: p.max_length,
            },
            Kind::Conv => {
                let weight = given("weight");
                let kernel = weight.as_ref().and_then(|w| w.dims()?.get(2).copied());
                let kernel = kernel.unwrap_or(KERNEL);
                New::Conv {
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
                    .map_err(|e| Refusal::Usage(format!("{}: {e}", place())))?;
                New::Rope {
                    rope,
                    layout: p.layout.unwrap_or(Layout::Half),
                }
            }
            Kind::Alibi => New::Alibi(self.alibi(site, heads()?)?),
            Kind::T5Bias => {
                let heads = heads()?;
                let table = given("relative_attention_bias");
                let rows = first_dim(&table).or(p.num_buckets).unwrap_or(BUCKETS);
                let asked = p.num_buckets.unwrap_or(rows);
                if asked != rows {
                    let why = format!("--num-buckets is {asked}, and the table has {rows} rows");
                    return Err(Refusal::Usage(why).into());
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
                         a larger --max-distance or --num-buckets",
                        bias.max_distance.unwrap_or(0)
                    );
                    return Err(Refusal::Usage(why).into());
                }
                let std = ((heads * site.head_dim.unwrap_or(1)) as f64).powf(-0.5);
                let table = table.unwrap_or(self.start(site, 2, std));
                New::T5Bias { bias, table }
            }
            Kind::RelativeBias => {
                let table = given("relative_bias");
                let max_distance = self.clip(first_dim(&table), FAR, "relative_bias")?;
                New::RelativeBias {
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
                New::Shaw {
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
                New::TransformerXl {
                    content_bias: or("content_bias", 6),
                    position_bias: or("position_bias", 7),
                    position_projection: projection.unwrap_or(self.start(site, 8, 0.02)),
                    heads,
                    head_dim,
                    dim,
                }
            }
            Kind::None | Kind::Disentangled | Kind::Unknown => {
                let why = format!("{kind} is found, not written; give another --to");
                return Err(Refusal::Usage(why).into());
            }
        })
    }

    /// What the configuration that is to be followed says of a layer.
    fn configured(&self, site: &Site) -> Result<Option<RopeRequest>, RewriteError> {
        let Some(path) = &self.request.hf_config else {
            return Ok(None);
        };
        let asked = read_config(path)?.rope_for(site.layer);
        Ok(asked.map_err(|e| Refusal::Usage(format!("{}: {e}", path.display())))?)
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
            let why = format!("{name} of --params has {rows} rows; a clip of ±k has 2k + 1");
            return Err(Refusal::Usage(why).into());
        }
        let clip = rows / 2;
        match asked {
            Some(asked) if asked != clip => {
                let why = format!("--max-distance is {asked}, and {name} of --params has ±{clip}");
                Err(Refusal::Usage(why).into())
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
                    let why = format!("--slopes has {}, and attention {heads} heads", slopes.len());
                    return Err(Refusal::Usage(why).into());
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
        let reaches = |f: &&Finding| f.sites.contains(&site.layer);
        let table = self
            .ground
            .survey
            .findings
            .iter()
            .filter(reaches)
            .find_map(|f| match &f.encoding {
                Encoding::Learned(table) => Some(table.max_positions),
                _ => f.max_length,
            });
        let limits = &self.ground.found.limits;
        let limit = limits
            .iter()
            .filter(|l| l.cause != LimitCause::Runtime)
            .map(|l| l.length);
        let (rows, source) = match (table, limit.min()) {
            (Some(rows), _) => (rows, "the table that it replaces"),
            (None, Some(rows)) => (rows, "the shortest of the graph's limits"),
            (None, None) => {
                let why =
                    "how many positions the table is to hold stands nowhere; give --max-length";
                return Err(Refusal::Usage(why.into()).into());
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

    /// Whether the chosen sites show what is asked for, and nothing else.
    fn is_already(&self, kind: Kind, groups: &[Group]) -> bool {
        let found = self.ground.found;
        let chosen = |site: &usize| self.sites.contains(site);
        let mut here = self
            .ground
            .survey
            .findings
            .iter()
            .filter(|f| f.sites.iter().any(chosen));
        let rotary = found.rotary.iter().any(|r| chosen(&r.site));
        let unknown = found.unknown.iter().any(|r| chosen(&r.site));
        if rotary || unknown {
            return false;
        }
        if kind == Kind::None {
            return here.next().is_none();
        }
        let asked_of = |site: usize| {
            groups
                .iter()
                .find(|g| g.sites.contains(&site))
                .map(|g| &g.new)
        };
        let all = self.sites.iter().all(|site| {
            let mut own = self
                .ground
                .survey
                .findings
                .iter()
                .filter(|f| f.sites.contains(site));
            let one = own.next().filter(|_| own.next().is_none());
            one.zip(asked_of(*site))
                .is_some_and(|(f, new)| self.shows(f, new))
        });
        all && here.next().is_some()
    }

    /// Whether a finding is what is asked for, as far as anything was asked of its numbers.
    fn shows(&self, finding: &Finding, new: &New) -> bool {
        let p = self.parameters;
        let as_found = self.request.params.is_none() && p.seed.is_none();
        match (&finding.encoding, new) {
            (Encoding::Sinusoidal(found), New::Sinusoidal { layout, base, rows }) => {
                let plain = Sinusoidal {
                    layout: *layout,
                    base: found.base,
                    denominator: Denominator::Pairs,
                    image: None,
                    offset: 0,
                    cosines_first: false,
                    factor: 1.0,
                    amplitude: 1.0,
                    ..found.clone()
                };
                let near = (found.base - base).abs() <= 1e-3 * base;
                near && plain == *found && (rows.is_none() || *rows <= finding.max_length)
            }
            (Encoding::Alibi(found), New::Alibi(asked)) => {
                let pairs = found.slopes.iter().zip(&asked.slopes);
                let near = pairs
                    .into_iter()
                    .all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs());
                near && found.heads == asked.heads && found.symmetric == asked.symmetric
            }
            (Encoding::T5Bias(found), New::T5Bias { .. }) => {
                as_found
                    && p.num_buckets.is_none_or(|n| n == found.num_buckets)
                    && p.max_distance.is_none_or(|n| Some(n) == found.max_distance)
                    && p.bidirectional.is_none_or(|b| b == found.bidirectional)
            }
            (Encoding::Learned(found), New::Learned { .. }) => {
                as_found && p.max_length.is_none_or(|n| n <= found.max_positions)
            }
            (
                Encoding::RelativeBias(RelativeBias { max_distance, .. }),
                New::RelativeBias { .. },
            ) => as_found && p.max_distance.is_none_or(|n| Some(n) == *max_distance),
            (Encoding::Shaw(found), New::Shaw { .. }) => {
                as_found && p.max_distance.is_none_or(|n| Some(n) == found.max_distance)
            }
            (Encoding::TransformerXl(_), New::TransformerXl { .. })
            | (Encoding::Conv(_), New::Conv { .. }) => as_found,
            _ => false,
        }
    }
}

/// Whether the layers of a stack share a table that no file gives: all but Shaw's and
/// Transformer-XL's.
fn shared(table: u64) -> bool {
    table < 4
}
