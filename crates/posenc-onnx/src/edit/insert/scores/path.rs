//! The last part of the path from the product of queries and keys to the softmax: a bias that is
//! added to these scores reaches the softmax unchanged.

use ndarray::ArrayD;
use posenc_ir::{NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::Site;
use crate::detect::context::Context;
use crate::graph::lane::{Lane, back, wrap};
use crate::graph::operators::is_rearrangement;

/// Bounds beyond this do not affect scores.
const FAR: f64 = 1e3;

/// The scores of a site, from the input of the softmax back to the last scale or the product.
#[derive(Clone, Debug)]
pub(crate) struct ScorePath {
    /// From the softmax back; never empty.
    pub(crate) stages: Vec<Stage>,
    /// The values from the product to the softmax.
    pub(crate) main: FxHashSet<ValueId>,
    /// The nodes from the product to the softmax.
    nodes: FxHashSet<NodeId>,
}

/// Scores on the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    pub(crate) value: ValueId,
    /// The axes of queries and keys.
    pub(crate) plane: [usize; 2],
    /// The next operation on them.
    pub(crate) next: ScoreStep,
}

/// An operation on scores before the softmax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScoreStep {
    /// The softmax.
    Softmax,
    /// A value without content is added, by this use.
    Added(Use),
    /// Pairs are hidden, or all scores of a query change by the same number.
    Masked,
    /// Scores are limited by an upper bound that those of the model do not reach.
    Capped,
    /// Shape or type changes.
    Moved,
    /// Columns that are not keys are added.
    Widened,
}

impl ScorePath {
    /// `None` if the axes of queries and keys are not known.
    pub(crate) fn of(context: &Context<'_>, site: &Site) -> Option<Self> {
        let (product, scores, plane) = (site.product?, site.scores?, site.plane?);
        let (graph, trace) = (context.graph(), &context.found.trace);
        let main = crate::attention::scores::product_path(graph, &context.found.classes, site);
        let mut stages = vec![Stage {
            value: scores,
            plane,
            next: ScoreStep::Softmax,
        }];
        let mut at = (scores, plane);
        while at.0 != product
            && let Some((id, output)) = graph.producer(at.0)
        {
            let step = PathNode {
                context,
                main: &main,
                id,
                columns: at.1[1],
            };
            let Some((slot, next)) = step.through() else {
                break;
            };
            let axis = |axis: usize| {
                let lane = Lane::of_sequence(axis);
                Some(back(graph, trace, id, output, slot, lane)?.sequence)
            };
            let (Some(value), Some(rows), Some(columns)) =
                (graph.node(id).input(slot), axis(at.1[0]), axis(at.1[1]))
            else {
                break;
            };
            at = (value, [rows, columns]);
            stages.push(Stage {
                value,
                plane: at.1,
                next,
            });
        }
        let after = main.iter().filter(|v| **v != product);
        Some(Self {
            nodes: after.filter_map(|v| Some(graph.producer(*v)?.0)).collect(),
            main,
            stages,
        })
    }

    /// The uses of scores that lead to the softmax.
    pub(crate) fn uses(&self, context: &Context<'_>, site: &Site, value: ValueId) -> Vec<Use> {
        let graph = context.graph();
        // A softmax in plain operators reads its scores by another node.
        let parts = graph.node(site.node).inputs().iter().flatten();
        let parts = parts.filter_map(|v| Some(graph.producer(*v)?.0));
        let last: Vec<NodeId> = parts.chain([site.node]).collect();
        let leads = |u: &&Use| {
            self.nodes.contains(&u.node) || Some(value) == site.scores && last.contains(&u.node)
        };
        graph.uses(value).iter().filter(leads).copied().collect()
    }

    /// Whether a constant for each query that is added at `stage` changes anything but the input of
    /// the softmax, to which it makes no difference: a sink next to the keys, an upper bound, or
    /// another reader of the scores.
    pub(crate) fn is_exposed(&self, context: &Context<'_>, site: &Site, stage: usize) -> bool {
        let seen = self.stages.iter().take(stage + 1);
        seen.into_iter().any(|s| {
            let value = context.graph().value(s.value);
            let uses = context.graph().uses(s.value).len();
            matches!(s.next, ScoreStep::Widened | ScoreStep::Capped)
                || value.is_output()
                || uses > self.uses(context, site, s.value).len()
        })
    }
}

/// A node on the path.
struct PathNode<'a> {
    context: &'a Context<'a>,
    main: &'a FxHashSet<ValueId>,
    id: NodeId,
    /// The axis of keys in its output.
    columns: usize,
}

