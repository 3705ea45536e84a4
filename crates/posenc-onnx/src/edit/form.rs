//! Rotations in another form: plain operators, the standard `RotaryEmbedding`, or that of ONNX Runtime.
//!
//! Cosines and sines stay those that the graph has, so that the result computes the same.

mod attention;
mod counted;
mod fused;
mod joined;
mod operators;
mod rotate;
mod turned;
mod waves;

use std::collections::BTreeSet;

use posenc_ir::{Applied, DType, Emitter, Model, NodeId, ValueId};
use rustc_hash::FxHashMap;

use crate::detect::context::Context;
use crate::detect::{RotaryOperand, RotarySite};
use crate::edit::remove::replacements::Replacements;
use crate::edit::remove::rotation::unrotated;
use crate::error::{Refusal, RefusalKind, RewriteError};
use joined::{Joined, Joiner, Tables};
use posenc_encodings::kind::{Form, Layout};
use posenc_encodings::opset::Opset;
use rotate::{Rotated, Unrotated};
use waves::{CONTRIB, HalfWaves, Waves};

/// A model whose rotations have another form.
#[derive(Debug)]
pub(crate) struct Reformed {
    pub(crate) model: Model,
    pub(crate) applied: Applied,
    /// The sites that were changed, as places in [`Found::rotary`](crate::detect::Found::rotary).
    pub(crate) sites: Vec<usize>,
}

/// Gives the rotations of attention sites a form, where they have another; `None` where none has. The model
/// has the opset of that form.
///
/// # Errors
/// Where a rotation is within another operator, or cannot be had in that form.
pub(crate) fn reform(
    context: &Context<'_>,
    form: Form,
    is_chosen: impl Fn(usize) -> bool,
) -> Result<Option<Reformed>, RewriteError> {
    let (graph, found) = (context.graph(), context.found);
    let sites = found.rotary.iter().enumerate();
    let sites: Vec<usize> = sites
        .filter(|(_, site)| site.form != form && is_chosen(site.site))
        .map(|(at, _)| at)
        .collect();
    let Some(first) = sites.first() else {
        return Ok(None);
    };
    check_opset(context, found.rotary[*first].node, "form")?;
    let mut out = graph.emitter(graph.main(), "posenc_form");
    let mut joiner = (form == Form::Contrib).then(|| Joiner::new(context));
    let parts = sites.iter().flat_map(|at| {
        let site = &found.rotary[*at];
        let joined = joiner.as_mut().and_then(|joiner| joiner.join(site));
        joined.map_or_else(|| Part::of(site), |joined| vec![Part::Joined(joined)])
    });
    let parts = parts.collect();
    write(context, &mut out, form, None, parts)?;
    let mut model = context.model.clone();
    if form == Form::Contrib {
        model.import_opset(CONTRIB, 1);
    }
    let (model, applied) = model.with_patch(out.finish())?;
    Ok(Some(Reformed {
        model,
        applied,
        sites,
    }))
}

/// Refuses to write operators into a model whose opset has them in another way.
///
/// # Errors
/// With the node that would get another form or layout, which `what` names.
pub(crate) fn check_opset(
    context: &Context<'_>,
    node: NodeId,
    what: &str,
) -> Result<(), RewriteError> {
    if context.opset() >= Opset::OLDEST {
        return Ok(());
    }
    let why = format!(
        "opset {} is too old to write another {what}; convert the model to opset {} first",
        context.model.opset(),
        Opset::OLDEST.0
    );
    Err(context.refuse(node, why))
}

/// Writes parts in a form, in their layout or in another.
pub(super) fn write(
    context: &Context<'_>,
    out: &mut Emitter<'_>,
    form: Form,
    layout: Option<Layout>,
    mut parts: Vec<Part<'_>>,
) -> Result<(), RewriteError> {
    let graph = context.graph();
    let mut writer = Writer {
        context,
        form,
        layout,
        waves: Waves::new(context),
        rotated: Rotated::new(context, form),
        replacements: Replacements::new(context),
        tables: Tables::default(),
        done: BTreeSet::new(),
    };
    let mut order: FxHashMap<NodeId, usize> = FxHashMap::default();
    for (place, id) in graph.order(graph.main())?.into_iter().enumerate() {
        order.insert(id, place);
    }
    // A replacement is final before a later one refers to it.
    parts.sort_by_key(|part| part.node(context).and_then(|id| order.get(&id)).copied());
    for part in parts {
        match part {
            Part::Side(side) => writer.side(out, side)?,
            Part::Within(site) => writer.within(out, site)?,
            Part::Joined(joined) => writer.joined(out, joined)?,
            Part::Turned(id, layout) => writer.turned(out, id, layout)?,
        }
    }
    writer.replacements.apply(out)
}

