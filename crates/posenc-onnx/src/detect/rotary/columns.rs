//! What the columns of a value contain that enters a rotation by rows and columns.

use std::collections::BTreeSet;

use ndarray::{ArrayD, IxDyn};
use posenc_encodings::families::axial::Axial;
use posenc_ir::eval::Value;
use posenc_ir::{Model, ValueId};
use rustc_hash::FxHashMap;

use super::entering;
use super::matrices::{ROOM, matrices};
use super::source::{Column, Wave};
use crate::detect::found::Found;
use crate::graph::region::Region;

/// How far a number may be from the code that it was filled with.
const ROUNDED: f64 = 1e-3;

/// What each column of a value contains: columns run over the axes that are not of `patches`, in row-major order.
/// A column that no pair reads is `None`. The result is `None` where columns are read in another way.
///
/// The value is filled with the numbers of its columns, and what the rotation becomes shows which pair reads which.
pub(crate) fn columns(
    model: &Model,
    found: &Found,
    (region, axial): (&Region, &Axial),
    value: ValueId,
    patches: &[bool],
) -> Option<Vec<Option<Column>>> {
    let dims_of = |value: ValueId| found.trace.get(value).dims.as_deref();
    let dims = dims_of(value)?;
    let others = || (0..dims.len()).filter(|axis| !patches[*axis]);
    let code = |index: IxDyn| {
        let column = others().fold(0, |column, axis| column * dims[axis] + index[axis]);
        column as f64 + 1.0
    };
    let entering: BTreeSet<ValueId> = entering(model, region).into_iter().flatten().collect();
    let fits = |value: &ValueId| dims_of(*value).is_none_or(|dims| ROOM.allows(dims));
    if !fits(&value) || !entering.iter().all(fits) {
        return None;
    }
    let is_float = |value: &ValueId| {
        let dtype = found.trace.get(*value).dtype;
        dtype.is_some_and(posenc_ir::DType::is_float)
    };
    let zeros = |value: ValueId| {
        let dims = dims_of(value)?;
        Some((value, Value::float(ArrayD::zeros(IxDyn(dims)))))
    };
    let mut change: FxHashMap<ValueId, Value> = entering
        .into_iter()
        .filter(is_float)
        .filter_map(zeros)
        .collect();
    change.insert(value, Value::float(ArrayD::from_shape_fn(dims, code)));
    let (maps, _) = matrices(model, &found.trace, &change, region).ok()?;
    let offset = usize::try_from(region.output_lane.offset).ok()?;
    let count: usize = others().map(|axis| dims[axis]).product();
    let mut columns = vec![None; count];
    for (pair, (a, b)) in axial.pairs.iter().enumerate() {
        let (a, b) = (a.checked_sub(offset)?, b.checked_sub(offset)?);
        let at = |to: usize, from: usize| maps.get([axial.prefix, to, from]).copied();
        // The second feature may read columns of its own.
        let readers = [
            (at(a, a)?, Wave::Cos, 1.0),
            (at(b, b)?, Wave::Cos, 1.0),
            (at(b, a)?, Wave::Sin, 1.0),
            (at(a, b)?, Wave::Sin, -1.0),
        ];
        for (number, wave, sign) in readers {
            let code = number.abs().round();
            if code == 0.0 && number.abs() < ROUNDED {
                continue;
            }
            if (number.abs() - code).abs() > ROUNDED {
                return None;
            }
            let own = Column {
                pair,
                wave,
                sign: number.signum() * sign,
            };
            let column = columns.get_mut((code as usize).checked_sub(1)?)?;
            if column.replace(own).is_some_and(|other| other != own) {
                return None;
            }
        }
    }
    Some(columns)
}
