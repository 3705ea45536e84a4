//! The plan of other sizes than those that are written in the graph, of an image or of a sequence: what
//! becomes of every size, and of the tables of positions that are added whole.

mod axes;
mod bias;
mod broadcast;
mod constants;
mod counts;
mod elements;
mod entries;
mod formulas;
mod image;
mod indices;
mod leftovers;
mod length;
mod maps;
mod meets;
mod numbers;
pub(crate) mod offsets;
pub(crate) mod open;
pub(crate) mod open_length;
mod origin;
mod parts;
mod positional;
mod positions;
mod rolls;
mod rotated;
pub(crate) mod rotations;
pub(crate) mod rows;
mod rules;
mod shapes;
mod sizes;
mod slices;
mod stored_sizes;
mod sums;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod walk;
mod windows;

pub(crate) use constants::{Following, Whole};
pub(crate) use image::plan;
pub(crate) use length::length;
pub(crate) use numbers::Number;
pub(crate) use open::{Open, open};
pub(crate) use open_length::{OpenLength, open_length, written_length};
pub(crate) use rules::Rule;
pub(crate) use sizes::{Plan, Wanted};
