//! The rotation that each site is expected to compute.

use posenc_ir::Model;

use crate::detect::rotary::source::{RotarySource, Sources, Table, Wave};
use crate::detect::{Found, RotarySite};
use crate::prove::VerifyError;
use crate::prove::cutout::waves;
use crate::record::{Record, SiteRecord, record, swap};
use posenc_encodings::kind::{Kind, Layout};
use posenc_encodings::laws::{Frequencies, Rope, Scaling};
use posenc_encodings::params::Params;

/// The rotation that a site is expected to compute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expected {
    /// The attention site, as an index into [`Found::attention`].
    pub site: usize,
    /// The pairs of features that are rotated, as indices within the head, in the order of the
    /// frequencies.
    pub pairs: Vec<(usize, usize)>,
    /// The formula.
    pub law: ExpectedFrequencies,
    /// The frequencies as the graph stores them, which differ from those of the formula by
    /// rounding. The graph is compared with these too, with a tighter bound.
    pub stored: Option<ExpectedFrequencies>,
    /// The largest position to check, plus one.
    pub max_length: usize,
    /// The position of the first token of a sequence: 0 in almost all models.
    pub first: i64,
}

/// Frequencies in f64, and the factor m on cos and sin.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExpectedFrequencies {
    /// Frequencies that do not change with the length.
    Fixed(Frequencies),
    /// Those of a scaling, which may change with the length.
    Scaled {
        /// The scaling.
        scaling: Scaling,
        /// The rotation that it scales.
        rope: Rope,
    },
}

impl ExpectedFrequencies {
    /// The frequencies of the rotated pairs, where `length` is the largest position plus one.
    pub(crate) fn frequencies(&self, length: usize) -> Frequencies {
        let mut all = match self {
            Self::Fixed(frequencies) => frequencies.clone(),
            Self::Scaled { scaling, rope } => scaling.frequencies(rope, length),
        };
        all.inv_freq.retain(|f| *f != 0.0);
        all
    }

    /// The length at which the frequencies begin to change; `None` where they never do.
    pub(crate) fn changes_at(&self) -> Option<usize> {
        match self {
            Self::Fixed(_) => None,
            Self::Scaled { scaling, .. } => scaling
                .depends_on_length()
                .then(|| scaling.original_length().unwrap_or(1)),
        }
    }
}

/// The length to check where nothing limits the length of a sequence.
const LENGTH: usize = 4096;

/// The rotation that every rotary site of a model is expected to compute.
///
/// The `posenc.rope` metadata of a rewritten model names the scaling: it is the formula, and the
/// frequencies that detection reads are the stored ones. Without metadata, the frequencies that
/// detection reads are the formula, and a check shows whether a runtime applies them at all
/// positions. The frequencies of a table are refined up to its last row.
///
/// # Errors
/// When the metadata names an invalid scaling.
pub(crate) fn expectations(model: &Model, found: &Found) -> Result<Vec<Expected>, VerifyError> {
    let record = record(model);
    let sources = Sources::of(model, found);
    let expected = |site: &RotarySite| -> Result<Expected, VerifyError> {
        let mut expected = as_read((model, found), &sources, site);
        let Some(record) = &record else {
            return Ok(expected);
        };
        if let Some(length) = record.max_length {
            expected.max_length = length.min(shortest(found).unwrap_or(length)).max(1);
        }
        if let Some(own) = recorded(record, found, site)? {
            let (rope, scaling) = (own.rope(), own.scaling.clone());
            let stored = expected.law;
            expected.stored = (!scaling.depends_on_length()).then_some(stored);
            expected.law = ExpectedFrequencies::Scaled { scaling, rope };
        }
        Ok(expected)
    };
    found.rotary.iter().map(expected).collect()
}

/// The scaling that is recorded for a site.
///
/// # Errors
/// When it is invalid.
fn recorded<'r>(
    record: &'r Record,
    found: &Found,
    site: &RotarySite,
) -> Result<Option<&'r SiteRecord>, VerifyError> {
    let own = record.site(site.site).transpose();
    own.map_err(|why| {
        let name = &found.attention[site.site].name;
        VerifyError::unsupported(name, format!("invalid posenc.rope metadata: {why}"))
    })
}

/// Reads what is recorded for every rotary site.
///
/// # Errors
/// When the metadata names an invalid scaling.
pub(crate) fn check_record(model: &Model, found: &Found) -> Result<(), VerifyError> {
    let Some(record) = record(model) else {
        return Ok(());
    };
    let mut all = found.rotary.iter();
    all.try_for_each(|site| recorded(&record, found, site).map(drop))
}

