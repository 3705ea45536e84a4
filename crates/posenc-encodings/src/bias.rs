//! Biases on the scores: a number for each head, query and key, whatever the content.
//!
//! A family of biases implements [`ScoreBias`]. Positions are indices among the keys: with a cache
//! the first new query is at the number of cached keys.

pub(crate) mod emit;

use std::cell::OnceCell;
use std::collections::BTreeMap;

use ndarray::ArrayD;
use posenc_ir::{DType, Emitter, Tensor, ValueId};

use crate::encoding::{
    Encoding, GivenTensors, PlanError, Planned, SiteShape, Start, objects, same, same_params,
};
use crate::miss::Miss;
use crate::opset::Opset;
use crate::param::{Given, Param};
use crate::samples::{Scores, most};

pub use emit::exact;

/// A bias on the scores.
pub trait ScoreBias: Encoding + Object {
    /// The bias of a site, from what is given and what the site is.
    ///
    /// # Errors
    /// Where given values do not fit the site or each other.
    fn plan(site: &SiteShape, given: &Given, tensors: &GivenTensors) -> Result<Self, PlanError>
    where
        Self: Sized;

    /// Reads the bias off what a model adds to its scores.
    ///
    /// # Errors
    /// A [`Miss`] with a fact about the numbers that this family does not have.
    fn identify(samples: &Samples<'_>) -> Result<Fit<Self>, Miss>
    where
        Self: Sized;

    /// Heads of queries.
    fn heads(&self) -> usize;

    /// The dimensions of the learned tensors, in the order of the family's list.
    fn tensors(&self) -> Vec<Vec<usize>> {
        vec![]
    }

    /// What a learned tensor starts from where no file gives it.
    fn start(&self, _tensor: usize, _site: &SiteShape) -> Start {
        Start::constant(0.0)
    }

    /// The number that is added to a score, in f64. `tensors` are those of [`Self::tensors`].
    fn reference(&self, tensors: &[ArrayD<f64>], head: usize, at: At) -> Sample;

    /// Emits the bias. `None` where a parameter that it needs is not known.
    fn emit(
        &self,
        out: &mut Emitter<'_>,
        ports: &mut dyn BiasPorts,
        tensors: &[ArrayD<f64>],
    ) -> Option<Emitted>;

    /// `[rows, columns]` of the grid of tokens, where the bias depends on the offset in rows and
    /// columns; `None` where it depends on the distance in the sequence.
    fn window(&self) -> Option<[usize; 2]> {
        None
    }

    /// Rows and columns from the cell of a query to that of a key, by their indices `[query, key]` in a run of
    /// `[queries, keys]`; `None` where [`Self::window`] is `None`, and for class rows.
    fn offset(&self, _of: [usize; 2], _at: [usize; 2]) -> Option<[i64; 2]> {
        None
    }

    /// The same bias for a grid of `[rows, columns]` tokens; `None` where [`Self::window`] is `None`.
    fn in_window(&self, _window: [usize; 2]) -> Option<Box<dyn ScoreBias>> {
        None
    }

    /// Whether the bias of a key differs between two queries by a constant: a softmax then cannot
    /// distinguish positions of keys from distances.
    fn is_straight(&self) -> bool {
        false
    }

    /// Whether the numbers are defined up to a constant for each query.
    fn is_up_to_a_constant(&self) -> bool {
        false
    }

    /// Whether this, as found in a model, is what `planned` describes. Without learned tensors all
    /// parameters count, with some those of `params` that are given.
    fn is_as_planned(&self, planned: &dyn ScoreBias, params: &[Param], given: &Given) -> bool {
        let (found, planned) = (self.params(), planned.params());
        if self.tensors().is_empty() {
            return same_params(&found, &planned);
        }
        let mut given = params.iter().filter(|p| given.get(p.name).is_some());
        given.all(|param| {
            let [found, planned] = [&found, &planned].map(|params| params.get(&param.key()));
            found.zip(planned).is_some_and(|(a, b)| same(a, b))
        })
    }

    /// The bias times a factor; without learned tensors every such number is a parameter.
    fn times(&self, _factor: f64) -> Box<dyn ScoreBias> {
        self.boxed()
    }

    /// The same bias for a context that is longer by this factor; `None` where the family does not
    /// support it.
    fn stretch(&self, _factor: f64) -> Option<Box<dyn ScoreBias>> {
        None
    }

    /// The same bias with numbers for other distances: `before` and `ahead` are the farthest ones, in
    /// tokens, of keys before the query and after it. `None` where the bias has no row for each
    /// distance.
    fn widen(&self, _before: usize, _ahead: usize) -> Option<Box<dyn ScoreBias>> {
        None
    }

    /// Whether the bias of each head changes by one constant step from each earlier key to the next. Later
    /// keys, which most sites hide, go on in the same direction or fall again.
    fn is_sloped(&self) -> bool {
        false
    }

    /// The factor by which the bias was [stretched](Self::stretch); `None` where its parameters do not
    /// tell.
    fn stretched(&self) -> Option<f64> {
        None
    }
}

objects!(ScoreBias);

/// A query and a key of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The index of the query among the keys.
    pub query: i64,
    /// The index of the key.
    pub key: i64,
    /// The number of keys.
    pub keys: usize,
}

