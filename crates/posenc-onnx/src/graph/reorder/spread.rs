//! What the order of one value of a node says of the others. Data only.

use posenc_ir::ValueId;

use super::order::Order;

/// An input or an output of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    In(usize),
    Out(usize),
}

/// What the order of one value of a node says of the others.
#[derive(Debug, Default)]
pub(super) struct Spread {
    pub(super) ends: Vec<(End, Order)>,
    /// A value of which the node reads a part, and the axis of the parts: its order depends on the other parts.
    pub(super) selected: Option<(ValueId, usize)>,
    /// Whether the order of the output depends on those of other inputs.
    pub(super) joined: bool,
}

impl Spread {
    pub(super) fn of(ends: Vec<(End, Order)>) -> Self {
        Self {
            ends,
            ..Self::default()
        }
    }
}
