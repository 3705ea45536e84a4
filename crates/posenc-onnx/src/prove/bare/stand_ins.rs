//! Small stand-ins for weights that are too large to run.
//!
//! A product with weights becomes a choice of features times random factors, and a large table a
//! small one whose rows are picked in turn. Both act on each token alone and read every feature, so
//! that they neither hide nor make a position. The weights are not read.

use posenc_ir::{Attr, DType, Emitter, Graph, Model, Node, NodeId, Tensor, ValueId};
use posenc_runtime::feeds::Random;
use rustc_hash::{FxHashMap, FxHashSet};

use super::limits::Limits;
use crate::detect::Found;

/// The most choices of features whose sum stands for one product.
const PARTS: usize = 16;

/// Rows of a small table.
const ROWS: usize = 61;

/// A copy of a model with small weights.
pub(super) struct StandIns {
    pub(super) model: Model,
    /// The value that each replaced value is.
    pub(super) moved: FxHashMap<ValueId, ValueId>,
    /// The bytes of the weights that were replaced.
    pub(super) bytes: usize,
}

/// A copy with stand-ins; `None` where all weights can run, or none has a stand-in.
pub(super) fn stand_ins(model: &Model, found: &Found, limits: Limits) -> Option<StandIns> {
    let graph = model.graph();
    let stored = graph.values().filter_map(|v| bytes(graph, v));
    if stored.fold(0usize, usize::saturating_add) <= limits.weights {
        return None;
    }
    let mut maker = Maker {
        found,
        large: limits.large,
        out: graph.emitter(graph.main(), "posenc"),
        moved: FxHashMap::default(),
        bytes: 0,
        made: 0,
    };
    for id in graph.order(graph.main()).ok()? {
        maker.node(graph, id);
    }
    let Maker {
        out, moved, bytes, ..
    } = maker;
    let patch = out.finish();
    if moved.is_empty() {
        return None;
    }
    let (model, _) = model.clone().with_patch(patch).ok()?;
    Some(StandIns {
        model,
        moved,
        bytes,
    })
}

/// The bytes of a stored tensor.
fn bytes(graph: &Graph, value: ValueId) -> Option<usize> {
    let stored = graph.stored(value)?;
    let elements = stored.dims.iter().fold(1usize, |n, d| n.saturating_mul(*d));
    Some(elements.saturating_mul(stored.dtype?.bits()?) / 8)
}

struct Maker<'a> {
    found: &'a Found,
    /// Weights of so many elements get a stand-in.
    large: usize,
    out: Emitter<'a>,
    moved: FxHashMap<ValueId, ValueId>,
    bytes: usize,
    made: usize,
}

/// A product with weights: features before and after it, and what is added.
struct Product {
    features: [usize; 2],
    added: Option<ValueId>,
}

