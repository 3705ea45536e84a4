//! What a request asks to put in, for each site, with its numbers.

mod already;
mod planner;
pub(crate) mod size;
pub mod spec;

use crate::attention::Site;
use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::error::{Refusal, RewriteError};
use crate::plan::numbers::{Init, Numbers};
use crate::report::Inferred;
use crate::request::params::Params;
use crate::request::{Config, Request};
use posenc_encodings::kind::Kind;

use planner::Planner;
use spec::EncodingSpec;

/// What is to stand where.
#[derive(Clone, Debug)]
pub(crate) struct SwapPlan {
    /// The kind.
    pub(crate) kind: Kind,
    /// The sites, by their place in [`Found::attention`](crate::detect::Found::attention),
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

impl SwapPlan {
    /// Whether a site is asked for.
    pub(crate) fn has(&self, site: usize) -> bool {
        self.sites.binary_search(&site).is_ok()
    }

    /// Whether what a finding tells of is to go: it stands before sites that are asked for and,
    /// where it stands before all of a stack at once, before no others of self-attention.
    pub(crate) fn speaks_of(&self, context: &Context<'_>, finding: &Finding) -> bool {
        let own = finding.sites.iter().copied();
        let mut own = own.filter(|site| !context.site(*site).cross).peekable();
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
    pub(crate) new: EncodingSpec,
}
impl SwapPlan {
    /// The same with other groups.
    pub(crate) fn with(&self, groups: Vec<Group>) -> Self {
        Self {
            groups,
            ..self.clone()
        }
    }

    /// The groups with numbers in place of zeros, which would show nothing of where they stand.
    pub(crate) fn with_random_values(&self) -> Vec<Group> {
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
/// Base θ of rotations and sinusoids.
pub(crate) const THETA: f64 = 10_000.0;
/// Decides what a request means; `None` where the model already is what was asked.
///
/// # Errors
/// When the request does not fit the model, or a value that is needed is nowhere to be found.
pub(crate) fn asked(
    context: &Context<'_>,
    request: &Request,
) -> Result<Option<SwapPlan>, RewriteError> {
    let kind = request.to.unwrap_or(Kind::None);
    let sites = chosen(context, request)?;
    size::check(&request.parameters)?;
    for site in &sites {
        let site = context.site(*site);
        let read = [Some(site.query.value), Some(site.key.value), site.scores];
        for dtype in read.into_iter().flatten().map(|v| context.dtype(v)) {
            if !dtype.is_writable() {
                let why = format!("it computes in {dtype}, for which no numbers can be made");
                return Err(context.refuse(site.node, why));
            }
        }
    }
    let params = match &request.params {
        Some(file) => Params::read(file)?,
        None => Params::default(),
    };
    let config = request.hf_config.as_ref().map(Config::parse).transpose()?;
    let mut planner = Planner {
        context,
        config,
        request,
        parameters: &request.parameters,
        params,
        sites: &sites,
        inferred: vec![],
    };
    if request.scale.is_some() && kind != Kind::Rope {
        let why = format!("{kind} is not stretched by `scale` yet; leave it out");
        return Err(Refusal::unsupported(why).into());
    }
    if EncodingSpec::is_absolute(kind) && request.layers.is_some() {
        let why = format!("{kind} stands before all layers; leave out `layers`");
        return Err(Refusal::invalid(why).into());
    }
    let groups = planner.groups(kind);
    if groups.is_ok() || planner.params.is_unread() {
        planner.params.all_read()?;
    }
    let groups = groups?;
    if planner.is_already(kind, &groups) {
        return Ok(None);
    }
    let inferred = planner.inferred;
    Ok(Some(SwapPlan {
        kind,
        groups,
        add_position_ids: request.allowances.add_position_ids,
        max_length: request.parameters.max_length,
        inferred,
        sites,
    }))
}

/// The sites that a request speaks of: self-attention, of the stack and the layers that are named.
fn chosen(context: &Context<'_>, request: &Request) -> Result<Vec<usize>, RewriteError> {
    let all = &context.found.attention;
    if all.is_empty() {
        return Err(Refusal::no_site("the model has no attention to work on").into());
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
            false => format!("the model has one stack; leave out `stack` {stack}"),
        };
        return Err(Refusal::invalid(why).into());
    }
    if let Some(layers) = &request.layers {
        let layer = |i: &usize| all[*i].place.layer;
        let last = own.iter().map(layer).max().unwrap_or(0);
        if let Some(layer) = layers.beyond(last + 1) {
            let why = format!("`layers` names layer {layer}, and the last one is {last}");
            return Err(Refusal::invalid(why).into());
        }
    }
    let named = |i: &usize| request.names(&all[*i]);
    Ok(own.into_iter().filter(named).collect())
}
