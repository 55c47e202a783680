//! `cargo xtask torture-repository` and `cargo xtask bench blobs`: backups, prunes and checks of a repository in processes
//! of their own, which are killed at random moments, or measured with millions of blobs. restic looks at what is left.
#![allow(clippy::print_stdout, reason = "it tells what it does")]

#[path = "repository_stress/blobs.rs"]
mod blobs;
#[path = "repository_stress/kills.rs"]
mod kills;
#[path = "repository_stress/step.rs"]
mod step;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["step", what, folder, port] => step::run(what, folder.as_ref(), port.parse().expect("a port")),
        ["kills", count, seed] => kills::run(count.parse().expect("a count"), seed.parse().expect("a seed")),
        ["blobs", count] => blobs::run(count.parse().expect("a count")),
        _ => panic!("kills COUNT SEED, or blobs COUNT"),
    }
}
