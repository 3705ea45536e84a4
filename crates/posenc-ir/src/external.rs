//! External data: tensors that are stored in other files than the model.

mod dir;
mod load;
pub(crate) mod location;

pub(crate) use dir::ExternalDir;
