//! What the subcommands do, without flags and without printing.
//!
//! Errors are those of the command line: [`Exit::of`](crate::Exit::of) is how the process would end,
//! and [`sentence`] what it would print.

pub mod keywords;
pub mod shown;

pub use crate::backend::Choice;
pub use crate::exit::{Failure, sentence};
pub use crate::inspect::report as inspect;
pub use crate::model::absence;
pub use crate::rewrite::check::{Proof, fill as check};
pub use crate::rewrite::external::{ExternalData, save};
pub use crate::rewrite::{config, output};
pub use crate::table::{Table, Wanted};
pub use crate::verify::Runtimes;
