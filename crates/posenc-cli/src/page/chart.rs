//! Lines in a system of coordinates.

use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use posenc_onnx::report::Line;

use super::axis::{Axis, Scale};
use super::frame::{COLORS, Frame, INK, Plot, UNIT, series, words};

/// How charts look.
const FRAME: Frame = Frame {
    size: [460, 290],
    left: 70,
    has_grid: true,
};

/// Lines of fewer points have dots.
const DOTS: usize = 20;

/// The share of the height that a name takes.
const NAME: f64 = 0.08;

/// Lines in one system of coordinates.
#[derive(Clone, Debug)]
pub(crate) struct Chart<'a> {
    pub(crate) lines: &'a [Line],
    /// What the axes show.
    pub(crate) axes: [&'a str; 2],
    /// How x and y are spread.
    pub(crate) scales: [Scale; 2],
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
    /// Whether a line has a point that the axes have.
    pub(super) fn shows(&self, line: &Line) -> bool {
        line.points.iter().any(|point| self.has(*point))
    }

    fn has(&self, [x, y]: [f64; 2]) -> bool {
        self.scales[0].has(x) && self.scales[1].has(y)
    }

    /// The drawing; `None` where there is nothing to draw.
    pub(super) fn svg(&self, title: &str) -> Option<String> {
        let points = |line: &Line| {
            let shown = line.points.iter().filter(|point| self.has(**point));
            shown.copied().collect::<Vec<[f64; 2]>>()
        };
        let lines: Vec<Vec<[f64; 2]>> = self.lines.iter().map(points).collect();
        let all = || lines.iter().flatten();
        let marks = self.marks.iter().filter(|mark| self.scales[1].has(mark.y));
        let mut marks: Vec<&Mark> = marks.collect();
        marks.sort_by(|a, b| a.y.total_cmp(&b.y));
        let x = Axis::around(self.axes[0], self.scales[0], all().map(|p| p[0]))?;
        let numbers = all().map(|p| p[1]).chain(marks.iter().map(|mark| mark.y));
        let y = Axis::around(self.axes[1], self.scales[1], numbers)?;
        FRAME.svg([&x, &y], title, |plot| {
            for (i, points) in lines.iter().enumerate() {
                // A line that others hide is wider, and shows at their edges.
                let hiding = lines[i + 1..]
                    .iter()
                    .filter(|other| covers(other, points, &y));
                let width = 2 + 3 * hiding.count() as u32;
                let points = points.iter().map(|[x, y]| (*x, *y));
                line(plot, i, width, points.collect())?;
            }
            names(plot, &marks, [&x, &y], ends(&lines, &y))?;
            Some(String::new())
        })
    }
}

/// The share of an axis that cannot be seen.
const UNSEEN: f64 = 0.003;

/// Whether a line is drawn where another one is.
fn covers(one: &[[f64; 2]], other: &[[f64; 2]], y: &Axis) -> bool {
    let is_near = |(a, b): (&[f64; 2], &[f64; 2])| {
        a[0] == b[0] && (y.share(a[1]) - y.share(b[1])).abs() < UNSEEN
    };
    one.len() == other.len() && one.iter().zip(other).all(is_near)
}

/// Draws a line; colors that come again are dashed.
fn line(plot: &mut Plot<'_>, i: usize, width: u32, points: Vec<(f64, f64)>) -> Option<()> {
    let style = series(i).stroke_width(width * UNIT);
    // A single point makes no line.
    if points.len() < DOTS {
        let size = (width + 1) * UNIT;
        let dots = points
            .iter()
            .map(|p| Circle::new(*p, size, series(i).filled()));
        plot.draw_series(dots).ok()?;
    }
    if i < COLORS {
        plot.draw_series(LineSeries::new(points, style)).ok()?;
    } else {
        let dashes = DashedLineSeries::new(points, 6 * UNIT, 4 * UNIT, style);
        plot.draw_series(dashes).ok()?;
    }
    Some(())
}

