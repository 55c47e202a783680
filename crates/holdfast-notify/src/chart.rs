//! A bar chart for mails: an image with one pair of bars per day. It contains no text; the mail itself describes it in
//! words.

use crate::summary::DayLine;

const WIDTH: usize = 560;
const HEIGHT: usize = 120;
const GOOD: [u8; 4] = [0x1f, 0x8a, 0x4c, 0xff];
const BAD: [u8; 4] = [0xc0, 0x36, 0x2c, 0xff];
const LINE: [u8; 4] = [0x8a, 0x93, 0x9c, 0xff];

/// A PNG with the successful and the failed runs of each day. Its background is transparent, for light and dark themes.
pub(crate) fn png(days: &[DayLine]) -> Result<Vec<u8>, png::EncodingError> {
    let mut pixels = vec![0_u8; WIDTH * HEIGHT * 4];
    let mut fill = |x: usize, y: usize, width: usize, height: usize, colour: [u8; 4]| {
        for row in y..(y + height).min(HEIGHT) {
            for column in x..(x + width).min(WIDTH) {
                let at = (row * WIDTH + column) * 4;
                pixels[at..at + 4].copy_from_slice(&colour);
            }
        }
    };
    let most = days.iter().map(|day| day.succeeded.max(day.failed)).max().unwrap_or(0).max(1);
    let room = HEIGHT - 8;
    let step = WIDTH / days.len().max(1);
    let bar = (step / 3).max(2);
    for (number, day) in days.iter().enumerate() {
        let left = number * step + step / 6;
        for (offset, count, colour) in [(0, day.succeeded, GOOD), (bar, day.failed, BAD)] {
            // Any count above zero is visible.
            let share = usize::try_from(count.max(0) * room as i64 / most).unwrap_or(0);
            let height = if count > 0 { share.max(3) } else { 0 };
            fill(left + offset, HEIGHT - 2 - height, bar - 1, height, colour);
        }
    }
    fill(0, HEIGHT - 2, WIDTH, 1, LINE);
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, WIDTH as u32, HEIGHT as u32);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_heights_match_the_counts() {
        let day = |succeeded, failed| DayLine { name: String::new(), succeeded, failed };
        let days = [day(10, 0), day(5, 5), day(0, 0), day(1, 1), day(0, 10), day(0, 0), day(10, 10)];
        let image = png(&days).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&image)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        let step = WIDTH / 7;
        let height = |day: usize, is_bad: bool| {
            let x = day * step + step / 6 + if is_bad { step / 3 } else { 0 } + 1;
            let colour = if is_bad { BAD } else { GOOD };
            (0..HEIGHT).filter(|y| pixels[(y * WIDTH + x) * 4..][..4] == colour).count()
        };
        assert_eq!((height(0, false), height(0, true)), (112, 0));
        assert_eq!((height(1, false), height(1, true)), (56, 56));
        assert_eq!((height(2, false), height(2, true)), (0, 0));
        assert_eq!((height(4, false), height(4, true)), (0, 112));
        assert!(height(3, false) >= 3);
    }
}
