//! The numbers that are added: one row for each token.

use ndarray::{Array1, Array2, ArrayD, Axis, Slice};
use posenc_ir::eval::{Data, Trace, Value};
use posenc_ir::{DType, Tensor};

use super::source::PositionTable;
use crate::attention::stream::Tokens;
use posenc_encodings::families::sinusoidal::Sinusoidal;
use posenc_encodings::miss::Miss;
use posenc_encodings::samples::most;

/// Larger values are not read.
const MOST: usize = 1 << 23;

/// Numbers of a table that are held to its code.
const HELD: usize = 1 << 22;

/// Rows of a table that are read: so many at its start, and so many up to its end.
const SAMPLE: usize = 64;

/// Rows `[token, feature]`.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) numbers: Array2<f64>,
}

/// Numbers that say how exactly all are stored.
const TELLING: usize = 32;

/// The type of half precision to which all of these numbers are rounded, whatever stores them.
pub(crate) fn rounded_to(numbers: &Array2<f64>) -> Option<DType> {
    let all: Vec<f64> = numbers.iter().copied().collect();
    let fine = |v: &&f64| (**v * 64.0).fract() != 0.0;
    if all.iter().filter(fine).count() < TELLING {
        return None;
    }
    [DType::BF16, DType::F16].into_iter().find(|dtype| {
        let rounded = Tensor::from_f64(*dtype, &[all.len()], &all);
        let same = |(i, v): (usize, &f64)| rounded.get_f64(i) == Some(*v);
        all.iter().enumerate().all(same)
    })
}

/// What reading a value gives.
pub(crate) enum RowsOf {
    /// Rows that differ.
    Rows(Rows),
    /// All rows are the same, or there is but one.
    Alike,
    /// The numbers are not at hand.
    Absent,
}

/// The most parts of a sequence that have a row each, and the fewest tokens of a part.
const PARTS: [usize; 2] = [4, 2];

/// Rows of a part are equal up to this share of the largest number.
const EQUAL: f64 = 1e-5;

impl Rows {
    /// Whether all tokens of each part of the sequence have the same row, and there are few parts.
    pub(crate) fn are_of_parts(&self) -> bool {
        self.parts_beside(&Array2::zeros(self.numbers.dim()))
    }

    /// Whether each of a few parts of the sequence has a row of its own besides those of a table, which each part reads
    /// from its first row on, or where the part before ended. The first two rows tell the factor of the table.
    pub(crate) fn parts_beside(&self, table: &Array2<f64>) -> bool {
        let (own, count) = (&self.numbers, self.count());
        if own.ncols() != table.ncols() || count < 2 || table.nrows() < 2 {
            return false;
        }
        let step = |of: &Array2<f64>| &of.row(1) - &of.row(0);
        let factor = step(own).dot(&step(table)) / step(table).dot(&step(table));
        let factor = if factor.is_finite() { factor } else { 0.0 };
        let near = EQUAL * most(own.iter());
        let rest = |at: usize, row: usize| &own.row(at) - &(factor * &table.row(row));
        let equal =
            |a: &Array1<f64>, b: &Array1<f64>| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= near);
        let mut parts: Vec<(usize, Array1<f64>)> = vec![];
        let mut at = 0;
        while at < count && parts.len() <= PARTS[0] {
            let from = |start: usize| {
                let first = rest(at, start);
                let longest = (count - at).min(table.nrows() - start);
                let ends = (1..longest).find(|n| !equal(&rest(at + n, start + n), &first));
                (ends.unwrap_or(longest), first)
            };
            let starts = [at, 0].into_iter().filter(|start| *start < table.nrows());
            let Some((tokens, row)) = starts.map(from).max_by_key(|(tokens, _)| *tokens) else {
                return false;
            };
            at += tokens;
            parts.push((tokens, row));
        }
        let [many, few] = PARTS;
        let differ = parts.windows(2).any(|pair| !equal(&pair[0].1, &pair[1].1));
        differ && parts.len() <= many && parts.iter().all(|(tokens, _)| *tokens >= few)
    }

    /// The rows of a value whose tokens are on these axes; what repeats for each of so many
    /// sequences is read once.
    pub(crate) fn of(value: &Value, tokens: Tokens, copies: usize) -> RowsOf {
        let Some(dims) = value.dims.as_deref() else {
            return RowsOf::Absent;
        };
        let count: usize = tokens.iter().filter_map(|a| dims.get(a)).product();
        if count < 2 || value.elements().is_none_or(|n| n <= count) {
            return RowsOf::Alike;
        }
        let small = value.elements().is_some_and(|n| n <= MOST);
        let Some(data) = small.then(|| value.to_f64()).flatten() else {
            return RowsOf::Absent;
        };
        let numbers = by_token(data, tokens);
        let count = whole(numbers.nrows(), copies, |a, b| {
            numbers.row(a) == numbers.row(b)
        });
        let numbers = numbers.slice_move(ndarray::s![..count, ..]);
        let first = numbers.row(0);
        if numbers.rows().into_iter().all(|row| row == first) {
            RowsOf::Alike
        } else {
            RowsOf::Rows(Self { numbers })
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.numbers.nrows()
    }

    /// Features of a row.
    pub(crate) fn dim(&self) -> usize {
        self.numbers.ncols()
    }
}

