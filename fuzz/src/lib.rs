//! Bodies of the fuzz targets, and mutations of their inputs.
//!
//! `fuzz_targets` contains a small program for each body. The ordinary tests include this file and run
//! the bodies on the seeds, on earlier findings, and on some hundreds of mutations.

pub mod decode;
pub mod diff;
pub mod evaluate;
pub mod external;
pub mod mutate;
pub mod random;
pub mod rewrite;
pub mod text;
pub mod tree;

pub use decode::decode;
pub use diff::diff;
pub use evaluate::evaluate;
pub use external::external;
pub use rewrite::rewrite;
pub use text::{text_parse, text_round_trip};
