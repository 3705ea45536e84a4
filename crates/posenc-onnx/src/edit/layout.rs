//! Rotations with other pairs of features, of queries and keys whose features are in another order.
//!
//! Halves rotate feature `i` with `i + width / 2`, neighbors `2 i` with `2 i + 1`. Where the features of queries
//! and keys are put in the order of the other layout, the same pairs rotate by the same angles, and scores do not
//! change. Weights, biases and norms are written in that order (Hugging Face does so when it converts checkpoints
//! of Meta's Llama).

use posenc_encodings::kind::{Form, Layout};
use posenc_ir::eval::Budget;
use posenc_ir::{Def, Emitter, NodeId, Payload, Tensor, Use, ValueId};
use rustc_hash::FxHashSet;

use super::form::{Part, Reformed, check_opset, write};
use crate::detect::context::Context;
use crate::detect::{RotaryOperand, RotarySite, run_at};
use crate::error::{Refusal, RefusalKind, RewriteError};
use crate::graph::lane::Lane;
use crate::graph::operators::is_rotary;
use crate::graph::ports::{Lengths, Role};
use crate::graph::region::reads;
use crate::graph::reorder::{Borders, Order, Reordered, Rotating, reordered};

/// A model whose rotations have another layout.
#[derive(Debug)]
pub(crate) struct Relaid {
    pub(crate) made: Reformed,
    /// The inputs and outputs whose features are in the other order, with that order: keys of earlier steps.
    pub(crate) moved: Vec<(String, Order)>,
    /// The inputs whose defaults got another order: weights that a caller may give.
    pub(crate) defaults: Vec<String>,
}

/// Gives the rotations of attention sites a layout, where they have another; `None` where none has.
///
/// # Errors
/// Where features cannot be put in another order.
pub(crate) fn relay(
    context: &Context<'_>,
    layout: Layout,
    is_chosen: impl Fn(usize) -> bool,
) -> Result<Option<Relaid>, RewriteError> {
    let (graph, found) = (context.graph(), context.found);
    let chosen = found.rotary.iter().enumerate();
    let chosen: Vec<_> = chosen.filter(|(_, site)| is_chosen(site.site)).collect();
    let mut sites = vec![];
    for (at, site) in chosen {
        let sides = [&site.query, &site.key];
        match sides.map(|side| side.rotation.rope.layout) {
            [Some(query), Some(key)] if query == layout && key == layout => {}
            [Some(query), Some(key)] if query != layout && key != layout => sites.push(at),
            _ => return Err(stuck(context, context.site(site.site).node, OTHER_PAIRS)),
        }
    }
    let Some(first) = sites.first() else {
        return Ok(None);
    };
    check_opset(context, found.rotary[*first].node, "layout")?;
    let mut work = Work {
        context,
        layout,
        rotating: Rotating::default(),
        seeds: vec![],
        parts: vec![],
    };
    for at in &sites {
        work.site(&found.rotary[*at])?;
    }
    let Work {
        rotating,
        seeds,
        parts,
        ..
    } = work;
    let source = (graph, context.model.opset());
    let Lengths {
        batch,
        sequence,
        past,
    } = found.lengths;
    let longer = found.ports.fit(Lengths {
        batch: batch + 1,
        sequence: sequence + 3,
        past: if past > 0 { past + 2 } else { 0 },
    });
    let other = run_at(context.model, found, longer, &LONGER);
    let made = reordered(source, (&found.trace, other.as_ref()), seeds, &rotating);
    let made = made.map_err(|why| stuck(context, why.node, &why.why))?;
    let moved = ends(context, &sites, &made)?;
    let defaults = defaults(context, &made);
    let mut out = graph.emitter(graph.main(), "posenc_layout");
    write(context, &mut out, Form::Ops, Some(layout), parts)?;
    constants(context, &mut out, &made)?;
    let (model, applied) = context.model.clone().with_patch(out.finish())?;
    let made = Reformed {
        model,
        applied,
        sites,
    };
    Ok(Some(Relaid {
        made,
        moved,
        defaults,
    }))
}

