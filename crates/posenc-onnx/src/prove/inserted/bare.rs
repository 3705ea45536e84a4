//! A graph without what was inserted into its scores.

use posenc_ir::{Model, ValueId};
use rustc_hash::FxHashSet;

use super::miss::{Miss, kinds};
use crate::attention::Site;
use crate::attention::scores::given;
use crate::detect::branches::Branch;
use crate::detect::context::Context;
use crate::detect::{Found, detect};
use crate::edit::remove::remove;
use crate::plan::swap::SwapPlan;

/// Takes the encodings of the sites of a plan out of a copy.
pub(in crate::prove) fn bare(
    context: &Context<'_>,
    plan: &SwapPlan,
    branch: &Branch,
) -> Result<(Model, Found), Miss> {
    let first = plan
        .sites
        .first()
        .and_then(|s| context.found.attention.get(*s));
    let differs = |why: String| {
        let name = first.map_or("attention", |site| &site.name).to_owned();
        Miss::Differs(name, format!("{} cannot be taken out: {why}", plan.kind))
    };
    let graph = context.model.graph();
    let mut out = graph.emitter(graph.main(), "posenc");
    remove(&mut out, context, &plan.with(vec![])).map_err(|why| differs(why.to_string()))?;
    let bare = context.model.clone().with_patch(out.finish());
    let (bare, _) = bare.map_err(|why| differs(why.to_string()))?;
    let found = detect(&bare, &branch.options);
    if found.attention.len() != context.found.attention.len() {
        return Err(differs("attention reads otherwise without it".to_owned()));
    }
    // What nothing takes out would be in both graphs.
    for site in &plan.sites {
        if kinds(&found, *site).iter().any(|kind| !kind.is_absolute()) {
            let name = found.attention[*site].name.clone();
            let why = format!("more than {} is read", plan.kind);
            return Err(Miss::Differs(name, why));
        }
    }
    let known: FxHashSet<ValueId> = graph.values().collect();
    let sites = plan.sites.iter().map(|site| &found.attention[*site]);
    if sites
        .flat_map(|site| fed(&bare, site))
        .any(|value| !known.contains(&value))
    {
        let why = "taking it out changes what it is computed from";
        return Err(Miss::Unchecked(why.to_owned()));
    }
    Ok((bare, found))
}

/// The values that both graphs are fed at a site.
fn fed(bare: &Model, site: &Site) -> Vec<ValueId> {
    let own = [Some(site.query.value), Some(site.key.value), site.product];
    let mask = match site.scores {
        Some(_) => None,
        None => given(bare.graph(), site),
    };
    own.into_iter().chain([mask]).flatten().collect()
}