impl Maker<'_> {
    /// Replaces the output of a node that reads large weights.
    fn node(&mut self, graph: &Graph, id: NodeId) {
        let node = graph.node(id);
        let Some(out) = node.output(0) else {
            return;
        };
        let Some(dtype) = self.dtype(graph, out) else {
            return;
        };
        let made = match self.product(graph, node) {
            Some(product) => self.features(graph, node, &product, dtype),
            None => self.table(graph, node, dtype),
        };
        let Some((made, weights)) = made else {
            return;
        };
        if self.out.redirect(out, made).is_ok() {
            self.moved.insert(out, made);
            self.bytes = self.bytes.saturating_add(weights);
            self.made += 1;
        }
    }

    fn dtype(&self, graph: &Graph, value: ValueId) -> Option<DType> {
        self.found.trace.get(value).dtype.or(graph.dtype(value))
    }

    /// The dimensions of a matrix that depends on no input.
    fn matrix(&self, graph: &Graph, value: ValueId) -> Option<[usize; 2]> {
        if !self.found.classes.of_value(value).is_constant() {
            return None;
        }
        let own = graph.stored(value).map(|stored| stored.dims.to_vec());
        let dims = own.or_else(|| self.found.trace.get(value).dims.clone())?;
        <[usize; 2]>::try_from(dims).ok()
    }

    /// The product that a node computes.
    fn product(&self, graph: &Graph, node: &Node) -> Option<Product> {
        let int = |name: &str| node.int(name).ok().flatten();
        let (features, added) = match (node.domain(), node.op()) {
            ("", "MatMul" | "MatMulInteger") => (self.matrix(graph, node.input(1)?)?, None),
            ("", "Gemm") if int("transA").unwrap_or(0) == 0 => {
                let [inner, outer] = self.matrix(graph, node.input(1)?)?;
                let turned = int("transB").unwrap_or(0) != 0;
                let features = if turned {
                    [outer, inner]
                } else {
                    [inner, outer]
                };
                (features, node.input(2))
            }
            ("com.microsoft", "MatMulNBits") => {
                let size = |name: &str| usize::try_from(int(name)?).ok();
                let weights = self.found.classes.of_value(node.input(1)?);
                let features = weights.is_constant().then_some([size("K")?, size("N")?]);
                (features?, node.input(5))
            }
            _ => return None,
        };
        let is_large = features[0].saturating_mul(features[1]) >= self.large;
        let is_content = node.input(0).is_some_and(|v| self.found.is_content(v));
        (is_large && is_content).then_some(Product { features, added })
    }

    /// Every feature before a product, times a factor, spread over the features after it; with the
    /// bytes of the weights.
    fn features(
        &mut self,
        graph: &Graph,
        node: &Node,
        product: &Product,
        dtype: DType,
    ) -> Option<(ValueId, usize)> {
        let [inner, outer] = product.features;
        let parts = inner.div_ceil(outer.max(1));
        let given = node.input(0)?;
        let rank = self.found.trace.get(given).dims.as_ref()?.len();
        let axis = i64::try_from(rank.checked_sub(1)?).ok()?;
        if parts > PARTS || self.found.trace.get(given).dims.as_ref()?.last() != Some(&inner) {
            return None;
        }
        let mut random = Random::new(0x57a_4d14 + self.made as u64);
        let start = random.bits() as usize % inner;
        let step = coprime(inner);
        let given = self.moved.get(&given).copied().unwrap_or(given);
        let given = if node.is("MatMulInteger") {
            self.out.cast(given, dtype)
        } else {
            given
        };
        let mut sum: Option<ValueId> = None;
        for part in 0..parts {
            let places = (0..outer).map(|n| ((part * outer + n) * step + start) % inner);
            let places: Vec<i64> = places.map(|n| n as i64).collect();
            let places = self.out.ints("places", &places);
            let factors: Vec<f64> = (0..outer).map(|_| factor(&mut random, dtype)).collect();
            let factors = self
                .out
                .constant("factors", Tensor::from_f64(dtype, &[outer], &factors));
            let attrs = [("axis", Attr::Int(axis))];
            let chosen = self.out.op_with("Gather", &[given, places], &attrs);
            let chosen = self.out.op("Mul", &[chosen, factors]);
            sum = Some(match sum {
                Some(sum) => self.out.op("Add", &[sum, chosen]),
                None => chosen,
            });
        }
        let sum = match product.added {
            Some(added) => self.out.op("Add", &[sum?, added]),
            None => sum?,
        };
        let weights = node.input(1).and_then(|v| self.weights(graph, v));
        Some((sum, weights.unwrap_or(0)))
    }

    /// Rows of a small table in place of those of a large one.
    fn table(&mut self, graph: &Graph, node: &Node, dtype: DType) -> Option<(ValueId, usize)> {
        let (table, places) = (node.input(0)?, node.input(1)?);
        let by_row = node.int("axis").ok().flatten().unwrap_or(0) == 0;
        let picks_rows = node.is("Gather") && by_row && dtype.is_float();
        if !picks_rows || !self.found.is_content(places) {
            return None;
        }
        let [rows, width] = self.matrix(graph, table)?;
        if rows <= ROWS || rows.saturating_mul(width) < self.large {
            return None;
        }
        let mut random = Random::new(0x7ab1e + self.made as u64);
        let small = random.tensor(dtype, &[ROWS, width], -1.0, 1.0)?;
        let small = self.out.constant("rows", small);
        let integer = self.dtype(graph, places)?;
        let count = self.out.scalar("count", integer, ROWS as f64);
        let places = self.moved.get(&places).copied().unwrap_or(places);
        let places = self.out.op("Mod", &[places, count]);
        let picked = self.out.op("Gather", &[small, places]);
        Some((picked, self.weights(graph, table).unwrap_or(0)))
    }

    /// The bytes of the largest tensor that weights are computed from.
    fn weights(&self, graph: &Graph, value: ValueId) -> Option<usize> {
        let mut stack = vec![value];
        let mut seen = FxHashSet::default();
        let mut most = None;
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            most = most.max(bytes(graph, value));
            if let Some((id, _)) = graph.producer(value) {
                stack.extend(graph.node(id).inputs().iter().flatten());
            }
        }
        most
    }
}

/// A number by whose multiples every place is reached.
fn coprime(count: usize) -> usize {
    let divides = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let first = (count * 3 / 8).max(1);
    (first..).find(|n| divides(*n, count) == 1).unwrap_or(1)
}

/// A factor that is neither zero nor large.
fn factor(random: &mut Random, dtype: DType) -> f64 {
    let sign = if random.bits() & 1 == 0 { 1.0 } else { -1.0 };
    if dtype.is_float() {
        sign * random.uniform(0.3, 0.6)
    } else {
        sign * (1.0 + (random.bits() & 1) as f64)
    }
}
