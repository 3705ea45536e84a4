//! Control flow that decides nothing: what it holds is computed once, whatever happens.

use posenc_ir::{Graph, Node, NodeId, ScopeId, Tensor, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::counters::Counter;
use super::draft::Draft;
use super::runs::is_default;
use super::view::View;
use crate::graph::operators::is_elementwise;

/// `If` with a constant condition, or with branches that compute the same.
pub(super) fn branch(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let graph = view.graph();
    let node = graph.node(id);
    if !node.is("If") {
        return None;
    }
    let body = |name: &str| {
        node.bodies()
            .find(|(n, _)| *n == name)
            .map(|(_, body)| body)
    };
    let (then, other) = (body("then_branch")?, body("else_branch")?);
    let taken = match view.flag(node.input(0)?) {
        Some(true) => then,
        Some(false) => other,
        None if alike(graph, then, other) => then,
        None => return None,
    };
    let results = inlined(graph, draft, taken, &[])?;
    replace(draft, node, &results)
}

/// `Loop` with one trip.
pub(super) fn repeated(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let graph = view.graph();
    let node = graph.node(id);
    let body = node.is("Loop").then(|| node.bodies().next())??.1;
    let starts = node.input(1).is_none_or(|v| view.flag(v) == Some(true));
    if !starts || view.int(node.input(0)?)? != 1 || !is_simple(graph, body) {
        return None;
    }
    let carried = node.inputs().get(2..).unwrap_or_default();
    let carried: Vec<ValueId> = carried.iter().copied().collect::<Option<_>>()?;
    let first = draft
        .emitter()
        .constant("trip", Tensor::from_i64(&[], &[0]));
    let goes_on = draft
        .emitter()
        .constant("condition", Tensor::from_bool(&[], &[true]));
    let given: Vec<ValueId> = [first, goes_on]
        .into_iter()
        .chain(carried.iter().copied())
        .collect();
    let results = inlined(graph, draft, body, &given)?;
    let results = stacked(draft, results.get(1..)?, carried.len());
    replace(draft, node, &results)
}

/// `Loop` that stacks functions of the number of the trip, and of numbers that grow by the same in
/// each: those of all trips at once.
pub(super) fn counted(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let graph = view.graph();
    let node = graph.node(id);
    let body = node.is("Loop").then(|| node.bodies().next())??.1;
    let scope = graph.scope(body);
    let starts = node.input(1).is_none_or(|v| view.flag(v) == Some(true));
    let [trip, goes_on, carried @ ..] = scope.inputs() else {
        return None;
    };
    // The body never ends the loop.
    let condition = view.origin(*scope.outputs().first()?);
    let unending = condition == *goes_on || view.flag(condition) == Some(true);
    if !starts || !unending || !is_simple(graph, body) {
        return None;
    }
    let counters = Counter::all(view, node, scope)?;
    let of_trip = of_trips(view, body, [*trip].iter().chain(carried), *goes_on)?;
    let stacks = scope.outputs().get(1 + counters.len()..)?;
    if !stacks.iter().all(|v| of_trip.contains(v)) {
        return None;
    }
    let trips = node.input(0)?;
    let trips = match view.rank(trips)? {
        0 => trips,
        _ => draft.op("Squeeze", &[trips], &[]),
    };
    let [zero, one] = [0, 1].map(|n| {
        draft
            .emitter()
            .constant("trip", Tensor::from_i64(&[], &[n]))
    });
    let all = draft.op("Range", &[zero, trips, one], &[]);
    let goes_on = draft
        .emitter()
        .constant("condition", Tensor::from_bool(&[], &[true]));
    let mut given = vec![all, goes_on];
    for counter in &counters {
        given.push(counter.at(draft, all));
    }
    let results = inlined(graph, draft, body, &given)?;
    let stacks = node.outputs().iter().skip(counters.len());
    for (out, result) in stacks.zip(&results[1 + counters.len()..]) {
        if let Some(out) = *out {
            draft.replace(out, *result)?;
        }
    }
    Some(())
}

/// What a body computes from these numbers of a trip, each element by itself; `None` where it
/// computes anything else.
fn of_trips<'a>(
    view: &View<'_>,
    body: ScopeId,
    numbers: impl Iterator<Item = &'a ValueId>,
    goes_on: ValueId,
) -> Option<FxHashSet<ValueId>> {
    let graph = view.graph();
    let mut of_trip: FxHashSet<ValueId> = numbers.copied().collect();
    for id in graph.order(body).ok()? {
        let inner = graph.node(id);
        let scalar = |v: &ValueId| *v == goes_on || of_trip.contains(v) || view.rank(*v) == Some(0);
        let mut inputs = inner.inputs().iter().flatten();
        let is_known = is_elementwise(inner.op()) && inner.domain().is_empty();
        if !is_known && !inner.is("Constant") || !inputs.all(scalar) {
            return None;
        }
        // Bounds and scales are single numbers, also for all trips at once.
        let single = matches!(
            inner.op(),
            "Clip" | "Dropout" | "QuantizeLinear" | "DequantizeLinear"
        );
        let mut others = inner.inputs().iter().skip(1).flatten();
        if single && others.any(|v| of_trip.contains(v)) {
            return None;
        }
        if inner.inputs().iter().flatten().any(|v| of_trip.contains(v)) {
            of_trip.extend(inner.outputs().iter().flatten());
        }
    }
    Some(of_trip)
}

