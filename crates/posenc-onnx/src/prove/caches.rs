//! The outputs that contain caches after a run.

use posenc_ir::Graph;

use crate::graph::caches::present;
use crate::graph::ports::{Lengths, Ports};

/// The outputs that contain caches of a window which no tokens fill after a run: the rest is undefined.
pub(super) fn unfilled(graph: &Graph, ports: &Ports, at: Lengths) -> Vec<String> {
    let outputs = ports
        .unfilled(graph, at)
        .filter_map(|port| present(graph, port.value));
    outputs.map(|v| graph.name(v).to_owned()).collect()
}
