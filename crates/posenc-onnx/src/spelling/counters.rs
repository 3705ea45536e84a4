//! Numbers that a loop carries and adds the same to in each trip.

use posenc_ir::{DType, Graph, Node, Scope, ValueId};

use super::draft::Draft;
use super::view::View;

/// Numbers up to here are exact in single precision.
const EXACT: f64 = (1u32 << 24) as f64;

/// A carried number: what it is before the first trip, and what each trip adds.
pub(super) struct Counter {
    first: ValueId,
    step: f64,
    dtype: DType,
}

impl Counter {
    /// The carried values of a loop; `None` where one of them is no whole number to which each trip
    /// adds another, and where something reads what is left of it.
    pub(super) fn all(view: &View<'_>, node: &Node, scope: &Scope) -> Option<Vec<Self>> {
        let graph = view.graph();
        let firsts = node.inputs().get(2..).unwrap_or_default();
        let carried = scope.inputs().get(2..)?;
        let mut all = vec![];
        for (i, (first, own)) in firsts.iter().zip(carried).enumerate() {
            let next = *scope.outputs().get(1 + i)?;
            let last = node.outputs().get(i).copied().flatten();
            all.push(Self::of(view, (*first)?, *own, next)?);
            if last.is_some_and(|v| is_read(graph, v)) {
                return None;
            }
        }
        (firsts.len() == carried.len()).then_some(all)
    }

    fn of(view: &View<'_>, first: ValueId, own: ValueId, next: ValueId) -> Option<Self> {
        let add = view.made_by(next, "Add")?;
        let (a, b) = (add.input(0)?, add.input(1)?);
        let step = match (view.same(a, own), view.same(b, own)) {
            (true, false) => view.number(b)?,
            (false, true) => view.number(a)?,
            _ => return None,
        };
        let dtype = view.dtype(first)?;
        let exact = |n: f64| n.fract() == 0.0 && n.abs() < EXACT;
        let counts = match dtype {
            DType::I64 | DType::I32 => true,
            // Sums of whole numbers are the same in whatever order.
            DType::F32 | DType::F64 => exact(view.number(first)?),
            _ => false,
        };
        let single = view.rank(first)? == 0;
        (counts && single && exact(step)).then_some(Self { first, step, dtype })
    }

    /// The numbers at the trips of these indices.
    pub(super) fn at(&self, draft: &mut Draft<'_>, trips: ValueId) -> ValueId {
        let emitter = draft.emitter();
        let mut value = match self.dtype {
            DType::I64 => trips,
            dtype => emitter.cast(trips, dtype),
        };
        if self.step != 1.0 {
            let step = emitter.scalar("step", self.dtype, self.step);
            value = emitter.op("Mul", &[value, step]);
        }
        emitter.op("Add", &[value, self.first])
    }
}

fn is_read(graph: &Graph, value: ValueId) -> bool {
    !graph.uses(value).is_empty() || graph.value(value).is_output()
}
