//! What a request changes in a model: decided once, before anything changes.

use posenc_ir::Model;

use super::{rescale, resize, stretch, swap};
use crate::detect::Found;
use crate::detect::branches::{Branch, check_branches};
use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::error::{Refusal, RefusalKind, RewriteError};
use crate::report::{Limit, LimitCause};
use crate::request::{ImageSize, Length, Parameters, Request};
use posenc_encodings::kind::{Kind, Layout};

/// What changes, for each branch of the model.
#[derive(Debug)]
pub(crate) enum Change {
    /// Only the order of the nodes.
    Sort,
    /// Only the form of rotations or of fused biases.
    Form,
    /// The frequencies of rotations. A branch without rotations has no plan; the first has one.
    Rescale(Vec<Option<rescale::Plan>>),
    /// Tables on the embeddings get other rows, biases are divided.
    Stretch(Vec<stretch::Plan>),
    /// Images get another size.
    Resize(resize::Plan),
    /// Images may have any size.
    Open(Box<resize::Open>),
    /// Encodings are removed and others inserted, then rotations that were inserted may be
    /// rescaled. A branch that has the requested encoding already has none.
    Swap(Vec<Option<swap::SwapPlan>>),
    /// Nothing: the model has the requested encoding already.
    Nothing {
        /// What the user should know of the model.
        warnings: Vec<String>,
    },
}

/// Decides what a request changes.
///
/// # Errors
/// When the request does not fit the model, a needed value is unknown, or a parameter has no
/// effect.
pub(crate) fn change(
    model: &Model,
    branches: &[Branch],
    request: &Request,
) -> Result<Change, RewriteError> {
    if request.is_only_form() {
        return Ok(Change::Form);
    }
    let found = &branches[0].found;
    let kind = request.to.filter(|kind| replaces(found, *kind, request));
    if request.parameters.length == Length::Dynamic {
        return open_plan(model, branches, request);
    }
    if let Some(size) = request.parameters.image_size {
        return Ok(Change::Resize(resize_plan(model, branches, request, size)?));
    }
    if kind.is_none() && stretch::is_meant(found, request) {
        return stretch_plans(model, branches, request);
    }
    check_effect(request, kind)?;
    if kind.is_none() && request.to == Some(Kind::Rope) {
        check_others(found, request)?;
    }
    if kind.is_none() {
        check_static(found, request)?;
        let plans = rescale_plans(model, branches, &found.limits, request)?;
        return Ok(Change::Rescale(plans));
    }
    let plans = branches
        .iter()
        .map(|branch| swap_plan(model, branch, branches, request))
        .collect::<Result<Vec<_>, _>>()?;
    if plans.iter().all(Option::is_none) {
        let warnings = found.not_evaluated.clone();
        return Ok(Change::Nothing { warnings });
    }
    if request.allowances.write_config {
        let why = "`write-config` describes rescales, lengths and image sizes, and a config has no \
                   key for another encoding; remove it";
        return Err(Refusal::new(RefusalKind::NoEffect("write-config"), why).into());
    }
    Ok(Change::Swap(plans))
}

/// Plans for the tables and biases of every branch; of a graph of one length, that of another.
fn stretch_plans(
    model: &Model,
    branches: &[Branch],
    request: &Request,
) -> Result<Change, RewriteError> {
    stretch::resizing(&branches[0].found, request)?;
    refuse_ineffective(request.ineffective_on_tables(), "this rewrite")?;
    let mut plans = vec![];
    for Branch { found, .. } in branches {
        let context = Context { model, found };
        let plan = stretch::plan(&context, request)?;
        match resize::length(&context, &plan)? {
            Some(whole) if branches.len() == 1 => return Ok(Change::Resize(whole)),
            Some(_) => {
                let why = "another length of a model with branches, in which the old one is written, is not \
                           supported yet";
                return Err(Refusal::unsupported(why).into());
            }
            None => plans.push(plan),
        }
    }
    Ok(Change::Stretch(plans))
}

/// A plan for another image size of the only branch.
fn resize_plan(
    model: &Model,
    branches: &[Branch],
    request: &Request,
    size: ImageSize,
) -> Result<resize::Plan, RewriteError> {
    refuse_ineffective(request.ineffective_on_images(), "another image size")?;
    let [Branch { found, .. }] = branches else {
        let why = "another image size of a model with branches is not supported yet";
        return Err(Refusal::unsupported(why).into());
    };
    resize::plan(&Context { model, found }, request, size)
}

