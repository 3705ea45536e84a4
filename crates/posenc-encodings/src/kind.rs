//! Words for what is found and requested.

pub use crate::families::Kind;
pub use crate::layout::Layout;
use crate::words;

words! {
    /// One of two stacks of a model that has two.
    "stack" Stack {
        /// The stack whose output the other one attends to.
        Encoder = "encoder",
        /// The stack with causal or cross attention.
        Decoder = "decoder",
    }
}

words! {
    /// The operators that an encoding consists of.
    "form" Form {
        /// Plain ai.onnx operators.
        Ops = "ops",
        /// The fused operator of ai.onnx: RotaryEmbedding or Attention.
        Onnx = "onnx",
        /// A fused operator of ONNX Runtime's domain com.microsoft.
        Contrib = "contrib",
    }
}