/// `Scan` over one slice.
pub(super) fn scanned(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let graph = view.graph();
    let node = graph.node(id);
    let body = node.is("Scan").then(|| node.bodies().next())??.1;
    let count = usize::try_from(node.int("num_scan_inputs").ok()??).ok()?;
    let carried = node.inputs().len().checked_sub(count)?;
    // Axes and directions other than the usual ones are attributes.
    if node.attributes().len() != 2 || !is_simple(graph, body) {
        return None;
    }
    let inputs: Vec<ValueId> = node.inputs().iter().copied().collect::<Option<_>>()?;
    let is_one = |v: &ValueId| {
        let spread = view.made_by(*v, "Unsqueeze");
        let axes = spread.and_then(|n| view.ints(n.input(1)?));
        axes.is_some_and(|axes| axes.contains(&0))
    };
    if count == 0 || !inputs[carried..].iter().all(is_one) {
        return None;
    }
    let axes = draft.ints(&[0]);
    let mut given = inputs[..carried].to_vec();
    for slices in &inputs[carried..] {
        given.push(draft.op("Squeeze", &[*slices, axes], &[]));
    }
    let results = inlined(graph, draft, body, &given)?;
    let results = stacked(draft, &results, carried);
    replace(draft, node, &results)
}

/// The results of one trip as the outputs of the loop.
fn stacked(draft: &mut Draft<'_>, results: &[ValueId], carried: usize) -> Vec<ValueId> {
    let mut all = vec![];
    for (i, result) in results.iter().enumerate() {
        let axes = draft.ints(&[0]);
        all.push(if i < carried {
            *result
        } else {
            draft.op("Unsqueeze", &[*result, axes], &[])
        });
    }
    all
}

fn replace(draft: &mut Draft<'_>, node: &Node, results: &[ValueId]) -> Option<()> {
    if node.outputs().len() > results.len() {
        return None;
    }
    for (out, result) in node.outputs().iter().zip(results) {
        if let Some(out) = *out {
            draft.replace(out, *result)?;
        }
    }
    Some(())
}

/// Whether a body holds no bodies and nothing that cannot be copied. Bodies within are replaced
/// before those around them.
fn is_simple(graph: &Graph, body: ScopeId) -> bool {
    let scope = graph.scope(body);
    let copied =
        |id: &NodeId| graph.node(*id).bodies().next().is_none() && graph.overload(*id).is_empty();
    scope.nodes().iter().all(copied)
}

