//! The result of a rewrite.

use posenc_ir::Model;

use crate::config::Told;
use crate::detect::Found;
use crate::detect::branches::Branch;
use crate::graph::reorder::Order;
use crate::prove::swap::Proof;
use crate::report::Rewrite;

/// A rewritten model.
#[derive(Debug)]
pub(crate) struct Rewritten {
    /// The model.
    pub(crate) model: Model,
    /// The model in which everything was found, where that is another one: a model that is not
    /// changed keeps its calls of functions.
    pub(crate) flat: Option<Model>,
    /// The report, without output and check.
    pub(crate) report: Rewrite,
    /// What is found in the result.
    pub(crate) found: Found,
    /// The same in other branches with rotations.
    pub(crate) other_branches: Vec<Found>,
    /// What shows that an inserted encoding computes its formula; `None` where none was inserted.
    pub(crate) proof: Option<Proof>,
    /// The model before and after something was replaced by what computes the same: its operators by those that
    /// are read, features by the same in another order.
    pub(crate) respelled: Vec<Respelled>,
    /// Sites without any encoding: those of a model from which none was removed, and those whose rotation
    /// a rescale would have missed.
    pub(crate) bare: Vec<usize>,
    /// What a configuration tells of the rewrite.
    pub(crate) told: Told,
}

/// A model in two spellings that compute the same.
#[derive(Debug)]
pub(crate) struct Respelled {
    /// The model as it was read, and in the spelling that is edited.
    pub(crate) models: [Model; 2],
    /// A model that takes what both take.
    pub(crate) of: Model,
    /// What is found in it.
    pub(crate) found: Found,
    /// The inputs and outputs that the second has in another order, with that order.
    pub(crate) moved: Vec<(String, Order)>,
}

impl Rewritten {
    /// A model in which this is found, and nothing more to be shown of it.
    pub(crate) fn new(model: Model, found: Found, report: Rewrite) -> Self {
        Self {
            model,
            flat: None,
            report,
            found,
            other_branches: vec![],
            proof: None,
            respelled: vec![],
            bare: vec![],
            told: Told::default(),
        }
    }

    /// The model whose values the findings name.
    pub(crate) fn read(&self) -> &Model {
        self.flat.as_ref().unwrap_or(&self.model)
    }
}

/// The rotations of branches.
pub(super) fn with_rotations(branches: impl IntoIterator<Item = Branch>) -> Vec<Found> {
    let found = branches.into_iter().map(|branch| branch.found);
    found.filter(|found| !found.rotary.is_empty()).collect()
}
