//! A system of coordinates, as SVG whose colors are those of the page.

use plotters::chart::ChartContext;
use plotters::prelude::*;

use super::axis::Axis;
use super::escape::escape;

/// Colors of lines, in turn.
pub(super) const COLORS: usize = 8;

/// Units of the drawing to a pixel: it has whole numbers.
pub(super) const UNIT: u32 = 8;

/// Colors that stand for variables of the style sheet: red is the group, blue the number in it.
pub(super) const INK: RGBColor = RGBColor(1, 0, 0);
pub(super) const GRID: RGBColor = RGBColor(1, 0, 1);

/// The color of a line.
pub(super) fn series(line: usize) -> RGBColor {
    RGBColor(2, 0, (line % COLORS) as u8)
}

/// The size of letters, in pixels.
const LETTERS: u32 = 13;

/// What is written in a drawing.
pub(super) fn words() -> TextStyle<'static> {
    ("sans-serif", LETTERS * UNIT).into_font().color(&INK)
}

pub(super) type Plot<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Axis, Axis>>;

/// How a system of coordinates looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// Width and height in pixels.
    pub(super) size: [u32; 2],
    /// The room for what is left of the y axis, in pixels.
    pub(super) left: u32,
    /// Whether the numbers on the y axis have lines across.
    pub(super) has_grid: bool,
}

/// The room for what is below the x axis, in pixels.
const BELOW: u32 = 42;

/// The room around a drawing, and that behind the end of its x axis, in pixels.
const MARGIN: u32 = 6;
const BEHIND: u32 = 14;

impl Frame {
    /// Width and height of what is within the axes, in pixels.
    pub(super) fn room(&self) -> [u32; 2] {
        let [width, height] = self.size;
        let taken = [self.left + MARGIN + BEHIND, BELOW + 2 * MARGIN];
        [
            width.saturating_sub(taken[0]),
            height.saturating_sub(taken[1]),
        ]
    }

    /// Draws into a system of coordinates, with something below it; `None` where this fails. The title names it
    /// for those who do not see it.
    pub(super) fn svg(
        &self,
        [x, y]: [&Axis; 2],
        title: &str,
        draw: impl FnOnce(&mut Plot<'_>) -> Option<String>,
    ) -> Option<String> {
        let [width, height] = self.size.map(|side| side * UNIT);
        let mut drawn = String::new();
        let below = {
            let area = SVGBackend::with_string(&mut drawn, (width, height)).into_drawing_area();
            let mut plot = ChartBuilder::on(&area)
                .margin(MARGIN * UNIT)
                .margin_right(BEHIND * UNIT)
                .x_label_area_size(BELOW * UNIT)
                .y_label_area_size(self.left * UNIT)
                .build_cartesian_2d(x.clone(), y.clone())
                .ok()?;
            let labels = [x, y].map(|axis| |number: &f64| axis.label(*number));
            let mut mesh = plot.configure_mesh();
            mesh.disable_x_mesh()
                .bold_line_style(GRID.stroke_width(UNIT))
                .light_line_style(TRANSPARENT)
                .axis_style(GRID.stroke_width(UNIT))
                .set_all_tick_mark_size(4 * UNIT)
                .label_style(words())
                .axis_desc_style(words())
                .x_desc(x.name.clone())
                .y_desc(y.name.clone())
                .x_label_formatter(&labels[0])
                .y_label_formatter(&labels[1]);
            if !self.has_grid {
                mesh.disable_y_mesh();
            }
            mesh.draw().ok()?;
            drop(mesh);
            let below = draw(&mut plot)?;
            area.present().ok()?;
            below
        };
        Some(themed(&drawn, [width, height], title, &below))
    }
}

/// The drawing with the colors of the page, with something below its lines.
fn themed(svg: &str, [width, height]: [u32; 2], title: &str, below: &str) -> String {
    let mut svg = svg.to_owned();
    let mut replace = |color: RGBColor, name: &str| {
        let RGBColor(r, g, b) = color;
        let written = format!("\"#{r:02X}{g:02X}{b:02X}\"");
        svg = svg.replace(&written, &format!("\"var(--{name})\""));
    };
    replace(INK, "ink");
    replace(GRID, "grid");
    for line in 0..COLORS {
        replace(series(line), &format!("s{line}"));
    }
    // Within a page it needs no namespace, and the page gives its size.
    let old = format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\">"
    );
    let new = format!(
        "<svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {width} {height}\">{below}",
        escape(title)
    );
    svg.replacen(&old, &new, 1)
}
