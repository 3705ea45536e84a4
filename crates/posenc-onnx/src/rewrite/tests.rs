//! Whole rewrites of small graphs.

mod again;
mod beside;
mod biases;
pub(crate) mod branches;
mod buckets;
mod computed_waves;
mod config;
mod distance_waves;
mod distances;
mod forms;
mod frames;
mod functions;
mod grouped;
mod ids;
mod length;
mod precision;
mod quantized;
mod rescaled;
mod rows;
mod selection;
mod stacks;
mod swap;