/// What is replaced at once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    /// The rotation of queries or of keys.
    Side(&'a RotaryOperand),
    /// The operator of attention that rotates both.
    Within(&'a RotarySite),
    /// The rotations before an operator of attention, which rotates both instead.
    Joined(Joined<'a>),
    /// An operator that rotates, which gets a layout.
    Turned(NodeId, Layout),
}

impl<'a> Part<'a> {
    fn of(site: &'a RotarySite) -> Vec<Self> {
        match site.query.region.inside {
            Some(_) => vec![Self::Within(site)],
            None => vec![Self::Side(&site.query), Self::Side(&site.key)],
        }
    }

    /// The node whose output is replaced.
    fn node(self, context: &Context<'_>) -> Option<NodeId> {
        match self {
            Self::Side(side) => Some(context.graph().producer(side.region.output)?.0),
            Self::Within(site) => Some(context.site(site.site).node),
            Self::Joined(joined) => Some(joined.id),
            Self::Turned(id, _) => Some(id),
        }
    }
}

/// The refusal to give a rotation another form.
fn unsupported(context: &Context<'_>, node: NodeId, why: String) -> RewriteError {
    let place = context.graph().place(node);
    let option = RefusalKind::UnsupportedOption("form");
    Refusal::new(option, why).at(place).into()
}

/// Writes rotations one after another.
struct Writer<'a> {
    context: &'a Context<'a>,
    form: Form,
    /// The layout that rotations get; `None` where they keep theirs.
    layout: Option<Layout>,
    waves: Waves<'a>,
    rotated: Rotated<'a>,
    replacements: Replacements<'a>,
    /// The tables that operators of attention read.
    tables: Tables,
    /// The nodes whose output was replaced.
    done: BTreeSet<NodeId>,
}

impl Writer<'_> {
    /// Replaces one rotation of queries or keys.
    fn side(&mut self, out: &mut Emitter<'_>, side: &RotaryOperand) -> Result<(), RewriteError> {
        let region = &side.region;
        let Some((node, _)) = self.context.graph().producer(region.output) else {
            let why = "no node computes what it gives".to_owned();
            return Err(unsupported(self.context, region.entries[0].node, why));
        };
        if !self.done.insert(node) {
            return Ok(());
        }
        let (layout, waves) = self.read(out, side, node)?;
        let x = Unrotated {
            value: self.unrotated(out, side, node)?,
            layout: self.layout.unwrap_or(layout),
            heads: None,
        };
        let y = self.rotate(out, (side, node), x, &waves)?;
        self.replacements.replace(region.output, y);
        Ok(())
    }

    /// Queries or keys as they are without their rotation. Messages name the node.
    fn unrotated(
        &self,
        out: &mut Emitter<'_>,
        side: &RotaryOperand,
        node: NodeId,
    ) -> Result<ValueId, RewriteError> {
        let (context, region) = (self.context, &side.region);
        out.set_scope(context.graph().value(region.output).scope());
        let current = |value| self.replacements.current(value);
        let value = unrotated(out, context, region, Some(side.rotation.mode), current)?;
        value.ok_or_else(|| {
            let why = "cannot determine how its rotation reorders the features";
            unsupported(context, node, why.to_owned())
        })
    }

    /// Which features rotate together, and by which cosines and sines. Messages name the node.
    fn read(
        &mut self,
        out: &mut Emitter<'_>,
        side: &RotaryOperand,
        node: NodeId,
    ) -> Result<(Layout, HalfWaves), RewriteError> {
        let context = self.context;
        let rope = &side.rotation.rope;
        let starts_first = rope.pairs.first().is_some_and(|pair| pair.0 == 0);
        let Some(layout) = rope.layout.filter(|_| starts_first) else {
            let why = "its pairs are no halves and no neighbors from the first feature on";
            return Err(unsupported(context, node, why.to_owned()));
        };
        let waves = self.waves.of(out, side, layout);
        let waves = waves.map_err(|why| unsupported(context, side.region.entries[0].node, why))?;
        let is_taken = matches!(waves.dtype, DType::F32 | DType::F16 | DType::BF16);
        if self.form != Form::Ops && !is_taken {
            let why = format!("RotaryEmbedding does not take {}", waves.dtype);
            return Err(unsupported(context, node, why));
        }
        Ok((layout, waves))
    }

    /// Queries or keys, rotated. Messages name the node.
    fn rotate(
        &mut self,
        out: &mut Emitter<'_>,
        (side, node): (&RotaryOperand, NodeId),
        x: Unrotated,
        waves: &HalfWaves,
    ) -> Result<ValueId, RewriteError> {
        self.rotated.of(out, side, x, waves).ok_or_else(|| {
            let why = format!(
                "its queries or keys have an order of axes in which the form {} cannot rotate them",
                self.form
            );
            unsupported(self.context, node, why)
        })
    }
}
