//! Lines in a system of coordinates, as SVG whose colors are those of the page.

use std::ops::Range;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use posenc_onnx::report::Line;

use super::escape::escape;
use crate::number::rough;
use posenc_encodings::round::to_digits;

/// Colors of lines, in turn.
pub(super) const COLORS: usize = 8;

/// Units of the drawing to a pixel: it has whole numbers.
const UNIT: u32 = 8;

/// The size of a chart.
const SIZE: (u32, u32) = (560 * UNIT, 320 * UNIT);

/// Colors that stand for variables of the style sheet: red is the group, blue the number in it.
const INK: RGBColor = RGBColor(1, 0, 0);
const GRID: RGBColor = RGBColor(1, 0, 1);

fn series(line: usize) -> RGBColor {
    RGBColor(2, 0, (line % COLORS) as u8)
}

/// How numbers are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    /// By their logarithm; what is not positive is left out.
    Log,
}

/// Lines in one system of coordinates.
#[derive(Clone, Debug)]
pub(crate) struct Chart<'a> {
    pub(crate) lines: &'a [Line],
    /// What the axes show.
    pub(crate) axes: [&'a str; 2],
    /// How y is spread.
    pub(crate) scale: Scale,
    /// Numbers on the y axis that mean something.
    pub(crate) marks: &'a [Mark],
}

/// A number on the y axis with a name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    pub(crate) name: String,
    pub(crate) y: f64,
}

impl Chart<'_> {
    /// The drawing; `None` where there is nothing to draw.
    pub(super) fn svg(&self, title: &str) -> Option<String> {
        let is_drawn = |[x, y]: [f64; 2]| {
            x.is_finite() && y.is_finite() && (self.scale == Scale::Linear || y > 0.0)
        };
        let lines: Vec<Vec<(f64, f64)>> = self
            .lines
            .iter()
            .map(|line| {
                let points = line.points.iter().copied().filter(|p| is_drawn(*p));
                points.map(|[x, y]| (x, y)).collect()
            })
            .collect();
        let all = || lines.iter().flatten();
        let x = around(all().map(|p| p.0), Scale::Linear)?;
        let marks = self.marks.iter().filter(|mark| is_drawn([0.0, mark.y]));
        let marks: Vec<&Mark> = marks.collect();
        let numbers = all().map(|p| p.1).chain(marks.iter().map(|mark| mark.y));
        let y = around(numbers, self.scale)?;
        let mut drawn = String::new();
        let done = match self.scale {
            Scale::Linear => self.draw(&mut drawn, &lines, &marks, x, y),
            Scale::Log => self.draw(&mut drawn, &lines, &marks, x, y.log_scale()),
        };
        done.ok()?;
        Some(themed(&drawn, title))
    }

    fn draw<Y>(
        &self,
        into: &mut String,
        lines: &[Vec<(f64, f64)>],
        marks: &[&Mark],
        x: Range<f64>,
        y: Y,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    {
        let area = SVGBackend::with_string(into, SIZE).into_drawing_area();
        let ends = (x.start, x.end);
        // No more numbers than points: between two of them may be nothing.
        let longest = lines.iter().map(Vec::len).max().unwrap_or(0);
        let height = lines
            .iter()
            .flatten()
            .fold(0.0_f64, |most, p| most.max(p.1.abs()));
        let mut chart = ChartBuilder::on(&area)
            .margin(8 * UNIT)
            .x_label_area_size(40 * UNIT)
            .y_label_area_size(64 * UNIT)
            .build_cartesian_2d::<Range<f64>, Y>(x, y)?;
        let words = ("sans-serif", 12 * UNIT).into_font().color(&INK);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID.stroke_width(UNIT))
            .light_line_style(TRANSPARENT)
            .axis_style(GRID.stroke_width(UNIT))
            .set_all_tick_mark_size(4 * UNIT)
            .label_style(words.clone())
            .x_labels(longest.clamp(2, 10))
            .x_desc(self.axes[0])
            .y_desc(self.axes[1])
            .x_label_formatter(&|v| label(*v, ends.1 - ends.0))
            .y_label_formatter(&|v| label(*v, height))
            .draw()?;
        for mark in marks {
            let ends = [(ends.0, mark.y), (ends.1, mark.y)];
            let line = DashedLineSeries::new(ends, 4 * UNIT, 4 * UNIT, INK.stroke_width(UNIT));
            chart.draw_series(line)?;
            let above = (4 * UNIT as i32, -14 * (UNIT as i32));
            let name = Text::new(mark.name.clone(), above, words.clone());
            chart.draw_series(std::iter::once(EmptyElement::at(ends[0]) + name))?;
        }
        for (i, points) in lines.iter().enumerate() {
            let style = series(i).stroke_width(2 * UNIT);
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
            // A single point makes no line.
            if points.len() < 20 {
                let dots = points
                    .iter()
                    .map(|p| Circle::new(*p, 3 * UNIT, series(i).filled()));
                chart.draw_series(dots)?;
            }
        }
        area.present()?;
        Ok(())
    }
}