/// Where the first line begins and ends, as shares of the y axis.
fn ends(lines: &[Vec<[f64; 2]>], y: &Axis) -> [f64; 2] {
    let first = lines
        .iter()
        .find_map(|line| Some([line.first()?, line.last()?]));
    first.map_or([0.0, 0.0], |ends| ends.map(|point| y.share(point[1])))
}

/// Draws numbers of the y axis with their names, each where the lines, which end there, are farther away, or next
/// to one that is near.
fn names(plot: &mut Plot<'_>, marks: &[&Mark], [x, y]: [&Axis; 2], ends: [f64; 2]) -> Option<()> {
    let (left, right) = (x.range().start, x.range().end);
    let mut last: Option<(f64, usize)> = None;
    for mark in marks {
        let share = y.share(mark.y);
        let line = DashedLineSeries::new(
            [(left, mark.y), (right, mark.y)],
            4 * UNIT,
            4 * UNIT,
            INK.stroke_width(UNIT),
        );
        plot.draw_series(line).ok()?;
        let beside = match last {
            Some((below, beside)) if share - below < NAME => beside + 1,
            _ => 0,
        };
        last = Some((share, beside));
        // Above the line, from the left, from the right, or in between.
        let [of_left, of_right] = ends.map(|end| (end - share).abs());
        let (end, side, gap) = match (beside % 3, of_left >= of_right) {
            (0, true) | (1, false) => (left, HPos::Left, 4),
            (0 | 1, _) => (right, HPos::Right, -4),
            _ => ((left + right) / 2.0, HPos::Center, 0),
        };
        let style = words().pos(Pos::new(side, VPos::Bottom));
        let place = (gap * UNIT as i32, -2 * (UNIT as i32));
        let name = EmptyElement::at((end, mark.y)) + Text::new(mark.name.clone(), place, style);
        plot.draw_series(std::iter::once(name)).ok()?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::attribute;

    fn line(points: &[[f64; 2]]) -> Line {
        Line {
            name: "a".into(),
            points: points.to_vec(),
        }
    }

    fn chart<'a>(lines: &'a [Line], y: Scale) -> Chart<'a> {
        Chart {
            lines,
            axes: ["x", "y"],
            scales: [Scale::Linear, y],
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
        for no in ["\"#01", "\"#02", "NaN", "http"] {
            assert!(!svg.contains(no), "{no}: {svg}");
        }
    }

    #[test]
    fn a_ninth_line_is_dashed() {
        let lines = vec![line(&[[0.0, 0.0], [1.0, 1.0]]); 9];
        let count = |lines: &[Line]| {
            let svg = chart(lines, Scale::Linear).svg("").unwrap();
            svg.matches("stroke=\"var(--s0)\"").count()
        };
        assert!(count(&lines) > 10 * count(&lines[..8]));
    }

    #[test]
    fn a_line_under_an_equal_one_shows_at_its_edges() {
        let [one, other] = [1.0, 2.0].map(|y| line(&[[0.0, 0.0], [1.0, y]]));
        let widths = |lines: &[Line]| {
            let svg = chart(lines, Scale::Linear).svg("").unwrap();
            [2, 5].map(|width| {
                svg.matches(&format!("stroke-width=\"{}\"", width * UNIT))
                    .count()
            })
        };
        assert_eq!(widths(&[one.clone(), other]), [2, 0]);
        assert_eq!(widths(&[one.clone(), one]), [1, 1]);
    }

    #[test]
    fn names_of_near_numbers_do_not_cover_each_other() {
        let lines = [line(&[[0.0, 1.0], [1.0, 1000.0]])];
        let mark = |y: f64| Mark {
            name: format!("mark {y}"),
            y,
        };
        let marks = [mark(65.0), mark(500.0), mark(64.0)];
        let svg = Chart {
            marks: &marks,
            ..chart(&lines, Scale::Log)
        }
        .svg("")
        .unwrap();
        let anchor = |name: &str| {
            let before = svg.split(name).next().unwrap();
            attribute(before.rsplit("<text").next().unwrap(), "text-anchor").to_owned()
        };
        let anchors = ["mark 64", "mark 65", "mark 500"].map(anchor);
        assert_eq!(anchors, ["start", "end", "start"]);
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
