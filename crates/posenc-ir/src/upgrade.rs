//! Raising the version of ai.onnx that a model imports.

use crate::emitter::{Attr, Emitter};
use crate::error::{Error, Result};
use crate::graph::{Graph, ScopeKind};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::model::Model;
use crate::node::Node;
use crate::schema::{self, Lookup};
use crate::tensor::Tensor;
use rustc_hash::FxHashMap;

/// The oldest version from which a model can be converted.
const OLDEST: i64 = 11;

/// Attributes that are an input from a version on: the operators, the version, the attribute. It is input 1.
const MOVED: [(&[&str], i64, &str); 3] = [
    (&["ReduceSum", "Squeeze", "Unsqueeze"], 13, "axes"),
    (&["Split"], 13, "split"),
    (
        &[
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceSumSquare",
        ],
        18,
        "axes",
    ),
];

/// From this version on, a split into equal parts says how many.
const COUNTED_PARTS: i64 = 18;

/// Operators that compute something else from a version on, or name their modes in another way.
const CHANGED: [(&str, i64); 9] = [
    ("BatchNormalization", 14),
    ("DFT", 20),
    ("Dropout", 12),
    ("GridSample", 20),
    ("GroupNormalization", 21),
    ("Hardmax", 13),
    ("LogSoftmax", 13),
    ("RoiAlign", 16),
    ("Softmax", 13),
];

impl Model {
    /// The model with a later version of ai.onnx; an earlier one is no change. Nodes whose form differs there are replaced by nodes that
    /// compute the same; all others stay. Functions keep the version that they import. `rank` gives the number
    /// of axes of a value, where it is known.
    ///
    /// # Errors
    /// When the model has a version before 11, or a node that the later version does not have or defines in
    /// another way; the node is named.
    ///
    /// ```
    /// # use posenc_ir::{Model, Weights};
    /// let model = Model::parse("<ir_version: 8, opset_import: [\"\" : 17]> \
    ///     g (float[n, 4] x) => (float[n] y) { y = ReduceMean <axes = [1], keepdims = 0>(x) }")?;
    /// let model = model.upgraded(23, |_| None)?;
    /// assert_eq!(model.opset(), 23);
    /// assert!(model.text(Weights::Full).to_string().contains("ReduceMean <keepdims = 0>(x, "));
    /// # Ok::<(), posenc_ir::Error>(())
    /// ```
    pub fn upgraded(&self, version: i64, rank: impl Fn(ValueId) -> Option<usize>) -> Result<Self> {
        let from = self.opset();
        if version <= from {
            return Ok(self.clone());
        }
        if from < OLDEST {
            return Err(Error::invalid(format!(
                "version {from} of ai.onnx is too old to be converted; the oldest is {OLDEST}"
            )));
        }
        let step = Step { from, to: version };
        let graph = self.graph();
        let mut out = graph.emitter(graph.main(), "opset");
        // What a body reads of the graph around it is replaced before.
        let mut scopes: Vec<ScopeId> = graph.scopes().collect();
        scopes.retain(|scope| !is_in_function(graph, *scope));
        scopes.sort_by_key(|scope| around(graph, *scope).count());
        let mut replaced = FxHashMap::default();
        for scope in scopes {
            for id in graph.order(scope)? {
                let node = graph.node(id);
                if node.domain().is_empty() {
                    let axes = node.input(0).and_then(&rank);
                    let done = step.convert(&mut out, id, axes, &mut replaced);
                    done.map_err(|e| e.at(graph.place(id)))?;
                }
            }
        }
        let (mut model, _) = self.clone().with_patch(out.finish())?;
        model.set_opset(version);
        Ok(model)
    }
}

/// From one version of ai.onnx to another.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: i64,
    to: i64,
}

impl Step {
    /// Whether the first of these two versions is before `since`, and the second is not.
    fn crosses(self, since: i64) -> bool {
        self.from < since && self.to >= since
    }

