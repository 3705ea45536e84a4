//! The functions that evaluate operators, by name.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::call::{Call, Outputs};
use super::{
    attention, binary, blocked, buckets, cast, concat, constant, contrib, einsum, fourier, gather,
    layout, make, normalize, pad, product, quantize, recurrent, reduce, rotary, scan, scatter,
    slice, spatial, unary,
};

/// Evaluates one node.
pub(super) type Kernel = fn(&Call<'_>) -> Outputs;

/// The function for an operator; `None` for unknown ones.
pub(super) fn kernel(domain: &str, op: &str) -> Option<Kernel> {
    static KERNELS: LazyLock<[FxHashMap<&str, Kernel>; 3]> =
        LazyLock::new(|| TABLES.map(|(_, table)| table.iter().copied().collect()));
    let own = TABLES.iter().position(|(own, _)| *own == domain)?;
    KERNELS[own].get(op).copied()
}

/// Every domain with its operators.
const TABLES: [(&str, &[(&str, Kernel)]); 3] = [
    ("", STANDARD),
    ("com.microsoft", CONTRIB),
    ("com.microsoft.nchwc", BLOCKED),
];

/// ai.onnx, with operators that ONNX Runtime adds to it, by name.
const STANDARD: &[(&str, Kernel)] = &[
    ("Abs", unary::abs),
    ("Acos", unary::acos),
    ("Acosh", unary::acosh),
    ("Add", binary::add),
    ("And", binary::and),
    ("ArgMax", reduce::arg_max),
    ("ArgMin", reduce::arg_min),
    ("Asin", unary::asin),
    ("Asinh", unary::asinh),
    ("Atan", unary::atan),
    ("Atanh", unary::atanh),
    ("Attention", attention::attention),
    ("AveragePool", spatial::pool),
    ("BatchNormalization", normalize::spatial),
    ("BitShift", binary::opaque),
    ("BitwiseAnd", binary::bitwise_and),
    ("BitwiseNot", unary::bitwise_not),
    ("BitwiseOr", binary::bitwise_or),
    ("BitwiseXor", binary::bitwise_xor),
    ("Cast", cast::cast),
    ("CastLike", cast::cast_like),
    ("Ceil", unary::ceil),
    ("Celu", unary::like),
    ("Clip", binary::clip),
    ("Concat", concat::concat),
    ("Constant", constant::constant),
    ("ConstantOfShape", constant::constant_of_shape),
    ("Conv", spatial::conv),
    ("ConvInteger", spatial::conv_integer),
    ("ConvTranspose", spatial::conv_transpose),
    ("Cos", unary::cos),
    ("Cosh", unary::cosh),
    ("CumSum", scan::cum_sum),
    ("DFT", fourier::dft),
    ("DepthToSpace", layout::depth_to_space),
    ("DequantizeLinear", quantize::dequantize),
    ("Div", binary::div),
    ("Dropout", unary::dropout),
    ("DynamicQuantizeLinear", quantize::dynamic_quantize),
    ("Einsum", einsum::einsum),
    ("Elu", unary::elu),
    ("Equal", binary::equal),
    ("Erf", unary::erf),
    ("Exp", unary::exp),
    ("Expand", layout::expand),
    ("EyeLike", make::eye_like),
    ("Flatten", layout::flatten),
    ("Floor", unary::floor),
    ("GRU", recurrent::recurrent),
    ("Gather", gather::gather),
    ("GatherElements", gather::gather_elements),
    ("GatherND", gather::gather_nd),
    ("Gelu", unary::gelu),
    ("Gemm", product::gemm),
    ("GlobalAveragePool", reduce::global_pool),
    ("GlobalLpPool", reduce::global_pool),
    ("GlobalMaxPool", reduce::global_pool),
    ("Greater", binary::greater),
    ("GreaterOrEqual", binary::greater_or_equal),
    ("GridSample", spatial::grid_sample),
    ("GroupNormalization", normalize::spatial),
    ("HardSigmoid", unary::hard_sigmoid),
    ("HardSwish", unary::hard_swish),
    ("Hardmax", unary::like),
    ("Identity", unary::identity),
    ("InstanceNormalization", normalize::spatial),
    ("IsInf", unary::is_inf),
    ("IsNaN", unary::is_nan),
    ("LRN", unary::like),
    ("LSTM", recurrent::recurrent),
    ("LayerNormalization", normalize::layer),
    ("LeakyRelu", unary::leaky_relu),
    ("Less", binary::less),
    ("LessOrEqual", binary::less_or_equal),
    ("Log", unary::log),
    ("LogSoftmax", normalize::log_softmax),
    ("LpNormalization", unary::like),
    ("LpPool", spatial::pool),
    ("MatMul", product::mat_mul),
    ("MatMulInteger", product::mat_mul_integer),
    ("Max", binary::max),
    ("MaxPool", spatial::pool),
    ("Mean", binary::mean),
    ("MeanVarianceNormalization", unary::like),
    ("Min", binary::min),
    ("Mish", unary::mish),
    ("Mod", binary::modulo),
    ("Mul", binary::mul),
    ("Neg", unary::neg),
    ("NonZero", make::non_zero),
    ("Not", unary::not),
    ("OneHot", make::one_hot),
    ("Or", binary::or),
    ("PRelu", unary::like),
    ("Pad", pad::pad),
    ("Pow", binary::pow),
    ("QLinearConv", spatial::quantized_conv),
    ("QLinearMatMul", product::quantized_mat_mul),
    ("QuantizeLinear", quantize::quantize),
    ("RMSNormalization", normalize::rms),
    ("RNN", recurrent::recurrent),
    ("RandomNormal", cast::random),
    ("RandomNormalLike", cast::random_like),
    ("RandomUniform", cast::random),
    ("RandomUniformLike", cast::random_like),
    ("Range", make::range),
    ("Reciprocal", unary::reciprocal),
    ("ReduceL1", reduce::l1),
    ("ReduceL2", reduce::l2),
    ("ReduceLogSum", reduce::log_sum),
    ("ReduceLogSumExp", reduce::log_sum_exp),
    ("ReduceMax", reduce::max),
    ("ReduceMean", reduce::mean),
    ("ReduceMin", reduce::min),
    ("ReduceProd", reduce::prod),
    ("ReduceSum", reduce::sum),
    ("ReduceSumSquare", reduce::sum_square),
    ("Relu", unary::relu),
    ("Reshape", layout::reshape),
    ("Resize", spatial::resize),
    ("ReverseSequence", slice::reverse_sequence),
    ("RotaryEmbedding", rotary::rotary),
    ("Round", unary::round),
    ("Scatter", scatter::scatter_elements),
    ("ScatterElements", scatter::scatter_elements),
    ("ScatterND", scatter::scatter_nd),
    ("Selu", unary::like),
    ("Shape", constant::shape_of),
    ("Shrink", unary::like),
    ("Sigmoid", unary::sigmoid),
    ("Sign", unary::sign),
    ("SimplifiedLayerNormalization", normalize::simplified_layer),
    ("Sin", unary::sin),
    ("Sinh", unary::sinh),
    ("Size", constant::size),
    ("SkipLayerNormalization", normalize::skip_layer),
    (
        "SkipSimplifiedLayerNormalization",
        normalize::skip_simplified_layer,
    ),
    ("Slice", slice::slice),
    ("Softmax", normalize::softmax),
    ("Softplus", unary::softplus),
    ("Softsign", unary::softsign),
    ("SpaceToDepth", layout::space_to_depth),
    ("Split", concat::split),
    ("Sqrt", unary::sqrt),
    ("Squeeze", layout::squeeze),
    ("Sub", binary::sub),
    ("Sum", binary::sum),
    ("Swish", unary::swish),
    ("Tan", unary::tan),
    ("Tanh", unary::tanh),
    ("TensorScatter", scatter::tensor_scatter),
    ("ThresholdedRelu", unary::like),
    ("Tile", pad::tile),
    ("TopK", make::top_k),
    ("Transpose", layout::transpose),
    ("Trilu", make::trilu),
    ("Unsqueeze", layout::unsqueeze),
    ("Upsample", spatial::resize),
    ("Where", binary::choose),
    ("Xor", binary::xor),
];

/// com.microsoft, by name.
const CONTRIB: &[(&str, Kernel)] = &[
    ("Attention", attention::contrib_attention),
    ("BiasGelu", contrib::bias_gelu),
    ("DequantizeLinear", quantize::dequantize),
    ("DynamicQuantizeLSTM", recurrent::quantized),
    ("DynamicQuantizeMatMul", product::mat_mul_to_float),
    (
        "EmbedLayerNormalization",
        contrib::embed_layer_normalization,
    ),
    ("FastGelu", unary::fast_gelu),
    ("FusedConv", spatial::conv),
    ("FusedGemm", product::fused_gemm),
    ("FusedMatMul", product::fused_mat_mul),
    (
        "GatedRelativePositionBias",
        attention::gated_relative_position_bias,
    ),
    ("GatherBlockQuantized", contrib::gather_block_quantized),
    ("Gelu", unary::gelu),
    ("GroupQueryAttention", attention::group_query),
    ("MRotaryEmbedding", rotary::multimodal_rotary),
    ("MatMulBnb4", contrib::mat_mul_n_bits),
    ("MatMulIntegerToFloat", product::mat_mul_to_float),
    ("MatMulNBits", contrib::mat_mul_n_bits),
    ("MoE", unary::like),
    ("MultiHeadAttention", attention::multi_head),
    ("NhwcConv", spatial::channels_last_conv),
    ("NhwcFusedConv", spatial::channels_last_conv),
    ("PagedAttention", attention::paged),
    ("QGemm", product::quantized_gemm),
    ("QLinearConv", spatial::quantized_conv),
    ("QMoE", unary::like),
    ("QuantizeLinear", quantize::quantize),
    ("QuickGelu", unary::quick_gelu),
    ("Range", make::range),
    ("RelativePositionBias", buckets::relative_position_bias),
    ("RotaryEmbedding", rotary::contrib_rotary),
    ("SimplifiedLayerNormalization", normalize::simplified_layer),
    ("SkipLayerNormalization", normalize::skip_layer),
    (
        "SkipSimplifiedLayerNormalization",
        normalize::skip_simplified_layer,
    ),
    ("SparseAttention", attention::sparse),
    ("Trilu", make::trilu),
];

/// com.microsoft.nchwc, by name.
const BLOCKED: &[(&str, Kernel)] = &[
    ("AveragePool", spatial::pool),
    ("Conv", spatial::conv),
    ("GlobalAveragePool", reduce::global_pool),
    ("GlobalMaxPool", reduce::global_pool),
    ("MaxPool", spatial::pool),
    ("ReorderInput", blocked::reorder_input),
    ("ReorderOutput", blocked::reorder_output),
    ("Upsample", blocked::upsample),
];

/// Every operator with its domain.
#[cfg(test)]
pub(super) fn operators() -> impl Iterator<Item = (&'static str, &'static str)> {
    let tables = TABLES.iter();
    tables.flat_map(|(domain, table)| table.iter().map(|row| (*domain, row.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_is_listed_once_and_found() {
        for (domain, table) in TABLES {
            assert!(table.is_sorted_by(|a, b| a.0 < b.0), "{domain}");
            assert!(table.iter().all(|row| kernel(domain, row.0).is_some()));
        }
        for (domain, op) in [
            ("", "Nothing"),
            ("", ""),
            ("ai.onnx.ml", "Add"),
            ("", "add"),
        ] {
            assert!(kernel(domain, op).is_none(), "{domain}.{op}");
        }
    }
}
