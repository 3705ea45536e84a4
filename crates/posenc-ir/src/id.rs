//! Typed handles into a graph, which are never reused.

use std::fmt;
use std::num::NonZeroU32;

macro_rules! id {
    ($(#[$doc:meta])* $vis:vis $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis struct $name(NonZeroU32);

        impl $name {
            pub(crate) fn from_index(index: usize) -> Self {
                let raw = u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
                Self(raw.expect("a graph has fewer than 2³² parts"))
            }

            /// The index in order of creation, from 0.
            $vis fn index(self) -> usize {
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
    /// A value: an output of a node, a graph input or an initializer.
    pub ValueId,
    "v"
);
id!(
    /// An application of an operator or function.
    pub NodeId,
    "n"
);
id!(
    /// The main graph, the body of a control-flow node, or the body of a function.
    pub ScopeId,
    "s"
);
id!(
    /// A field of the message that a scope was read from.
    pub(crate) PieceId,
    "p"
);

/// An index into a list of one node or graph.
pub(crate) fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("a list has fewer than 2³² entries")
}