/// A plan for images of any size of the only branch.
fn open_plan(
    model: &Model,
    branches: &[Branch],
    request: &Request,
) -> Result<Change, RewriteError> {
    let first = Context {
        model,
        found: &branches[0].found,
    };
    resize::open::check_image(&first)?;
    refuse_ineffective(request.ineffective_on_images(), "images of any size")?;
    let [Branch { found, .. }] = branches else {
        let why = "images of any size of a model with branches are not supported yet";
        return Err(Refusal::unsupported(why).into());
    };
    if request.allowances.write_config {
        let why = "`write-config` describes rescales, lengths and image sizes, and a config has no \
                   key for images of any size; remove it";
        return Err(Refusal::new(RefusalKind::NoEffect("write-config"), why).into());
    }
    let context = Context { model, found };
    let Some(plan) = resize::open(&context, request, request.parameters.image_size)? else {
        let warnings = found.not_evaluated.clone();
        return Ok(Change::Nothing { warnings });
    };
    Ok(Change::Open(Box::new(plan)))
}

/// A plan for the rotations of each branch. `limits` are those of the model before any change.
///
/// # Errors
/// As [`rescale::plan`].
pub(crate) fn rescale_plans(
    model: &Model,
    branches: &[Branch],
    limits: &[Limit],
    request: &Request,
) -> Result<Vec<Option<rescale::Plan>>, RewriteError> {
    let plan = |(i, branch): (usize, &Branch)| {
        if i > 0 && branch.found.rotary.is_empty() {
            return Ok(None);
        }
        rescale::plan(model, &branch.found, limits, request).map(Some)
    };
    branches.iter().enumerate().map(plan).collect()
}

/// What replaces the encodings of a branch; `None` where it has the requested ones already.
///
/// # Errors
/// As [`swap::plan`], and where only a part of what a body computes would change.
pub(crate) fn swap_plan(
    model: &Model,
    branch: &Branch,
    branches: &[Branch],
    request: &Request,
) -> Result<Option<swap::SwapPlan>, RewriteError> {
    let context = Context {
        model,
        found: &branch.found,
    };
    let Some(plan) = swap::plan(&context, request)? else {
        return Ok(None);
    };
    check_branches(&context, &plan.sites, branches)?;
    Ok(Some(plan))
}

/// Refuses a parameter that has no effect: where `kind` is inserted, or else where the rotations of
/// the model are rescaled.
fn check_effect(request: &Request, kind: Option<Kind>) -> Result<(), RewriteError> {
    let on = kind.map_or("this rewrite".to_owned(), |kind| kind.to_string());
    let name = request.ineffective(kind);
    if let (Some(width @ "rotary-dim"), None) = (name, kind) {
        let why = format!(
            "`{width}` has no effect on a rewrite that keeps what rotates; give `to` rope to rotate that many \
             features, or remove it"
        );
        return Err(Refusal::new(RefusalKind::NoEffect(width), why).into());
    }
    refuse_ineffective(name, &on)
}

/// Refuses a parameter that has no effect `on` what changes.
fn refuse_ineffective(name: Option<&'static str>, on: &str) -> Result<(), RewriteError> {
    let Some(name) = name else { return Ok(()) };
    let why = format!("`{name}` has no effect on {on}; remove it");
    Err(Refusal::new(RefusalKind::NoEffect(name), why).into())
}

/// Refuses a length that the shapes in the graph do not take: where tokens are rotated, none of these
/// follows yet.
fn check_static(found: &Found, request: &Request) -> Result<(), RewriteError> {
    let Some(wanted) = request.parameters.max_length else {
        return Ok(());
    };
    let mut limits = found.limits.iter();
    let is_short = |limit: &&Limit| limit.cause == LimitCause::StaticShape && limit.length < wanted;
    let Some(limit) = limits.find(is_short).filter(|_| !found.rotary.is_empty()) else {
        return Ok(());
    };
    let why = format!(
        "the shapes in the graph take {} tokens, and another number is not supported yet in a model that \
         rotates them; export it with an open sequence axis, or leave out `max-length`",
        limit.length
    );
    Err(Refusal::new(RefusalKind::UnsupportedOption("max-length"), why).into())
}

/// Refuses to keep another encoding at sites that rotate already, where a request names RoPE as the only one.
fn check_others(found: &Found, request: &Request) -> Result<(), RewriteError> {
    let is_chosen = |site: &usize| {
        let site = &found.attention[*site];
        request.names(site) && !site.cross
    };
    let is_kept = |f: &&Finding| f.encoding.kind() != Kind::Rope && f.sites.iter().any(is_chosen);
    let Some(other) = found.findings.iter().find(is_kept) else {
        return Ok(());
    };
    let kind = other.encoding.kind();
    let why = format!(
        "its layers have {kind} besides rotations, which would stay; remove all encodings with `to` none first, or \
         leave out `to` to rescale the rotations alone"
    );
    Err(Refusal::unsupported(why).into())
}