/// A number of an axis of this length. What should be 0 may be a rounding.
fn label(number: f64, length: f64) -> String {
    let number = if number.abs() < 1e-9 * length.abs() {
        0.0
    } else {
        number
    };
    match number.abs() {
        0.0 => "0".to_owned(),
        size if (1e-3..1e6).contains(&size) => to_digits(number, 4).to_string(),
        _ => rough(number),
    }
}

/// A range with some space around its numbers; `None` without any.
fn around(numbers: impl Iterator<Item = f64>, scale: Scale) -> Option<Range<f64>> {
    let ends = numbers.fold(None, |ends: Option<(f64, f64)>, v| {
        let (low, high) = ends.unwrap_or((v, v));
        Some((low.min(v), high.max(v)))
    });
    let (low, high) = ends?;
    Some(match scale {
        Scale::Log => low / 2.0..high * 2.0,
        Scale::Linear if low == high => low - 1.0..high + 1.0,
        Scale::Linear => {
            let space = 0.04 * (high - low);
            low - space..high + space
        }
    })
}

/// The drawing with the colors of the page, and a name for those who do not see it.
fn themed(svg: &str, title: &str) -> String {
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
    let (width, height) = SIZE;
    let whole = format!("<svg width=\"{width}\" height=\"{height}\" ");
    let named = format!("<svg role=\"img\" aria-label=\"{}\" ", escape(title));
    // Within a page it needs no namespace.
    svg.replacen(&whole, &named, 1)
        .replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[[f64; 2]]) -> Line {
        Line {
            name: "a".into(),
            points: points.to_vec(),
        }
    }

    fn chart<'a>(lines: &'a [Line], scale: Scale) -> Chart<'a> {
        Chart {
            lines,
            axes: ["x", "y"],
            scale,
            marks: &[],
        }
    }

    #[test]
    fn colors_are_those_of_the_page_and_numbers_without_a_place_are_left_out() {
        let lines = [
            line(&[[0.0, 1.0], [1.0, 10.0], [2.0, f64::NAN], [3.0, 0.0]]),
            line(&[[0.0, 5.0]]),
        ];
        let svg = chart(&lines, Scale::Log).svg("1 < 2").unwrap();
        assert!(svg.contains("aria-label=\"1 &lt; 2\""), "{svg}");
        for color in ["var(--ink)", "var(--grid)", "var(--s0)", "var(--s1)"] {
            assert!(svg.contains(color), "{color}: {svg}");
        }
        assert!(
            !svg.contains("\"#01") && !svg.contains("\"#02") && !svg.contains("NaN"),
            "{svg}"
        );
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(chart(&[], Scale::Linear).svg(""), None);
        assert_eq!(chart(&[line(&[[0.0, 0.0]])], Scale::Log).svg(""), None);
        assert!(
            chart(&[line(&[[0.0, 0.0]])], Scale::Linear)
                .svg("")
                .is_some()
        );
    }
}
