//! Other spellings of a model's operators, replaced by the one that detection reads.
//!
//! A softmax, a product, a gather or a layout can be written in many ways that compute the same.
//! Walks over the graph know one of them. [`plain`] replaces others by it, each by an identity that
//! holds for all sizes, so that no walk has to know them. What no rule fits stays as it is.

mod angles;
mod blocks;
mod buckets;
mod control;
mod counters;
mod decoding;
mod draft;
mod elementwise;
mod fused;
mod gated;
mod halves;
mod in_place;
mod layout;
mod masked;
mod products;
mod qlinear;
mod quantized;
mod repeated;
mod rotating;
mod rows;
mod runs;
mod sinks;
mod softmax;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;

use posenc_ir::{Model, Node, NodeId, ValueId};
use rustc_hash::FxHashMap;

use crate::graph::ports::Role;
use draft::Draft;
use view::View;

/// Rounds of replacements: what one of them makes may fit the next.
const ROUNDS: usize = 32;

/// A rule: replaces what a node computes where the node and those before it have a certain form.
type Rule = fn(&View<'_>, &mut Draft<'_>, NodeId) -> Option<()>;

/// The rules for nodes of an operator, in the order in which they are tried: those that hold for every
/// version, and those for models whose operators have their axes as inputs.
fn rules_of(node: &Node) -> [&'static [Rule]; 2] {
    if !node.domain().is_empty() {
        return match node.op() {
            "Attention" if node.domain() == "com.microsoft" => [&[], &[rotating::attention]],
            "DecoderMaskedMultiHeadAttention" => [&[], &[decoding::multi_head]],
            "DecoderMaskedSelfAttention" => [&[], &[decoding::projecting]],
            "FusedMatMul" => [&[fused::product], &[]],
            "GatedRelativePositionBias" => [&[], &[gated::relative]],
            "GemmaRotaryEmbedding" => [&[], &[rotating::of_angles]],
            "QAttention" => [&[], &[fused::attention]],
            "QEmbedLayerNormalization" => [&[], &[fused::embedding]],
            "QLinearConcat" => [&[qlinear::concat], &[]],
            _ => [&[qlinear::operator], &[]],
        };
    }
    let modern: &[Rule] = match node.op() {
        "If" => return [&[control::branch], &[]],
        "QLinearMatMul" | "QLinearConv" => return [&[qlinear::operator], &[]],
        "Loop" => &[control::repeated, control::counted],
        "Scan" => &[control::scanned],
        "Cos" | "Sin" => &[angles::of_positions, angles::moved],
        "Exp" => &[softmax::of_logarithms],
        "Div" => &[softmax::quotient, masked::renormalized],
        "Mul" => &[softmax::quotient, quantized::integers],
        "Where" => &[masked::renormalized],
        "Reshape" => &[softmax::of_rows, layout::undone],
        "Transpose" => &[softmax::of_transposed, layout::undone],
        "Squeeze" => &[layout::undone],
        "ReduceSum" => &[products::sum_of_products],
        "Add" => &[products::in_parts, layout::padded],
        "Sum" => &[layout::padded],
        "Concat" => &[
            products::in_parts,
            products::per_head,
            halves::of_turns,
            layout::undone,
            rows::in_pieces,
        ],
        "MatMul" => &[products::of_reversed],
        "Slice" => &[sinks::in_front],
        "Einsum" => &[layout::einsum, elementwise::einsum],
        "GatherND" => &[rows::gather_nd, rows::gather_each],
        "ScatterND" => &[blocks::written],
        _ => &[],
    };
    [&[], modern]
}

/// The model with its operators in the spelling that is read, where some of them have another;
/// `None` where none has. `roles` are those of inputs that are not told from their use.
pub(crate) fn plain(model: &Model, roles: &BTreeMap<String, Role>) -> Option<Model> {
    respelled(model, roles, rules_of)
}

/// The model without indices that are stored for each element of a tensor and move none; `None` where it has
/// no such ones. The result computes the same.
pub(crate) fn without_places(model: &Model, roles: &BTreeMap<String, Role>) -> Option<Model> {
    let places = |model: &Model| {
        let is_place = |node: &Node| {
            ["Gather", "GatherND", "ScatterND"]
                .iter()
                .any(|op| node.is(op))
        };
        model
            .graph()
            .nodes()
            .filter(|(_, node)| is_place(node))
            .count()
    };
    let made = respelled(model, roles, |node| match (node.op(), node.domain()) {
        ("Gather", "") => [&[], &[in_place::picked]],
        ("GatherND", "") => [&[], &[in_place::gathered]],
        ("ScatterND", "") => [&[], &[in_place::scattered]],
        _ => [&[], &[]],
    });
    made.filter(|made| places(made) < places(model))
}

