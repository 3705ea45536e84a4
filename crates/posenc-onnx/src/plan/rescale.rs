//! The plan of a rescale, made before anything changes: the frequencies that each site gets, and
//! the source of every value.

mod agreement;
mod bases;

use posenc_ir::Model;

use crate::detect::finding::{Encoding, Finding};
use crate::detect::identified::KnownLaws;
use crate::detect::{Found, RotarySite};
use crate::error::{Refusal, RefusalKind, RewriteError};
use crate::plan::selection::chosen;
use crate::plan::stretch;
use crate::record::{Record, SiteRecord, asked, record};
use crate::report::{Limit, LimitCause};
use crate::request::hf_config::HfConfigError;
use crate::request::{Config, Parameters, Request, RopeScalingError, ScaleType, rope_scaling};
use bases::{check_bases, with_base};
use posenc_encodings::inferred::{self, Inferred};
use posenc_encodings::kind::Kind;
use posenc_encodings::laws::shared::ORIGINAL_LENGTH;
use posenc_encodings::laws::{LawError, Rope, Scaling};

/// The frequencies that a site gets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// The unscaled embedding.
    pub rope: Rope,
    /// The law that changes it.
    pub scaling: Scaling,
    /// Factor on the whole score: DeepSeek's correction, else 1.
    pub softmax_factor: f64,
}

/// A rescale of rotary sites.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Indices into `Found::rotary`, each with its target.
    pub targets: Vec<(usize, Target)>,
    /// The length that tables, caches and buffers must hold, where it is known.
    pub max_length: Option<usize>,
    /// Values that the request did not give.
    pub inferred: Vec<Inferred>,
}

impl Plan {
    /// What a rotation becomes; `None` where it is left alone.
    pub(crate) fn target(&self, rotation: usize) -> Option<&Target> {
        let mut targets = self.targets.iter();
        targets.find(|(i, _)| *i == rotation).map(|(_, t)| t)
    }

    /// What the metadata of the result records, one entry for each site.
    pub(crate) fn records(&self, found: &Found) -> impl Iterator<Item = SiteRecord> {
        self.targets.iter().map(|(i, target)| SiteRecord {
            layers: vec![found.rotary[*i].site],
            theta: target.rope.theta,
            rotary_dim: target.rope.rotary_dim,
            head_dim: target.rope.head_dim,
            scaling: target.scaling.clone(),
            softmax_factor: target.softmax_factor,
        })
    }
}

/// Plans a rescale of the sites that were found. `limits` show the length that the model was made
/// for: those of `found`, unless the model had others before it was changed.
///
/// # Errors
/// When the request does not fit the model, or a value that is needed cannot be inferred.
pub(crate) fn plan(
    model: &Model,
    found: &Found,
    limits: &[Limit],
    request: &Request,
) -> Result<Plan, RewriteError> {
    let sites = chosen(found, request)?;
    if let Some(refused) = found.not_rotary.first() {
        let why = format!("{}: {}", model.graph().place(refused.node), refused.why);
        return Err(Refusal::unsupported(why).into());
    }
    if let Some(node) = found.axial.first().and_then(|a| a.finding.node()) {
        let place = model.graph().place(node);
        let why = format!(
            "{place}: rope by rows and columns of a grid is not supported yet in a rescale"
        );
        return Err(Refusal::unsupported(why).into());
    }
    if found.rotary.is_empty() {
        let mut findings = found.findings.iter();
        if let Some(unread) = findings.find(|f| f.encoding.kind() == Kind::Unknown)
            && let Some(node) = unread.node()
        {
            let place = model.graph().place(node);
            let why =
                format!("{place}: an encoding that was not read is not supported in a rescale");
            return Err(Refusal::unsupported(why).into());
        }
        return Err(Refusal::unsupported(nothing_rotates(found, request)).into());
    }
    if !found
        .rotary
        .iter()
        .any(|r| sites.binary_search(&r.site).is_ok())
    {
        let why = "no attention of the named layers is rotary; name others, or give `to` rope to \
                   insert it";
        return Err(Refusal::unsupported(why).into());
    }
    let mut planner = Planner {
        model,
        found,
        sites,
        limits,
        request,
        record: record(model),
        laws: KnownLaws::of(found),
        inferred: vec![],
        max_length: request.parameters.max_length,
    };
    let targets = match &request.hf_config {
        Some(config) => planner.targets_of_config(config)?,
        None => planner.targets_of_parameters()?,
    };
    planner.refuse_second_scaling(&targets)?;
    Ok(Plan {
        targets,
        max_length: planner.max_length,
        inferred: planner.inferred,
    })
}

