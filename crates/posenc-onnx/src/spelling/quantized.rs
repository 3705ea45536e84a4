//! Products of content that is quantized on the way.

use posenc_ir::{DType, NodeId, ValueId};

use super::draft::Draft;
use super::view::View;

/// `MatMulInteger` of two values of content that `DynamicQuantizeLinear` quantizes, times both of
/// their scales: the product of what they are quantized to. Weights stay as they are.
pub(super) fn integers(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let out = node.output(0).filter(|_| node.is("Mul"))?;
    let (a, b) = (node.input(0)?, node.input(1)?);
    let integers = |value: ValueId| {
        let cast = view.made_by(value, "Cast")?;
        view.made_by(cast.input(0)?, "MatMulInteger")
    };
    let (product, scales) = match (integers(a), integers(b)) {
        (Some(product), None) => (product, b),
        (None, Some(product)) => (product, a),
        _ => return None,
    };
    let [left, right] = [(0, 2), (1, 3)].map(|(slot, zero)| {
        let quantized = Quantized::of(view, product.input(slot)?)?;
        let same = view.same(product.input(zero)?, quantized.zero);
        same.then_some(quantized)
    });
    let (left, right) = (left?, right?);
    let scales = view.made_by(scales, "Mul")?;
    let (first, second) = (scales.input(0)?, scales.input(1)?);
    let is = |x: &Quantized, y: &Quantized| view.same(first, x.scale) && view.same(second, y.scale);
    if !is(&left, &right) && !is(&right, &left) || view.dtype(out)? != DType::F32 {
        return None;
    }
    let product = [left.rounded(draft), right.rounded(draft)];
    let product = draft.op("MatMul", &product, &[]);
    draft.replace(out, product)
}

/// Content that is quantized by a scale of its own.
struct Quantized {
    of: ValueId,
    scale: ValueId,
    zero: ValueId,
}

impl Quantized {
    fn of(view: &View<'_>, value: ValueId) -> Option<Self> {
        let value = view.origin(value);
        let node = view.made_by(value, "DynamicQuantizeLinear")?;
        let is_first = node.output(0) == Some(value);
        let of = node.input(0).filter(|v| is_first && view.is_content(*v))?;
        Some(Self {
            of,
            scale: node.output(1)?,
            zero: node.output(2)?,
        })
    }

    /// The numbers that it stands for.
    fn rounded(&self, draft: &mut Draft<'_>) -> ValueId {
        let whole = draft.op("QuantizeLinear", &[self.of, self.scale, self.zero], &[]);
        draft.op("DequantizeLinear", &[whole, self.scale, self.zero], &[])
    }
}
