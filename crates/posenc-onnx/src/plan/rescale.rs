//! What a rewrite will do, before anything changes: which site gets which frequencies, and where
//! every value came from.

use posenc_ir::Model;
use serde_json::json;

use crate::detect::{Found, RotarySite};
use crate::error::{Refusal, RefusalKind, RewriteError};
use crate::inspect::identified;
use crate::report::{Inferred, Limit, LimitCause};
use crate::request::{Config, Request, RopeScalingError, ScaleType, rope_scaling};
use posenc_encodings::laws::{Rope, Scaling};

/// The frequencies that a site is to have.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The unscaled embedding.
    pub rope: Rope,
    /// The law over it.
    pub scaling: Scaling,
    /// Factor on the whole score: DeepSeek's correction, else 1.
    pub softmax_factor: f64,
}

/// A rescale of rotary sites.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Places in `Found::rotary`, with what each is to become.
    pub targets: Vec<(usize, Target)>,
    /// The length to make room for, where it is known.
    pub max_length: Option<usize>,
    /// Values that no flag gave.
    pub inferred: Vec<Inferred>,
}

impl Plan {
    /// What a rotation becomes; `None` where it is left alone.
    pub(crate) fn target(&self, rotation: usize) -> Option<&Target> {
        let mut targets = self.targets.iter();
        targets.find(|(i, _)| *i == rotation).map(|(_, t)| t)
    }
}

/// Decides what a request means for the sites that were found. `limits` tell of the length that
/// the model was made for: those of `found`, unless the model had others before it was changed.
///
/// # Errors
/// When the request does not fit the model, or a value that is needed is nowhere to be found.
pub fn plan(
    model: &Model,
    found: &Found,
    limits: &[Limit],
    request: &Request,
) -> Result<Plan, RewriteError> {
    if found.attention.is_empty() {
        return Err(Refusal::no_site("the model has no attention to work on").into());
    }
    if let Some(refused) = found.unknown.first() {
        let why = format!("{}: {}", model.graph().place(refused.node), refused.why);
        return Err(Refusal::unsupported(why).into());
    }
    if let Some(node) = found.axial.first().and_then(|a| a.finding.node()) {
        let place = model.graph().place(node);
        let why = format!("{place}: rope by rows and columns of a grid is not rescaled yet");
        return Err(Refusal::unsupported(why).into());
    }
    if found.rotary.is_empty() {
        let why = "no attention of the model is rotary; give `to` rope to put rope in";
        return Err(Refusal::unsupported(why).into());
    }
    let mut planner = Planner {
        model,
        found,
        limits,
        request,
        inferred: vec![],
        max_length: request.parameters.max_length,
    };
    let targets = match &request.hf_config {
        Some(config) => planner.follow(config)?,
        None => planner.scale()?,
    };
    planner.refuse_twice(&targets)?;
    Ok(Plan {
        targets,
        max_length: planner.max_length,
        inferred: planner.inferred,
    })
}

struct Planner<'a> {
    model: &'a Model,
    found: &'a Found,
    limits: &'a [Limit],
    request: &'a Request,
    inferred: Vec<Inferred>,
    max_length: Option<usize>,
}

