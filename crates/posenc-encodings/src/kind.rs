//! Words for what is found and asked for.

use crate::words;
use crate::words::Word;

words! {
    /// A kind of positional encoding.
    "kind of encoding" Kind {
        /// No encoding at all; a target of a rewrite only.
        None = "none",
        /// Sines and cosines added to the input.
        Sinusoidal = "sinusoidal",
        /// A learned table added to the input, one row per position.
        Learned = "learned",
        /// Rotation of q and k.
        Rope = "rope",
        /// A bias on the scores, linear in the distance.
        Alibi = "alibi",
        /// A learned bias on the scores, one value per bucket of distances.
        T5Bias = "t5-bias",
        /// A learned bias on the scores, one value per clipped distance or window offset.
        RelativeBias = "relative-bias",
        /// Learned vectors per clipped distance, added to the keys (and the values).
        Shaw = "shaw",
        /// Projected sinusoids of the distance, with a content and a position bias.
        TransformerXl = "transformer-xl",
        /// Content-to-position and position-to-content scores of DeBERTa; found, not written.
        Disentangled = "disentangled",
        /// A depthwise convolution added to the input.
        Conv = "conv",
        /// A position-dependent term that no family fits; found, not written.
        Unknown = "unknown",
    }
}

impl Kind {
    /// The kinds that a rewrite can aim at.
    pub fn targets() -> impl Iterator<Item = Self> {
        let found_only = |kind: &Self| matches!(kind, Self::Disentangled | Self::Unknown);
        Self::ALL.iter().copied().filter(move |k| !found_only(k))
    }
}

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
    /// How an encoding stands in the graph.
    "form" Form {
        /// Plain ai.onnx operators.
        Ops = "ops",
        /// The fused operator of ai.onnx: RotaryEmbedding or Attention.
        Onnx = "onnx",
        /// A fused operator of ONNX Runtime's domain com.microsoft.
        Contrib = "contrib",
    }
}

words! {
    /// Which elements of a head rotate together, or how sines and cosines are laid out in a row.
    "layout" Layout {
        /// Pairs `(x[i], x[i + d/2])`; all sines, then all cosines.
        Half = "half",
        /// Pairs `(x[2i], x[2i + 1])`; sine and cosine in turn.
        Interleaved = "interleaved",
    }
}
