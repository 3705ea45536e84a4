//! End-to-end runs of the binary.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

#[path = "cli/bad.rs"]
mod bad;
#[path = "cli/completions.rs"]
mod completions;
#[path = "cli/config.rs"]
mod config;
#[path = "cli/diff.rs"]
mod diff;
#[path = "cli/exit.rs"]
mod exit;
#[path = "cli/external.rs"]
mod external;
#[path = "cli/help.rs"]
mod help;
#[cfg(unix)]
#[path = "cli/links.rs"]
mod links;
#[path = "cli/page.rs"]
mod page;
#[path = "cli/print.rs"]
mod print;
#[path = "cli/project.rs"]
mod project;
#[path = "cli/rewrite.rs"]
mod rewrite;
#[path = "cli/run.rs"]
mod run;
#[path = "../../../tests/shared.rs"]
pub mod shared;
#[path = "cli/split.rs"]
mod split;
#[path = "cli/table.rs"]
mod table;
#[path = "cli/verify.rs"]
mod verify;
#[path = "cli/writing.rs"]
mod writing;
