//! A table of length limits.

use posenc_onnx::report::Limit;

use crate::columns::{Align, Columns};
use crate::number::ranges;

/// Limits, the shortest first, which is the effective one. Values whose names differ in one number,
/// as those of equal layers do, share a row.
pub(crate) fn limits(limits: &[Limit]) -> Columns {
    let mut sorted: Vec<&Limit> = limits.iter().collect();
    sorted.sort_by_key(|l| l.length);
    let mut rows: Vec<Row> = vec![];
    for limit in &sorted {
        if !rows.iter_mut().any(|row| row.add(limit)) {
            rows.push(Row::of(limit));
        }
    }
    let columns = [
        ("length", Align::Right),
        ("cause", Align::Left),
        ("value", Align::Left),
    ];
    let mut columns = Columns::new(&columns);
    for row in &rows {
        let limit = row.first;
        columns.row([
            limit.length.to_string(),
            limit.cause.to_string(),
            row.name(),
        ]);
    }
    columns
}

/// Limits of one length and cause.
struct Row<'a> {
    first: &'a Limit,
    /// The index of the part of the name in which they differ, and its numbers so far.
    numbers: Option<(usize, Vec<usize>)>,
}

impl<'a> Row<'a> {
    fn of(first: &'a Limit) -> Self {
        Self {
            first,
            numbers: None,
        }
    }

    /// Adds a limit if it differs from the others in that one number only.
    fn add(&mut self, limit: &Limit) -> bool {
        let (Some(mine), Some(other)) = (&self.first.value, &limit.value) else {
            return false;
        };
        if (self.first.length, self.first.cause) != (limit.length, limit.cause) {
            return false;
        }
        let Some((index, a, b)) = difference(&parts(mine), &parts(other)) else {
            return false;
        };
        let (at, numbers) = self.numbers.get_or_insert_with(|| (index, vec![a]));
        let fits = *at == index;
        if fits {
            numbers.push(b);
        }
        fits
    }

    /// The name, with the numbers in braces where there are several.
    fn name(&self) -> String {
        let name = self.first.value.as_deref().unwrap_or_default();
        let Some((index, numbers)) = &self.numbers else {
            return name.to_owned();
        };
        let mut parts: Vec<String> = parts(name).into_iter().map(str::to_owned).collect();
        parts[*index] = format!("{{{}}}", ranges(numbers));
        parts.concat()
    }
}

/// A name split into numbers and the text between them.
fn parts(name: &str) -> Vec<&str> {
    name.as_bytes()
        .chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit())
        .scan(0, |start, part| {
            let from = *start;
            *start += part.len();
            name.get(from..*start)
        })
        .collect()
}

/// The index of the only part in which two names differ, with the number of each; `None` unless
/// both are numbers in their usual spelling.
fn difference(a: &[&str], b: &[&str]) -> Option<(usize, usize, usize)> {
    let number = |text: &str| text.parse().ok().filter(|n: &usize| n.to_string() == text);
    let mut different = a.iter().zip(b).enumerate().filter(|(_, (a, b))| a != b);
    let (index, (number_a, number_b)) = different.next()?;
    let only = a.len() == b.len() && different.next().is_none();
    only.then_some((index, number(number_a)?, number(number_b)?))
}

#[cfg(test)]
mod tests {
    use posenc_onnx::report::LimitCause;

    use super::*;
    use crate::terminal::Palette;

    fn text(of: &[(usize, LimitCause, &str)]) -> String {
        let limit = |(length, cause, value): &(usize, LimitCause, &str)| Limit {
            length: *length,
            cause: *cause,
            value: Some((*value).to_owned()),
        };
        let all: Vec<Limit> = of.iter().map(limit).collect();
        limits(&all).text_or_none(Palette::Plain)
    }

    #[test]
    fn equal_layers_share_a_row() {
        let got = text(&[
            (64, LimitCause::CausalBuffer, "h.0.attn1.bias"),
            (64, LimitCause::CausalBuffer, "h.1.attn1.bias"),
            (64, LimitCause::CausalBuffer, "h.3.attn1.bias"),
            (32, LimitCause::Table, "tö.1"),
        ]);
        let want = "  LENGTH  CAUSE          VALUE\n      \
                    32  table          tö.1\n      \
                    64  causal-buffer  h.{0-1,3}.attn1.bias\n";
        assert_eq!(got, want);
    }

    #[test]
    fn other_lengths_causes_and_names_stay_apart() {
        let got = text(&[
            (64, LimitCause::Table, "h.0.a"),
            (65, LimitCause::Table, "h.1.a"),
            (65, LimitCause::CausalBuffer, "h.2.a"),
            (64, LimitCause::Table, "h.1.b"),
            (64, LimitCause::Table, "h.01.a"),
            (64, LimitCause::Table, "h.a"),
            (64, LimitCause::Table, "h.0.a"),
        ]);
        assert_eq!(got.lines().count(), 8, "{got}");
    }
}
