//! Compresses frames on a pool with one thread per core, shared by all runs, and decompresses them.

use std::io::{self, BufRead};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, compress_bound};

use super::LEVEL;

/// The maximum window size of a frame, as a power of two, which determines the memory for decompressing it. Our own
/// frames need no more than one mebibyte.
pub(crate) const WINDOW_LOG: u32 = 23;
struct Job {
    frame: Frame,
    done: SyncSender<io::Result<Frame>>,
}

/// A frame before and after compression. Both buffers are reused: allocating memory for each frame would cost more than
/// compressing.
#[derive(Default)]
pub(crate) struct Frame {
    pub plain: Vec<u8>,
    pub packed: Vec<u8>,
}

/// A pool of compression threads, which end when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Pool {
    jobs: SyncSender<Job>,
    pub threads: usize,
    outstanding: Arc<AtomicUsize>,
}

impl Pool {
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let (jobs, queue) = sync_channel::<Job>(threads);
        let queue = Arc::new(Mutex::new(queue));
        let outstanding = Arc::new(AtomicUsize::new(0));
        for number in 0..threads {
            let (queue, outstanding) = (queue.clone(), outstanding.clone());
            let thread = std::thread::Builder::new().name(format!("compress-{number}"));
            thread.spawn(move || work(&queue, &outstanding))?;
        }
        Ok(Self { jobs, threads, outstanding })
    }

    /// Whether there are clearly more frames than threads to work on them.
    pub(crate) fn is_crowded(&self) -> bool {
        self.outstanding.load(Ordering::Relaxed) > self.threads * 2
    }

    /// Submits a frame; the result is sent to the receiver.
    pub(crate) fn compress(&self, frame: Frame) -> io::Result<Receiver<io::Result<Frame>>> {
        let (done, result) = sync_channel(1);
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        self.jobs.send(Job { frame, done }).map_err(|_| io::Error::other("the compression threads are gone"))?;
        Ok(result)
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

fn work(queue: &Mutex<Receiver<Job>>, outstanding: &AtomicUsize) {
    let mut compressor = None;
    loop {
        let job = queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
        let Ok(Job { mut frame, done }) = job else { return };
        let frame = compress(&mut compressor, &mut frame).map(|()| frame);
        if outstanding.fetch_sub(1, Ordering::Relaxed) == 1 {
            // Its tables take too much memory to keep while idle, and are quickly created again.
            compressor = None;
        }
        // If the run was cancelled, nobody waits for the result, which is not an error.
        let _gone = done.send(frame);
    }
}

fn compress(compressor: &mut Option<Compressor<'static>>, frame: &mut Frame) -> io::Result<()> {
    let compressor = match compressor {
        Some(compressor) => compressor,
        None => {
            let mut fresh = Compressor::new(LEVEL)?;
            // With a checksum each frame can be verified separately, even if only one file is read.
            fresh.set_parameter(CParameter::ChecksumFlag(true))?;
            compressor.insert(fresh)
        }
    };
    frame.packed.clear();
    frame.packed.reserve(compress_bound(frame.plain.len()));
    compressor.compress_to_buffer(&frame.plain, &mut frame.packed)?;
    Ok(())
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
