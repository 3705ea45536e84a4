//! Test models of two layers, and the inputs of their softmaxes.

use ndarray::ArrayD;
use posenc_ir::eval::{Budget, Value, probe, trace};
use posenc_ir::{Emitter, Model};
use rustc_hash::FxHashMap;

use super::bias::padding_seeds;
use super::remove;
use crate::detect::context::Context;
use crate::detect::{Found, Options, detect};
use crate::graph::ports::Role;
use crate::graph::sketch::{A, HIDDEN, SIZE, Sketch};
use crate::plan::swap::SwapPlan;
use posenc_encodings::kind::Kind;

const BUDGET: Budget = Budget { elements: 1 << 20 };

/// A model with its detection and survey.
pub(crate) struct Analyzed {
    model: Model,
    found: Found,
}

impl Analyzed {
    pub(crate) fn new(model: Model) -> Self {
        let found = detect(&model, &Options::default());
        Self { model, found }
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context {
            model: &self.model,
            found: &self.found,
        }
    }

    pub(crate) fn emitter(&self) -> Emitter<'_> {
        let graph = self.model.graph();
        graph.emitter(graph.main(), "test")
    }

    /// The kinds of the findings.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let findings = self.found.findings.iter();
        let mut kinds: Vec<Kind> = findings.map(|f| f.encoding.kind()).collect();
        kinds.dedup();
        kinds
    }

    /// The model without the encodings of these sites, or the refusal.
    pub(crate) fn without_sites(&self, sites: &[usize]) -> Result<Self, String> {
        let plan = SwapPlan {
            kind: Kind::None,
            sites: sites.to_vec(),
            groups: vec![],
            add_position_ids: false,
            max_length: None,
            inferred: vec![],
        };
        let mut out = self.emitter();
        remove(&mut out, &self.context(), &plan).map_err(|e| e.to_string())?;
        let (model, _) = self.model.clone().with_patch(out.finish()).unwrap();
        Ok(Self::new(model))
    }

    /// The model without the encodings of all sites, or the refusal.
    pub(crate) fn without_encodings(&self) -> Result<Self, String> {
        let all: Vec<usize> = (0..self.found.attention.len()).collect();
        self.without_sites(&all)
    }

    /// The input of each softmax with queries and keys of zero: without and with padding.
    pub(crate) fn planes(&self) -> Vec<[Vec<f64>; 2]> {
        let padding = padding_seeds(&self.context());
        let plane = |site: &crate::attention::Site, mut seeds: FxHashMap<_, _>| {
            let product = site.product.unwrap();
            let dims = self.found.trace.get(product).dims.clone().unwrap();
            seeds.insert(product, Value::float(ArrayD::zeros(dims)));
            let scores = [site.scores.unwrap()];
            let got = probe(&self.model, &self.found.trace, &seeds, &scores, &BUDGET).unwrap();
            got[0].to_f64().unwrap().iter().copied().collect()
        };
        let sites = self.found.attention.iter();
        sites
            .map(|site| {
                [
                    plane(site, FxHashMap::default()),
                    plane(site, padding.clone()),
                ]
            })
            .collect()
    }

    /// The first output for different ids.
    pub(crate) fn output(&self) -> Vec<f64> {
        let graph = self.model.graph();
        let mut seeds = self.found.ports.seeds(graph, self.found.lengths);
        for port in self.found.ports.iter().filter(|p| p.role == Role::Tokens) {
            let dims = seeds[&port.value].dims.clone().unwrap();
            let count: usize = dims.iter().product();
            let ids = (0..count).map(|i| (i as i64 * 7) % 23 + 3).collect();
            let ids = ArrayD::from_shape_vec(dims, ids).unwrap();
            seeds.insert(port.value, Value::int(ids));
        }
        let run = trace(&self.model, &seeds, &|_| false, &BUDGET);
        let output = graph.scope(graph.main()).outputs()[0];
        run.get(output).to_f64().unwrap().iter().copied().collect()
    }

    /// The operators of the graph that are not constants.
    pub(crate) fn operators(&self) -> Vec<&str> {
        let nodes = self.model.graph().nodes().map(|(_, node)| node.op());
        nodes.filter(|op| *op != "Constant").collect()
    }
}

/// Queries, keys and values of a layer, `[batch, heads, sequence, size]`.
pub(crate) struct Heads {
    pub(crate) q: String,
    pub(crate) k: String,
    pub(crate) v: String,
}

/// Two layers of attention over ids; `layer` returns the weighted values.
pub(crate) fn layers(s: &mut Sketch, layer: &dyn Fn(&mut Sketch, &Heads) -> String) -> String {
    let mut x = s.embedded();
    for _ in 0..2 {
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let y = layer(s, &Heads { q, k, v });
        let y = s.merged(&y);
        let w = s.weights(&[HIDDEN, HIDDEN]);
        let y = s.op("MatMul", &[&y, &w]);
        x = s.op("Add", &[&x, &y]);
    }
    x
}

/// Queries times keys.
pub(crate) fn product(s: &mut Sketch, q: &str, k: &str) -> String {
    let k = s.transpose(k, &[0, 1, 3, 2]);
    s.op("MatMul", &[q, &k])
}

pub(crate) fn scaled(s: &mut Sketch, scores: &str) -> String {
    let scale = s.float((SIZE as f64).powf(-0.5));
    s.op("Mul", &[scores, &scale])
}

pub(crate) fn softmax(s: &mut Sketch, scores: &str) -> String {
    s.with("Softmax", &[scores], &[("axis", A::Int(-1))])
}
