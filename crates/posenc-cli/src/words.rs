//! Parameters of an encoding, in words.

pub(crate) use posenc_encodings::describe::{entries, plain};

#[cfg(test)]
mod tests;
