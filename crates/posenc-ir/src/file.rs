//! Files: mapped for reading, written completely or not at all.

#[cfg(not(target_family = "wasm"))]
mod copy;
#[cfg(not(target_family = "wasm"))]
mod data;
#[cfg_attr(target_family = "wasm", path = "file/in_memory.rs")]
pub(crate) mod map;
#[cfg(not(target_family = "wasm"))]
mod new;
mod open;
mod path;
#[cfg_attr(target_family = "wasm", path = "file/replace_nothing.rs")]
mod replace;
#[cfg(not(target_family = "wasm"))]
mod write;

#[cfg(not(target_family = "wasm"))]
pub use data::copy_to;
#[cfg(not(target_family = "wasm"))]
pub(crate) use data::link_as;
pub(crate) use path::folder;
#[cfg(target_family = "wasm")]
pub use replace::copy_to;
pub use replace::write_file;

#[cfg(test)]
mod tests;
