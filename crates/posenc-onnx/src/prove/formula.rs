//! What an encoding adds to the scores of a site, by its formula in f64, and how far a graph that
//! computes in another type may be from it.

mod near;
mod vectors;

use ndarray::{Array1, Array2, ArrayD, ArrayView1, Ix2};

use crate::error::RewriteError;
use crate::plan::swap::spec::{EncodingSpec, TermSpec};
pub(crate) use near::Near;
use posenc_encodings::bias::{At, ScoreBias};
use posenc_encodings::families::transformer_xl::Code;
use posenc_encodings::score_term;
use vectors::Vectors;

/// What joins the scores of a site.
#[derive(Clone, Debug)]
pub(crate) enum Formula {
    /// A bias with its learned tensors.
    ScoreBias(Box<dyn ScoreBias>, Vec<ArrayD<f64>>),
    /// A term of vectors.
    ScoreTerm(TermFormula),
}

/// A term of vectors with its learned tensors.
#[derive(Clone, Debug)]
pub(crate) struct TermFormula {
    /// Biases on queries, `[heads, head_dim]`: before they meet keys, and before they meet vectors.
    biases: Option<[Array2<f64>; 2]>,
    vectors: TermVectors,
}

/// The vectors that queries meet.
#[derive(Clone, Debug)]
enum TermVectors {
    /// A table `[2k + 1, head_dim]`.
    Clipped(Array2<f64>),
    Projected(Box<Vectors>),
}

impl TermFormula {
    /// `None` where nothing is added to the scores.
    fn of(spec: &TermSpec) -> Result<Option<Self>, RewriteError> {
        let table = |tensor: usize| -> Result<Option<Array2<f64>>, RewriteError> {
            let values = spec.values(tensor)?;
            Ok(values.and_then(|values| values.into_dimensionality::<Ix2>().ok()))
        };
        Ok(match spec.term.vectors() {
            score_term::Vectors::Clipped { .. } => table(0)?.map(|table| Self {
                biases: None,
                vectors: TermVectors::Clipped(table),
            }),
            score_term::Vectors::Projected { dim, .. } => {
                let biases = table(0)?.zip(table(1)?);
                table(2)?.map(|projection| Self {
                    biases: biases.map(|(content, position)| [content, position]),
                    vectors: TermVectors::Projected(Box::new(Vectors::new(
                        projection,
                        Code::of_width(dim),
                    ))),
                })
            }
        })
    }

    /// What a pair gets.
    fn at(&self, pair: Pair<'_>, scales: Scales, epsilon: f64) -> Near {
        let Pair {
            head,
            at,
            query,
            key,
        } = pair;
        let distance = at.distance();
        let biased = |bias: &Array2<f64>| &query + &(scales.query * &bias.row(head));
        let met = |query: &Array1<f64>| match &self.vectors {
            TermVectors::Clipped(table) => Near::sum(
                query.view(),
                table.row(row_of(table.nrows(), distance)),
                epsilon,
            ),
            TermVectors::Projected(vectors) => vectors.met(head, distance, query, epsilon),
        };
        let Some([content_bias, position_bias]) = &self.biases else {
            return met(&query.to_owned()).times(scales.product * scales.key);
        };
        let content = biased(content_bias);
        // The bias meets keys in one sum with the query.
        let whole = Near::sum(content.view(), key, epsilon);
        let content = Near {
            value: scales.query * content_bias.row(head).dot(&key),
            ..whole
        };
        let position = met(&biased(position_bias));
        let sum = content.plus(position.times(scales.key));
        sum.times(scales.product)
    }
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
    /// The formula of what is inserted; `None` where it adds nothing to the scores.
    ///
    /// # Errors
    /// Where given numbers have other dimensions than the site needs.
    pub(crate) fn of(new: &EncodingSpec) -> Result<Option<Self>, RewriteError> {
        Ok(match new {
            EncodingSpec::ScoreBias(spec) => {
                Some(Self::ScoreBias(spec.bias.clone(), spec.values()?))
            }
            EncodingSpec::ScoreTerm(spec) => TermFormula::of(spec)?.map(Self::ScoreTerm),
            EncodingSpec::InputTerm(_) | EncodingSpec::Rotation(_) => None,
        })
    }

    /// Makes ready for distances up to this one either way.
    pub(crate) fn reach(&mut self, farthest: i64) {
        if let Self::ScoreTerm(term) = self
            && let TermVectors::Projected(vectors) = &mut term.vectors
        {
            vectors.reach(farthest);
        }
    }

    /// What a pair gets, and how far from it a graph may be that computes in a type of precision
    /// `epsilon`.
    pub(crate) fn at(&self, pair: Pair<'_>, scales: Scales, epsilon: f64) -> Near {
        match self {
            Self::ScoreBias(bias, tensors) => {
                Near::sample(bias.reference(tensors, pair.head, pair.at), epsilon)
            }
            Self::ScoreTerm(term) => term.at(pair, scales, epsilon),
        }
    }

    /// How far the product of a query and a key may be off.
    pub(crate) fn product(pair: Pair<'_>, scales: Scales, epsilon: f64) -> f64 {
        let met = Near::sum(pair.query, pair.key, epsilon);
        met.times(scales.product).bound
    }

    /// Whether it depends on more than the distance.
    pub(crate) fn meets_content(&self) -> bool {
        matches!(self, Self::ScoreTerm(_))
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
