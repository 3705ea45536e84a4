//! The table in aligned columns.

use posenc_encodings::laws::table::Row;
use posenc_encodings::words::Word;
use posenc_onnx::request::ScaleType;

use super::frequencies::Table;
use crate::columns::{Align, Columns};
use crate::number::{compact, fixed};
use crate::terminal::Palette;

/// The table for people.
pub(super) fn text(table: &Table, palette: Palette) -> String {
    let right = |heading| (heading, Align::Right);
    let mut columns = Columns::new(&[
        right("pair"),
        right("plain"),
        right("scaled"),
        right("ratio"),
        right("wavelength"),
        right("turns in original"),
        right("turns in length"),
    ]);
    for row in &table.rows {
        columns.row(cells(row));
    }
    format!(
        "{}\n\n{}",
        heading(table, palette),
        columns.text(0, palette)
    )
}

/// What the table is of, in one line.
pub(super) fn heading(table: &Table, palette: Palette) -> String {
    let law = match table.scaling.name() {
        name if name == ScaleType::None.name() => "plain",
        name => name,
    };
    let rope = &table.rope;
    let mut words = format!(
        "θ {}, {} of {} elements rotate, length {}",
        compact(rope.theta),
        rope.rotary_dim,
        rope.head_dim,
        table.length,
    );
    if table.attention_factor() != 1.0 {
        words += &format!(", cos and sin × {}", compact(table.attention_factor()));
    }
    format!("{}  {words}", palette.bold(format!("{law} RoPE")))
}

fn cells(row: &Row) -> [String; 7] {
    [
        row.pair.to_string(),
        compact(row.plain),
        compact(row.inv_freq),
        fixed(row.ratio, 4),
        fixed(row.wavelength, 1),
        row.rotations.map_or_else(String::new, |t| fixed(t, 2)),
        fixed(row.rotations_at_length, 2),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::table;
    use super::*;

    #[test]
    fn a_row_shows_what_happens_to_a_pair() {
        let yarn = "--scale yarn --rotary-dim 16 --original-length 64 --factor 4 --theta 1e4";
        insta::assert_snapshot!(text(&table(yarn).unwrap(), Palette::Plain));
    }

    #[test]
    fn a_pair_that_does_not_rotate_and_a_missing_length_are_marked() {
        let line = "--scale proportional --rotary-dim 4 --head-dim 8 --factor 1 --length 64";
        insta::assert_snapshot!(text(&table(line).unwrap(), Palette::Plain));
    }
}
