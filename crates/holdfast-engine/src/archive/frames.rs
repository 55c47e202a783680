//! Compresses and decompresses the frames of an archive.

use std::io::{self, BufRead};
use std::sync::mpsc::Receiver;

use zstd::zstd_safe::compress_bound;

use crate::pool::Pool;

/// The maximum window size of a frame, as a power of two, which determines the memory for decompressing it. Our own
/// frames need no more than one mebibyte.
pub(crate) const WINDOW_LOG: u32 = 23;

/// A frame before and after compression. Both buffers are reused: allocating memory for each frame would cost more than
/// compressing.
#[derive(Default)]
pub(crate) struct Frame {
    pub plain: Vec<u8>,
    pub packed: Vec<u8>,
}

impl Frame {
    /// Has the pool compress it; the result is sent to the receiver.
    pub(crate) fn compress(mut self, pool: &Pool) -> io::Result<Receiver<io::Result<Self>>> {
        pool.run(move |compressor| {
            self.packed.clear();
            self.packed.reserve(compress_bound(self.plain.len()));
            compressor.compress_to_buffer(&self.plain, &mut self.packed)?;
            Ok(self)
        })
    }
}

/// Decompresses frames whose window is no larger than this.
pub(crate) fn decompress<R: BufRead>(
    reader: R,
    window_log: u32,
) -> io::Result<zstd::stream::read::Decoder<'static, R>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(reader)?;
    decoder.window_log_max(window_log)?;
    Ok(decoder)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_frame_asks_for_no_more_memory_than_ours_do() {
        let packed = |window_log: u32| {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
            encoder.window_log(window_log).unwrap();
            encoder.write_all(&vec![7; 1 << 20]).unwrap();
            encoder.finish().unwrap()
        };
        let read =
            |bytes: &[u8]| decompress(bytes, WINDOW_LOG).and_then(|mut decoder| decoder.read_to_end(&mut Vec::new()));
        assert_eq!(read(&packed(20)).unwrap(), 1 << 20);
        assert!(read(&packed(27)).is_err());
    }
}
