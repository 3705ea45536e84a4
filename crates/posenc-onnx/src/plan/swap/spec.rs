//! An encoding with the numbers that it is put in with.

use crate::plan::numbers::Numbers;
use posenc_encodings::families::alibi::Alibi;
use posenc_encodings::families::t5_bias::T5Bias;
use posenc_encodings::kind::{Kind, Layout};
use posenc_encodings::laws::Rope;

/// An encoding to put in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EncodingSpec {
    /// A table, `[rows, dim]`.
    Learned {
        rows: usize,
        table: Numbers,
    },
    /// Sines and cosines; a table where there are `rows`, else computed.
    Sinusoidal {
        layout: Layout,
        base: f64,
        rows: Option<usize>,
    },
    /// `x + gelu(conv(x))`, with a weight `[dim, 1, kernel]` and a bias `[dim]`.
    Conv {
        kernel: usize,
        weight: Numbers,
        bias: Numbers,
    },
    Rope {
        rope: Rope,
        layout: Layout,
    },
    Alibi(Alibi),
    /// A table `[buckets, heads]`.
    T5Bias {
        bias: T5Bias,
        table: Numbers,
    },
    /// A table `[2k + 1, heads]`.
    RelativeBias {
        max_distance: usize,
        heads: usize,
        table: Numbers,
    },
    /// Tables `[2k + 1, head_dim]`.
    Shaw {
        max_distance: usize,
        key: Option<Numbers>,
        value: Option<Numbers>,
    },
    /// Biases `[heads, head_dim]` and a projection `[heads · head_dim, dim]`.
    TransformerXl {
        heads: usize,
        head_dim: usize,
        dim: usize,
        content_bias: Numbers,
        position_bias: Numbers,
        position_projection: Numbers,
    },
}
impl EncodingSpec {
    /// The learned numbers.
    pub(crate) fn numbers(&mut self) -> Vec<&mut Numbers> {
        match self {
            Self::Learned { table, .. }
            | Self::T5Bias { table, .. }
            | Self::RelativeBias { table, .. } => vec![table],
            Self::Conv { weight, bias, .. } => vec![weight, bias],
            Self::Shaw { key, value, .. } => key.iter_mut().chain(value).collect(),
            Self::TransformerXl {
                content_bias,
                position_bias,
                position_projection,
                ..
            } => vec![content_bias, position_bias, position_projection],
            Self::Sinusoidal { .. } | Self::Rope { .. } | Self::Alibi(_) => vec![],
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Learned { .. } => Kind::Learned,
            Self::Sinusoidal { .. } => Kind::Sinusoidal,
            Self::Conv { .. } => Kind::Conv,
            Self::Rope { .. } => Kind::Rope,
            Self::Alibi(_) => Kind::Alibi,
            Self::T5Bias { .. } => Kind::T5Bias,
            Self::RelativeBias { .. } => Kind::RelativeBias,
            Self::Shaw { .. } => Kind::Shaw,
            Self::TransformerXl { .. } => Kind::TransformerXl,
        }
    }

    /// Whether it stands before all sites of a stack at once.
    pub(crate) fn is_absolute(kind: Kind) -> bool {
        matches!(kind, Kind::Learned | Kind::Sinusoidal | Kind::Conv)
    }
}