/// Elements that a value may have in a run at other lengths.
const LONGER: Budget = Budget { elements: 1 << 20 };

const OTHER_PAIRS: &str =
    "its pairs are no halves and no neighbors from the first feature on, or turn the other way";

/// The refusal to give a rotation another layout.
fn stuck(context: &Context<'_>, node: NodeId, why: &str) -> RewriteError {
    let place = context.graph().place(node);
    let why = format!("cannot put the features of queries and keys in another order: {why}");
    Refusal::new(RefusalKind::UnsupportedOption("layout"), why)
        .at(place)
        .into()
}

/// What is to be done, site after site.
struct Work<'a> {
    context: &'a Context<'a>,
    layout: Layout,
    rotating: Rotating,
    seeds: Vec<(ValueId, NodeId, Order)>,
    parts: Vec<Part<'a>>,
}

impl<'a> Work<'a> {
    fn site(&mut self, site: &'a RotarySite) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        let inside = site.query.region.inside.as_ref();
        let Some(inside) = inside else {
            self.side(&site.query)?;
            return self.side(&site.key);
        };
        let id = self.context.site(site.site).node;
        if !self.rotating.turned.insert(id) {
            return Ok(());
        }
        let node = graph.node(id);
        let count = |name| usize::try_from(node.int(name).ok()??).ok();
        let heads = count("num_heads").zip(count("kv_num_heads"));
        let Some((value, (heads, kv_heads))) = node.input(0).zip(heads) else {
            return Err(stuck(self.context, id, "its heads are unknown"));
        };
        let head = self.head(&site.query, inside.width);
        let dims = self.context.dims(value).unwrap_or_default();
        let parts = match node.input(1) {
            Some(_) => [heads, 0],
            None => [heads + kv_heads, kv_heads],
        };
        let order = packed(&head, parts, dims);
        let order = order.ok_or_else(|| stuck(self.context, id, "its heads are unknown"))?;
        self.seeds.push((value, id, order));
        self.parts.push(Part::Turned(id, self.layout));
        Ok(())
    }

    fn side(&mut self, side: &'a RotaryOperand) -> Result<(), RewriteError> {
        let (context, graph) = (self.context, self.context.graph());
        let region = &side.region;
        let id = region.entries[0].node;
        let refuse = |why: &str| Err(stuck(context, id, why));
        let first = side.rotation.rope.pairs.first();
        if first.is_none_or(|pair| pair.0 != 0) {
            return refuse(OTHER_PAIRS);
        }
        let rotates = |id: NodeId| is_rotary(graph.node(id));
        let nodes: FxHashSet<NodeId> = region.entries.iter().map(|at| at.node).collect();
        if nodes.iter().any(|id| rotates(*id)) {
            if nodes.len() > 1 {
                return refuse("several operators rotate its features");
            }
            return self.operator(side, id);
        }
        let content = region.content(graph, &context.found.classes);
        let inner: FxHashSet<NodeId> = content
            .iter()
            .filter_map(|value| graph.producer(*value))
            .map(|(id, _)| id)
            .collect();
        let is_read = |value: &ValueId| {
            let mut uses = graph.uses(*value).iter();
            *value != region.output
                && (graph.value(*value).is_output()
                    || uses.any(|at| !is_within(context, &inner, at)))
        };
        let mut read: Vec<ValueId> = content.iter().copied().filter(is_read).collect();
        read.sort_unstable();
        if let Some(value) = read.first() {
            let name = graph.name(*value);
            return refuse(&format!("{name} is read outside of its rotation too"));
        }
        self.rotating.replaced.extend(inner);
        for (value, lane) in [
            (region.input, region.input_lane),
            (region.output, region.output_lane),
        ] {
            let Some(order) = self.of_lane(side, value, lane) else {
                return refuse("the axis of its features is unknown");
            };
            self.seeds.push((value, id, order));
        }
        self.parts.push(Part::Side(side));
        Ok(())
    }

