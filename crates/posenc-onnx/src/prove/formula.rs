//! What an encoding adds to the scores of a site, by its formula in f64, and how far a graph that
//! computes in another type may be from it.

mod near;
mod vectors;

use ndarray::{Array2, ArrayD, ArrayView1};

use crate::error::RewriteError;
use crate::plan::swap::spec::EncodingSpec;
pub(crate) use near::Near;
use posenc_encodings::bias::{At, ScoreBias};
use posenc_encodings::families::transformer_xl::Code;
use vectors::Vectors;

/// What joins the scores of a site.
#[derive(Clone, Debug)]
pub(crate) enum Formula {
    /// A bias with its learned tensors.
    ScoreBias(Box<dyn ScoreBias>, Vec<ArrayD<f64>>),
    /// A table `[2k + 1, head_dim]` that meets queries.
    Shaw(Array2<f64>),
    /// Biases `[heads, head_dim]`, and the vectors of distances.
    TransformerXl {
        content_bias: Array2<f64>,
        position_bias: Array2<f64>,
        vectors: Box<Vectors>,
    },
}

/// Factors that a graph puts on queries and keys before their product, and on the product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scales {
    pub(crate) query: f64,
    pub(crate) key: f64,
    pub(crate) product: f64,
}

/// A query of a head and a key, as they enter their product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) head: usize,
    pub(crate) at: At,
    pub(crate) query: ArrayView1<'a, f64>,
    pub(crate) key: ArrayView1<'a, f64>,
}

impl Formula {
    /// The formula of what is put in; `None` where it adds nothing to the scores.
    ///
    /// # Errors
    /// Where given numbers have other dimensions than the site needs.
    pub(crate) fn of(
        new: &EncodingSpec,
        head_dim: Option<usize>,
    ) -> Result<Option<Self>, RewriteError> {
        let table = |numbers: &crate::plan::numbers::Numbers, rows: usize, columns: usize| {
            let values = numbers.values(&[rows, columns])?;
            Ok::<_, RewriteError>(
                Array2::from_shape_vec((rows, columns), values).unwrap_or_default(),
            )
        };
        Ok(match new {
            EncodingSpec::ScoreBias(spec) => {
                Some(Self::ScoreBias(spec.bias.clone(), spec.values()?))
            }
            EncodingSpec::Shaw {
                max_distance,
                key: Some(key),
                ..
            } => {
                let width = head_dim.unwrap_or(0);
                Some(Self::Shaw(table(key, 2 * max_distance + 1, width)?))
            }
            EncodingSpec::TransformerXl {
                heads,
                head_dim,
                dim,
                content_bias,
                position_bias,
                position_projection,
            } => Some(Self::TransformerXl {
                content_bias: table(content_bias, *heads, *head_dim)?,
                position_bias: table(position_bias, *heads, *head_dim)?,
                vectors: Box::new(Vectors::new(
                    table(position_projection, heads * head_dim, *dim)?,
                    Code::of_width(*dim),
                )),
            }),
            _ => None,
        })
    }

    /// Makes ready for distances up to this one either way.
    pub(crate) fn reach(&mut self, farthest: i64) {
        if let Self::TransformerXl { vectors, .. } = self {
            vectors.reach(farthest);
        }
    }

    /// What a pair gets, and how far from it a graph may be that computes in a type of precision
    /// `epsilon`.
    pub(crate) fn at(&self, pair: Pair<'_>, scales: Scales, epsilon: f64) -> Near {
        let Pair {
            head,
            at,
            query,
            key,
        } = pair;
        let distance = at.distance();
        let row = |rows: usize| row_of(rows, distance);
        match self {
            Self::ScoreBias(bias, tensors) => {
                Near::sample(bias.reference(tensors, head, at), epsilon)
            }
            Self::Shaw(table) => {
                let met = Near::sum(query, table.row(row(table.nrows())), epsilon);
                met.times(scales.product * scales.key)
            }
            Self::TransformerXl {
                content_bias,
                position_bias,
                vectors,
            } => {
                let biased = |bias: &Array2<f64>| &query + &(scales.query * &bias.row(head));
                let content = biased(content_bias);
                // The bias meets keys in one sum with the query.
                let whole = Near::sum(content.view(), key, epsilon);
                let content = Near {
                    value: scales.query * content_bias.row(head).dot(&key),
                    ..whole
                };
                let position = vectors.met(head, distance, &biased(position_bias), epsilon);
                let sum = content.plus(position.times(scales.key));
                sum.times(scales.product)
            }
        }
    }

    /// How far the product of a query and a key may be off.
    pub(crate) fn product(pair: Pair<'_>, scales: Scales, epsilon: f64) -> f64 {
        let met = Near::sum(pair.query, pair.key, epsilon);
        met.times(scales.product).bound
    }

    /// Whether it depends on more than the distance.
    pub(crate) fn meets_content(&self) -> bool {
        matches!(self, Self::Shaw(_) | Self::TransformerXl { .. })
    }

    /// Whether a softmax cannot tell it from one that differs by a constant for each query.
    pub(crate) fn is_up_to_a_constant(&self) -> bool {
        matches!(self, Self::ScoreBias(bias, _) if bias.is_up_to_a_constant())
    }
}

/// The row of a distance in a table of `2k + 1` rows: clip(distance, ±k) + k.
pub(crate) fn row_of(rows: usize, distance: i64) -> usize {
    let most = (rows / 2) as i64;
    (distance.clamp(-most, most) + most) as usize
}