impl At {
    /// Key − query.
    pub fn distance(self) -> i64 {
        self.key - self.query
    }
}

/// A number by a formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The number.
    pub value: f64,
    /// Where it is computed by several operations, the size of what is rounded on the way: a graph
    /// that computes in a type of precision ε may be off by a few ε times this.
    pub rounded: f64,
}

impl Sample {
    /// A number that is stored, or computed by one operation.
    pub fn stored(value: f64) -> Self {
        let rounded = 0.0;
        Self { value, rounded }
    }
}

/// What is added to the scores of a site in one run.
#[derive(Debug)]
pub struct Run {
    /// The numbers.
    pub scores: Scores,
    profile: OnceCell<Result<Profile, Miss>>,
}

/// The number of each head by distance, key − query.
pub type Profile = BTreeMap<i64, Vec<f64>>;

impl Run {
    /// A run with these numbers.
    pub fn of(scores: Scores) -> Self {
        let profile = OnceCell::new();
        Self { scores, profile }
    }

    /// The numbers by distance, up to a constant for each query.
    ///
    /// # Errors
    /// Where pairs of equal distance have different numbers.
    pub fn profile(&self) -> Result<&Profile, Miss> {
        let profile = self.profile.get_or_init(|| self.scores.profile());
        profile.as_ref().map_err(Clone::clone)
    }

    /// The largest difference that the types of a graph explain.
    pub fn tolerance(&self) -> f64 {
        self.scores.tolerance * most(self.scores.values.iter())
    }
}

/// The numbers of a site as families read them.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    /// The longest run.
    pub run: &'a Run,
    /// The trial run, whose tokens fill a window or grid.
    pub trial: &'a Run,
    /// Heads of the site where known; a bias of one head is broadcast to them.
    pub heads: Option<usize>,
    /// The rows of a table, where distances pick rows.
    pub rows: Option<Rows<'a>>,
    /// To be added to each distance: queries may start at another key than assumed.
    pub shift: i64,
    /// Whether a constant of the graph is known to contain all numbers.
    pub held: bool,
}

impl<'a> Samples<'a> {
    /// The samples of one run.
    pub fn of(run: &'a Run) -> Self {
        Self {
            run,
            trial: run,
            heads: None,
            rows: None,
            shift: 0,
            held: false,
        }
    }

    /// Heads of the site.
    pub fn all_heads(&self) -> usize {
        self.heads.unwrap_or(self.run.scores.heads())
    }
}

/// The row of a table that each distance, key − query, picks.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Rows by distance.
    pub by_distance: &'a BTreeMap<i64, i64>,
    /// Rows of the table.
    pub count: usize,
}

/// A bias that fits samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit<T> {
    /// The bias.
    pub bias: T,
    /// The largest difference between the numbers and the formula; `None` where the numbers are
    /// learned and their structure fits exactly.
    pub residual: Option<f64>,
    /// Numbers per head that a model is free to choose, which decides between families that fit
    /// equally well.
    pub numbers: usize,
    /// The longest sequence that the model's numbers suffice for; `None` without an end.
    pub max_length: Option<usize>,
    /// Whether the rows of a table show it, so that a longer run adds nothing.
    pub by_rows: bool,
}