impl Planner<'_> {
    /// "Make this graph what this config says."
    fn follow(&mut self, source: &Config) -> Result<Vec<(usize, Target)>, RewriteError> {
        let config = source.parse()?;
        let mut targets = vec![];
        for (i, site) in chosen(self.found, self.request) {
            let place = || self.model.graph().place(site.node);
            let layer = self.found.attention[site.site].place.layer;
            let Some(asked) = config.rope_for(layer).map_err(|e| source.refuse(e))? else {
                let why = format!(
                    "{}: the config asks for no rope in layer {1}; take it out first with \
                     `to` none `layers` {1}",
                    place(),
                    layer
                );
                return Err(Refusal::unsupported(why).into());
            };
            let now = &site.query.rotation.rope;
            let rope = asked
                .rope(now.rotary_dim, now.head_dim)
                .map_err(|e| source.refuse(e))?;
            let whole = matches!(asked.scaling, Scaling::Proportional(_));
            if rope.rotary_dim != now.rotary_dim && !whole {
                let why = format!(
                    "{}: the graph turns {} features and the config asks for {}",
                    place(),
                    now.rotary_dim,
                    rope.rotary_dim
                );
                return Err(Refusal::unsupported(why).into());
            }
            for value in &asked.inferred {
                if !self.inferred.contains(value) {
                    self.inferred.push(value.clone());
                }
            }
            if self.request.parameters.max_length.is_none() {
                let scaled = extended(&asked.scaling, asked.scaling.original_length());
                let length = [asked.max_position, scaled].into_iter().flatten().max();
                self.max_length = self.max_length.max(length);
            }
            targets.push((
                i,
                Target {
                    rope,
                    scaling: asked.scaling,
                    softmax_factor: asked.softmax_factor,
                },
            ));
        }
        Ok(targets)
    }

    /// What the flags say.
    fn scale(&mut self) -> Result<Vec<(usize, Target)>, RewriteError> {
        let mut parameters = self.request.parameters.clone();
        let keep = self.request.scale.is_none() && parameters.theta.is_none();
        if keep {
            return Ok(self.kept());
        }
        let scale = self.request.scale.unwrap_or(ScaleType::None);
        if parameters.original_length.is_none()
            && let Some((length, source)) = self.original_length()?
        {
            parameters.original_length = Some(length);
            self.infer("original-length", json!(length), source);
        }
        let mut targets = vec![];
        for (i, site) in chosen(self.found, self.request) {
            let now = &site.query.rotation.rope;
            let theta = match parameters.theta {
                Some(theta) => theta,
                None => {
                    let theta = identified(self.found, site).theta.ok_or_else(|| {
                        let why = "the graph's frequencies fix no base; give `theta`";
                        Refusal::missing("theta", why).at(self.model.graph().place(site.node))
                    })?;
                    self.infer("theta", json!(theta), "the graph's frequencies".into());
                    theta
                }
            };
            let wanted = parameters.rotary_dim.unwrap_or(now.rotary_dim);
            let proportional = scale == ScaleType::Proportional;
            if wanted != now.rotary_dim && !proportional {
                let why = "another rotated width needs rope to be put in anew";
                let place = self.model.graph().place(site.node);
                return Err(Refusal::unsupported(why).at(place).into());
            }
            if parameters.layout.is_some() && parameters.layout != now.layout {
                let why = "another layout needs rope to be put in anew";
                let place = self.model.graph().place(site.node);
                return Err(Refusal::unsupported(why).at(place).into());
            }
            let rope = Rope::new(theta, wanted, now.head_dim)
                .map_err(|e| Refusal::invalid(e.to_string()))?;
            let (scaling, inferred) =
                rope_scaling(scale, &parameters, &rope).map_err(|e| match e {
                    RopeScalingError::OriginalLength { .. } => {
                        Refusal::missing("original-length", e.to_string())
                    }
                    _ => Refusal::invalid(e.to_string()),
                })?;
            for value in inferred {
                self.infer(&value.name, value.value, value.source);
            }
            if self.request.parameters.max_length.is_none() {
                let scaled = extended(&scaling, parameters.original_length);
                self.max_length = self.max_length.max(scaled);
            }
            targets.push((
                i,
                Target {
                    rope,
                    scaling,
                    softmax_factor: 1.0,
                },
            ));
        }
        Ok(targets)
    }

    /// Rotations as they are, where their tables may get more rows: those whose numbers tell all.
    fn kept(&self) -> Vec<(usize, Target)> {
        let as_it_is = |(i, site): (usize, &RotarySite)| {
            let now = &site.query.rotation.rope;
            let known = identified(self.found, site);
            let target = Target {
                rope: Rope::new(known.theta?, now.rotary_dim, now.head_dim).ok()?,
                scaling: known.scaling(now.attention_factor)?,
                softmax_factor: softmax_factor(self.model, site.site),
            };
            is_already(self.model, site, &target).then_some((i, target))
        };
        match self.max_length {
            None => vec![],
            Some(_) => chosen(self.found, self.request)
                .filter_map(as_it_is)
                .collect(),
        }
    }

    fn infer(&mut self, name: &str, value: serde_json::Value, source: String) {
        let inferred = Inferred {
            name: name.to_owned(),
            value,
            source,
        };
        if !self.inferred.contains(&inferred) {
            self.inferred.push(inferred);
        }
    }

    /// The length that the model was trained for, with its source.
    fn original_length(&self) -> Result<Option<(usize, String)>, RewriteError> {
        if let Some(source) = &self.request.model_config {
            let config = source.parse()?;
            let first = self.found.rotary.first();
            let layer = first.map_or(0, |s| self.found.attention[s.site].place.layer);
            let asked = config.rope_for(layer).ok().flatten();
            let scaled = asked.and_then(|a| a.scaling.original_length());
            let length = match scaled {
                Some(length) => Some(length),
                None => config.max_position().map_err(|e| source.refuse(e))?,
            };
            if let Some(length) = length {
                return Ok(Some((length, "config.json beside the model".into())));
            }
        }
        if let Some(length) = crate::record::record(self.model).and_then(|r| r.original_length) {
            return Ok(Some((length, "the model's posenc.rope metadata".into())));
        }
        let holds = |l: &&crate::report::Limit| l.cause != LimitCause::Runtime;
        let shortest = self.limits.iter().filter(holds).min_by_key(|l| l.length);
        Ok(shortest.map(|l| {
            let name = l.value.as_deref().unwrap_or("a fixed shape");
            (l.length, format!("the graph's {} {name}", l.cause))
        }))
    }

    /// Scaling what is scaled already is a mistake unless it is meant.
    fn refuse_twice(&self, targets: &[(usize, Target)]) -> Result<(), RewriteError> {
        if self.request.allowances.allow_rescale {
            return Ok(());
        }
        for (i, target) in targets {
            let site = &self.found.rotary[*i];
            // A graph with one of the target's two lists is half way there, not scaled twice.
            let half_way = target.scaling.depends_on_length()
                && computes(&site.query.rotation.rope, target, 1);
            if half_way || is_already(self.model, site, target) {
                continue;
            }
            let scaled = identified(self.found, site).scaling;
            let recorded = crate::record::record(self.model).is_some_and(|r| r.is_scaled);
            if let Some(scaling) = scaled {
                let why = format!(
                    "the graph is scaled already ({}); give `allow-rescale` to replace that",
                    scaling.name()
                );
                let place = self.model.graph().place(site.node);
                return Err(Refusal::new(RefusalKind::AlreadyScaled, why)
                    .at(place)
                    .into());
            }
            if recorded {
                let why = "the model's posenc.rope metadata says that it is scaled already; give \
                           `allow-rescale` to replace that";
                return Err(Refusal::new(RefusalKind::AlreadyScaled, why).into());
            }
        }
        Ok(())
    }
}