/// Gives rotations that a swap inserted the parameters of its record, where no later rewrite scaled
/// them.
pub(crate) fn as_inserted(model: &Model, branch: usize, expected: &mut [Expected]) {
    let swapped = swap::read(model).and_then(Result::ok);
    let Some(swapped) = swapped.filter(|swapped| swapped.to == Kind::Rope) else {
        return;
    };
    let scaled = record(model);
    let own = swapped.branches.iter().filter(|b| b.branch == branch);
    for group in own.flat_map(|b| &b.groups) {
        let Some((rope, pairs)) = inserted(&group.params) else {
            continue;
        };
        let is_plain = |site| scaled.as_ref().is_none_or(|r| r.site(site).is_none());
        let of_group = |e: &&mut Expected| group.sites.contains(&e.site) && is_plain(e.site);
        for site in expected.iter_mut().filter(of_group) {
            let scaling = Scaling::None;
            let law = ExpectedFrequencies::Scaled { scaling, rope };
            site.stored = Some(std::mem::replace(&mut site.law, law));
            site.pairs.clone_from(&pairs);
        }
    }
}

/// A rotation by recorded parameters, with its pairs.
fn inserted(params: &Params) -> Option<(Rope, Vec<(usize, usize)>)> {
    let count = |name: &str| usize::try_from(params.get(name)?.as_u64()?).ok();
    let theta = params.get("theta")?.as_f64()?;
    let rope = Rope::new(theta, count("rotary_dim")?, count("head_dim")?).ok()?;
    let layout: Layout = serde_json::from_value(params.get("layout")?.clone()).ok()?;
    let pairs = layout.pairs(rope.pairs()).collect();
    Some((rope, pairs))
}

/// The smallest of the limits on the model's length.
fn shortest(found: &Found) -> Option<usize> {
    found.limits.iter().map(|l| l.length).min()
}

/// The rotation that detection read.
fn as_read((model, found): (&Model, &Found), sources: &Sources<'_>, site: &RotarySite) -> Expected {
    let rope = &site.query.rotation.rope;
    let total = found.lengths.past + found.lengths.sequence;
    let mut inv_freq = rope.inv_freq.clone();
    let mut max_length = shortest(found).unwrap_or(LENGTH);
    if !waves(model, found, &site.query.region) {
        max_length = match sources.find(&site.query) {
            Ok(RotarySource::Tables(tables)) => {
                refine(model, &tables, &mut inv_freq).min(max_length)
            }
            // The angles of a few positions are too imprecise for larger positions.
            _ => total,
        };
    }
    if let Some(switch) = &site.switch {
        max_length = max_length.min(switch.original_length);
    }
    // The region ends with the last token of the trial run.
    let dims = found.trace.get(site.query.region.input).dims.as_deref();
    let tokens = dims.map_or(found.lengths.sequence, |d| {
        d[site.query.region.input_lane.sequence]
    });
    let first = site.query.rotation.start.round() as i64;
    Expected {
        site: site.site,
        pairs: rope.pairs.clone(),
        law: ExpectedFrequencies::Fixed(Frequencies {
            inv_freq,
            attention_factor: rope.attention_factor,
        }),
        stored: None,
        max_length: max_length.max(1),
        first: first - total.saturating_sub(tokens) as i64,
    }
}

/// Refines frequencies by the angles of ever larger positions in tables; returns the number of
/// positions of the tables.
fn refine(model: &Model, tables: &[Table], inv_freq: &mut [f64]) -> usize {
    let graph = model.graph();
    let constants: Vec<_> = tables
        .iter()
        .filter_map(|t| Some((t, graph.constant(t.root)?)))
        .collect();
    let last = tables
        .iter()
        .map(|t| t.first + i64::try_from(t.dims[t.axis]).unwrap_or(i64::MAX))
        .min();
    let count = usize::try_from(last.unwrap_or(0)).unwrap_or(0);
    let wave = |position: usize, pair: usize, wave: Wave| -> Option<f64> {
        constants.iter().find_map(|(table, tensor)| {
            let column = (table.columns.iter()).position(|c| c.pair == pair && c.wave == wave)?;
            let row = usize::try_from(i64::try_from(position).ok()? - table.first).ok()?;
            let below: usize = table.dims[table.axis + 1..].iter().product();
            let (outer, inner) = (column / below, column % below);
            let at = (outer * table.dims[table.axis] + row) * below + inner;
            Some(table.columns[column].sign * tensor.get_f64(at)?)
        })
    };
    let revolution = std::f64::consts::TAU;
    for (pair, f) in inv_freq.iter_mut().enumerate() {
        let mut position = 16;
        while position < 2 * count {
            let at = position.min(count.saturating_sub(1));
            let (Some(c), Some(s)) = (wave(at, pair, Wave::Cos), wave(at, pair, Wave::Sin)) else {
                break;
            };
            let guess = *f * at as f64;
            let off = s.atan2(c) - guess;
            *f = (guess + off - (off / revolution).round() * revolution) / at as f64;
            position *= 2;
        }
    }
    count
}