impl<T> Fit<T> {
    /// A formula that leaves a residual.
    pub fn formula(bias: T, residual: f64, numbers: usize) -> Self {
        Self {
            residual: Some(residual),
            ..Self::learned(bias, numbers)
        }
    }

    /// Learned numbers whose structure fits.
    pub fn learned(bias: T, numbers: usize) -> Self {
        Self {
            bias,
            residual: None,
            numbers,
            max_length: None,
            by_rows: false,
        }
    }
}

impl<T: ScoreBias> Fit<T> {
    fn boxed(self) -> AnyFit {
        Fit {
            bias: Box::new(self.bias),
            residual: self.residual,
            numbers: self.numbers,
            max_length: self.max_length,
            by_rows: self.by_rows,
        }
    }
}

/// A fit of any family of biases.
pub type AnyFit = Fit<Box<dyn ScoreBias>>;

impl AnyFit {
    /// Whether this fits better: by a smaller residual, or, where the tolerance of the samples does
    /// not distinguish the residuals, with fewer numbers.
    pub fn is_better_than(&self, other: &Self, tolerance: f64) -> bool {
        let rank = |fit: &Self| {
            let residual = fit.residual.filter(|r| *r > tolerance);
            (residual.unwrap_or(0.0), fit.numbers)
        };
        rank(self) < rank(other)
    }
}

/// The functions of a family of biases that need no instance.
#[derive(Clone, Copy, Debug)]
pub struct BiasFamily {
    /// [`ScoreBias::plan`].
    pub plan: fn(&SiteShape, &Given, &GivenTensors) -> Planned<dyn ScoreBias>,
    /// [`ScoreBias::identify`].
    pub identify: fn(&Samples<'_>) -> Result<AnyFit, Miss>,
    /// What it is read from.
    pub read_from: ReadFrom,
}

/// What a family of biases is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// The numbers of every run: a few tokens can refute it.
    FewTokens,
    /// The rows of a table that distances pick; without a table, which numbers are equal.
    Rows,
    /// The numbers of a long run.
    ManyTokens,
}

impl BiasFamily {
    /// The functions of this type.
    pub const fn of<T: ScoreBias>(read_from: ReadFrom) -> Self {
        Self {
            plan: plan::<T>,
            identify: identify::<T>,
            read_from,
        }
    }
}

fn plan<T: ScoreBias>(
    site: &SiteShape,
    given: &Given,
    tensors: &GivenTensors,
) -> Planned<dyn ScoreBias> {
    Ok(Box::new(T::plan(site, given, tensors)?))
}

fn identify<T: ScoreBias>(samples: &Samples<'_>) -> Result<AnyFit, Miss> {
    T::identify(samples).map(Fit::boxed)
}

/// What the graph around a bias provides. Values are emitted when they are first requested.
pub trait BiasPorts {
    /// The version of ai.onnx.
    fn opset(&self) -> Opset;

    /// The type of the scores.
    fn dtype(&self) -> DType;

    /// The sizes of the axes that the heads have in the result; none for one head.
    fn heads(&self) -> &[usize];

    /// Whether sequences have distances of their own: these and the result then have an axis of
    /// sequences.
    fn is_by_sequence(&self) -> bool;

    /// The distance of each pair, key − query, int64 `[query, key]` or `[sequence, query, key]`. Of
    /// a bias that is [straight](ScoreBias::is_straight) it may be the index of each key, `[key]`.
    fn distances(&mut self, out: &mut Emitter<'_>) -> ValueId;

    /// The index of each query among the keys, int64 `[query, 1]` or `[sequence, query, 1]`.
    fn queries(&mut self, out: &mut Emitter<'_>) -> ValueId;

    /// A constant that all scopes of the graph share.
    fn constant(&mut self, out: &mut Emitter<'_>, label: &str, tensor: Tensor) -> ValueId;
}

/// A bias that was emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// Its value, of the type of the scores.
    pub value: ValueId,
    /// The order of its axes.
    pub order: Order,
}

/// The order of the axes of an emitted bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `[heads.., (sequence,) query, key]`.
    HeadsFirst,
    /// `[(sequence,) query, key, heads..]`.
    HeadsLast,
}
