//! Names of dimensions that are left open.

use posenc_ir::{Dim, Graph};

/// A symbol that no dimension of the graph has: this name, or the name with a number.
pub(super) fn symbol(graph: &Graph, name: &str) -> Dim {
    let is_taken = |symbol: &Dim| {
        let mut shapes = graph.values().filter_map(|v| graph.value(v).shape());
        shapes.any(|dims| dims.contains(symbol))
    };
    let mut symbol = Dim::Symbol(name.into());
    let mut others = 1..;
    while is_taken(&symbol)
        && let Some(n) = others.next()
    {
        symbol = Dim::Symbol(format!("{name}_{n}").into());
    }
    symbol
}
