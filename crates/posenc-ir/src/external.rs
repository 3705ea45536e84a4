//! External data: tensors that are stored in other files than the model.

mod dir;
mod load;
pub(crate) mod location;
#[cfg(not(target_family = "wasm"))]
mod place;
#[cfg(not(target_family = "wasm"))]
mod policy;
#[cfg(not(target_family = "wasm"))]
mod save;

pub(crate) use dir::ExternalDir;
#[cfg(not(target_family = "wasm"))]
pub use policy::{ExternalData, PlaceProblem, SaveError, Saved};