/// Why nothing is rescaled in a model that does not rotate.
fn nothing_rotates(found: &Found, request: &Request) -> String {
    if request.hf_config.is_some() {
        let is_table = |finding: &Finding| {
            matches!(finding.encoding, Encoding::Learned(_)) && finding.max_length.is_some()
        };
        let instead = match found.findings.iter().any(is_table) {
            true => "remove `hf-config`, and give `max-length` and `scale` for a longer table",
            false => "remove `hf-config`",
        };
        return format!(
            "a config changes rotations alone, and no attention of the model is rotary, so that it changes \
             nothing here; {instead}"
        );
    }
    stretch::nothing_rotates(found, request.scale)
}

struct Planner<'a> {
    model: &'a Model,
    found: &'a Found,
    /// The chosen sites, in rising order.
    sites: Vec<usize>,
    limits: &'a [Limit],
    request: &'a Request,
    /// What an earlier rewrite wrote.
    record: Option<Record>,
    laws: KnownLaws<'a>,
    inferred: Vec<Inferred>,
    max_length: Option<usize>,
}

impl<'a> Planner<'a> {
    /// The rotations of the chosen sites, with their indices.
    fn requested(&self) -> Vec<(usize, &'a RotarySite)> {
        let is_chosen = |site: usize| self.sites.binary_search(&site).is_ok();
        let rotary = self.found.rotary.iter().enumerate();
        rotary.filter(|(_, r)| is_chosen(r.site)).collect()
    }

    /// The targets that a config describes.
    fn targets_of_config(&mut self, source: &Config) -> Result<Vec<(usize, Target)>, RewriteError> {
        let config = source.parse()?;
        if let Some(why) = config.says_nothing() {
            return Err(source.refuse(why).into());
        }
        // A part of a model may have fewer layers, as what was not read may have more.
        if !self.request.allowances.allow_unread
            && let Some(why) = agreement::disagreement(&config, self.found)
        {
            return Err(Refusal::unsupported(format!("{}: {why}", source.name())).into());
        }
        let (mut targets, mut bases) = (vec![], vec![]);
        for (i, site) in self.requested() {
            let place = || self.model.graph().place(site.node);
            let layer = self.found.attention[site.site].place.layer;
            let Some(wanted) = config.rope_for(layer).map_err(|e| source.refuse(e))? else {
                let why = format!(
                    "{}: layer {1} is rotary in the graph and not in the config; remove its RoPE \
                     first with `to` none and `layers` {1}",
                    place(),
                    layer
                );
                return Err(Refusal::unsupported(why).into());
            };
            let now = &site.query.rotation.rope;
            let base = self.laws.law(site).theta;
            let stated = wanted.states_theta().then_some(wanted.theta);
            let wanted = with_base(wanted, base).map_err(|why| why.at(place()))?;
            bases.push((base, (stated, wanted.scaling.clone())));
            let rope = wanted
                .rope(now.rotary_dim, now.head_dim)
                .map_err(|e| source.refuse(e))?;
            if rope.rotary_dim != now.rotary_dim && !wanted.scaling.spans_head() {
                let why = format!(
                    "{}: the graph rotates {} features, the config {}",
                    place(),
                    now.rotary_dim,
                    rope.rotary_dim
                );
                return Err(Refusal::unsupported(why).into());
            }
            for value in wanted.inferred {
                self.infer(value);
            }
            let original = wanted.scaling.original_length();
            self.extend_length(wanted.max_position);
            self.extend_length(original.and_then(|length| wanted.scaling.extended(length)));
            targets.push((
                i,
                Target {
                    rope,
                    scaling: wanted.scaling,
                    softmax_factor: wanted.softmax_factor,
                },
            ));
        }
        check_bases(&bases).map_err(|why| source.refuse(why))?;
        Ok(targets)
    }

