//! External data: tensors that are stored in other files than the model.

mod dir;
mod load;
pub(crate) mod location;
#[cfg(not(target_family = "wasm"))]
mod place;
mod policy;
#[cfg_attr(target_family = "wasm", path = "external/save_nowhere.rs")]
mod save;

pub(crate) use dir::ExternalDir;
pub use policy::{ExternalData, PlaceProblem, SaveError, Saved};
