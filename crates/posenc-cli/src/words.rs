//! Parameters of an encoding, in words.

use posenc_encodings::describe::Description;
pub(crate) use posenc_encodings::describe::{entries, plain};
use posenc_encodings::kind::Kind;
use posenc_encodings::params::Params;

/// The parameters of an encoding of that kind, in one line.
pub(crate) fn words(kind: Kind, params: &Params) -> String {
    let mut description = Description::of(params);
    if let Some(family) = kind.family() {
        (family.describe)(&mut description);
    }
    description.end()
}

#[cfg(test)]
mod tests;