    /// Replaces a node where the later version has another form. `axes` is how many its first input has, and
    /// `replaced` holds what took the place of outputs so far.
    fn convert(
        self,
        out: &mut Emitter<'_>,
        id: NodeId,
        axes: Option<usize>,
        replaced: &mut FxHashMap<ValueId, ValueId>,
    ) -> Result<()> {
        let node = out.graph().node(id);
        let op = node.op();
        self.check_meaning(node, axes)?;
        let mut moved = MOVED.iter();
        let moved = moved.find(|(ops, since, _)| ops.contains(&op) && self.crosses(*since));
        let moved = moved
            .map(|(_, _, name)| *name)
            .filter(|name| node.attribute(name).is_some());
        let is_split = op == "Split" && self.crosses(COUNTED_PARTS);
        let parts = (is_split && moved.is_none() && node.input(1).is_none())
            .then(|| Attr::Int(node.outputs().len() as i64));
        self.check_form(node, moved)?;
        if moved.is_none() && parts.is_none() {
            return Ok(());
        }
        out.set_scope(node.scope());
        let inputs = node.inputs().iter();
        let now = |value: &ValueId| *replaced.get(value).unwrap_or(value);
        let mut inputs: Vec<_> = inputs.map(|value| value.as_ref().map(now)).collect();
        if let Some(name) = moved {
            let numbers = node.ints(name).map_err(|e| Error::invalid(e.to_string()))?;
            let numbers = numbers.unwrap_or_default();
            let of_one_axis = Tensor::from_i64(&[numbers.len()], numbers);
            inputs.truncate(1);
            inputs.push(Some(out.constant(name, of_one_axis)));
        }
        let parts: Vec<_> = parts.map(|n| ("num_outputs", n)).into_iter().collect();
        let new = out.copy_without(id, &inputs, &parts, moved.as_slice())?;
        let pairs = node.outputs().iter().zip(new);
        let pairs: Vec<(ValueId, ValueId)> = pairs.filter_map(|(old, new)| old.zip(new)).collect();
        for (old, new) in pairs {
            out.redirect(old, new)?;
            replaced.insert(old, new);
        }
        Ok(())
    }

    /// Refuses what computes something else in the later version.
    fn check_meaning(self, node: &Node, axes: Option<usize>) -> Result<()> {
        let op = node.op();
        let Some((_, since)) = CHANGED.iter().find(|(name, _)| *name == op) else {
            return Ok(());
        };
        // The last axis is normalized alone in either version; other outputs are those of training.
        let is_same = match op {
            "Softmax" | "LogSoftmax" | "Hardmax" => {
                let axis = node.int("axis").ok().flatten().unwrap_or(1);
                axis == -1 || axes.is_some_and(|axes| axis + 1 == axes as i64)
            }
            "BatchNormalization" => node.outputs().len() == 1,
            "Dropout" => node.attributes().is_empty(),
            _ => false,
        };
        if !self.crosses(*since) || is_same {
            return Ok(());
        }
        let Self { from, to } = self;
        Err(Error::invalid(format!(
            "{op} of version {from} of ai.onnx is not that of version {to}"
        )))
    }

    /// Refuses what the later version does not have: an operator, or an attribute other than `moved`.
    fn check_form(self, node: &Node, moved: Option<&str>) -> Result<()> {
        let (op, Self { from, to }) = (node.op(), self);
        let Some(ai_onnx) = schema::domain("") else {
            return Ok(());
        };
        let Lookup::Known(before) = ai_onnx.find(op, from) else {
            // A runtime has this operator of its own.
            return Ok(());
        };
        let after = match ai_onnx.find(op, to) {
            Lookup::Known(after) if to <= ai_onnx.newest => after,
            _ => {
                let why = format!("version {to} of ai.onnx is not known to have {op}");
                return Err(Error::invalid(why));
            }
        };
        let has = |all: &[schema::Parameter], name: &str| all.iter().any(|p| p.name == name);
        let given = node.attributes().iter().map(|a| a.name());
        let mut given = given.filter(|name| Some(*name) != moved);
        match given.find(|a| has(&before.attributes, a) && !has(&after.attributes, a)) {
            Some(attribute) => Err(Error::invalid(format!(
                "{op} has the attribute {attribute}, which it does not have in version {to} of ai.onnx"
            ))),
            None => Ok(()),
        }
    }
}

/// A scope and those around it.
fn around(graph: &Graph, scope: ScopeId) -> impl Iterator<Item = ScopeId> {
    std::iter::successors(Some(scope), |scope| graph.scope(*scope).parent())
}

/// Whether a scope is within a function.
fn is_in_function(graph: &Graph, scope: ScopeId) -> bool {
    let is_function = |scope| matches!(graph.scope(scope).kind(), ScopeKind::Function { .. });
    around(graph, scope).any(is_function)
}

#[cfg(test)]
mod tests {
    use crate::{Model, Weights};

    /// A graph of version `version` with these nodes.
    fn model(version: i64, nodes: &str) -> Model {
        Model::parse(&format!(
            "<ir_version: 8, opset_import: [\"com.microsoft\" : 1, \"\" : {version}]> \
             g (float[n, 4] x, bool c) => (y) {{ {nodes} }}"
        ))
        .unwrap()
    }

