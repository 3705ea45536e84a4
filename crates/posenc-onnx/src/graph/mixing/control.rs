//! Branches, loops and scans.

use posenc_ir::{NodeId, ScopeId, ValueId};

use super::rules::Mixing;
use super::sets::Sets;
use super::{Walk, rules};
use crate::graph::bodies::{scan_axis, stacked_axis, states};

/// Passes over a body whose outputs are its inputs again: sets only grow, mostly once.
const MOST_PASSES: usize = 4;

/// A body that runs several times.
struct Trips<'a> {
    id: NodeId,
    body: ScopeId,
    /// The inputs of the body that are carried or scanned.
    own: &'a [ValueId],
    /// Its outputs: states, then what is stacked.
    results: &'a [ValueId],
    /// What the node gives the inputs.
    given: Vec<Option<ValueId>>,
    /// How many of them are carried.
    carried: usize,
}

impl Walk<'_> {
    pub(super) fn control_flow(&mut self, id: NodeId) {
        let node = self.rules.model.graph().node(id);
        match node.op() {
            "If" => self.branches(id),
            "Loop" => self.repeated(id, 2, 0),
            "Scan" => {
                self.repeated(id, 0, node.inputs().len() - states(node));
            }
            _ => self.node(id),
        }
    }

    /// The branches of an `If` that the trial run took.
    fn branches(&mut self, id: NodeId) {
        let graph = self.rules.model.graph();
        let node = graph.node(id);
        let condition = node
            .input(0)
            .and_then(|v| self.rules.trace.get(v).scalar_i64());
        let taken = |name: &str| condition.is_none_or(|c| (c != 0) == (name == "then_branch"));
        let bodies: Vec<ScopeId> = (node.bodies())
            .filter(|(name, _)| taken(name))
            .map(|(_, body)| body)
            .collect();
        for body in &bodies {
            self.scope(*body);
        }
        for (i, out) in node.outputs().iter().enumerate() {
            let Some(out) = *out else { continue };
            let ends = bodies
                .iter()
                .filter_map(|body| graph.scope(*body).outputs().get(i));
            let mut sets: Option<Sets> = None;
            for own in ends
                .filter_map(|v| self.get(*v).cloned())
                .collect::<Vec<_>>()
            {
                sets = Some(match sets {
                    None => own,
                    Some(sets) => match sets.union(&own) {
                        Some((both, _)) => both,
                        None => Sets::uniform(0, sets.all() | own.all()),
                    },
                });
            }
            self.set(out, sets);
        }
    }

    /// A body that runs several times, on carried values and on slices of the last `scanned`
    /// inputs; the first `skipped` inputs of the node are none of either.
    fn repeated(&mut self, id: NodeId, skipped: usize, scanned: usize) {
        let graph = self.rules.model.graph();
        let node = graph.node(id);
        let Some(body) = node.bodies().map(|(_, body)| body).next() else {
            return;
        };
        let (inputs, outputs) = (graph.scope(body).inputs(), graph.scope(body).outputs());
        let given: Vec<Option<ValueId>> = node.inputs().iter().skip(skipped).copied().collect();
        let carried = given.len().saturating_sub(scanned);
        let trips = Trips {
            id,
            body,
            own: &inputs[skipped.min(inputs.len())..],
            // The outputs of the body begin with the condition of a Loop.
            results: &outputs[usize::from(skipped > 0).min(outputs.len())..],
            given,
            carried,
        };
        if self.one_by_one(&trips).is_none() {
            self.one_after_another(&trips);
        }
    }

    /// Trips of which each reads its own token alone, and no other trip: a state is the same whatever the
    /// tokens. `None` where they may be others.
    fn one_by_one(&mut self, trips: &Trips<'_>) -> Option<()> {
        let node = self.rules.model.graph().node(trips.id);
        if rules::turns_round(node) {
            return None;
        }
        // The tokens of each trip; the body runs on those of the first and of the last, since what it reads
        // of others may be one of them.
        let mut all: Vec<u64> = vec![];
        let mut slices: [Vec<Option<Sets>>; 2] = Default::default();
        for (i, value) in trips.given.iter().enumerate() {
            let sets = value.and_then(|v| self.get(v).cloned());
            let of_trips = match sets {
                Some(_) if i < trips.carried => return None,
                Some(whole) => {
                    let axis = scan_axis(node, i - trips.carried, whole.rank());
                    let size = *self.rules.trace.get((*value)?).dims.as_ref()?.get(axis)?;
                    let (sets, is_alone) = whole.along(axis, size)?;
                    if !is_alone || !all.is_empty() && all.len() != size {
                        return None;
                    }
                    let rank = whole.rank().checked_sub(1)?;
                    let ends = [*sets.first()?, *sets.last()?];
                    all.resize(size, 0);
                    all.iter_mut().zip(sets).for_each(|(all, set)| *all |= set);
                    ends.map(|set| Some(Sets::uniform(rank, set)))
                }
                None => [None, None],
            };
            slices
                .iter_mut()
                .zip(of_trips)
                .for_each(|(all, own)| all.push(own));
        }
        let last = *all.last()?;
        let before = self.mixers.len();
        for slices in slices {
            // What the first trip mixes is enough.
            if self.mixers.len() > before {
                break;
            }
            for (input, sets) in trips.own.iter().zip(slices) {
                self.set(*input, sets);
            }
            self.scope(trips.body);
            let mut states = trips.results.iter().take(trips.carried);
            if states.any(|state| self.get(*state).is_some()) {
                self.mixers.truncate(before);
                return None;
            }
        }
        for (i, (out, result)) in node.outputs().iter().zip(trips.results).enumerate() {
            let Some(out) = *out else { continue };
            let stacked = self.get(*result).map(|sets| {
                let rank = sets.rank() + 1;
                let axis = stacked_axis(node, i - trips.carried, rank);
                let (own, others) = (sets.all() & last, sets.all() & !last);
                let of_trip = |trip: &u64| if own == 0 { others } else { trip | others };
                Sets::along_axis(&all.iter().map(of_trip).collect::<Vec<_>>(), axis, rank)
            });
            self.set(out, stacked);
        }
        Some(())
    }

    /// Trips that read the results of those before them. What they stack has the token of each trip in its
    /// place, as the outputs of a recurrent operator do.
    fn one_after_another(&mut self, trips: &Trips<'_>) {
        let node = self.rules.model.graph().node(trips.id);
        let mut each: Vec<u64> = vec![];
        for (i, (input, value)) in trips.own.iter().zip(&trips.given).enumerate() {
            let mut sets = value.and_then(|v| self.get(v).cloned());
            if let Some(whole) = sets.as_ref().filter(|_| i >= trips.carried) {
                let axis = scan_axis(node, i - trips.carried, whole.rank());
                let (united, mixed) = whole.over(&[axis]);
                if mixed {
                    let mixing = match rules::turns_round(node) {
                        true => Mixing::Other,
                        false => Mixing::Recurrence,
                    };
                    self.report(trips.id, mixing);
                    let (along, _) = whole.along(axis, 1).unwrap_or_default();
                    each.resize(each.len().max(along.len()), 0);
                    each.iter_mut()
                        .zip(along)
                        .for_each(|(all, set)| *all |= set);
                }
                sets = Some(united.without(&[axis]));
            }
            self.set(*input, sets);
        }
        for pass in 1.. {
            let before = self.mixers.len();
            self.scope(trips.body);
            let mut grown = false;
            let states = trips.own.iter().zip(trips.results).take(trips.carried);
            for (input, result) in states {
                let sets = match (self.get(*input), self.get(*result)) {
                    (Some(a), Some(b)) => match a.union(b) {
                        Some((both, _)) => Some(both.compact()),
                        None => Some(Sets::uniform(0, a.all() | b.all())),
                    },
                    (a, b) => a.or(b).cloned(),
                };
                grown |= sets.as_ref() != self.get(*input);
                self.set(*input, sets);
            }
            if !grown || pass == MOST_PASSES {
                break;
            }
            self.mixers.truncate(before);
        }
        for (i, (out, result)) in node.outputs().iter().zip(trips.results).enumerate() {
            let Some(out) = *out else { continue };
            let sets = self.get(*result).cloned();
            let stacked = |sets: Sets| {
                let Some(index) = i.checked_sub(trips.carried) else {
                    return sets;
                };
                let rank = sets.rank() + 1;
                let axis = stacked_axis(node, index, rank);
                let of_trips = each.iter().fold(0, |all, set| all | set);
                if sets.all() & of_trips == 0 {
                    return sets.with_axis(axis);
                }
                let others = sets.all() & !of_trips;
                let along: Vec<u64> = each.iter().map(|set| set | others).collect();
                Sets::along_axis(&along, axis, rank)
            };
            self.set(out, sets.map(stacked));
        }
    }
}
