//! What is backed up, and how it changes between runs.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_testkit::random;

const FILE_BYTES: usize = 8_900;
const FOLDERS: usize = 200;
/// One file of so many is changed, and a large file grows by such a part.
const CHANGED: usize = 100;
/// What changed in the second of a listing counts as changed the next time.
const SETTLED: Duration = Duration::from_millis(2_100);
const PIECE: usize = 32 * 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Files,
    Large,
}

impl Kind {
    /// For `--only` and the progress.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Large => "large",
        }
    }
}

pub struct Source {
    pub kind: Kind,
    pub folder: PathBuf,
    /// How many files, or how many bytes.
    size: usize,
    /// Makes each change another one.
    changes: u64,
    pub changed: Instant,
}

impl Source {
    /// The tree of `cargo xtask bench archive`.
    pub fn files(folder: PathBuf, count: usize) -> Self {
        let source = Self { kind: Kind::Files, folder, size: count, changes: 0, changed: Instant::now() };
        for number in 0..FOLDERS.min(count) {
            std::fs::create_dir_all(source.file(number).parent().expect("a folder")).expect("a folder");
        }
        for number in 0..count {
            source.write(number, number as u64 + 1);
        }
        Self { changed: Instant::now(), ..source }
    }

    /// One file, of which half can be compressed.
    pub fn large(folder: PathBuf, bytes: usize) -> Self {
        std::fs::create_dir(&folder).expect("a folder");
        File::create(folder.join("file.bin")).expect("a file");
        let source = Self { kind: Kind::Large, folder, size: bytes, changes: 0, changed: Instant::now() };
        source.append(99, bytes);
        Self { changed: Instant::now(), ..source }
    }

    pub fn title(&self) -> String {
        match self.kind {
            Kind::Files => {
                format!("{} files, {:.0} MB", thousands(self.size), (self.size * FILE_BYTES) as f64 / 1e6)
            }
            Kind::Large => format!("{} MB in one file", self.size / 1_000_000),
        }
    }

    pub fn title_of_change(&self) -> &'static str {
        match self.kind {
            Kind::Files => "1 % of files changed",
            Kind::Large => "1 % appended",
        }
    }

    /// Back to the size that it had.
    pub fn reset(&mut self) {
        if self.kind == Kind::Large {
            let file = OpenOptions::new().write(true).open(self.large_file()).expect("the file");
            file.set_len(self.size as u64).expect("a shorter file");
            self.changed = Instant::now();
        }
    }

    pub fn change(&mut self) {
        self.changes += 1;
        match self.kind {
            Kind::Files => {
                for number in (0..self.size).step_by(CHANGED) {
                    self.write(number, (self.changes << 32) + number as u64 + 1);
                }
            }
            Kind::Large => self.append(self.changes << 32, self.size / CHANGED),
        }
        self.changed = Instant::now();
    }

    fn file(&self, number: usize) -> PathBuf {
        self.folder.join(format!("{:03}", number % FOLDERS)).join(format!("{number}.txt"))
    }

    fn large_file(&self) -> PathBuf {
        self.folder.join("file.bin")
    }

    fn write(&self, number: usize, seed: u64) {
        let mut content = line(number).repeat(FILE_BYTES / 2 / 60).into_bytes();
        content.extend(random(seed, FILE_BYTES - content.len()));
        std::fs::write(self.file(number), content).expect("a file");
    }

    fn append(&self, seed: u64, bytes: usize) {
        let mut file = OpenOptions::new().append(true).open(self.large_file()).expect("the file");
        let (mut left, mut piece) = (bytes, 0);
        while left > 0 {
            let mut content = random(seed + piece as u64, PIECE);
            let text: String = (0..600).map(|number| line(piece * 600 + number)).collect();
            content.extend(&text.as_bytes()[..PIECE]);
            content.truncate(left);
            file.write_all(&content).expect("a larger file");
            left -= content.len();
            piece += 1;
        }
    }
}

/// Waits until the change is so long ago that the next listing shows it as an old one.
pub async fn settle(changed: Instant) {
    tokio::time::sleep(SETTLED.saturating_sub(changed.elapsed())).await;
}

fn line(number: usize) -> String {
    format!("{number} some text as it is in logs and pages, with numbers {}\n", number * 7919)
}

/// A thousand files in each folder; nine of ten are empty.
pub fn make_tiny_files(folder: &Path, count: usize) {
    const IN_FOLDER: usize = 1_000;
    for number in 0..count {
        let parent = folder.join(format!("{:04}", number / IN_FOLDER));
        if number % IN_FOLDER == 0 {
            std::fs::create_dir_all(&parent).expect("a folder");
        }
        let content = if number % 10 == 0 { format!("tiny file {number}\n") } else { String::new() };
        std::fs::write(parent.join(format!("{number}.txt")), content).expect("a file");
    }
}

/// `20000` as `20,000`.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}
