//! What an encoding adds to the scores of a site, by its formula in f64.

use ndarray::{Array2, ArrayView1};

use super::asked::{New, THETA};
use crate::encodings::alibi::Alibi;
use crate::encodings::t5_bias::T5Bias;
use crate::encodings::transformer_xl::{self, Code};
use crate::rewrite::RewriteError;

/// What joins the scores of a site.
#[derive(Clone, Debug)]
pub(crate) enum Formula {
    /// `−m · distance`.
    Alibi(Alibi),
    /// A table `[buckets, heads]`.
    T5Bias(T5Bias, Array2<f64>),
    /// A table `[2k + 1, heads]`.
    RelativeBias(Array2<f64>),
    /// A table `[2k + 1, head_dim]` that meets queries.
    Shaw(Array2<f64>),
    /// Biases `[heads, head_dim]`, a projection `[heads · head_dim, dim]`, and the code that it
    /// projects.
    TransformerXl {
        content_bias: Array2<f64>,
        position_bias: Array2<f64>,
        projection: Array2<f64>,
        code: Code,
    },
}

/// Factors that a graph puts on queries and keys before their product, and on the product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scales {
    pub(crate) query: f64,
    pub(crate) key: f64,
    pub(crate) product: f64,
}

impl Formula {
    /// The formula of what is put in; `None` where it adds nothing to the scores.
    ///
    /// # Errors
    /// Where given numbers have other dimensions than the site needs.
    pub(crate) fn of(new: &New, head_dim: Option<usize>) -> Result<Option<Self>, RewriteError> {
        let table = |numbers: &super::Numbers, rows: usize, columns: usize| {
            let values = numbers.values(&[rows, columns])?;
            Ok::<_, RewriteError>(
                Array2::from_shape_vec((rows, columns), values).unwrap_or_default(),
            )
        };
        Ok(match new {
            New::Alibi(alibi) => Some(Self::Alibi(alibi.clone())),
            New::T5Bias { bias, table: t } => {
                let table = table(t, bias.num_buckets, bias.heads)?;
                Some(Self::T5Bias(bias.clone(), table))
            }
            New::RelativeBias {
                max_distance,
                heads,
                table: t,
            } => Some(Self::RelativeBias(table(t, 2 * max_distance + 1, *heads)?)),
            New::Shaw {
                max_distance,
                key: Some(key),
                ..
            } => {
                let width = head_dim.unwrap_or(0);
                Some(Self::Shaw(table(key, 2 * max_distance + 1, width)?))
            }
            New::TransformerXl {
                heads,
                head_dim,
                dim,
                content_bias,
                position_bias,
                position_projection,
            } => Some(Self::TransformerXl {
                content_bias: table(content_bias, *heads, *head_dim)?,
                position_bias: table(position_bias, *heads, *head_dim)?,
                projection: table(position_projection, heads * head_dim, *dim)?,
                code: code(*dim),
            }),
            _ => None,
        })
    }

    /// What a query of a head, at this distance `key − query` from a key, gets; queries and keys
    /// as they enter their product.
    pub(crate) fn at(
        &self,
        head: usize,
        distance: i64,
        query: ArrayView1<'_, f64>,
        key: ArrayView1<'_, f64>,
        scales: Scales,
    ) -> f64 {
        let row = |rows: usize| {
            let most = (rows / 2) as i64;
            (distance.clamp(-most, most) + most) as usize
        };
        match self {
            Self::Alibi(alibi) => alibi.reference(head, distance),
            Self::T5Bias(bias, table) => bias
                .bucket(distance)
                .map_or(f64::NAN, |bucket| table[[bucket, head]]),
            Self::RelativeBias(table) => table[[row(table.nrows()), head]],
            Self::Shaw(table) => {
                let met = query.dot(&table.row(row(table.nrows())));
                scales.product * scales.key * met
            }
            Self::TransformerXl {
                content_bias,
                position_bias,
                projection,
                code,
            } => {
                let width = content_bias.ncols();
                let rows = ndarray::s![head * width..(head + 1) * width, ..];
                let code = transformer_xl::reference(code, &[-distance]);
                let place = projection.slice(rows).dot(&code.row(0));
                let biased = &query + &(scales.query * &position_bias.row(head));
                let content = scales.query * content_bias.row(head).dot(&key);
                scales.product * (content + scales.key * biased.dot(&place))
            }
        }
    }

    /// Whether it depends on more than the distance.
    pub(crate) fn meets_content(&self) -> bool {
        matches!(self, Self::Shaw(_) | Self::TransformerXl { .. })
    }

    /// Whether a softmax cannot tell it from one that differs by a constant for each query.
    pub(crate) fn is_up_to_a_constant(&self) -> bool {
        matches!(self, Self::Alibi(alibi) if alibi.symmetric.is_none())
    }
}

/// The code of distances in a row of `dim` numbers: sines, then cosines.
pub(crate) fn code(dim: usize) -> Code {
    let pairs = dim / 2;
    let frequency = |i: usize| THETA.powf(-2.0 * i as f64 / dim as f64);
    Code {
        interleaved: false,
        frequencies: (0..pairs).map(frequency).collect(),
        clamp: None,
        error: 0.0,
    }
}
