//! Numbers as pictures: blue below zero, red above it.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use plotters::coord::ranged1d::Ranged;
use plotters::element::PathElement;
use plotters::style::Color;
use posenc_onnx::report::Picture;

use super::axis::Axis;
use super::escape::escape;
use super::figure::figure;
use super::frame::{Frame, INK, Plot, UNIT};
use crate::number::{grouped, rough};

/// A picture alone, however many rows it has.
const ALONE: Frame = Frame {
    size: [460, 320],
    left: 70,
    has_grid: false,
};

/// One of several next to each other.
const PANEL: Frame = Frame {
    size: [200, 190],
    left: 46,
    has_grid: false,
};

/// The room that a label needs on each axis, in pixels.
const LABEL: [u32; 2] = [26, 22];

/// How pictures are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// What columns and rows stand for.
    pub(super) axes: [&'static str; 2],
    /// Whether rows and columns have one scale.
    pub(super) is_map: bool,
}

/// Pictures in one scale as a figure; `None` where numbers are not finite, or there are none.
pub(super) fn pictures(caption: &str, all: &[Picture], look: Look) -> Option<String> {
    let numbers = || {
        all.iter()
            .flat_map(|picture| picture.numbers.iter().flatten())
    };
    let most = numbers().fold(0.0_f64, |most, v| most.max(v.abs()));
    if !numbers().all(|v| v.is_finite()) {
        return None;
    }
    let frame = if all.len() == 1 { ALONE } else { PANEL };
    let drawn = |picture: &Picture| {
        let title = match &picture.name[..] {
            "" => caption.to_owned(),
            name => format!("{caption}, {name}"),
        };
        let svg = svg(picture, most, look, frame, &title)?;
        Some(match (all.len(), &picture.name[..]) {
            (1, _) | (_, "") => svg,
            (_, name) => format!("<div>\n<p>{}</p>\n{svg}\n</div>\n", escape(name)),
        })
    };
    let drawn: String = all.iter().map(drawn).collect::<Option<_>>()?;
    let content = match all {
        [] => return None,
        [_] => drawn,
        _ => format!("<div class=\"panels\">\n{drawn}</div>"),
    };
    let most = rough(most);
    let scale = format!(
        "<p class=\"scale\"><span>−{most}</span><span class=\"ramp\"></span><span>{most}</span></p>\n"
    );
    let left_out = all.iter().find_map(left_out);
    let left_out = left_out.map_or_else(String::new, |words| {
        format!("<p class=\"soft\">{words}</p>\n")
    });
    Some(figure(caption, &content, &(scale + &left_out)))
}

/// How many rows and columns are shown, where these are not all.
fn left_out(picture: &Picture) -> Option<String> {
    let shown = [picture.numbers.len(), picture.numbers.first()?.len()];
    let part = |(shown, (size, what)): (usize, (usize, &str))| {
        let [shown_words, size_words] = [shown, size].map(|n| grouped(n as u64));
        (shown < size).then(|| format!("{shown_words} of {size_words} {what}"))
    };
    let [rows, columns] = picture.size;
    let parts = shown
        .into_iter()
        .zip([(rows, "rows"), (columns, "columns")]);
    let parts: Vec<String> = parts.filter_map(part).collect();
    (!parts.is_empty()).then(|| format!("shown: {}, evenly spaced", parts.join(" and ")))
}

fn svg(picture: &Picture, most: f64, look: Look, frame: Frame, title: &str) -> Option<String> {
    let [rows, columns] = picture.size;
    let pixels: Vec<u8> = picture
        .numbers
        .iter()
        .flatten()
        .flat_map(|v| color(v / most.max(f64::MIN_POSITIVE)))
        .collect();
    let bytes = png(
        [picture.numbers.first()?.len(), picture.numbers.len()],
        &pixels,
    )?;
    let frame = match look.is_map {
        true => frame.for_map([columns, rows]),
        false => frame,
    };
    let [across, down] = frame.room();
    let [first_row, first_column] = picture.first;
    let [tile_rows, tile_columns] = picture.tile.map(|side| side.max(1));
    let axis = |name, first, count, room: u32, label| {
        Axis::cells(name, first, count, (room / label) as usize)
    };
    let tiles = [columns / tile_columns, rows / tile_rows];
    let x = axis(look.axes[0], first_column, tiles[0], across, LABEL[0]);
    // The first row is at the top.
    let y = axis(look.axes[1], first_row, tiles[1], down, LABEL[1]).reversed();
    let title = format!("{title}: {rows} rows of {columns} numbers");
    frame.svg([&x, &y], &title, |plot| {
        if picture.tile != [1, 1] {
            borders(plot, [&x, &y])?;
        }
        let (across, down) = plot.plotting_area().get_pixel_range();
        let (width, height) = (across.end - across.start, down.end - down.start);
        Some(format!(
            "\n<image x=\"{}\" y=\"{}\" width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\" \
             href=\"data:image/png;base64,{}\"/>",
            across.start,
            down.start,
            STANDARD.encode(bytes)
        ))
    })
}

