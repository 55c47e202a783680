//! Secrets that a command needs: from a file, a hidden prompt on the terminal, or the first line of standard input.

use std::io::IsTerminal as _;
use std::path::Path;

use holdfast_core::Secret;

use crate::failure::Failure;

/// A new secret. On a terminal, it must be entered twice.
pub fn new_secret(question: &str, file: Option<&Path>) -> Result<Secret, Failure> {
    let first = secret(question, file)?;
    if file.is_none()
        && std::io::stdin().is_terminal()
        && secret("Enter it once more", None)?.reveal() != first.reveal()
    {
        return Err(Failure::settings("the two entries do not match"));
    }
    Ok(first)
}

pub fn secret(question: &str, file: Option<&Path>) -> Result<Secret, Failure> {
    let unread = |error: std::io::Error| Failure::other(format!("cannot read the input: {error}"));
    let text = match file {
        Some(path) => {
            std::fs::read_to_string(path).map_err(|error| Failure::settings(format!("{}: {error}", path.display())))?
        }
        None if std::io::stdin().is_terminal() => {
            rpassword::prompt_password(format!("{question}: ")).map_err(unread)?
        }
        None => {
            let mut line = String::new();
            if std::io::stdin().read_line(&mut line).map_err(unread)? == 0 {
                let what = question.to_lowercase();
                return Err(Failure::settings(format!(
                    "standard input is empty, but the {what} is expected in its first line"
                )));
            }
            line
        }
    };
    Ok(Secret::new(text.strip_suffix('\n').unwrap_or(&text).trim_end_matches('\r')))
}
