//! Shell completions and manual pages, generated from the command line parser.

use std::io::Write as _;
use std::path::Path;

use crate::cli;
use crate::failure::Failure;

pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut cli::parser(), "holdfast", &mut out);
    // Ignore a closed pipe.
    let _closed = std::io::stdout().write_all(&out);
    Ok(())
}

/// Writes a manual page for the program and one for each command.
pub fn manual(folder: &Path) -> Result<(), Failure> {
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(cli::parser(), folder));
    written.map_err(|error| Failure::io(&error, folder))
}
