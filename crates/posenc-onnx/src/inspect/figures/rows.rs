//! Figures of tables and other rows of vectors.

use ndarray::{ArrayD, ArrayView2};

use crate::detect::finding::Encoding;
use crate::report::{Picture, Quantity, Shape};

/// The rows, and how similar rows are that are added to embeddings.
pub(super) fn shapes(encoding: &Encoding, numbers: &ArrayD<f64>) -> Vec<(Quantity, Shape)> {
    let [.., rows, width] = *numbers.shape() else {
        return vec![];
    };
    if let (Encoding::Shaw(_), [.., queries, _, _]) = (encoding, numbers.shape())
        && *queries == rows
        && rows > 1
    {
        let picture = by_distance(numbers, [rows, width]);
        let shape = picture.map(|picture| Shape::Pictures(vec![picture]));
        return shape
            .map(|shape| (Quantity::DistanceRows, shape))
            .into_iter()
            .collect();
    }
    let (rows, width) = match encoding {
        // The axis of distances is before that of heads.
        Encoding::TransformerXl(e) if [rows, width] == [e.heads, e.head_dim] => {
            (numbers.len() / (rows * width).max(1), rows * width)
        }
        _ => (rows, width),
    };
    let flat = numbers.as_standard_layout();
    let flat = flat.to_shape(numbers.len());
    // Further copies, of sequences, are the same.
    let first = flat.iter().flat_map(|flat| flat.iter()).take(rows * width);
    let first: Vec<f64> = first.copied().collect();
    let Ok(table) = ArrayView2::from_shape((rows, width), &first) else {
        return vec![];
    };
    if table.is_empty() {
        return vec![];
    }
    let picture = Picture::new([rows, width], |row, column| table[[row, column]]);
    let mut all = vec![(Quantity::Rows, picture)];
    match encoding {
        Encoding::Learned(e) => all.push(match e.grid {
            Some(grid) => {
                patches(table, e.offset + e.prefix, grid).unwrap_or_else(|| similarities(table))
            }
            None => similarities(table),
        }),
        Encoding::Sinusoidal(_) => all.push(similarities(table)),
        _ => {}
    }
    let shape = |(quantity, picture)| (quantity, Shape::Pictures(vec![picture]));
    all.into_iter().map(shape).collect()
}

/// The rows that pairs of a query and a key meet, `[.., queries, keys, width]` with as many queries as keys.
fn by_distance(numbers: &ArrayD<f64>, [keys, width]: [usize; 2]) -> Option<Picture> {
    let flat = numbers.as_standard_layout();
    let flat = flat.as_slice()?;
    let number = |row: usize, feature: usize| {
        // The last query meets the distances up to its own key, the first one those from there on.
        let query = (keys - 1).saturating_sub(row);
        let key = (row + 1).saturating_sub(keys);
        flat[(query * keys + key) * width + feature]
    };
    Some(Picture {
        first: [1 - i64::try_from(keys).ok()?, 0],
        ..Picture::new([2 * keys - 1, width], number)
    })
}

fn similarities(table: ArrayView2<'_, f64>) -> (Quantity, Picture) {
    let rows = table.nrows();
    let picture = Picture::new([rows; 2], |a, b| similarity(table, [a, b]));
    (Quantity::RowSimilarity, picture)
}

/// Tiles of a grid of patches, whose rows begin at `first`; `None` where they are more than a picture shows, or
/// the table has other rows.
fn patches(
    table: ArrayView2<'_, f64>,
    first: usize,
    [rows, columns]: [usize; 2],
) -> Option<(Quantity, Picture)> {
    let size = [rows * rows, columns * columns];
    let end = first + rows * columns;
    if size.iter().any(|side| *side > Picture::SIDE) || end > table.nrows() {
        return None;
    }
    let patch = |row: usize, column: usize| first + row * columns + column;
    let picture = Picture::new(size, |y, x| {
        let tile = patch(y / rows, x / columns);
        similarity(table, [tile, patch(y % rows, x % columns)])
    });
    let tile = [rows, columns];
    Some((Quantity::PatchSimilarity, Picture { tile, ..picture }))
}

/// The cosine of the angle between two rows; 0 where one has no direction, as that of a padding token.
fn similarity(table: ArrayView2<'_, f64>, at: [usize; 2]) -> f64 {
    let [a, b] = at.map(|row| table.row(row));
    let length = (a.dot(&a) * b.dot(&b)).sqrt();
    if length == 0.0 {
        0.0
    } else {
        a.dot(&b) / length
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array3;

    use super::*;

    #[test]
    fn rows_of_pairs_are_shown_by_distance() {
        let by_pair = |(query, key, feature): (usize, usize, usize)| {
            10.0 * (key as f64 - query as f64) + feature as f64
        };
        let numbers = Array3::from_shape_fn((3, 3, 2), by_pair).into_dyn();
        let picture = by_distance(&numbers, [3, 2]).unwrap();
        assert_eq!((picture.first, picture.size), ([-2, 0], [5, 2]));
        let want = [-20.0, -19.0, -10.0, -9.0, 0.0, 1.0, 10.0, 11.0, 20.0, 21.0];
        assert_eq!(picture.numbers.concat(), want);
    }
}
