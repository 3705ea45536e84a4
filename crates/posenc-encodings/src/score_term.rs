//! Terms of vectors on the scores: queries meet a vector of the distance, after a bias on them.
//!
//! `u_h · k_j + (q_i + v_h) · r_h(j − i)` is added to the product `q_i · k_j` of head h, before any
//! scale. A family of terms implements [`ScoreTerm`].

use ndarray::{Array1, ArrayD, ArrayView1, ArrayView2};

use crate::bias::At;
use crate::encoding::{Encoding, GivenTensors, PlanError, Planned, SiteShape, Start, objects};
use crate::param::Given;

/// A term of vectors on the scores.
pub trait ScoreTerm: Encoding + Object {
    /// The term of a site, from what is given and what the site is.
    ///
    /// # Errors
    /// Where given values do not fit the site or each other.
    fn plan(site: &SiteShape, given: &Given, tensors: &GivenTensors) -> Result<Self, PlanError>
    where
        Self: Sized;

    /// The dimensions of the learned tensors, in the order of the family's list; `None` for one
    /// that is not used.
    fn tensors(&self) -> Vec<Option<Vec<usize>>>;

    /// What a learned tensor starts from where no file gives it.
    fn start(&self, tensor: usize) -> Start;

    /// Where the vectors of distances are from.
    fn vectors(&self) -> Vectors;

    /// The biases u and v on queries, `[heads, head_dim]`, among `tensors`, which are empty where
    /// they are not used; `None` without biases.
    fn biases<'a>(&self, _tensors: &'a [ArrayD<f64>]) -> Option<[ArrayView2<'a, f64>; 2]> {
        None
    }

    /// The vector of a distance, key − query, that queries of a head meet, in f64; `None` where
    /// they meet none.
    fn vector(&self, tensors: &[ArrayD<f64>], head: usize, distance: i64) -> Option<Array1<f64>>;

    /// What a query and a key of a head add to their product, in f64.
    fn reference(
        &self,
        tensors: &[ArrayD<f64>],
        head: usize,
        at: At,
        [query, key]: [ArrayView1<'_, f64>; 2],
    ) -> f64 {
        let vector = self.vector(tensors, head, at.distance());
        let met = vector.as_ref().map_or(0.0, |r| query.dot(r));
        let biased = self.biases(tensors).map_or(0.0, |[u, v]| {
            let vector = vector.as_ref().map_or(0.0, |r| v.row(head).dot(r));
            u.row(head).dot(&key) + vector
        });
        met + biased
    }

    /// Whether `found` in a model is what this describes, as far as parameters are given. Learned
    /// numbers are not compared.
    fn is_found_as(&self, found: &dyn Encoding, given: &Given) -> bool;

    /// The same term for a context that is longer by this factor; `None` where the family does not
    /// support it.
    fn stretch(&self, _factor: f64) -> Option<Box<dyn ScoreTerm>> {
        None
    }
}

objects!(ScoreTerm);

/// Where the vectors of distances are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// Rows of tables `[2k + 1, head_dim]`, k being the largest distance that has a row of its own:
    /// the first learned tensor meets queries, the second is added to the values.
    Clipped {
        /// k.
        max_distance: usize,
    },
    /// Sines and cosines of query − key, `[dim]`, times a projection `[heads · head_dim, dim]`: the
    /// third learned tensor, after the biases u and v.
    Projected {
        /// Heads of queries.
        heads: usize,
        /// Features of a head.
        head_dim: usize,
        /// Width of sines and cosines.
        dim: usize,
    },
}

/// The functions of a family of terms that need no instance.
#[derive(Clone, Copy, Debug)]
pub struct TermFamily {
    /// [`ScoreTerm::plan`].
    pub plan: fn(&SiteShape, &Given, &GivenTensors) -> Planned<dyn ScoreTerm>,
}

impl TermFamily {
    /// The functions of this type.
    pub const fn of<T: ScoreTerm>() -> Self {
        Self { plan: plan::<T> }
    }
}

fn plan<T: ScoreTerm>(
    site: &SiteShape,
    given: &Given,
    tensors: &GivenTensors,
) -> Planned<dyn ScoreTerm> {
    Ok(Box::new(T::plan(site, given, tensors)?))
}