/// Draws lines between tiles.
fn borders(plot: &mut Plot<'_>, [x, y]: [&Axis; 2]) -> Option<()> {
    let (across, down) = (x.range(), y.range());
    let between = |range: &Range<f64>| {
        let count = (range.end - range.start) as usize;
        let start = range.start;
        (1..count).map(move |n| start + n as f64)
    };
    let upright = between(&across).map(|at| [(at, down.start), (at, down.end)]);
    let level = between(&down).map(|at| [(across.start, at), (across.end, at)]);
    let line = |ends: [(f64, f64); 2]| PathElement::new(ends, INK.stroke_width(UNIT));
    plot.draw_series(upright.chain(level).map(line)).ok()?;
    Some(())
}

impl Frame {
    /// As high as the cells of a map need to be square, within limits.
    fn for_map(self, [columns, rows]: [usize; 2]) -> Self {
        let [width, height] = self.size;
        let [across, down] = self.room();
        let across = f64::from(across);
        let needed = across * rows as f64 / columns.max(1) as f64;
        let needed = needed.clamp(0.4 * across, 1.1 * across);
        Self {
            size: [width, height - down + needed as u32],
            ..self
        }
    }
}

/// Red, green and blue of a share between −1 and 1.
fn color(share: f64) -> [u8; 3] {
    let ends = match share < 0.0 {
        true => [33.0, 102.0, 172.0],
        false => [178.0, 24.0, 43.0],
    };
    let share = share.abs().min(1.0);
    ends.map(|end| (247.0 + share * (end - 247.0)) as u8)
}

fn png([width, height]: [usize; 2], pixels: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = vec![];
    let size = |n: usize| u32::try_from(n).ok();
    let mut encoder = png::Encoder::new(&mut bytes, size(width)?, size(height)?);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().ok()?;
    writer.write_image_data(pixels).ok()?;
    writer.finish().ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::attribute;

    const LOOK: Look = Look {
        axes: ["feature", "position"],
        is_map: false,
    };

    fn drawn(size: [usize; 2], number: impl Fn(usize, usize) -> f64) -> Option<String> {
        pictures("rows", &[Picture::new(size, number)], LOOK)
    }

    #[test]
    fn zero_is_light_and_the_ends_are_blue_and_red() {
        assert_eq!(color(0.0), [247, 247, 247]);
        let [blue, red] = [color(-1.0), color(1.0)];
        assert!(blue[2] > 2 * blue[0] && red[0] > 2 * red[2]);
        assert_eq!(color(-3.0), blue);
    }

    #[test]
    fn a_picture_is_decoded_as_it_was_drawn() {
        let html = drawn([2, 3], |row, column| row as f64 - column as f64).unwrap();
        let data = html
            .split("base64,")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let bytes = STANDARD.decode(data.unwrap()).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes))
            .read_info()
            .unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (3, 2));
        assert_eq!(pixels[..3], color(0.0));
        assert_eq!(pixels[6..9], color(-1.0));
        assert_eq!(drawn([1, 1], |_, _| f64::NAN), None);
    }

    #[test]
    fn tall_tables_are_no_higher_than_others_and_say_what_is_left_out() {
        let [small, tall] = [8, 8194].map(|rows| drawn([rows, 4], |row, _| row as f64).unwrap());
        let size = |html| attribute(html, "viewBox");
        assert_eq!(size(&small), size(&tall));
        assert!(
            tall.contains("shown: 256 of 8,194 rows, evenly spaced"),
            "{tall}"
        );
        assert!(
            tall.contains(">8000</text>") || tall.contains("\n8000\n"),
            "{tall}"
        );
        assert!(!small.contains("shown:"));
    }

    #[test]
    fn several_have_one_scale_and_their_names() {
        let head = |head: i32| Picture {
            name: format!("head {head}"),
            first: [-1, -2],
            ..Picture::new([3, 5], |_, _| f64::from(head))
        };
        let html = pictures("bias", &[head(1), head(2)], LOOK).unwrap();
        assert_eq!(html.matches("class=\"scale\"").count(), 1);
        assert!(
            html.contains("<span>−2</span>") && html.contains("<p>head 2</p>"),
            "{html}"
        );
        assert_eq!(
            html.matches("−1\n</text>").count(),
            4,
            "both axes of both: {html}"
        );
    }

    #[test]
    fn tiles_have_borders_and_a_number_for_each() {
        let numbers = Picture {
            tile: [2, 3],
            ..Picture::new([4, 9], |row, _| row as f64)
        };
        let borders = |picture: &Picture| {
            let html = pictures("patches", std::slice::from_ref(picture), LOOK).unwrap();
            html.matches("<polyline").count()
        };
        let plain = Picture {
            tile: [1, 1],
            ..numbers.clone()
        };
        // Two borders between columns and one between rows, and three and two labels in place of nine and four.
        assert_eq!(borders(&numbers) + 9 + 4, borders(&plain) + 2 + 1 + 3 + 2);
    }
}