    /// The targets that the request's own parameters describe.
    fn targets_of_parameters(&mut self) -> Result<Vec<(usize, Target)>, RewriteError> {
        let mut parameters = self.request.parameters.clone();
        if self.request.keeps_frequencies() {
            return Ok(self.kept());
        }
        let takes_length = match self.request.scale {
            Some(ScaleType::Law(law)) => law.facts().has(&ORIGINAL_LENGTH),
            _ => false,
        };
        if takes_length
            && parameters.original_length.is_none()
            && let Some((length, source)) = self.original_length()?
        {
            parameters.original_length = Some(length);
            self.infer(Inferred::new("original-length", length, source));
        }
        if takes_length
            && parameters.max_length.is_some()
            && parameters.factor.is_none()
            && parameters.original_length.is_none()
        {
            let why = "the factor follows from `max-length` and the length that the model was trained for, \
                       which was not found; give it, or `factor`";
            return Err(Refusal::missing("original-length", why).into());
        }
        let mut targets = vec![];
        for (i, site) in self.requested() {
            targets.push((i, self.target(site, &parameters)?));
        }
        Ok(targets)
    }

    /// The target of one site.
    fn target(&mut self, site: &'a RotarySite, p: &Parameters) -> Result<Target, RewriteError> {
        let scale = self.request.scale.unwrap_or(ScaleType::None);
        let model = self.model;
        let place = || model.graph().place(site.node);
        let now = &site.query.rotation.rope;
        let theta = match p.theta {
            Some(theta) => theta,
            None => {
                let theta = self.laws.law(site).theta.ok_or_else(|| {
                    let why = "cannot infer the base θ of the graph's frequencies; give `theta`";
                    Refusal::missing("theta", why).at(place())
                })?;
                self.infer(Inferred::new("theta", theta, "the graph's frequencies"));
                theta
            }
        };
        let rotary_dim = p.rotary_dim.unwrap_or(now.rotary_dim);
        let spans_head = matches!(scale, ScaleType::Law(law) if law.facts().spans_head);
        let other = if rotary_dim != now.rotary_dim && !spans_head {
            Some("with another rotary width is not supported yet")
        } else if p.layout.is_some() && p.layout != now.layout {
            Some("keeps the layout of the pairs; give `layout` alone first")
        } else {
            None
        };
        if let Some(what) = other {
            let why = format!("{}: a rescale {what}", place());
            return Err(Refusal::unsupported(why).into());
        }
        let rope = Rope::new(theta, rotary_dim, now.head_dim)
            .map_err(|e| Refusal::invalid(e.to_string()))?;
        let (scaling, inferred) = rope_scaling(scale, p, &rope).map_err(refusal)?;
        for value in inferred {
            self.infer(value);
        }
        self.extend_length(
            p.original_length
                .and_then(|length| scaling.extended(length)),
        );
        Ok(Target {
            rope,
            scaling,
            softmax_factor: 1.0,
        })
    }

    /// Raises the length that tables must hold, unless the request gives it.
    fn extend_length(&mut self, length: Option<usize>) {
        if self.request.parameters.max_length.is_none() {
            self.max_length = self.max_length.max(length);
        }
    }

    /// Rotations as they are, where their tables may get more rows: those whose numbers fix every
    /// parameter.
    fn kept(&mut self) -> Vec<(usize, Target)> {
        if self.max_length.is_none() {
            return vec![];
        }
        let requested = self.requested();
        let (laws, record) = (&mut self.laws, self.record.as_ref());
        let unchanged = |(i, site): (usize, &'a RotarySite)| {
            let now = &site.query.rotation.rope;
            let known = laws.law(site);
            let target = Target {
                rope: Rope::new(known.theta?, now.rotary_dim, now.head_dim).ok()?,
                scaling: known.scaling(now.attention_factor)?,
                softmax_factor: softmax_factor(record, site.site),
            };
            is_already(record, site, &target).then_some((i, target))
        };
        requested.into_iter().filter_map(unchanged).collect()
    }

    fn infer(&mut self, value: Inferred) {
        inferred::add(&mut self.inferred, value);
    }

    /// The length that the model was trained for, with its source. The record comes before a config, which
    /// may have been written with the longer length of an earlier rewrite.
    fn original_length(&self) -> Result<Option<(usize, String)>, RewriteError> {
        if let Some((length, source)) = recorded_original(self.model) {
            return Ok(Some((length, source.into())));
        }
        if let Some(source) = &self.request.model_config {
            let config = source.parse()?;
            let first = self.found.rotary.first();
            let layer = first.map_or(0, |s| self.found.attention[s.site].place.layer);
            let refuse = |why: HfConfigError| {
                source.refuse(format!("{why}; give `original-length` instead"))
            };
            let rope = config.rope_for(layer).map_err(refuse)?;
            let original = rope.and_then(|rope| rope.scaling.original_length());
            let length = match original {
                Some(length) => Some(length),
                None => config.max_position().map_err(refuse)?,
            };
            if let Some(length) = length {
                return Ok(Some((length, source.place().to_owned())));
            }
        }
        // A shape that an export fixed says nothing about training.
        let is_of_graph = |l: &&crate::report::Limit| {
            !matches!(l.cause, LimitCause::Runtime | LimitCause::StaticShape)
        };
        let shortest = self
            .limits
            .iter()
            .filter(is_of_graph)
            .min_by_key(|l| l.length);
        Ok(shortest.map(|l| {
            let name = l.value.as_deref().unwrap_or_default();
            (l.length, format!("the graph's {} {name}", l.cause))
        }))
    }

