//! What a value of a graph is: roles of inputs, dataflow, axes, regions, products.

pub mod dataflow;
pub mod einsum;
pub mod lane;
pub mod operators;
pub mod ports;
pub mod product;
pub mod region;
pub mod signature;
#[cfg(test)]
pub mod sketch;
