//! What a request inserts at each site, with its numbers.

mod already;
mod planner;
pub(crate) mod size;
pub(crate) mod spec;

use crate::attention::order;
use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::error::{Refusal, RefusalKind, RewriteError};
use crate::graph::ports::Role;
use crate::plan::selection::chosen;
use crate::request::params::Params;
use crate::request::{Config, Request};
use posenc_encodings::family::Entry;
use posenc_encodings::kind::Kind;

use planner::Planner;
pub(crate) use spec::{Group, SwapPlan};

/// Refuses tables that are shorter than the text with which the result is read again.
fn check_length(context: &Context<'_>, request: &Request, kind: Kind) -> Result<(), RewriteError> {
    let ports = &context.found.ports;
    // Of sound and images, the model determines how many tokens they make; a fixed length is compared
    // with the rows themselves.
    if ports.first(Role::Tokens).is_none() || ports.fixed_sequence().is_some() {
        return Ok(());
    }
    // The proof follows tokens in a run that is shorter than the table, unless earlier tokens
    // precede them.
    let least = ports.longest(context.found.lengths) + usize::from(!ports.has_past());
    let given = request.parameters.max_length.filter(|n| *n < least);
    match given.filter(|_| kind.is_absolute()) {
        Some(given) => {
            let why = format!(
                "`max-length` is {given}, too short for the run with which the result is read: \
                 give at least {least}"
            );
            Err(Refusal::invalid(why).into())
        }
        None => Ok(()),
    }
}

/// Refuses a swap of all layers where cross-attention would keep a position that was not read.
fn check_cross(context: &Context<'_>, request: &Request) -> Result<(), RewriteError> {
    if request.layers.is_some() || request.allowances.allow_unread {
        return Ok(());
    }
    let is_unread = |f: &&Finding| matches!(f.encoding, Encoding::Unknown);
    let unread = context.found.findings.iter().filter(is_unread);
    let of_finding = |f: &Finding| f.sites.iter().map(|site| (*site, f.node())).collect();
    let unread = unread.flat_map::<Vec<_>, _>(of_finding);
    let not_rotary = context.found.not_rotary.iter();
    let mut unread = unread.chain(not_rotary.map(|r| (r.site, Some(r.node))));
    let Some((site, node)) = unread.find(|(site, _)| context.site(*site).cross) else {
        return Ok(());
    };
    let name = &context.site(site).name;
    let node = node.unwrap_or(context.site(site).node);
    let place = context.graph().place(node);
    let why = format!(
        "{place}: a position that was not read reaches {name}, and cross-attention keeps it; give \
         `allow-unread` to change self-attention alone"
    );
    Err(Refusal::new(RefusalKind::Unread, why).into())
}

/// Refuses a swap that would keep the encodings of a stack without self-attention, as if they were those of
/// cross-attention: its keys may come from a cache that was not read.
fn check_own(context: &Context<'_>, request: &Request) -> Result<(), RewriteError> {
    if request.allowances.allow_unread {
        return Ok(());
    }
    let found = context.found;
    let stack = |site: &usize| context.site(*site).place.stack;
    let own = found.self_attending();
    let is_meant = |site: &usize| request.stack.is_none_or(|named| stack(site) == Some(named));
    let is_kept = |site: &usize| is_meant(site) && !own.contains(&stack(site));
    let with_sites = found.findings.iter().filter(|f| !f.sites.is_empty());
    let kept = with_sites.filter(|f| f.sites.iter().all(is_kept));
    let kept = kept.map(|f| (f.encoding.kind(), f.node()));
    let turned = found.rotary.iter().filter(|r| is_kept(&r.site));
    let turned = turned.map(|r| (Kind::Rope, Some(context.site(r.site).node)));
    let Some((kind, node)) = kept.chain(turned).next() else {
        return Ok(());
    };
    let why = format!(
        "no self-attention was found in the stack of this encoding ({}), which would stay: keys may come from a cache \
         that was not read; give `allow-unread` to change the rest of the model",
        kind
    );
    let refusal = Refusal::new(RefusalKind::Unread, why);
    Err(match node {
        Some(node) => refusal.at(context.graph().place(node)).into(),
        None => refusal.into(),
    })
}

