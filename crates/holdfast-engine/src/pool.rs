//! A pool with one thread per core, shared by all runs, for work that keeps a processor busy: compressing, hashing,
//! encrypting.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

/// The default compression level of `zstd`.
const LEVEL: i32 = 3;

type Job = Box<dyn FnOnce(&mut Option<Compressor<'static>>) + Send>;

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

    /// Whether there are clearly more jobs than threads to work on them.
    pub(crate) fn is_crowded(&self) -> bool {
        self.outstanding.load(Ordering::Relaxed) > self.threads * 2
    }

    /// Has a thread do this; the result is sent to the receiver.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Compressor<'static>) -> io::Result<T> + Send + 'static,
    ) -> io::Result<Receiver<io::Result<T>>> {
        let (done, result) = sync_channel(1);
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        let job = move |compressor: &mut Option<Compressor<'static>>| {
            // If the run was cancelled, nobody waits for the result, which is not an error.
            let _gone = done.send(compressor_of(compressor).and_then(work));
        };
        self.jobs.send(Box::new(job)).map_err(|_| io::Error::other("the compression threads are gone"))?;
        Ok(result)
    }
}

fn work(queue: &Mutex<Receiver<Job>>, outstanding: &AtomicUsize) {
    let mut compressor = None;
    loop {
        let job = queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
        let Ok(job) = job else { return };
        job(&mut compressor);
        if outstanding.fetch_sub(1, Ordering::Relaxed) == 1 {
            // Its tables take too much memory to keep while idle, and are quickly created again.
            compressor = None;
        }
    }
}

fn compressor_of<'a>(known: &'a mut Option<Compressor<'static>>) -> io::Result<&'a mut Compressor<'static>> {
    match known {
        Some(compressor) => Ok(compressor),
        None => {
            let mut fresh = Compressor::new(LEVEL)?;
            // With a checksum each frame can be verified separately, even if only one file is read.
            fresh.set_parameter(CParameter::ChecksumFlag(true))?;
            Ok(known.insert(fresh))
        }
    }
}