/// The outputs of a copy of a body in the scope around it, with these values for its inputs.
fn inlined(
    graph: &Graph,
    draft: &mut Draft<'_>,
    body: ScopeId,
    given: &[ValueId],
) -> Option<Vec<ValueId>> {
    let scope = graph.scope(body);
    let defaults = scope.inputs().iter().any(|v| is_default(graph, *v));
    if !is_simple(graph, body) || scope.inputs().len() != given.len() || defaults {
        return None;
    }
    let mut stored: FxHashMap<ValueId, Tensor> = FxHashMap::default();
    for value in scope.initializers() {
        stored.insert(*value, graph.constant(*value)?);
    }
    let order = graph.order(body).ok()?;
    let mut now: FxHashMap<ValueId, ValueId> = scope
        .inputs()
        .iter()
        .copied()
        .zip(given.iter().copied())
        .collect();
    for value in scope.initializers() {
        let tensor = stored.remove(value)?;
        now.insert(*value, draft.emitter().constant("constant", tensor));
    }
    for id in order {
        let node = graph.node(id);
        // A constant in place of its node, so that it is one before the result is read again, too.
        if node.is("Constant")
            && let Some(old) = node.output(0)
            && let Some(tensor) = graph.constant(old)
        {
            now.insert(old, draft.emitter().constant("constant", tensor));
            continue;
        }
        let inputs: Vec<Option<ValueId>> = (node.inputs().iter())
            .map(|v| v.map(|v| now.get(&v).copied().unwrap_or(v)))
            .collect();
        let outputs = draft.emitter().copy(id, &inputs, &[]).ok()?;
        for (old, new) in node.outputs().iter().zip(outputs) {
            if let (Some(old), Some(new)) = (*old, new) {
                now.insert(old, new);
            }
        }
    }
    let results = scope.outputs().iter();
    Some(results.map(|v| now.get(v).copied().unwrap_or(*v)).collect())
}

/// Whether two bodies without inputs compute the same from the same values around them.
fn alike(graph: &Graph, a: ScopeId, b: ScopeId) -> bool {
    let (first, second) = (graph.scope(a), graph.scope(b));
    if first.outputs().len() != second.outputs().len()
        || !is_simple(graph, a)
        || !is_simple(graph, b)
    {
        return false;
    }
    let outputs = first
        .outputs()
        .iter()
        .copied()
        .zip(second.outputs().iter().copied());
    let mut pairs: Vec<(ValueId, ValueId)> = outputs.collect();
    let mut seen = FxHashSet::default();
    while let Some((x, y)) = pairs.pop() {
        if x == y || !seen.insert((x, y)) {
            continue;
        }
        let own = graph.value(x).scope() == a && graph.value(y).scope() == b;
        let makers = graph.producer(x).zip(graph.producer(y));
        let same = match makers {
            _ if !own => false,
            None => graph.constant(x).is_some() && graph.constant(x) == graph.constant(y),
            Some(((m, i), (n, j))) => {
                let (m, n) = (graph.node(m), graph.node(n));
                let attribute =
                    |a: &posenc_ir::proto::AttributeProto| n.attribute(a.name()) == Some(a);
                let inputs = m.inputs().iter().zip(n.inputs());
                let both = inputs.filter_map(|(x, y)| x.zip(*y));
                pairs.extend(both);
                let omitted =
                    |(x, y): (&Option<ValueId>, &Option<ValueId>)| x.is_some() == y.is_some();
                i == j
                    && (m.domain(), m.op()) == (n.domain(), n.op())
                    && m.attributes().len() == n.attributes().len()
                    && m.attributes().iter().all(attribute)
                    && m.inputs().len() == n.inputs().len()
                    && m.inputs().iter().zip(n.inputs()).all(omitted)
            }
        };
        if !same {
            return false;
        }
    }
    true
}