/// Refuses a swap where masks hide other keys in longer sequences, by which new encodings may not go.
fn check_masks(
    context: &Context<'_>,
    request: &Request,
    sites: &[usize],
) -> Result<(), RewriteError> {
    let late = &context.found.late_masks;
    let Some(first) = sites.iter().find(|site| late.contains(site)) else {
        return Ok(());
    };
    if request.allowances.allow_unread {
        return Ok(());
    }
    let site = context.site(*first);
    let why = "the mask hides other keys in longer sequences than among the first tokens, so that it depends on \
               positions; give `allow-unread` to keep it and to change the encoding alone";
    let refusal = Refusal::new(RefusalKind::Unread, why).in_site(&site.name);
    Err(refusal.at(context.graph().place(site.node)).into())
}

/// Refuses what is new between queries and keys that are written into slots of a cache: the place of a query among
/// these is not that of the last key.
fn check_slots(context: &Context<'_>, kind: Kind, sites: &[usize]) -> Result<(), RewriteError> {
    let mut sites = sites.iter().map(|site| context.site(*site));
    match sites.find(|site| site.buffer.is_some()) {
        Some(site) if kind != Kind::None && !kind.is_absolute() => {
            let why = "its keys are written into slots of a cache, where no encoding of queries and keys is inserted \
                       yet";
            Err(context.refuse(site.node, why))
        }
        _ => Ok(()),
    }
}

/// Plans a swap; `None` where the model already matches the request.
///
/// # Errors
/// When the request does not fit the model, or a value that is needed cannot be inferred.
pub(crate) fn plan(
    context: &Context<'_>,
    request: &Request,
) -> Result<Option<SwapPlan>, RewriteError> {
    let kind = request.to.unwrap_or(Kind::None);
    let sites = chosen(context.found, request)?;
    size::check(&request.parameters)?;
    check_length(context, request, kind)?;
    check_own(context, request)?;
    check_cross(context, request)?;
    check_masks(context, request, &sites)?;
    for site in &sites {
        if kind != Kind::None && context.found.partial.contains(site) {
            let why = "its queries are not the last of the tokens, and an encoding of their \
                       positions is not supported";
            return Err(context.refuse(context.site(*site).node, why));
        }
        let site = context.site(*site);
        let (graph, trace) = (context.graph(), &context.found.trace);
        let turned = |operand| order::reads_backwards(graph, trace, operand);
        if reads_features(kind) && (turned(&site.query) || turned(&site.key)) {
            let why = "its queries and keys are read from the last feature to the first, which is \
                       not supported";
            return Err(context.refuse(site.node, why));
        }
        if site.folded && kind != Kind::None && !kind.is_absolute() {
            let why = "its queries and heads are on one axis when they meet the keys, where nothing \
                       can be inserted yet";
            return Err(context.refuse(site.node, why));
        }
        let read = [Some(site.query.value), Some(site.key.value), site.scores];
        for dtype in read.into_iter().flatten().map(|v| context.dtype(v)) {
            if !dtype.is_writable() {
                let why = format!("numbers of its type {dtype} cannot be written");
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
        let why = format!("`scale` of {kind} is not supported yet");
        return Err(Refusal::unsupported(why).into());
    }
    if kind.is_absolute() && request.layers.is_some() {
        let why = format!("the {kind} encoding applies to all layers; `layers` cannot be used");
        return Err(Refusal::invalid(why).into());
    }
    let groups = planner.groups(kind);
    if groups.is_ok() || planner.params.is_unread() {
        planner.params.check_use()?;
    }
    let groups = groups?;
    if planner.is_already(kind, &groups) {
        return Ok(None);
    }
    check_slots(context, kind, &sites)?;
    planner.check_trained(kind)?;
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

/// Whether an encoding acts on single features of queries and keys.
fn reads_features(kind: Kind) -> bool {
    kind == Kind::Rope
        || kind
            .family()
            .is_some_and(|f| matches!(f.entry, Entry::ScoreTerm(_)))
}