/// Whether a request replaces encodings, rather than to rescale the rotations that are there.
fn replaces(found: &Found, kind: Kind, request: &Request) -> bool {
    kind != Kind::Rope || replaces_rotations(found, request)
}

/// Whether some chosen site has no rotation yet, or is to rotate other features. A rescale leaves layers
/// without an encoding alone, unless they are named.
fn replaces_rotations(found: &Found, request: &Request) -> bool {
    let Parameters {
        layout,
        rotary_dim,
        theta,
        ..
    } = &request.parameters;
    let is_chosen = |site: usize| {
        let site = &found.attention[site];
        request.names(site) && !site.cross
    };
    let rotary: Vec<_> = found.rotary.iter().filter(|r| is_chosen(r.site)).collect();
    let chosen = (0..found.attention.len()).filter(|i| is_chosen(*i)).count();
    let is_rescale = request.scale.is_some() || request.hf_config.is_some() || theta.is_some();
    let is_partial = rotary.len() < chosen && (request.layers.is_some() || !is_rescale);
    if rotary.is_empty() || is_partial {
        return found.not_rotary.is_empty() && found.axial.is_empty();
    }
    rotary.iter().any(|r| {
        let now = &r.query.rotation.rope;
        // Without a scaling, rope is the plain kind: halves of the whole head.
        let layout_differs = match layout {
            Some(layout) => now.layout != Some(*layout),
            None => !is_rescale && now.layout != Some(Layout::Half),
        };
        let width_differs = match rotary_dim {
            Some(dim) => now.rotary_dim != *dim,
            None => !is_rescale && now.rotary_dim != now.head_dim,
        };
        layout_differs || width_differs
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{HIDDEN, SIZE, Sketch};
    use crate::prove::testing::fixture;
    use crate::request::LawName;
    use crate::rewrite::rewrite;
    use posenc_ir::DType;

    #[test]
    fn rope_is_inserted_where_a_layer_has_none_and_a_rescale_leaves_it_alone() {
        let rotary = |request: Option<Request>| {
            let mut model = fixture("smollm3/dynamo");
            if let Some(request) = request {
                rewrite(&mut model, &request).unwrap();
            }
            let found = detect(&model, &Options::default());
            found.rotary.iter().map(|r| r.site).collect::<Vec<_>>()
        };
        let rope = || Request {
            to: Some(Kind::Rope),
            ..Request::default()
        };
        assert_eq!(rotary(None), [0]);
        assert_eq!(rotary(Some(rope())), [0, 1]);
        let scaled = Request {
            scale: Some(LawName::Linear.into()),
            parameters: Parameters {
                factor: Some(2.0),
                ..Parameters::default()
            },
            ..rope()
        };
        assert_eq!(rotary(Some(scaled)), [0]);
    }

    /// A layer that rotates queries and keys, with a table on the embeddings or without.
    fn rotated(has_table: bool) -> Model {
        let mut s = Sketch::default();
        let mut x = s.embedded();
        let positions = s.input("position_ids", DType::I64, &["batch", "sequence"]);
        if has_table {
            let table = s.weights(&[40, HIDDEN]);
            let rows = s.gather(&table, &positions, 0);
            x = s.op("Add", &[&x, &rows]);
        }
        let half = SIZE / 2;
        let [cos, sin] = [f64::cos, f64::sin].map(|wave: fn(f64) -> f64| {
            let angle =
                |i: usize| (i / half) as f64 * 100f64.powf(-((i % half) as f64) / half as f64);
            s.floats(
                &[40, half],
                (0..40 * half).map(|i| wave(angle(i))).collect::<Vec<_>>(),
            )
        });
        let [q, k] = [(); 2].map(|()| {
            let x = s.headed(&x);
            s.op("ms.RotaryEmbedding", &[&x, &positions, &cos, &sin])
        });
        let v = s.headed(&x);
        let y = s.weighted(&q, &k, &v);
        s.model(17, &[&y])
    }

    #[test]
    fn rope_alone_is_not_what_a_model_with_another_encoding_has() {
        let done = |has_table: bool, to: Option<Kind>| {
            let mut request = Request {
                to,
                scale: Some(LawName::Linear.into()),
                ..Request::default()
            };
            request.parameters.factor = Some(2.0);
            let done = rewrite(&mut rotated(has_table), &request);
            done.map(|_| ()).map_err(|why| why.to_string())
        };
        assert_eq!(done(false, Some(Kind::Rope)), Ok(()));
        assert_eq!(done(true, None), Ok(()));
        let why = done(true, Some(Kind::Rope)).unwrap_err();
        assert!(
            why.contains("its layers have learned besides rotations"),
            "{why}"
        );
    }
}
