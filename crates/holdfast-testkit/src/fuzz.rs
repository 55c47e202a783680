//! Fuzzing of every parser of untrusted bytes. A target generates each input from a seed and a number alone, so any
//! input can be reproduced, and runs a parser with assertions that must hold for every input.
//!
//! Inputs that once failed are kept in `fuzz/cases`, in a folder for each target; they run first, also in the tests.

mod archives;
pub(crate) mod databases;
pub(crate) mod mutate;
mod mysql;
mod rng;
pub(crate) mod tar;
mod text;
mod wire;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use sha2::{Digest as _, Sha256};

pub use self::rng::Rng;

/// A parser, and the generator of its inputs.
pub struct FuzzTarget {
    pub name: &'static str,
    make: fn(&mut Rng) -> Vec<u8>,
    /// Runs the parser and returns whether it accepted the input. A panic is a bug.
    run: fn(&[u8]) -> bool,
    /// How many inputs the tests run: about one second's worth in an unoptimised build.
    pub test_inputs: u64,
}

pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "tar", make: tar::make, run: tar::run, test_inputs: 1000 },
    FuzzTarget { name: "selection", make: tar::make_selection, run: tar::run_selection, test_inputs: 1000 },
    FuzzTarget { name: "pg-dump", make: databases::make_dump, run: databases::run_dump, test_inputs: 2000 },
    FuzzTarget { name: "cluster-dump", make: databases::make_cluster, run: databases::run_cluster, test_inputs: 150 },
    FuzzTarget { name: "globals", make: databases::make_globals, run: databases::run_globals, test_inputs: 1000 },
    FuzzTarget { name: "mysql-dump", make: mysql::make, run: mysql::run, test_inputs: 2000 },
    FuzzTarget { name: "vanguard", make: databases::make_vanguard, run: databases::run_vanguard, test_inputs: 1000 },
    FuzzTarget { name: "listing", make: text::make_listing, run: text::run_listing, test_inputs: 1000 },
    FuzzTarget { name: "cron", make: text::make_cron, run: text::run_cron, test_inputs: 500 },
    FuzzTarget { name: "forwarded", make: text::make_forwarded, run: text::run_forwarded, test_inputs: 2000 },
    FuzzTarget { name: "sftp", make: wire::make_sftp, run: wire::run_sftp, test_inputs: 3000 },
    FuzzTarget { name: "archive", make: archives::make_archive, run: archives::run_archive, test_inputs: 200 },
    FuzzTarget { name: "sealed", make: archives::make_sealed, run: archives::run_sealed, test_inputs: 200 },
    FuzzTarget { name: "document", make: archives::make_document, run: archives::run_document, test_inputs: 500 },
];

impl FuzzTarget {
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// The input with this number; the same for the same seed.
    pub fn input(&self, seed: u64, number: u64) -> Vec<u8> {
        let name = Sha256::digest(self.name.as_bytes());
        let name = u64::from_le_bytes(name[..8].try_into().expect("eight bytes"));
        (self.make)(&mut Rng::new(seed ^ name, number))
    }

    /// Whether the parser accepted the input; the error is its panic message.
    pub fn check(&self, input: &[u8]) -> Result<bool, String> {
        catch_unwind(AssertUnwindSafe(|| (self.run)(input))).map_err(|panic| message(panic.as_ref()))
    }

    /// Inputs that failed before, with their paths.
    pub fn cases(&self) -> Vec<(String, Vec<u8>)> {
        let Ok(folder) = std::fs::read_dir(self.folder()) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = folder.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let read = |path: PathBuf| (path.display().to_string(), std::fs::read(&path).expect("a readable case"));
        paths.into_iter().map(read).collect()
    }

    /// Saves an input that failed.
    pub fn keep(&self, input: &[u8]) -> std::io::Result<PathBuf> {
        let digest = Sha256::digest(input);
        let name: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        std::fs::create_dir_all(self.folder())?;
        let path = self.folder().join(name);
        std::fs::write(&path, input)?;
        Ok(path)
    }

    fn folder(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/cases").join(self.name)
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
