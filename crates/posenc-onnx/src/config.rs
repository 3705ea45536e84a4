//! What a rewrite changes in the configuration of a model: the `config.json` of Hugging Face, and the
//! files next to it that name the same lengths.

mod change;
mod computed;
mod contradiction;
mod ends;
mod images;
mod layers;
mod lengths;
mod reach;
mod rotations;
mod section;
mod tables;
#[cfg(test)]
mod tests;
mod text;
mod together;
mod told;

pub use change::ConfigChange;
pub(crate) use contradiction::contradiction;
pub(crate) use told::Told;
