//! What a rewrite changes in the configuration of a model: the `config.json` of Hugging Face, and the
//! files next to it that name the same lengths.

mod change;
mod images;
mod lengths;
mod rotations;
mod section;
#[cfg(test)]
mod tests;
mod text;
mod told;

pub use change::ConfigChange;
pub(crate) use told::Told;
