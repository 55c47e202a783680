//! What commands print. `println!` panics when the text cannot be written; here the first error is kept instead, and
//! the command continues, and reports the error when it has finished.
//!
//! Names from servers and users are printed, too. Whatever could control the terminal, or make text look like something
//! else, is escaped here, so that no command can forget it.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

use holdfast_core::characters::escaped;
use serde_json::{Value, json};

use crate::failure::Failure;

static FIRST_ERROR: OnceLock<io::Error> = OnceLock::new();

/// Prints a line to standard output.
macro_rules! say {
    () => { $crate::output::print(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints a line to standard error. There is nowhere to report that this failed.
macro_rules! complain {
    ($($text:tt)*) => { $crate::output::print_error(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {complain, say};

/// Prints to standard output, unless that has failed before.
pub fn print(text: Arguments<'_>) {
    if FIRST_ERROR.get().is_some() {
        return;
    }
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(escaped(&text.to_string()).as_bytes()).and_then(|()| stdout.flush()) {
        let _already_known = FIRST_ERROR.set(error);
    }
}

pub fn print_error(text: Arguments<'_>) {
    let _nowhere_to_report = io::stderr().lock().write_all(escaped(&text.to_string()).as_bytes());
}

/// Whether everything was printed. A reader that has closed the pipe, such as `head`, wanted no more.
pub fn finish() -> Result<(), Failure> {
    match FIRST_ERROR.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::io(error, Path::new("standard output"))),
        Some(_) | None => Ok(()),
    }
}

/// The output format of a command: text for people, or one JSON document.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    pub is_json: bool,
}

impl Printer {
    /// Prints a value, of which `words` are the text.
    pub fn one(self, value: &Value, words: impl FnOnce(&Value) -> String) {
        if self.is_json {
            say!("{value:#}");
        } else {
            say!("{}", words(value));
        }
    }

    /// Prints that something was done.
    pub fn done(self, words: &str) {
        self.one(&json!({"message": words}), |_| words.to_owned());
    }

    /// Prints a line that is only for people.
    pub fn remark(self, words: &str) {
        if !self.is_json {
            say!("{words}");
        }
    }

    /// Prints what people and scripts should look at, although the command succeeds.
    pub fn warn(self, words: &str) {
        if self.is_json {
            complain!("{}", json!({"warning": words}));
        } else {
            complain!("{words}");
        }
    }

    /// Prints what went wrong, if anything, and returns the exit code of the command.
    pub fn report(self, result: Result<(), Failure>) -> ExitCode {
        let Err(Failure { message, code, errors }) = result else { return ExitCode::SUCCESS };
        if self.is_json {
            complain!("{}", json!({"message": message, "code": code, "errors": errors}));
        } else {
            complain!("holdfast: {message}");
        }
        ExitCode::from(code)
    }
}