    /// A rotation by an operator of its own.
    fn operator(&mut self, side: &RotaryOperand, id: NodeId) -> Result<(), RewriteError> {
        let node = self.context.graph().node(id);
        if !self.rotating.turned.insert(id) {
            return Ok(());
        }
        let value = node.input(0).map(|value| (value, self.context.dims(value)));
        let Some((value, Some(dims))) = value else {
            return Err(stuck(self.context, id, "its heads are unknown"));
        };
        let heads = node.int("num_heads").ok().flatten().filter(|n| *n > 0);
        let heads = heads.and_then(|n| usize::try_from(n).ok());
        let order = match (dims, heads) {
            ([.., width], _) if dims.len() == 4 => Some(self.head(side, *width).moved(|_| 3)),
            ([.., all], heads) => {
                let width = 2 * side.rotation.rope.pairs.len();
                let heads = heads.unwrap_or(all / width);
                let width = all.checked_div(heads).filter(|w| *w >= width);
                width.and_then(|width| packed(&self.head(side, width), [heads, 0], dims))
            }
            _ => None,
        };
        let order = order.ok_or_else(|| stuck(self.context, id, "its heads are unknown"))?;
        self.seeds.push((value, id, order));
        self.parts.push(Part::Turned(id, self.layout));
        Ok(())
    }

    /// The order of a value with the features of one head, or of several one after another.
    fn of_lane(&self, side: &RotaryOperand, value: ValueId, lane: Lane) -> Option<Order> {
        let dims = self.context.dims(value)?;
        let (feature, width) = (lane.feature?, lane.width(dims)?);
        let size = *dims.get(feature)?;
        // How far a lane is in a head is told behind the rotation alone.
        let starts = side.region.output_lane.offset == 0;
        let fits = starts && width >= 2 * side.rotation.rope.pairs.len();
        let heads = size
            .checked_div(width)
            .filter(|n| fits && n * width == size)?;
        packed(&self.head(side, width), [heads, 0], &[size]).map(|order| order.moved(|_| feature))
    }

    /// The order of the features of one head.
    fn head(&self, side: &RotaryOperand, width: usize) -> Order {
        let count = side.rotation.rope.pairs.len();
        let mut from: Vec<usize> = (0..width).collect();
        let pairs = self
            .layout
            .pairs(count)
            .zip(self.layout.other().pairs(count));
        for (new, old) in pairs {
            (from[new.0], from[new.1]) = old;
        }
        Order::along(0, from)
    }
}

/// The order along the last axis of heads one after another, the first of which have this order.
fn packed(head: &Order, [moved, others]: [usize; 2], dims: &[usize]) -> Option<Order> {
    let (last, size) = (dims.len().checked_sub(1)?, *dims.last()?);
    let from = head.of_axis(0)?;
    let width = from.len();
    if (moved + others) * width != size {
        return None;
    }
    let of_head = |head: usize| from.iter().map(move |at| head * width + at);
    let all = (0..moved).flat_map(of_head).chain(moved * width..size);
    Some(Order::along(last, all.collect()))
}

/// Whether a use is in a region, directly or in the body of one of its nodes, or reads sizes alone.
fn is_within(context: &Context<'_>, inner: &FxHashSet<NodeId>, at: &Use) -> bool {
    let graph = context.graph();
    let value = graph.node(at.node).input(at.slot());
    let is_captured = |id: &NodeId| {
        graph.node(*id).bodies().next().is_some()
            && value.is_some_and(|value| reads(graph, *id).contains(&value))
    };
    inner.contains(&at.node) || graph.node(at.node).is("Shape") || inner.iter().any(is_captured)
}

