//! Files: mapped for reading, written completely or not at all.

mod copy;
mod data;
pub(crate) mod map;
mod new;
mod open;
mod path;
mod write;

pub(crate) use data::{copy_to, share_as};
pub(crate) use path::folder;

#[cfg(test)]
mod tests;
