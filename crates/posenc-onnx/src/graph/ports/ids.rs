//! Token ids that mean nothing special to a graph.

use posenc_ir::Graph;

use super::uses::{Step, moves, reaches};
use super::{Port, Ports, Role};

/// Ids below are often those of padding and separators.
const FIRST: i64 = 3;

impl Ports {
    /// `count` ids that are spread over a vocabulary of so many rows and that the graph compares with
    /// nothing; fewer where there are not as many.
    pub(crate) fn spread_tokens(&self, graph: &Graph, rows: i64, count: usize) -> Vec<i64> {
        let taken = self.special_tokens(graph);
        let mut ids: Vec<i64> = vec![];
        for k in 0..count as i64 {
            let from = FIRST + (rows - FIRST).max(0) * k / count as i64;
            let next = ids.last().map_or(from, |last| from.max(last + 1));
            ids.extend((next..rows).find(|id| !taken.contains(id)));
        }
        ids
    }

    /// Ids that the graph compares with nothing.
    pub(crate) fn ordinary_tokens(&self, graph: &Graph) -> impl Iterator<Item = i64> {
        let taken = self.special_tokens(graph);
        (FIRST..).filter(move |id| !taken.contains(id))
    }

    /// The id of the tokens that a graph picks by their places, as those at the ends of sequences: without any, there
    /// is nothing to pick.
    pub(crate) fn picked_token(&self, graph: &Graph, port: &Port) -> Option<i64> {
        graph.uses(port.value).iter().find_map(|at| {
            let node = graph.node(at.node);
            let other = node
                .input(1 - at.slot().min(1))
                .filter(|_| node.is("Equal"))?;
            let is_one = graph.stored(other)?.elements() == Some(1);
            let id = graph.constant(other)?.get_i64(0).filter(|_| is_one)?;
            let picks = reaches(graph, node.output(0), |node, at| match node.op() {
                "NonZero" => Step::Found,
                "Compress" if at.slot() == 1 => Step::Found,
                _ if moves(node, at) => Step::On,
                _ => Step::Stop,
            });
            picks.then_some(id)
        })
    }

    /// Ids that the graph compares with something, as padding and separators.
    fn special_tokens(&self, graph: &Graph) -> Vec<i64> {
        let mut taken = vec![];
        for port in self.ports.iter().filter(|p| p.role == Role::Tokens) {
            for at in graph.uses(port.value) {
                for other in graph.node(at.node).inputs().iter().flatten() {
                    let few = graph.stored(*other).filter(|s| s.elements() == Some(1));
                    let value = few.and_then(|_| graph.constant(*other)?.get_i64(0));
                    taken.extend(value);
                }
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use posenc_ir::DType;

    use super::*;
    use crate::graph::sketch::Sketch;

    #[test]
    fn ids_are_spread_over_a_vocabulary_and_are_not_compared_with() {
        let mut s = Sketch::default();
        s.input("input_ids", DType::I64, &["batch", "sequence"]);
        let special = s.int(6);
        let compared = s.op("Equal", &["input_ids", &special]);
        let table = s.weights(&[12, 4]);
        let rows = s.gather(&table, "input_ids", 0);
        let model = s.model(17, &[&rows, &compared]);
        let graph = model.graph();
        let ports = Ports::of(graph, &Default::default());
        assert_eq!(ports.spread_tokens(graph, 12, 3), [3, 7, 9]);
        assert_eq!(ports.spread_tokens(graph, 1000, 4), [3, 252, 501, 750]);
        // As many as there are.
        assert_eq!(ports.spread_tokens(graph, 8, 9), [3, 4, 5, 7]);
        assert_eq!(ports.spread_tokens(graph, 2, 4), [0; 0]);
        assert_eq!(
            ports.ordinary_tokens(graph).take(4).collect::<Vec<_>>(),
            [3, 4, 5, 7]
        );
    }

    #[test]
    fn an_id_is_picked_where_the_places_of_its_tokens_are_looked_up() {
        let picked = |op: &str, places: bool| {
            let mut s = Sketch::default();
            s.input("input_ids", DType::I64, &["batch", "sequence"]);
            let end = s.int(2);
            let is_end = s.op(op, &["input_ids", &end]);
            let read = if places { "NonZero" } else { "Not" };
            let read = s.op(read, &[&is_end]);
            let table = s.weights(&[12, 4]);
            let rows = s.gather(&table, "input_ids", 0);
            let model = s.model(17, &[&rows, &read]);
            let ports = Ports::of(model.graph(), &Default::default());
            let ids = ports.first(Role::Tokens).unwrap();
            ports.picked_token(model.graph(), ids)
        };
        assert_eq!(picked("Equal", true), Some(2));
        assert_eq!(picked("Equal", false), None);
        assert_eq!(picked("Greater", true), None);
    }
}