/// Tokens first, then the other axes that vary.
fn by_token(mut data: ArrayD<f64>, tokens: Tokens) -> Array2<f64> {
    let rank = data.ndim();
    let mut order: Vec<usize> = tokens.iter().filter(|a| *a < rank).collect();
    let lead = order.len();
    order.extend((0..rank).filter(|a| !tokens.has(*a)));
    data = data.permuted_axes(order);
    for axis in lead..rank {
        let first = data.index_axis(Axis(axis), 0);
        if data.axis_iter(Axis(axis)).all(|part| part == first) {
            data = data.slice_axis_move(Axis(axis), Slice::from(0..1));
        }
    }
    let count: usize = data.shape()[..lead].iter().product();
    let width = data.len() / count.max(1);
    let flat: Vec<f64> = data.iter().copied().collect();
    Array2::from_shape_vec((count, width), flat).unwrap_or_default()
}

/// The length of one sequence where `count` rows are the same for each of `copies`.
fn whole(count: usize, copies: usize, same: impl Fn(usize, usize) -> bool) -> usize {
    if copies < 2 || !count.is_multiple_of(copies) {
        return count;
    }
    let one = count / copies;
    if one > 1 && (one..count).all(|r| same(r, r % one)) {
        one
    } else {
        count
    }
}

/// Rows that are read, of one sequence.
pub(crate) fn once(read: Vec<i64>, copies: usize, count: Option<usize>) -> Vec<i64> {
    let one = whole(read.len(), copies, |a, b| read[a] == read[b]);
    let one = count.map_or(one, |n| n.min(read.len()));
    let mut read = read;
    read.truncate(one);
    read
}

/// The rows of a table that the tokens of the trial run read; `None` where its numbers are absent.
pub(crate) fn of_table(trace: &Trace, table: &PositionTable) -> Option<Rows> {
    let read = table.read.as_ref()?;
    let rows: Vec<usize> = read
        .iter()
        .filter_map(|r| usize::try_from(*r).ok())
        .collect();
    let numbers = pick(trace, table, &rows)?;
    Some(Rows { numbers })
}

/// Rows of a table, as many as there are tokens at the most, from the one that the first token reads, or from the first
/// where that is not known; `None` where its numbers are absent.
pub(crate) fn from_first(
    trace: &Trace,
    table: &PositionTable,
    count: usize,
) -> Option<Array2<f64>> {
    let read = table.read.as_ref().and_then(|read| read.first());
    let first = read.map_or(Some(0), |row| usize::try_from(*row).ok())?;
    let rows: Vec<usize> = (first..table.rows).take(count).collect();
    pick(trace, table, &rows)
}

