//! Figures of biases: a line or a picture for each head.

use std::collections::BTreeMap;

use ndarray::{ArrayD, Axis};
use posenc_encodings::bias::ScoreBias;

use crate::attention::Site;
use crate::detect::Found;
use crate::detect::finding::Finding;
use crate::report::{Line, Picture, Quantity, Shape};

/// Heads that are shown.
const HEADS: usize = 16;

/// Numbers from here on hide keys, and are no bias.
const HIDES: f64 = 1e4;

/// What is drawn of the numbers `[.., queries, keys]` of a bias, and how many heads are not; `None` where they
/// are none.
pub(super) fn shape(
    found: &Found,
    finding: &Finding,
    bias: &dyn ScoreBias,
    numbers: &ArrayD<f64>,
) -> Option<(Quantity, Shape, usize)> {
    let [.., queries, keys] = *numbers.shape() else {
        return None;
    };
    if keys < 2 || queries == 0 || numbers.iter().any(|v| v.is_nan()) {
        return None;
    }
    // Axes before that of heads are those of sequences and windows.
    let heads = (numbers.len() / (queries * keys)).min(bias.heads().max(1));
    let flat = numbers.as_standard_layout();
    let flat = flat.to_shape((numbers.len() / (queries * keys), queries, keys));
    let flat = flat.ok()?;
    let named = |head: usize| match heads {
        1 => String::new(),
        _ => format!("head {head}"),
    };
    let shown = 0..heads.min(HEADS);
    let left_out = heads - shown.len();
    let plane = |head: usize| flat.index_axis(Axis(0), head);
    if bias.window().is_some() {
        let of = |head: usize| {
            let picture = window(bias, [queries, keys], |at| plane(head)[at])?;
            Some(Picture {
                name: named(head),
                ..picture
            })
        };
        let all: Option<Vec<Picture>> = shown.map(of).collect();
        return Some((Quantity::WindowBias, Shape::Pictures(all?), left_out));
    }
    let is_causal = |site: &usize| {
        let site: &Site = &found.attention[*site];
        site.mask.causal == Some(true)
    };
    // Of a causal site the last query sees most, of others the one in the middle.
    let query = match finding.sites.iter().all(is_causal) {
        true => queries - 1,
        false => queries / 2,
    };
    // The last query is that of the last key.
    let own = keys - queries.min(keys) + query;
    let line = |head: usize| {
        let row = plane(head).row(query).to_owned();
        let zero = match bias.is_up_to_a_constant() {
            true => row[own],
            false => 0.0,
        };
        let seen = row.iter().enumerate().filter(|(_, v)| v.abs() < HIDES);
        Line {
            name: named(head),
            points: seen
                .map(|(key, v)| [key as f64 - own as f64, v - zero])
                .collect(),
        }
    };
    let lines = shown.map(line).collect();
    Some((Quantity::Bias, Shape::Lines(lines), left_out))
}

/// The bias of each offset in a window.
fn window(
    bias: &dyn ScoreBias,
    of: [usize; 2],
    number: impl Fn([usize; 2]) -> f64,
) -> Option<Picture> {
    let mut by_offset: BTreeMap<[i64; 2], f64> = BTreeMap::new();
    for query in 0..of[0] {
        for key in 0..of[1] {
            let at = [query, key];
            if let Some(offset) = bias.offset(of, at) {
                by_offset.entry(offset).or_insert_with(|| number(at));
            }
        }
    }
    let ends = |axis: usize| {
        let all = || by_offset.keys().map(|offset| offset[axis]);
        Some((all().min()?, all().max()?))
    };
    let [(top, bottom), (left, right)] = [ends(0)?, ends(1)?];
    let size = [bottom - top, right - left].map(|side| side as usize + 1);
    let number = |row: usize, column: usize| {
        let offset = [top + row as i64, left + column as i64];
        by_offset.get(&offset).copied().unwrap_or(f64::NAN)
    };
    Some(Picture {
        first: [top, left],
        ..Picture::new(size, number)
    })
}

#[cfg(test)]
mod tests {
    use posenc_encodings::families::relative_bias::RelativeBias;

    use super::*;

    fn bias(window: [usize; 2]) -> RelativeBias {
        RelativeBias {
            max_distance: None,
            window: Some(window),
            heads: 1,
        }
    }

    #[test]
    fn a_window_is_shown_by_rows_and_columns_of_the_offset() {
        let cell = |token: usize| [token / 3, token % 3].map(|n| n as f64);
        let by_offset = |[query, key]: [usize; 2]| {
            let [[a, b], [c, d]] = [query, key].map(cell);
            10.0 * (c - a) + (d - b)
        };
        let picture = window(&bias([2, 3]), [6, 6], by_offset).unwrap();
        assert_eq!((picture.first, picture.size), ([-1, -2], [3, 5]));
        assert_eq!(picture.numbers[1], [-2.0, -1.0, 0.0, 1.0, 2.0]);
        assert_eq!(picture.numbers[2][0], 8.0);
    }

    #[test]
    fn class_rows_are_in_no_place_of_the_window() {
        let number = |[query, key]: [usize; 2]| if query == 0 || key == 0 { 9.0 } else { 1.0 };
        let picture = window(&bias([2, 2]), [5, 5], number).unwrap();
        assert_eq!(picture.numbers.concat(), [1.0; 9]);
    }
}
