//! Where a graph stores the numbers of a rotation. Data only.

use posenc_ir::{NodeId, ValueId};
use rustc_hash::FxHashSet;

/// Where the graph stores the numbers of a rotation.
#[derive(Clone, Debug)]
pub(crate) enum RotarySource {
    /// Angles are computed as position times frequency.
    Computed(Computed),
    /// cos and sin are in tables.
    Tables(Vec<Table>),
}

/// Frequencies that angles are computed from.
#[derive(Clone, Debug)]
pub(crate) struct Computed {
    /// The constant that contains them.
    pub root: ValueId,
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// For each element the pair that it rotates.
    pub pair: Vec<usize>,
    /// Whether it contains reciprocals.
    pub reciprocal: bool,
    /// The positions, as integers where the graph has them so.
    pub positions: Option<ValueId>,
    /// What `Cos` and `Sin` give.
    pub waves: Vec<ValueId>,
    /// The nodes between the constants and the rotation.
    pub cone: FxHashSet<NodeId>,
}

/// A table with a row per position.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The constant.
    pub root: ValueId,
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// The axis of positions.
    pub axis: usize,
    /// The position of row 0.
    pub first: i64,
    /// What each column contains; columns run over the other axes in row-major order.
    pub columns: Vec<Column>,
    /// The positions that pick rows; `None` where they are unknown.
    pub positions: Option<ValueId>,
    /// The nodes between the table and the rotation.
    pub cone: FxHashSet<NodeId>,
}

impl Table {
    /// The first position without a row.
    pub(crate) fn end(&self) -> i64 {
        self.first
            .saturating_add_unsigned(self.dims[self.axis] as u64)
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Column {
    /// The pair.
    pub pair: usize,
    /// cos or sin.
    pub wave: Wave,
    /// 1, or −1 where the column is stored negated.
    pub sign: f64,
}

/// Which function of the angle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wave {
    /// The cosine.
    Cos,
    /// The sine.
    Sin,
}

impl RotarySource {
    /// The constants.
    pub(crate) fn roots(&self) -> Vec<ValueId> {
        match self {
            Self::Computed(computed) => vec![computed.root],
            Self::Tables(tables) => tables.iter().map(|t| t.root).collect(),
        }
    }

    /// Counts nodes among those between the constants and the rotation.
    pub(crate) fn enter(&mut self, nodes: impl Iterator<Item = NodeId> + Clone) {
        match self {
            Self::Computed(computed) => computed.cone.extend(nodes),
            Self::Tables(tables) => {
                for table in tables {
                    table.cone.extend(nodes.clone());
                }
            }
        }
    }
}
