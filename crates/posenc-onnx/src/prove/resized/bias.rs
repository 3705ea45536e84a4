//! Biases by the offset of patches in a model of other sizes, compared pair by pair with the interpolation of
//! the numbers that the pairs of the old grid had.

use ndarray::{Array2, ArrayD};
use posenc_ir::Use;

use super::weights::shares;
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::plan::resize::Wanted;
use crate::plan::resize::offsets::ResizedBias;
use crate::prove::bound::ROUNDINGS;

/// Compares a bias where it is added.
///
/// # Errors
/// With the first pair that gets another number.
pub(super) fn check(
    before: &Context<'_>,
    after: &Context<'_>,
    bias: &ResizedBias,
    wanted: &Wanted,
) -> Result<(), RewriteError> {
    let Use { node, .. } = bias.entry;
    let unknown = || before.refuse(node, "the bias of the new grid cannot be computed");
    let Wanted::Image { by, .. } = wanted else {
        return Err(unknown());
    };
    let own = after.graph().node(node).input(bias.entry.slot());
    let own = own.ok_or_else(unknown)?;
    let numbers = |context: &Context<'_>, value| {
        let known = context.found.trace.get(value).to_f64()?;
        Some(Pairs::of(&known))
    };
    let old = numbers(before, bias.value).ok_or_else(unknown)?;
    let new = numbers(after, own).ok_or_else(unknown)?;
    let counts = [bias.old, bias.new].map(|grid| bias.prefix + grid[0] * grid[1]);
    if [old.tokens, new.tokens] != counts || old.heads() != new.heads() {
        return Err(unknown());
    }
    let epsilon = after.dtype(own).epsilon();
    let bound = ROUNDINGS * epsilon.unwrap_or(f64::from(f32::EPSILON)) * old.largest();
    // Offsets down, and across.
    let weights = [0, 1].map(|side| {
        let [from, to] = [bias.old, bias.new].map(|grid| 2 * grid[side] - 1);
        shares(from, to, &by.biases)
    });
    let off = (0..new.heads()).find_map(|head| {
        let of_patches = departs(bias, &weights, [&old, &new], head, bound);
        of_patches.or_else(|| departs_at_prefix(bias.prefix, [&old, &new], head))
    });
    match off {
        None => Ok(()),
        Some(_) if bias.is_computed => {
            let why = "the graph itself computes this bias, and in another way than is asked for; give `scale` \
                       or `align-corners` as the graph does it";
            Err(before.refuse(node, why))
        }
        Some([query, key]) => {
            let why = format!(
                "query {query} and key {key} would get another bias than that of the formula"
            );
            Err(before.refuse(node, why))
        }
    }
}

/// The first pair of patches whose number differs from the interpolation by more than a bound.
fn departs(
    bias: &ResizedBias,
    [down, across]: &[Vec<Vec<(usize, f64)>>; 2],
    [old, new]: [&Pairs; 2],
    head: usize,
    bound: f64,
) -> Option<[usize; 2]> {
    // The offset is counted from the edge that it leads away from.
    let pair = |[y, x]: [usize; 2]| {
        let side = |at: usize, count: usize| match at.checked_sub(count - 1) {
            Some(ahead) => [count - 1 - ahead, count - 1],
            None => [count - 1, at],
        };
        let ([y, to_y], [x, to_x]) = (side(y, bias.old[0]), side(x, bias.old[1]));
        [[y, x], [to_y, to_x]].map(|[row, column]| bias.prefix + row * bias.old[1] + column)
    };
    let number = |[y, x]: [usize; 2]| {
        let mut sum = 0.0;
        for (of_y, tall) in &down[y] {
            for (of_x, wide) in &across[x] {
                sum += tall * wide * old.at(head, pair([*of_y, *of_x]));
            }
        }
        sum
    };
    let table = Array2::from_shape_fn((down.len(), across.len()), |(y, x)| number([y, x]));
    let [height, width] = bias.new;
    let patches = 0..height * width;
    let pairs = patches
        .clone()
        .flat_map(|query| patches.clone().map(move |key| [query, key]));
    let mut far = pairs.filter_map(|[query, key]| {
        let y = key / width + height - 1 - query / width;
        let x = key % width + width - 1 - query % width;
        let pair = [query, key].map(|patch| bias.prefix + patch);
        let off = (new.at(head, pair) - table[[y, x]]).abs();
        (off.is_nan() || off > bound).then_some(pair)
    });
    far.next()
}

/// The first pair with a token of the prefix whose number is not that of before: one for all patches.
fn departs_at_prefix(prefix: usize, [old, new]: [&Pairs; 2], head: usize) -> Option<[usize; 2]> {
    let pairs = (0..prefix)
        .flat_map(|edge| (0..new.tokens).flat_map(move |token| [[edge, token], [token, edge]]));
    let mut pairs = pairs.into_iter();
    pairs.find(|at| {
        let before = at.map(|token| token.min(old.tokens - 1));
        new.at(head, *at) != old.at(head, before)
    })
}

/// Numbers `[head, query, key]`, as many of the last two.
struct Pairs {
    tokens: usize,
    numbers: Vec<f64>,
}

impl Pairs {
    fn of(numbers: &ArrayD<f64>) -> Self {
        Self {
            tokens: numbers.shape().last().copied().unwrap_or(0),
            numbers: numbers.iter().copied().collect(),
        }
    }

    fn heads(&self) -> usize {
        self.numbers.len() / (self.tokens * self.tokens).max(1)
    }

    fn at(&self, head: usize, [query, key]: [usize; 2]) -> f64 {
        self.numbers[(head * self.tokens + query) * self.tokens + key]
    }

    fn largest(&self) -> f64 {
        self.numbers.iter().fold(0.0, |most, v| most.max(v.abs()))
    }
}