/// The inputs and outputs whose features move, by name. They are caches of keys; anything else is refused.
fn ends(
    context: &Context<'_>,
    sites: &[usize],
    made: &Reordered,
) -> Result<Vec<(String, Order)>, RewriteError> {
    let (graph, found) = (context.graph(), context.found);
    let main = graph.scope(graph.main());
    let keys = keys(context, sites, made);
    let is_cache = |value: &ValueId| match graph.value(*value).def() {
        Def::Input(_) => {
            let mut ports = found.ports.iter();
            ports.any(|port| port.value == *value && port.role == Role::Past)
        }
        _ => keys.contains(value),
    };
    let mut moved = vec![];
    for value in main.inputs().iter().chain(main.outputs()) {
        let Some(order) = made.values.get(value) else {
            continue;
        };
        let name = graph.name(*value).to_owned();
        if !is_cache(value) {
            let why = format!(
                "{name}, which is not known as a cache of keys, would have them in another order"
            );
            let node = context.site(found.rotary[sites[0]].site).node;
            return Err(stuck(context, node, &why));
        }
        moved.push((name, order.clone()));
    }
    Ok(moved)
}

/// The constants in another order that are inputs too, by name, in the order of the inputs.
fn defaults(context: &Context<'_>, made: &Reordered) -> Vec<String> {
    let graph = context.graph();
    let uses = made.constants.keys();
    let read: FxHashSet<ValueId> = uses
        .filter_map(|at| graph.node(at.node).input(at.slot()))
        .collect();
    let inputs = graph.scope(graph.main()).inputs().iter();
    let inputs = inputs.filter(|value| read.contains(value));
    inputs.map(|value| graph.name(*value).to_owned()).collect()
}

/// The values that move and are computed from rotated keys.
fn keys(context: &Context<'_>, sites: &[usize], made: &Reordered) -> FxHashSet<ValueId> {
    let (graph, found) = (context.graph(), context.found);
    let borders = Borders::new(graph, &found.trace);
    let mut keys = FxHashSet::default();
    let mut stack = vec![];
    for at in sites {
        let site = &found.rotary[*at];
        match site.query.region.inside {
            Some(_) => stack.extend(graph.node(context.site(site.site).node).output(1)),
            None => stack.push(site.key.region.output),
        }
    }
    while let Some(value) = stack.pop() {
        if !made.values.contains_key(&value) || !keys.insert(value) {
            continue;
        }
        for at in graph.uses(value) {
            stack.extend(graph.node(at.node).outputs().iter().flatten());
        }
        stack.extend(borders.across(value));
    }
    keys
}

/// Writes the constants that give features their order.
fn constants(
    context: &Context<'_>,
    out: &mut Emitter<'_>,
    made: &Reordered,
) -> Result<(), RewriteError> {
    let graph = context.graph();
    let mut all: Vec<(ValueId, Use, &Order)> = vec![];
    for (at, order) in &made.constants {
        if let Some(value) = graph.node(at.node).input(at.slot()) {
            all.push((value, *at, order));
        }
    }
    all.sort_unstable_by_key(|(value, at, _)| (*value, at.node, at.slot()));
    for same in all.chunk_by(|a, b| a.0 == b.0 && a.2 == b.2) {
        let (value, first, order) = same[0];
        let uses: Vec<Use> = same.iter().map(|(_, at, _)| *at).collect();
        let tensor = loaded(context, value)?;
        let moved = order.apply(&tensor).ok_or_else(|| {
            let why = format!("{} has elements that cannot be moved", graph.name(value));
            stuck(context, first.node, &why)
        })?;
        out.replace_constant(value, &uses, moved)?;
    }
    Ok(())
}

/// The numbers of a constant, in the model or in another file.
fn loaded(context: &Context<'_>, value: ValueId) -> Result<Tensor, RewriteError> {
    let graph = context.graph();
    let unknown = || {
        let why = format!("the numbers of {} cannot be read", graph.name(value));
        RewriteError::from(Refusal::unsupported(why))
    };
    let stored = graph.stored(value).ok_or_else(unknown)?;
    match &stored.payload {
        Payload::External(external) => {
            let bytes = context.model.load(external)?;
            let dtype = stored.dtype.ok_or_else(unknown)?;
            Tensor::new(dtype, stored.dims.clone(), bytes).ok_or_else(unknown)
        }
        _ => Ok(stored.tensor()?),
    }
}
