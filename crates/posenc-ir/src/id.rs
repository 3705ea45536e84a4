//! Typed handles into a graph. None is reused within one graph.

use std::fmt;
use std::num::NonZeroU32;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(NonZeroU32);

        impl $name {
            pub(crate) fn from_index(index: usize) -> Self {
                let raw = u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
                Self(raw.expect("a graph has fewer than 2³² parts"))
            }

            /// The place in creation order, from 0.
            pub fn index(self) -> usize {
                self.0.get() as usize - 1
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.index())
            }
        }
    };
}

id!(
    /// An edge: what a node computes, a graph input or an initializer.
    ValueId,
    "v"
);
id!(
    /// An application of an operator or function.
    NodeId,
    "n"
);
id!(
    /// The main graph, the body of a control-flow node, or the body of a function.
    ScopeId,
    "s"
);
