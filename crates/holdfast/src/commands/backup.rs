//! `holdfast backup decrypt|extract`: opens a backup file without a database, a service or settings.

use std::io::{IsTerminal as _, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use holdfast_core::Secret;
use holdfast_core::failure::FailureCode;
use holdfast_engine::{EngineError, decrypt, extract};
use serde_json::json;

use super::ask;
use crate::cli::BackupCommand;
use crate::failure::Failure;
use crate::output::{Printer, complain};

pub fn run(command: BackupCommand, printer: Printer) -> Result<(), Failure> {
    match command {
        BackupCommand::Decrypt { file, output, password_file } => {
            let password = password(&file, password_file.as_deref())?;
            write_plain(&file, password.as_ref(), output.as_deref())?;
            // Without a file, standard output has the content.
            if printer.is_json
                && let Some(output) = output
            {
                printer.one(&json!({"file": output.display().to_string()}), |_| String::new());
            }
            Ok(())
        }
        BackupCommand::Extract { file, to, entries, password_file } => {
            let password = password(&file, password_file.as_deref())?;
            let (count, left_out) = extract(&file, password.as_ref(), &to, &entries).map_err(explain)?;
            if !printer.is_json {
                left_out.iter().for_each(|path| complain!("holdfast: {path}"));
            }
            let words = format!("{count} entries in {}", to.display());
            let folder = to.display().to_string();
            printer.one(&json!({"entries": count, "folder": folder, "left_out": left_out}), |_| words);
            Ok(())
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
fn explain(error: EngineError) -> Failure {
    // The usual advice is about a server, and none is involved here.
    let advice = match error.code {
        FailureCode::TargetUnwritable => "Choose a writable folder that is empty or does not exist yet.",
        FailureCode::NotSupported => "",
        code => code.advice(),
    };
    let message = error.message.trim_end_matches('.');
    Failure::other(format!("{message}. {advice}").trim_end().to_owned())
}

/// Writes the decrypted content. An output file gets its final name only when it is complete.
fn write_plain(file: &Path, password: Option<&Secret>, output: Option<&Path>) -> Result<(), Failure> {
    let Some(output) = output else {
        let mut stdout = std::io::stdout().lock();
        if stdout.is_terminal() {
            return Err(Failure::settings("the output is binary; specify a file with --output or redirect it"));
        }
        decrypt(file, password, &mut stdout).map_err(explain)?;
        return Ok(());
    };
    let failed = |error: std::io::Error| Failure::other(format!("{}: {error}", output.display()));
    let mut name = output.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let mut options = std::fs::OpenOptions::new();
    let mut writer = options.write(true).create_new(true).mode(0o600).open(&part).map_err(failed)?;
    let written = decrypt(file, password, &mut writer).map_err(explain);
    let written = written.and_then(|_| writer.sync_all().and_then(|()| std::fs::rename(&part, output)).map_err(failed));
    if written.is_err()
        && let Err(error) = std::fs::remove_file(&part)
    {
        complain!("holdfast: could not remove {}: {error}", part.display());
    }
    written
}

/// The password from a file or the user; `None` if the backup is not encrypted.
fn password(file: &Path, password_file: Option<&Path>) -> Result<Option<Secret>, Failure> {
    let mut start = [0; 19];
    let is_encrypted = std::fs::File::open(file)
        .and_then(|mut opened| opened.read_exact(&mut start))
        .is_ok_and(|()| &start == b"age-encryption.org/");
    if !is_encrypted {
        return Ok(None);
    }
    ask::secret("Password of the backup", password_file).map(Some)
}
