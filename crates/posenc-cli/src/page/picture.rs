//! Numbers as a picture: blue below zero, red above it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use posenc_onnx::report::Picture;

use super::escape::escape;
use super::figure::figure;
use crate::number::rough;

/// The picture as a figure; `None` where its numbers are not finite.
pub(super) fn picture(caption: &str, picture: &Picture) -> Option<String> {
    let numbers = || picture.numbers.iter().flatten();
    let most = numbers().fold(0.0_f64, |most, v| most.max(v.abs()));
    if !numbers().all(|v| v.is_finite()) || picture.numbers.first()?.is_empty() {
        return None;
    }
    let pixels: Vec<u8> = numbers()
        .flat_map(|v| color(v / most.max(f64::MIN_POSITIVE)))
        .collect();
    let bytes = png([picture.numbers[0].len(), picture.numbers.len()], &pixels)?;
    let [rows, columns] = picture.size;
    let most = rough(most);
    let image = format!(
        "<img alt=\"{}\" src=\"data:image/png;base64,{}\">",
        escape(&format!("{caption}: {rows} rows of {columns} numbers")),
        STANDARD.encode(bytes)
    );
    let about =
        format!("{caption}: {rows} rows downwards, {columns} features, −{most} blue to {most} red");
    Some(figure(&about, &image, &[]))
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

    #[test]
    fn zero_is_light_and_the_ends_are_blue_and_red() {
        assert_eq!(color(0.0), [247, 247, 247]);
        let [blue, red] = [color(-1.0), color(1.0)];
        assert!(blue[2] > 2 * blue[0] && red[0] > 2 * red[2]);
        assert_eq!(color(-3.0), blue);
    }

    #[test]
    fn a_picture_is_decoded_as_it_was_drawn() {
        let numbers = Picture::new([2, 3], |row, column| row as f64 - column as f64);
        let html = picture("rows", &numbers).unwrap();
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
        let broken = Picture::new([1, 1], |_, _| f64::NAN);
        assert_eq!(picture("rows", &broken).map(|html| html.len()), None);
    }
}
