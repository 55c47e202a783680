//! Confirmation of what cannot be undone: the user types what it is about.

use std::io::IsTerminal as _;

use crate::failure::Failure;
use crate::output;

/// Asks the user to type a word. Without a terminal nobody can: then the command needs `--yes`.
pub fn typed(word: &str, warning: &str) -> Result<(), Failure> {
    if is_typed(word, warning)? { Ok(()) } else { Err(Failure::other("not confirmed, so nothing was changed")) }
}

/// Whether the user typed the word.
pub fn is_typed(word: &str, warning: &str) -> Result<bool, Failure> {
    let line = ask(&format!("{warning} Type {word} to confirm: "))?;
    Ok(line == word)
}

/// The answer to a question, without the spaces around it. Standard output has only results.
pub fn ask(question: &str) -> Result<String, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::settings("cannot ask for confirmation without a terminal; use --yes"));
    }
    output::print_error(format_args!("{question}"));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|error| Failure::other(format!("cannot read the input: {error}")))?;
    Ok(line.trim().to_owned())
}