/// Rows of a table from `first` on, at its start and up to its end, with their places from
/// `first`; `None` where the table contains no floats in rows that can be read as they are.
pub(crate) fn sample(
    trace: &Trace,
    table: &PositionTable,
    first: usize,
) -> Option<(Vec<f64>, Array2<f64>)> {
    if trace.get(table.value).dtype.is_some_and(|t| t.is_int()) {
        return None;
    }
    let usable = table.rows.checked_sub(first)?;
    let step = usable.saturating_sub(SAMPLE).div_ceil(SAMPLE).max(1);
    let far = (SAMPLE..usable).step_by(step);
    let places: Vec<usize> = (0..usable.min(SAMPLE)).chain(far).collect();
    let rows: Vec<usize> = places.iter().map(|p| p + first).collect();
    let numbers = pick(trace, table, &rows)?;
    Some((places.iter().map(|p| *p as f64).collect(), numbers))
}

/// Holds every row from `first` on to a code that was read from some of them, up to an error; the first
/// may be zero, as some tables begin. Of tables that are large, some rows alone are held to it.
///
/// # Errors
/// With a row of another code.
pub(crate) fn follow(
    trace: &Trace,
    table: &PositionTable,
    first: usize,
    code: &Sinusoidal,
    most: f64,
) -> Result<(), Miss> {
    let usable = table.rows.saturating_sub(first);
    let step = usable.saturating_mul(table.dim).div_ceil(HELD).max(1);
    let places: Vec<usize> = (0..usable).step_by(step).collect();
    let rows: Vec<usize> = places.iter().map(|p| p + first).collect();
    let Some(numbers) = pick(trace, table, &rows) else {
        return Ok(());
    };
    match departs(&numbers, &places, code, |_| most) {
        Some(place) => {
            let row = first + place;
            Err(Miss::new(format!(
                "row {row} is of another code than the first ones"
            )))
        }
        None => Ok(()),
    }
}

/// The first of rows at rising places that is not that of a code, up to an error by place; the row of
/// place 0 may be zero, as some tables begin.
pub(crate) fn departs(
    numbers: &Array2<f64>,
    places: &[usize],
    code: &Sinusoidal,
    most: impl Fn(usize) -> f64,
) -> Option<usize> {
    let at: Vec<f64> = places.iter().map(|p| *p as f64).collect();
    let wanted = code.reference(&at);
    let rows = numbers.rows().into_iter().zip(wanted.rows());
    let mut rows = places.iter().zip(rows);
    let other = rows.find(|(place, (got, want))| {
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= most(**place);
        let begins = **place == 0 && got.iter().all(|v| *v == 0.0);
        !begins && !got.iter().zip(want).all(near)
    });
    other.map(|(place, _)| *place)
}

fn pick(trace: &Trace, table: &PositionTable, rows: &[usize]) -> Option<Array2<f64>> {
    let value = [table.picked, table.value]
        .map(|v| trace.get(v))
        .into_iter()
        .find(|v| v.data.is_some())?;
    if *value.dims.as_ref()?.last()? != table.dim {
        return None;
    }
    let data = value.data.as_deref()?;
    if rows.len().checked_mul(table.dim)? > MOST {
        return None;
    }
    let mut numbers = Array2::zeros((rows.len(), table.dim));
    let whole = match data {
        Data::Stored(_) => None,
        _ => Some(value.to_f64()?.into_iter().collect::<Vec<f64>>()),
    };
    for (i, row) in rows.iter().enumerate() {
        for column in 0..table.dim {
            let place = row.checked_mul(table.dim)?.checked_add(column)?;
            numbers[[i, column]] = match (&whole, data) {
                (Some(whole), _) => *whole.get(place)?,
                (None, Data::Stored(tensor)) => tensor.get_f64(place)?,
                (None, _) => return None,
            };
        }
    }
    Some(numbers)
}