/// The model with the biases of buckets that are one operator in plain ones; `None` where it has none. ONNX Runtime
/// ends on a processor where an `Attention` beside them has no bias for queries, keys and values: with
/// `for_processor` it gets zeros.
pub(crate) fn with_plain_buckets(
    model: &Model,
    roles: &BTreeMap<String, Role>,
    for_processor: bool,
) -> Option<Model> {
    let has_one = |model: &Model| {
        let mut nodes = model.graph().nodes();
        nodes.any(|(_, node)| is_bucket_operator(node))
    };
    if !has_one(model) {
        return None;
    }
    let made = respelled(model, roles, |node| match is_bucket_operator(node) {
        true => [&[], &[buckets::relative]],
        false => [&[], &[]],
    });
    let made = made.filter(|made| !has_one(made))?;
    let with_zeros = for_processor.then(|| {
        respelled(&made, roles, |node| match (node.domain(), node.op()) {
            ("com.microsoft", "Attention") => [&[], &[fused::with_zeros]],
            _ => [&[], &[]],
        })
    });
    Some(with_zeros.flatten().unwrap_or(made))
}

/// Whether a node is the operator for biases of buckets.
pub(crate) fn is_bucket_operator(node: &Node) -> bool {
    node.domain() == "com.microsoft" && node.op() == "RelativePositionBias"
}

/// Whether a node is an operator for biases that other ones are written for.
pub(crate) fn is_bias_operator(node: &Node) -> bool {
    let is_gated = node.domain() == "com.microsoft" && node.op() == "GatedRelativePositionBias";
    is_gated || is_bucket_operator(node)
}

/// The model after all replacements by some rules; `None` where there are none.
fn respelled(
    model: &Model,
    roles: &BTreeMap<String, Role>,
    rules_of: fn(&Node) -> [&'static [Rule]; 2],
) -> Option<Model> {
    let respelling = Respelling {
        roles,
        constants: repeated::equal_constants(model.graph()),
        rules_of,
    };
    let mut now: Option<Model> = None;
    for _ in 0..ROUNDS {
        let before = now.as_ref().unwrap_or(model);
        let nodes: Vec<NodeId> = before.graph().nodes().map(|(id, _)| id).collect();
        match respelling.of(before, &nodes) {
            Some(next) => now = Some(next),
            None => break,
        }
    }
    now
}

/// What replacements follow.
struct Respelling<'a> {
    roles: &'a BTreeMap<String, Role>,
    /// Constants that equal one before them.
    constants: FxHashMap<ValueId, ValueId>,
    rules_of: fn(&Node) -> [&'static [Rule]; 2],
}

impl Respelling<'_> {
    /// A model after every replacement that fits these nodes; `None` where none does.
    ///
    /// A replacement that the graph refuses is left out, and hinders no other.
    fn of(&self, model: &Model, nodes: &[NodeId]) -> Option<Model> {
        match self.at_once(model, nodes) {
            Ok(next) => next,
            Err(_) if nodes.len() < 2 => None,
            Err(_) => {
                let (some, others) = nodes.split_at(nodes.len() / 2);
                let first = self.of(model, some);
                let second = self.of(first.as_ref().unwrap_or(model), others);
                second.or(first)
            }
        }
    }

    /// The same where the graph refuses none.
    fn at_once(&self, model: &Model, nodes: &[NodeId]) -> posenc_ir::Result<Option<Model>> {
        let view = View::new(model, self.roles);
        let graph = model.graph();
        let mut draft = Draft::new(graph);
        let mut known = repeated::Known::of(&self.constants);
        let left = nodes.iter().filter(|id| !graph.is_removed(**id));
        for id in left.copied() {
            let node = graph.node(id);
            if !view.is_in_main(node.scope()) {
                continue;
            }
            draft.begin(node.scope());
            let mut any = |rules: &[Rule]| {
                let mut rules = rules.iter();
                rules.any(|rule| rule(&view, &mut draft, id).is_some())
            };
            let [of_all, of_modern] = (self.rules_of)(node);
            let is_other = any(of_all) || view.is_modern() && any(of_modern);
            if node.domain().is_empty() && !is_other {
                repeated::again(&view, &mut draft, id, &mut known);
            }
        }
        repeated::unused(&view, &mut draft);
        if draft.is_empty() {
            return Ok(None);
        }
        let (patch, replaces) = draft.finish()?;
        let mut next = model.clone();
        next.commit(patch)?;
        // What is in use by something that stays is not dropped.
        let is_less = next.graph().nodes().count() < graph.nodes().count();
        Ok((replaces || is_less).then_some(next))
    }
}

/// The model as it is read: without calls of functions, in the plain spelling. `None` where it is so
/// already; an error where calls cannot be unfolded, and stay.
pub(crate) fn as_read(
    model: &Model,
    roles: &BTreeMap<String, Role>,
) -> (Option<Model>, Option<posenc_ir::Error>) {
    let (flat, error) = match model.inlined() {
        Ok(flat) => (flat, None),
        Err(error) => (None, Some(error)),
    };
    let plain = plain(flat.as_ref().unwrap_or(model), roles);
    (plain.or(flat), error)
}
