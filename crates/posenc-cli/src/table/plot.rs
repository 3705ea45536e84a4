//! The table as bars.

use super::frequencies::Table;
use super::text::heading;
use crate::number::fixed;
use crate::terminal::Palette;

/// Eighths of a cell.
const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// One bar per pair: the scaled frequency as a share of the plain one, or of the largest ratio
/// where that is more than 1.
pub(super) fn plot(table: &Table, width: usize, palette: Palette) -> String {
    let wavelengths: Vec<String> = table.rows.iter().map(|r| fixed(r.wavelength, 1)).collect();
    let left = wavelengths.iter().map(|w| w.chars().count()).max();
    let left = left.unwrap_or(0).max("wavelength".len());
    // Pair, wavelength and ratio are next to the bar.
    let bar = width.saturating_sub(4 + 2 + left + 2 + 2 + 6).max(10);
    let most = table.rows.iter().map(|r| r.ratio).filter(|r| r.is_finite());
    let most = most.fold(1.0, f64::max);
    let titles = format!(
        "pair  {:>left$}  {:<bar$}  ratio",
        "wavelength", "frequency kept"
    );
    let mut text = format!("{}\n\n{}\n", heading(table, palette), palette.dim(titles));
    for (row, wavelength) in table.rows.iter().zip(&wavelengths) {
        let cells = palette.name(cells(row.ratio / most, bar));
        let ratio = fixed(row.ratio, 4);
        text += &format!("{:>4}  {wavelength:>left$}  {cells}  {ratio}\n", row.pair);
    }
    text
}

/// A bar of that share of the width, filled up with space.
fn cells(share: f64, width: usize) -> String {
    // A share that is no number becomes 0.
    let eighths = ((share.clamp(0.0, 1.0) * 8.0 * width as f64).round()) as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(PARTS[eighths % 8]);
    }
    let filled = bar.chars().count();
    bar.extend(std::iter::repeat_n(' ', width - filled.min(width)));
    bar
}

#[cfg(test)]
mod tests {
    use super::super::tests::table;
    use super::*;

    #[test]
    fn bars_show_the_ramp() {
        let line = "--scale llama3 --theta 5e5 --rotary-dim 32 --original-length 8192";
        insta::assert_snapshot!(plot(&table(line).unwrap(), 60, Palette::Plain));
    }

    #[test]
    fn a_bar_keeps_its_width_whatever_the_share() {
        let cases = [
            (0.0, "    "),
            (0.25, "█   "),
            (0.28125, "█▏  "),
            (1.0, "████"),
            (7.0, "████"),
            (-1.0, "    "),
            (f64::NAN, "    "),
        ];
        for (share, want) in cases {
            assert_eq!(cells(share, 4), want, "{share}");
        }
    }
}