    /// Refuses to scale what is scaled already, unless that is allowed.
    fn refuse_second_scaling(&mut self, targets: &[(usize, Target)]) -> Result<(), RewriteError> {
        if self.request.allowances.allow_rescale {
            return Ok(());
        }
        for (i, target) in targets {
            let site = &self.found.rotary[*i];
            // A graph with one of the target's two lists was exported at one length.
            let has_one_list = target.scaling.depends_on_length()
                && computes(&site.query.rotation.rope, target, 1);
            if has_one_list || is_already(self.record.as_ref(), site, target) {
                continue;
            }
            if let Some(scaling) = &self.laws.law(site).scaling {
                let why = format!(
                    "the graph is scaled already ({}); give `allow-rescale` to replace that",
                    scaling.name()
                );
                let place = self.model.graph().place(site.node);
                let refusal = Refusal::new(RefusalKind::AlreadyScaled, why);
                return Err(refusal.at(place).into());
            }
            if self.record.as_ref().is_some_and(Record::is_scaled) {
                let why = "the model is scaled already, by its posenc.rope metadata; give \
                           `allow-rescale` to replace that";
                return Err(Refusal::new(RefusalKind::AlreadyScaled, why).into());
            }
        }
        Ok(())
    }
}

/// The length that the model was trained for by the records of earlier rewrites, with its source: that of
/// a law, or else that of a request, for laws without one.
pub(crate) fn recorded_original(model: &Model) -> Option<(usize, &'static str)> {
    if let Some(length) = record(model)?.original_length() {
        return Some((length, "the model's posenc.rope metadata"));
    }
    let asked = asked::read(model)?.ok()?;
    let length = asked.original_length()?;
    Some((length, "the model's posenc.request metadata"))
}

/// A parameter keeps its name, so that a command line can say its flag.
fn refusal(error: RopeScalingError) -> Refusal {
    match error {
        RopeScalingError::Law(LawError::Parameter(error)) => error.into(),
        other => Refusal::invalid(other.to_string()),
    }
}

/// Whether a site computes the target's numbers already, at every length. `record` is that of its
/// model.
pub(crate) fn is_already(record: Option<&Record>, site: &RotarySite, target: &Target) -> bool {
    let now = &site.query.rotation.rope;
    let at = |rope, length| computes(rope, target, length);
    let switched = match (&site.switch, target.scaling.depends_on_length()) {
        (None, false) => true,
        (Some(switch), true) => {
            target.scaling.original_length() == Some(switch.original_length)
                && switch.beyond.iter().all(|(length, rope)| at(rope, *length))
        }
        _ => false,
    };
    switched && at(now, 1) && target.softmax_factor == softmax_factor(record, site.site)
}

/// Whether a rotation has the target's numbers at a length, to the precision of f32.
fn computes(now: &posenc_encodings::families::rope::Rope, target: &Target, length: usize) -> bool {
    let want = target.scaling.frequencies_hf(&target.rope, length);
    // A base that grows is raised to powers in the graph; lists are stored.
    let tolerance = match target.scaling {
        Scaling::Dynamic(_) => 1e-5,
        _ => 2e-7,
    };
    let near = |a: f64, b: f64| (a - b).abs() <= tolerance * b.abs();
    let rotating = want.inv_freq.iter().filter(|f| **f != 0.0);
    now.inv_freq.len() == rotating.clone().count()
        && near(now.attention_factor, want.attention_factor)
        && now
            .inv_freq
            .iter()
            .zip(rotating)
            .all(|(a, b)| near(*a, f64::from(*b)))
}

/// The correction of the softmax scale that an earlier rewrite made.
pub(crate) fn softmax_factor(record: Option<&Record>, layer: usize) -> f64 {
    record.map_or(1.0, |r| r.softmax_factor(layer))
}
