//! What a value of a graph is: roles of inputs, dataflow, axes, regions, products.

pub(crate) mod bodies;
pub(crate) mod caches;
pub(crate) mod continued;
pub(crate) mod dataflow;
pub(crate) mod einsum;
pub(crate) mod extent;
pub(crate) mod lane;
pub(crate) mod mixing;
pub(crate) mod ones;
pub(crate) mod operators;
pub(crate) mod ports;
pub(crate) mod product;
pub(crate) mod projecting;
pub(crate) mod reduction;
pub(crate) mod region;
pub(crate) mod reorder;
pub(crate) mod signature;
pub(crate) mod sizes;
#[cfg(test)]
pub(crate) mod sketch;
