//! Rotations by several streams of positions: time, row and column of a patch, of which each
//! rotates some of the pairs (mRoPE).
//!
//! Source: Wang et al., arXiv:2409.12191, section 2.1 (multimodal rotary position embedding).

use ndarray::{Array, Axis, IxDyn};
use posenc_ir::Model;
use posenc_ir::eval::Value;
use rustc_hash::FxHashMap;

use super::site::{RotaryOperand, Streams};
use crate::detect::found::Found;
use crate::detect::rotary::read::read_again;
use crate::graph::ports::Role;

/// The streams of a rotation, which may read one of them alone; `None` where positions are one stream, or where the
/// streams do not share out the pairs.
pub(crate) fn find(model: &Model, found: &Found, half: &RotaryOperand) -> Option<Streams> {
    let port = found.ports.first(Role::Positions)?;
    let positions = found.trace.get(port.value).to_i64()?;
    let streams = match *positions.shape() {
        [streams, _, _] if (2..=4).contains(&streams) => streams,
        _ => return None,
    };
    let all = &half.rotation.rope.pairs;
    let mut owner = vec![None; all.len()];
    let mut sections = vec![];
    for stream in 0..streams {
        let mut alone = Array::zeros(IxDyn(positions.shape()));
        alone
            .index_axis_mut(Axis(0), stream)
            .assign(&positions.index_axis(Axis(0), stream));
        let change = FxHashMap::from_iter([(port.value, Value::int(alone))]);
        let read = read_again(model, &found.trace, &change, &half.region, &half.rotation);
        // A stream that rotates nothing leaves no rotation to read.
        let Ok(read) = read else {
            continue;
        };
        let own: Vec<usize> = (0..all.len())
            .filter(|i| read.rope.pairs.contains(&all[*i]))
            .collect();
        for pair in &own {
            if owner[*pair].replace(stream).is_some() {
                return None;
            }
        }
        sections.push(own.len());
    }
    let owner: Vec<usize> = owner.into_iter().collect::<Option<_>>()?;
    Some(Streams {
        interleaved: !owner.is_sorted(),
        sections,
        owner,
    })
}
