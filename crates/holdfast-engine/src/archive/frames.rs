//! Frames: compressed on as many threads as there are cores, for all runs together, and unpacked again.

use std::io::{self, BufRead};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, compress_bound};

use super::LEVEL;

/// How far back a frame may refer, as a power of two, which is also how much memory unpacking it takes. What we write
/// stays within its frames of one mebibyte.
pub(crate) const WINDOW_LOG: u32 = 23;
struct Job {
    frame: Frame,
    done: SyncSender<io::Result<Frame>>,
}

/// A frame before and after. Both buffers serve for the next one: fresh memory for each costs more than compressing.
#[derive(Default)]
pub(crate) struct Frame {
    pub plain: Vec<u8>,
    pub packed: Vec<u8>,
}

/// The threads end when the last clone is dropped.
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

    /// More frames are wanted than threads can work on.
    pub(crate) fn is_crowded(&self) -> bool {
        self.outstanding.load(Ordering::Relaxed) > self.threads * 2
    }

    /// Hands a frame in; the result comes through the receiver.
    pub(crate) fn compress(&self, frame: Frame) -> io::Result<Receiver<io::Result<Frame>>> {
        let (done, result) = sync_channel(1);
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        self.jobs.send(Job { frame, done }).map_err(|_| io::Error::other("the compressing threads are gone"))?;
        Ok(result)
    }
}

/// Decompresses frames that take no more memory than this.
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
            // Its tables take more memory than is good to keep while nothing is to do, and are quickly made.
            compressor = None;
        }
        // Nobody waits any more when a run was cancelled; that is no matter of ours.
        let _gone = done.send(frame);
    }
}

fn compress(compressor: &mut Option<Compressor<'static>>, frame: &mut Frame) -> io::Result<()> {
    let compressor = match compressor {
        Some(compressor) => compressor,
        None => {
            let mut fresh = Compressor::new(LEVEL)?;
            // Each frame can be checked on its own, also when only one file is read back.
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
