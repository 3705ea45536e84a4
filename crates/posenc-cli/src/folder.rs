//! Whole folders: the models below one, and the files that belong to them.

mod chosen;
mod compared;
mod configs;
mod copies;
mod counterparts;
mod found;
mod html;
pub(crate) mod inspect;
mod names;
mod plan;
mod report;
pub(crate) mod rewrite;
mod staging;
mod text;

pub(crate) use chosen::Chosen;
pub(crate) use found::Folder;
