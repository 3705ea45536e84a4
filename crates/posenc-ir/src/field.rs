//! Field numbers of the messages that are read and written without decoding them.

/// Fields of `ModelProto`.
pub(crate) mod model {
    pub(crate) const IR_VERSION: u32 = 1;
    pub(crate) const GRAPH: u32 = 7;
    pub(crate) const OPSET: u32 = 8;
    pub(crate) const METADATA: u32 = 14;
    pub(crate) const TRAINING: u32 = 20;
    pub(crate) const FUNCTION: u32 = 25;
}

/// Fields of `TrainingInfoProto`.
pub(crate) mod training {
    pub(crate) const INITIALIZATION: u32 = 1;
    pub(crate) const ALGORITHM: u32 = 2;
}

/// Fields of `GraphProto`.
pub(crate) mod graph {
    pub(crate) const NODE: u32 = 1;
    pub(crate) const NAME: u32 = 2;
    pub(crate) const INITIALIZER: u32 = 5;
    pub(crate) const INPUT: u32 = 11;
    pub(crate) const OUTPUT: u32 = 12;
    pub(crate) const VALUE_INFO: u32 = 13;
    pub(crate) const SPARSE_INITIALIZER: u32 = 15;
}

/// Fields of `FunctionProto`.
pub(crate) mod function {
    pub(crate) const NAME: u32 = 1;
    pub(crate) const INPUT: u32 = 4;
    pub(crate) const OUTPUT: u32 = 5;
    pub(crate) const ATTRIBUTE: u32 = 6;
    pub(crate) const NODE: u32 = 7;
    pub(crate) const OPSET: u32 = 9;
    pub(crate) const DOMAIN: u32 = 10;
    pub(crate) const ATTRIBUTE_PROTO: u32 = 11;
    pub(crate) const VALUE_INFO: u32 = 12;
    pub(crate) const OVERLOAD: u32 = 13;
}

/// Fields of `NodeProto`.
pub(crate) mod node {
    pub(crate) const INPUT: u32 = 1;
    pub(crate) const OUTPUT: u32 = 2;
    pub(crate) const NAME: u32 = 3;
    pub(crate) const OP: u32 = 4;
    pub(crate) const ATTRIBUTE: u32 = 5;
    pub(crate) const DOMAIN: u32 = 7;
    pub(crate) const OVERLOAD: u32 = 8;
}

/// Fields of `AttributeProto`.
pub(crate) mod attribute {
    pub(crate) const NAME: u32 = 1;
    pub(crate) const TENSOR: u32 = 5;
    pub(crate) const GRAPH: u32 = 6;
    pub(crate) const TENSORS: u32 = 10;
    pub(crate) const GRAPHS: u32 = 11;
    pub(crate) const TYPE: u32 = 20;
    pub(crate) const REFERENCE: u32 = 21;
    pub(crate) const SPARSE_TENSOR: u32 = 22;
    pub(crate) const SPARSE_TENSORS: u32 = 23;
    /// The name, the type and the values of every type.
    pub(crate) const CONTENT: [u32; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15, 20, 22, 23];
}

/// Fields of `SparseTensorProto`.
pub(crate) mod sparse {
    pub(crate) const VALUES: u32 = 1;
    pub(crate) const INDICES: u32 = 2;
}

/// Fields of `TensorProto`.
pub(crate) mod tensor {
    pub(crate) const DIMS: u32 = 1;
    pub(crate) const DATA_TYPE: u32 = 2;
    pub(crate) const NAME: u32 = 8;
    pub(crate) const RAW_DATA: u32 = 9;
    pub(crate) const EXTERNAL_DATA: u32 = 13;
    pub(crate) const DATA_LOCATION: u32 = 14;
    /// The typed lists: float, int32, string, int64, double, uint64.
    pub(crate) const TYPED: [u32; 6] = [4, 5, 6, 7, 10, 11];
}

/// Fields of `StringStringEntryProto`.
pub(crate) mod entry {
    pub(crate) const KEY: u32 = 1;
    pub(crate) const VALUE: u32 = 2;
}