    /// The nodes after the model was written and read again.
    fn nodes(model: &Model) -> String {
        let again = Model::from_bytes(model.to_bytes().unwrap()).unwrap();
        assert_eq!(again.opset(), model.opset());
        assert_eq!(again.opsets()["com.microsoft"], 1);
        again.check().unwrap();
        let text = again.text(Weights::Full).to_string();
        assert_eq!(text, model.text(Weights::Full).to_string());
        text.split_once("=> (y)").unwrap().1.trim().to_owned()
    }

    #[test]
    fn attributes_become_inputs() {
        let cases = [
            (
                17,
                "y = ReduceMean <axes = [1], keepdims = 0>(x)",
                "ReduceMean <keepdims = 0>(x, \"opset/axes_0\")",
            ),
            (17, "y = ReduceMean(x)", "y = ReduceMean(x)"),
            (
                11,
                "y = Unsqueeze <axes = [0, 3]>(x)",
                "Unsqueeze(x, \"opset/axes_0\")",
            ),
            (
                11,
                "a, b = Split <axis = 1, split = [1, 3]>(x) y = Concat <axis = 1>(b, a)",
                "Split <axis = 1>(x, \"opset/split_0\")",
            ),
            (
                17,
                "a, b = Split <axis = 1>(x) y = Concat <axis = 1>(b, a)",
                "Split <axis = 1, num_outputs = 2>(x)",
            ),
            (
                17,
                "y = If (c) <then_branch = g () => (s) { s = ReduceMax <axes = [0]>(x) }, \
                 else_branch = h () => (t) { t = ReduceMax(x) }>",
                "s = ReduceMax(x, \"opset/axes_0\")",
            ),
            // One behind another, also where the file has them in another order, and in a body.
            (
                17,
                "a = ReduceMean <axes = [1]>(x) y = ReduceMax <axes = [0]>(a)",
                "ReduceMax(\"opset/reducemean_0\", \"opset/axes_1\")",
            ),
            (
                11,
                "y = Squeeze <axes = [0]>(a) a = Unsqueeze <axes = [0]>(x)",
                "Squeeze(\"opset/unsqueeze_0\", \"opset/axes_0\")",
            ),
            (
                17,
                "a = ReduceMean <axes = [1]>(x) \
                 y = If (c) <then_branch = g () => (s) { s = ReduceMax <axes = [0]>(a) }, \
                 else_branch = h () => (t) { t = ReduceMax(x) }>",
                "s = ReduceMax(\"opset/reducemean_0\", \"opset/axes_1\")",
            ),
        ];
        for (version, text, says) in cases {
            let made = model(version, text).upgraded(23, |_| None).unwrap();
            assert_eq!(made.opset(), 23);
            let made = nodes(&made);
            assert!(made.contains(says), "{made}");
        }
    }

    #[test]
    fn what_has_no_other_form_stays() {
        let before = model(17, "y = LayerNormalization(x, x)");
        let after = before.upgraded(23, |_| None).unwrap();
        assert_eq!(nodes(&before), nodes(&after));
        // An earlier version is no change.
        let bytes = before.upgraded(13, |_| None).unwrap().to_bytes().unwrap();
        assert_eq!(Model::from_bytes(bytes).unwrap().opset(), 17);
    }

    #[test]
    fn what_computes_something_else_is_refused() {
        let cases = [
            (10, "y = Relu(x)", "too old"),
            (12, "y = Softmax(x)", "Softmax of version 12"),
            (12, "y = Softmax <axis = 1>(x)", "Softmax of version 12"),
            (16, "y = GridSample(x, x)", "GridSample of version 16"),
            (
                18,
                "y = GroupNormalization <num_groups = 2>(x, x, x)",
                "GroupNormalization of version 18",
            ),
            (11, "y = Dropout <ratio = 0.5>(x)", "Dropout of version 11"),
        ];
        for (version, text, says) in cases {
            let made = model(version, text).upgraded(23, |_| Some(3));
            let why = made.unwrap_err().to_string();
            assert!(why.contains(says), "{text}: {why}");
        }
        for (text, axes) in [
            ("y = Softmax <axis = -1>(x)", None),
            ("y = Softmax(x)", Some(2)),
        ] {
            let last = model(12, text).upgraded(23, |_| axes);
            assert_eq!(last.unwrap().opset(), 23, "{text}");
        }
        assert!(model(17, "y = Relu(x)").upgraded(1000, |_| None).is_err());
    }
}
