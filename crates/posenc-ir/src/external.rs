//! External data: tensors that are stored in other files than the model.

mod dir;
mod load;
pub(crate) mod location;
mod place;
mod policy;
mod save;

pub(crate) use dir::ExternalDir;
pub use policy::{ExternalData, PlaceProblem, SaveError, Saved};
