//! Inserts rotations of queries and new keys.

use posenc_ir::{DType, Emitter, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::align::align;
use super::axes::{ValueAxis, batch_axis};
use super::decompose;
use super::operand::{RotationTarget, Side};
use super::positions::{PositionSource, Positions};
use super::stream::wide;
use crate::attention::{Site, per_token};
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::lane::Lane;
use crate::plan::swap::Group;
use posenc_encodings::rotation::{Rotation, Shape};

/// Values that rotations share.
#[derive(Debug, Default)]
pub(crate) struct Rotations {
    /// The different rotations; their index identifies them.
    known: Vec<Box<dyn Rotation>>,
    /// cos and sin `[.., token, column]`.
    waves: FxHashMap<Key, [ValueId; 2]>,
    /// The same, aligned with the axes of a value.
    aligned: FxHashMap<(Key, Vec<usize>, usize), [ValueId; 2]>,
    /// Rotated values.
    rotated: FxHashMap<(ValueId, usize), ValueId>,
    /// Uses that read rotated values.
    redirected: FxHashSet<Use>,
}

type Key = (PositionSource, usize, DType);

impl Rotations {
    /// The index of a rotation.
    fn index_of(&mut self, new: &dyn Rotation) -> usize {
        let known = self.known.iter().position(|known| **known == *new);
        known.unwrap_or_else(|| {
            self.known.push(new.boxed());
            self.known.len() - 1
        })
    }
}

/// Inserts rotations at the sites of a group.
pub(crate) fn insert(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    positions: &mut Positions<'_>,
    rotations: &mut Rotations,
    group: &Group,
    new: &dyn Rotation,
) -> Result<(), RewriteError> {
    let key = rotations.index_of(new);
    for index in &group.sites {
        let site = context.site(*index);
        let mut writer = Writer {
            context,
            positions,
            rotations,
            site,
            index: *index,
            new,
            key,
        };
        match decompose::decompose(out, context, site)? {
            Some(parts) => writer.rotate_decomposed(out, parts)?,
            None => {
                writer.rotate_side(out, Side::Query)?;
                writer.rotate_side(out, Side::Key)?;
            }
        }
    }
    Ok(())
}

struct Writer<'a, 'p> {
    context: &'a Context<'a>,
    positions: &'a mut Positions<'p>,
    rotations: &'a mut Rotations,
    site: &'a Site,
    index: usize,
    new: &'a dyn Rotation,
    /// Its index among the known rotations.
    key: usize,
}

impl Writer<'_, '_> {
    /// Rotates queries or keys.
    fn rotate_side(&mut self, out: &mut Emitter<'_>, side: Side) -> Result<(), RewriteError> {
        let context = self.context;
        let head_dim = self.new.head_dim();
        let any = |value: ValueId, lane: &Lane| fit(context, value, lane, head_dim);
        let mut target = RotationTarget::of(context, self.site, side, &any)?;
        let dims = context.dims(target.value).unwrap_or_default();
        let source = self.source(out, target.value, dims, target.lane)?;
        if by_sequence(source) && batch_axis(context, target.value, &target.lane).is_none() {
            // If sequences and heads share an axis here, an earlier value has separate axes.
            let separate = |value: ValueId, lane: &Lane| {
                batch_axis(context, value, lane).and_then(|_| fit(context, value, lane, head_dim))
            };
            target = RotationTarget::of(context, self.site, side, &separate)?;
        }
        let key = (target.value, self.key);
        let rotated = match self.rotations.rotated.get(&key) {
            Some(rotated) => *rotated,
            None => {
                let dims = context.dims(target.value).unwrap_or_default().to_vec();
                let rotated = self.rotate(out, target.value, &dims, target.lane)?;
                self.rotations.rotated.insert(key, rotated);
                if target.is_output {
                    out.redirect_output(target.value, rotated)?;
                }
                rotated
            }
        };
        for at in target.uses {
            if self.rotations.redirected.insert(at) {
                out.redirect_use(target.value, at, rotated)?;
            }
        }
        Ok(())
    }

    /// Rotates the queries and keys of a decomposed operator.
    fn rotate_decomposed(
        &mut self,
        out: &mut Emitter<'_>,
        mut parts: decompose::Decomposed,
    ) -> Result<(), RewriteError> {
        let lane = Lane {
            sequence: 1,
            feature: Some(2),
            group: Some(self.new.head_dim()),
            offset: 0,
        };
        for value in [&mut parts.query, &mut parts.key] {
            *value = self.rotate(out, *value, &parts.dims, lane)?;
        }
        parts.replace(out, self.context, self.site)
    }

    /// Rotates `value`, which has these dimensions in the trial run.
    fn rotate(
        &mut self,
        out: &mut Emitter<'_>,
        value: ValueId,
        dims: &[usize],
        lane: Lane,
    ) -> Result<ValueId, RewriteError> {
        let context = self.context;
        let scope = out.scope_of(value);
        let opset = context.opset();
        let Some(feature) = lane.feature else {
            let why = "cannot locate the features of a head";
            return Err(context.refuse(self.site.node, why));
        };
        let source = self.source(out, value, dims, lane)?;
        // Heads that share an axis with features get an axis of their own.
        let split = lane.group.is_some();
        let shape = Shape {
            rank: dims.len() + usize::from(split),
            feature: feature + usize::from(split),
        };
        let mut axes = vec![lane.sequence, shape.feature];
        if by_sequence(source) {
            let batch = self.batch(value, dims, lane)?;
            axes.insert(0, batch);
        }
        let dtype = self.dtype(value);
        let waves = self.waves(out, source, dtype, &axes, shape.rank)?;
        out.set_scope(scope);
        let head_dim = self.new.head_dim();
        Ok(by_heads(out, value, (lane, head_dim), |out, value| {
            self.new.rotate(out, opset, value, shape, waves)
        }))
    }

    /// The source of the positions of the tokens.
    fn source(
        &mut self,
        out: &mut Emitter<'_>,
        value: ValueId,
        dims: &[usize],
        lane: Lane,
    ) -> Result<PositionSource, RewriteError> {
        let context = self.context;
        let query = self.site.query;
        let queries_dims = context.dims(query.value);
        let queries = queries_dims.and_then(|d| d.get(query.lane.sequence));
        if queries.is_none() || dims.get(lane.sequence) != queries {
            let why =
                "it has more or fewer keys than queries, so the positions of keys are not known";
            return Err(context.refuse(self.site.node, why));
        }
        let batch = context.found.lengths.batch;
        let is_split = queries_dims.is_some_and(|dims| match self.site.heads {
            // Queries may be packed with keys and values: their heads are more than those of the site.
            _ if query.lane.group.is_some() => sequences(dims, &query.lane) > batch,
            Some(heads) => per_token(dims, &query.lane).is_some_and(|all| all > heads * batch),
            None => false,
        });
        if is_split {
            let why = "its sequence is split into windows, which have no positions in the whole \
                       sequence";
            return Err(context.refuse(self.site.node, why));
        }
        // A new value is as long as the input of the operator.
        let (value, axis) = if self.is_old(value) {
            (value, lane.sequence)
        } else {
            (query.value, query.lane.sequence)
        };
        let at = ValueAxis { value, axis };
        self.positions.source(out, self.index, at)
    }

    fn is_old(&self, value: ValueId) -> bool {
        value.index() < self.context.graph().value_count()
    }

    fn dtype(&self, value: ValueId) -> DType {
        let old = self.is_old(value);
        self.context
            .dtype(if old { value } else { self.site.query.value })
    }

    /// The axis of sequences, for positions that differ between sequences.
    fn batch(&self, value: ValueId, dims: &[usize], lane: Lane) -> Result<usize, RewriteError> {
        let context = self.context;
        let found = if self.is_old(value) {
            batch_axis(context, value, &lane)
        } else {
            (dims.len() == 3).then_some(0)
        };
        found.ok_or_else(|| {
            let why = "positions differ between sequences, and its sequences have no axis of their \
                       own";
            context.refuse(self.site.node, why)
        })
    }

    /// cos and sin, aligned with these axes of a value of this rank.
    fn waves(
        &mut self,
        out: &mut Emitter<'_>,
        source: PositionSource,
        dtype: DType,
        axes: &[usize],
        rank: usize,
    ) -> Result<[ValueId; 2], RewriteError> {
        let key = (source, self.key, dtype);
        let waves = match self.rotations.waves.get(&key) {
            Some(waves) => *waves,
            None => {
                let waves = self.make_waves(out, source, dtype);
                self.rotations.waves.insert(key, waves);
                waves
            }
        };
        let aligned_key = (key, axes.to_vec(), rank);
        if let Some(known) = self.rotations.aligned.get(&aligned_key) {
            return Ok(*known);
        }
        out.set_scope(out.scope_of(waves[0]));
        let opset = self.context.opset();
        let aligned = waves.map(|wave| align(out, opset, wave, axes, rank));
        self.rotations.aligned.insert(aligned_key, aligned);
        Ok(aligned)
    }

    fn make_waves(
        &mut self,
        out: &mut Emitter<'_>,
        source: PositionSource,
        dtype: DType,
    ) -> [ValueId; 2] {
        let context = self.context;
        if let PositionSource::Fixed(n) = source {
            out.set_scope(context.graph().main());
            let [cos, sin] = self.new.tables(n, dtype);
            return [out.constant("cos", cos), out.constant("sin", sin)];
        }
        let values = self.positions.values(out, source);
        let wide = wide(dtype);
        let floats = self.positions.floats(out, values, wide);
        let lead = usize::from(values.by_sequence);
        let waves = self.new.waves(out, context.opset(), floats, lead, wide);
        if dtype == wide {
            waves
        } else {
            waves.map(|wave| out.cast(wave, dtype))
        }
    }
}

/// What a rotation makes of a value: heads that share an axis with features get an axis of their own for it.
pub(crate) fn by_heads(
    out: &mut Emitter<'_>,
    value: ValueId,
    (lane, head_dim): (Lane, usize),
    rotate: impl FnOnce(&mut Emitter<'_>, ValueId) -> ValueId,
) -> ValueId {
    let Some(feature) = lane.feature.filter(|_| lane.group.is_some()) else {
        return rotate(out, value);
    };
    let lead = vec![0; feature];
    let apart = out.ints("heads", &[&lead[..], &[-1, head_dim as i64]].concat());
    let apart = out.op("Reshape", &[value, apart]);
    let rotated = rotate(out, apart);
    let whole = out.ints("hidden", &[&lead[..], &[-1]].concat());
    out.op("Reshape", &[rotated, whole])
}

/// Rates how well heads of a width can be rotated in a value; `None` if they cannot.
fn fit(context: &Context<'_>, value: ValueId, lane: &Lane, head_dim: usize) -> Option<u8> {
    let dims = context.dims(value)?;
    let feature = lane.feature?;
    let whole = lane.width(dims) == Some(head_dim) && lane.offset == 0;
    if !whole || !context.dtype(value).is_float() {
        return None;
    }
    let last = feature + 1 == dims.len();
    match (lane.group, last) {
        (Some(_), true) if lane.sequence < feature => Some(1),
        (Some(_), _) => None,
        // Tokens and features are adjacent, as for a contiguous copy.
        (None, true) if lane.sequence + 1 == feature => Some(4),
        (None, true) => Some(3),
        (None, false) => Some(2),
    }
}

/// Whether positions differ between sequences.
fn by_sequence(source: PositionSource) -> bool {
    matches!(source, PositionSource::Given(values) if values.by_sequence)
}

/// The sequences of a value whose heads are on the axis of the features.
fn sequences(dims: &[usize], lane: &Lane) -> usize {
    let rest = (0..dims.len()).filter(|a| *a != lane.sequence && Some(*a) != lane.feature);
    rest.map(|a| dims[a]).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_heads_are_no_sequences() {
        let lane = Lane {
            feature: Some(2),
            group: Some(16),
            ..Lane::of_sequence(1)
        };
        assert_eq!(sequences(&[2, 14, 128], &lane), 2);
        assert_eq!(sequences(&[6, 7, 128], &lane), 6, "windows");
    }
}