/// The rotary sites that a request speaks of, with their places in the list.
fn chosen<'a>(
    found: &'a Found,
    request: &'a Request,
) -> impl Iterator<Item = (usize, &'a RotarySite)> {
    let asked = |site: &RotarySite| {
        let attention = found.attention.get(site.site);
        attention.is_some_and(|s| request.names(s))
    };
    found
        .rotary
        .iter()
        .enumerate()
        .filter(move |(_, s)| asked(s))
}

/// Whether a site computes the target's numbers already, at every length.
pub(crate) fn is_already(model: &Model, site: &RotarySite, target: &Target) -> bool {
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
    switched && at(now, 1) && target.softmax_factor == softmax_factor(model, site.site)
}

/// Whether a rotation has the target's numbers at a length, as far as f32 tells.
fn computes(now: &posenc_encodings::families::rope::Rope, target: &Target, length: usize) -> bool {
    let want = target.scaling.frequencies_hf(&target.rope, length);
    // A base that grows is raised to powers in the graph; lists are stored.
    let tolerance = match target.scaling {
        Scaling::Dynamic(_) => 1e-5,
        _ => 2e-7,
    };
    let near = |a: f64, b: f64| (a - b).abs() <= tolerance * b.abs();
    let turning = want.inv_freq.iter().filter(|f| **f != 0.0);
    now.inv_freq.len() == turning.clone().count()
        && near(now.attention_factor, want.attention_factor)
        && now
            .inv_freq
            .iter()
            .zip(turning)
            .all(|(a, b)| near(*a, f64::from(*b)))
}

/// The correction of the softmax scale that an earlier rewrite put in.
pub(crate) fn softmax_factor(model: &Model, layer: usize) -> f64 {
    crate::record::record(model).map_or(1.0, |r| r.softmax_factor(layer))
}

/// The length that a scaling reaches.
fn extended(scaling: &Scaling, original: Option<usize>) -> Option<usize> {
    let factor = match scaling {
        Scaling::None => 1.0,
        Scaling::Linear(s) => s.factor,
        Scaling::Ntk(s) => s.factor,
        Scaling::Dynamic(s) => s.factor,
        Scaling::Yarn(s) => s.factor,
        Scaling::Llama3(s) => s.factor,
        Scaling::Proportional(s) => s.factor,
        Scaling::LongRope(s) => match s.attention {
            posenc_encodings::laws::LongRopeAttention::Extension(factor) => factor,
            _ => 1.0,
        },
    };
    let length = original? as f64 * factor.max(1.0);
    (length.is_finite() && length < 1e12).then_some(length.round() as usize)
}
