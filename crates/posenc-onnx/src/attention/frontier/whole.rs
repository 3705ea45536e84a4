//! Where the features of a head are on one axis.

use posenc_ir::ValueId;
use posenc_ir::eval::Trace;

use super::{FEW, OperandPath};

impl OperandPath {
    /// The value behind `output` that has as many features as `input`, where it has fewer itself.
    pub(super) fn whole_again(
        &self,
        trace: &Trace,
        input: ValueId,
        output: ValueId,
        after: impl Fn(ValueId) -> Vec<ValueId>,
    ) -> Option<ValueId> {
        let width = |v: ValueId| {
            let dims = trace.get(v).dims.as_deref()?;
            self.lanes.get(&v)?.width(dims)
        };
        let all = width(input)?;
        let mut value = output;
        for _ in 0..FEW {
            if width(value)? >= all {
                break;
            }
            let mut readers = after(value).into_iter();
            value = readers.next().filter(|_| readers.next().is_none())?;
        }
        (value != output && width(value) == Some(all)).then_some(value)
    }

    /// Whether `output` has the features of a head on one axis, as `later` and `input` do, and they are
    /// in another order only behind it.
    pub(super) fn is_whole(
        &self,
        trace: &Trace,
        input: ValueId,
        output: ValueId,
        later: ValueId,
    ) -> bool {
        let dims = |v: ValueId| trace.get(v).dims.as_deref();
        let lane = |v: ValueId| self.lanes.get(&v);
        let width = || lane(later)?.width(dims(later)?);
        let sequence = lane(output).map(|l| l.sequence);
        let alike = dims(input) == dims(output) && lane(input).map(|l| l.sequence) == sequence;
        let own = dims(output).unwrap_or_default().iter().enumerate();
        let mut others = own.filter(|(axis, _)| Some(*axis) != sequence);
        output != later && alike && width().is_some_and(|w| others.any(|(_, n)| *n == w))
    }
}
