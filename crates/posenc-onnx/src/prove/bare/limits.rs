//! How large a model may be that runs as a whole.

use posenc_ir::Model;

use crate::prove::VerifyError;

/// How large a model may be that runs as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most bytes of weights.
    pub(super) weights: usize,
    /// Beyond those, weights of so many elements get a stand-in.
    pub(super) large: usize,
    /// The most nodes: the time that a runtime takes to load them grows with their square.
    pub(super) nodes: usize,
}

impl Limits {
    pub(super) const USUAL: Self = Self {
        weights: 1 << 28,
        large: 1 << 16,
        nodes: 6000,
    };

    /// For a longer sequence: what is large runs by a stand-in.
    pub(super) const LONGER: Self = Self {
        weights: 1 << 24,
        large: 1 << 12,
        ..Self::USUAL
    };

    /// # Errors
    /// When a model has too many nodes.
    pub(super) fn check(self, model: &Model) -> Result<(), VerifyError> {
        let nodes = model.graph().nodes().count();
        if nodes <= self.nodes {
            return Ok(());
        }
        let why = format!("it has {nodes} nodes, and at most {} are run", self.nodes);
        Err(VerifyError::unsupported("the whole model", why))
    }
}
