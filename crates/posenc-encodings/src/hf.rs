//! Reading and writing the JSON of a Hugging Face `config.json`.

pub mod dict;
pub mod error;
pub mod json;
pub mod reader;
pub mod writer;

pub use dict::Dict;
pub use error::HfConfigError;
pub use reader::{HfType, Reader};
pub use writer::Writer;