impl PathNode<'_> {
    /// The slot of the scores in a node that passes a bias on them unchanged, and its operation.
    fn through(&self) -> Option<(usize, ScoreStep)> {
        let node = self.context.graph().node(self.id);
        let is_main = |slot: &usize| node.input(*slot).is_some_and(|v| self.main.contains(&v));
        let mut slots = (0..node.inputs().len()).filter(is_main);
        let (slot, second) = (slots.next()?, slots.next());
        if !node.domain().is_empty() {
            return None;
        }
        if second.is_some() {
            return self.subtracts_maximum().then_some((0, ScoreStep::Masked));
        }
        let other = 1usize.checked_sub(slot);
        let step = match node.op() {
            "Add" => {
                let other = other?;
                let plain = !self.context.is_content(node.input(other)?);
                if plain {
                    ScoreStep::Added(Use::new(self.id, other))
                } else {
                    ScoreStep::Masked
                }
            }
            "Sub" if slot == 0 => ScoreStep::Masked,
            "Where" if slot > 0 => ScoreStep::Masked,
            "Mul" if self.all(other?, |v| v == 0.0 || v == 1.0) => ScoreStep::Masked,
            "Max" if node.inputs().len() == 2 && self.all(other?, |v| v <= -FAR) => {
                ScoreStep::Masked
            }
            "Min" if node.inputs().len() == 2 && self.all(other?, |v| v >= FAR) => {
                ScoreStep::Capped
            }
            "Clip" if slot == 0 && self.is_loose() => match node.input(2) {
                Some(_) => ScoreStep::Capped,
                None => ScoreStep::Masked,
            },
            "Cast" if self.is_float() => ScoreStep::Moved,
            "Identity" | "Dropout" if slot == 0 => ScoreStep::Moved,
            op if slot == 0 && is_rearrangement(op) => ScoreStep::Moved,
            "Concat" => {
                let rank = self.context.dims(node.output(0)?)?.len();
                let axis = wrap(node.int("axis").ok()??, rank)?;
                (axis == self.columns).then_some(ScoreStep::Widened)?
            }
            _ => return None,
        };
        Some((slot, step))
    }

    /// Whether the node subtracts its largest number from each row.
    fn subtracts_maximum(&self) -> bool {
        let graph = self.context.graph();
        let node = graph.node(self.id);
        let (Some(scores), Some(mut maximum)) = (node.input(0), node.input(1)) else {
            return false;
        };
        while let Some((id, _)) = graph.producer(maximum) {
            let made = graph.node(id);
            match made.input(0) {
                Some(of) if made.is("ReduceMax") => return node.is("Sub") && of == scores,
                Some(of) if made.is("Identity") || made.is("Unsqueeze") => maximum = of,
                _ => return false,
            }
        }
        false
    }

    /// The numbers of an input, if they are known.
    fn numbers(&self, slot: usize) -> Option<ArrayD<f64>> {
        let value = self.context.graph().node(self.id).input(slot)?;
        self.context.found.trace.get(value).to_f64()
    }

    fn all(&self, slot: usize, is_met: impl Fn(f64) -> bool) -> bool {
        let numbers = self.numbers(slot);
        numbers.is_some_and(|n| n.iter().all(|v| is_met(*v)))
    }

    /// Whether a `Clip` changes no score of a visible pair.
    fn is_loose(&self) -> bool {
        let node = self.context.graph().node(self.id);
        let given = |slot: usize| node.input(slot).is_some();
        let attributes = node.attributes().iter().next().is_some();
        !attributes
            && (!given(1) || self.all(1, |v| v <= -FAR))
            && (!given(2) || self.all(2, |v| v >= FAR))
    }

    fn is_float(&self) -> bool {
        let node = self.context.graph().node(self.id);
        let float = |v: Option<ValueId>| v.is_some_and(|v| self.context.dtype(v).is_float());
        float(node.input(0)) && float(node.output(0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{later, model, plain, scaled, swapped};
    use crate::graph::sketch::Sketch;
    use posenc_encodings::kind::Kind;

    /// Whether the inserted bias depends on the key only, if the scores pass `end` after their mask.
    fn is_by_key(end: fn(&mut Sketch, &str) -> String) -> bool {
        let model = model(|s, x| {
            plain(s, x, |s, scores| {
                let (scores, later, low) = (scaled(s, scores), later(s), s.float(-1e4));
                let scores = s.op("Where", &[&later, &low, &scores]);
                end(s, &scores)
            })
        });
        let done = swapped(&model, Kind::Alibi).unwrap().unwrap();
        let graph = done.model.graph();
        let mut new = graph
            .nodes()
            .filter(|(_, n)| n.name().starts_with("posenc") && n.is("Add"));
        let bias = new.next().unwrap().1.input(1).unwrap();
        let dims = done.found.trace.get(bias).dims.clone().unwrap();
        dims[dims.len() - 2] == 1
    }

    #[test]
    fn a_bias_by_key_is_not_used_with_an_upper_bound() {
        let bounded: [fn(&mut Sketch, &str) -> String; 4] = [
            |s, x| {
                let most = s.float(1e4);
                s.op("Min", &[x, &most])
            },
            |s, x| {
                let most = s.float(3e38);
                s.op("Min", &[&most, x])
            },
            |s, x| {
                let (least, most) = (s.float(-3e38), s.float(1e4));
                s.op("Clip", &[x, &least, &most])
            },
            |s, x| {
                let most = s.float(1e4);
                s.op("Clip", &[x, "", &most])
            },
        ];
        for (i, end) in bounded.into_iter().enumerate() {
            assert!(!is_by_key(end), "{i}");
        }
        let open: [fn(&mut Sketch, &str) -> String; 3] = [
            |s, x| s.op("Identity", &[x]),
            |s, x| {
                let least = s.float(-1e4);
                s.op("Max", &[x, &least])
            },
            |s, x| {
                let least = s.float(-3e38);
                s.op("Clip", &[x, &least])
            },
        ];
        for (i, end) in open.into_iter().enumerate() {
            assert!(is_by_key(end), "{i}");
        }
    }
}
