//! Text in aligned columns.

use serde_json::{Value, json};

use crate::terminal::{Palette, one_line};

/// In the place of a number that does not exist or is not known.
pub(crate) const DASH: &str = "–";

/// A number, or a dash.
pub(crate) fn or_dash(number: Option<f64>, format: impl Fn(f64) -> String) -> String {
    number.map_or_else(|| DASH.to_owned(), format)
}

/// Rows under headings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    headings: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Cell>>,
}

/// The content of a cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    style: Option<fn(Palette, &str) -> String>,
    verdict: Option<bool>,
}

impl Cell {
    /// `ok` or `FAIL`.
    pub(crate) fn verdict(ok: bool) -> Self {
        let good: fn(Palette, &str) -> String = |palette, text| palette.good(text);
        let bad: fn(Palette, &str) -> String = |palette, text| palette.bad(text);
        let (text, style) = if ok { ("ok", good) } else { ("FAIL", bad) };
        Self {
            text: text.to_owned(),
            style: Some(style),
            verdict: Some(ok),
        }
    }

    /// What it says.
    pub(crate) fn words(&self) -> &str {
        &self.text
    }

    /// Whether it says that something is as it should be; `None` where it is no verdict.
    pub(crate) fn is_ok(&self) -> Option<bool> {
        self.verdict
    }
}

impl From<String> for Cell {
    /// Names are read from models, so control characters are replaced.
    fn from(text: String) -> Self {
        Self {
            text: one_line(&text),
            style: None,
            verdict: None,
        }
    }
}

/// How the cells of a column are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

impl Columns {
    /// A table without rows.
    pub(crate) fn new(headings: &[(&'static str, Align)]) -> Self {
        Self {
            headings: headings.to_vec(),
            rows: vec![],
        }
    }

    /// Adds a row; cells without a heading are dropped, missing ones are empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<Cell>>) {
        let mut row: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        row.resize(self.headings.len(), Cell::default());
        self.rows.push(row);
    }

    /// The rows as text, indented; columns without any content are omitted.
    pub(crate) fn text(&self, indent: usize, palette: Palette) -> String {
        let widths: Vec<usize> = (0..self.headings.len()).map(|i| self.width(i)).collect();
        let heading = |h: &(&str, Align)| Cell {
            text: h.0.to_uppercase(),
            style: Some(|palette, text| palette.dim(text)),
            verdict: None,
        };
        let heading: Vec<Cell> = self.headings.iter().map(heading).collect();
        let lines = std::iter::once(&heading).chain(&self.rows);
        lines
            .map(|row| self.line(row, &widths, indent, palette))
            .collect()
    }

    /// The rows as text, indented by 2, or `none found`.
    pub(crate) fn text_or_none(&self, palette: Palette) -> String {
        if self.rows.is_empty() {
            format!("  {}\n", palette.dim("none found"))
        } else {
            self.text(2, palette)
        }
    }

    /// The headings of columns with content, and how their cells are aligned.
    pub(crate) fn headings(&self) -> impl Iterator<Item = (&'static str, Align)> {
        let all = self.headings.iter().enumerate();
        let shown = all.filter(|(i, _)| self.width(*i) > 0);
        shown.map(|(_, heading)| *heading)
    }

    /// The cells of each row, without those of columns that have no content.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Vec<&Cell>> {
        let shown: Vec<bool> = (0..self.headings.len())
            .map(|i| self.width(i) > 0)
            .collect();
        self.rows.iter().map(move |row| {
            let cells = row.iter().zip(&shown);
            cells
                .filter(|(_, shown)| **shown)
                .map(|(cell, _)| cell)
                .collect()
        })
    }

    /// The rows as values, without columns that have no content.
    pub(crate) fn json(&self) -> Value {
        let headings = self.headings();
        let headings: Vec<Value> = headings
            .map(|(name, align)| json!({"name": name, "number": align == Align::Right}))
            .collect();
        let cell = |cell: &Cell| json!({"text": cell.words(), "ok": cell.is_ok()});
        let rows = self.rows().map(|row| row.into_iter().map(cell).collect());
        let rows: Vec<Value> = rows.collect();
        json!({"headings": headings, "rows": rows})
    }

    /// Whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The width of a column; 0 where it has no content.
    fn width(&self, column: usize) -> usize {
        let widest = self
            .rows
            .iter()
            .map(|row| row[column].text.chars().count())
            .max();
        match widest {
            None | Some(0) => 0,
            Some(n) => n.max(self.headings[column].0.chars().count()),
        }
    }

    fn line(&self, cells: &[Cell], widths: &[usize], indent: usize, palette: Palette) -> String {
        let mut line = String::new();
        let mut gap = indent;
        for ((cell, (_, align)), width) in cells.iter().zip(&self.headings).zip(widths) {
            if *width == 0 {
                continue;
            }
            let space = width.saturating_sub(cell.text.chars().count());
            if *align == Align::Right {
                gap += space;
            }
            if !cell.text.is_empty() {
                line.extend(std::iter::repeat_n(' ', gap));
                line += &cell
                    .style
                    .map_or_else(|| cell.text.clone(), |s| s(palette, &cell.text));
                gap = 0;
            }
            if *align == Align::Left {
                gap += space;
            }
            gap += 2;
        }
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 3]]) -> String {
        let mut columns = Columns::new(&[
            ("name", Align::Left),
            ("n", Align::Right),
            ("what", Align::Left),
        ]);
        for row in rows {
            columns.row(row.map(str::to_owned));
        }
        columns.text(2, Palette::Plain)
    }

    #[test]
    fn numbers_are_right_aligned_words_left_aligned_and_no_line_ends_in_space() {
        let text = table(&[["rope", "7", "θ 10000"], ["t5-bias", "128", ""]]);
        let want = "  NAME       N  WHAT\n  rope       7  θ 10000\n  t5-bias  128\n";
        assert_eq!(text, want);
    }

    #[test]
    fn colors_and_names_do_not_move_the_columns() {
        let mut columns = Columns::new(&[("", Align::Left), ("name", Align::Left)]);
        for ok in [true, false] {
            columns.row([Cell::verdict(ok), "a\x1b[2J\nb".to_owned().into()]);
        }
        let plain = "        NAME\n  ok    a�[2J b\n  FAIL  a�[2J b\n";
        assert_eq!(columns.text(2, Palette::Plain), plain);
        let colored = columns.text(2, Palette::Colored);
        assert!(
            colored.contains("\x1b[32mok\x1b[0m    a�[2J b\n"),
            "{colored}"
        );
    }

    #[test]
    fn values_have_their_headings_and_verdicts() {
        let mut columns = Columns::new(&[
            ("n", Align::Right),
            ("empty", Align::Left),
            ("", Align::Left),
        ]);
        let cells = ["7", ""].map(|text| Cell::from(text.to_owned()));
        columns.row(cells.into_iter().chain([Cell::verdict(false)]));
        let want = json!({
            "headings": [{"name": "n", "number": true}, {"name": "", "number": false}],
            "rows": [[{"text": "7", "ok": null}, {"text": "FAIL", "ok": false}]],
        });
        assert_eq!(columns.json(), want);
    }

    #[test]
    fn a_column_without_content_is_omitted() {
        assert_eq!(table(&[["rope", "", "x"]]), "  NAME  WHAT\n  rope  x\n");
    }
}
