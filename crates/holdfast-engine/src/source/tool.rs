//! The programs of database engines on a server, and how to tell from what they say why they failed.

use holdfast_core::failure::FailureCode;

use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::remote::{Answer, ended};
use crate::ssh::Exit;

/// With what our scripts exit if the program is not there.
pub(crate) const EXIT_NO_TOOL: u32 = 98;

/// A program of a database engine.
#[derive(Clone, Copy)]
pub(crate) struct Tool {
    /// What people call it, in messages.
    pub name: &'static str,
    pub messages: &'static Messages,
}

/// What the programs of an engine say when they fail.
pub(crate) struct Messages {
    /// The first sign that a line bears tells the cause.
    pub signs: &'static [Sign],
    /// What makes a dump incomplete even if the program exits with 0.
    pub incomplete: &'static [&'static str],
    /// The number of the error that a line reports, for engines that number theirs.
    pub number: fn(&str) -> Option<u16>,
}

/// A line with all of these phrases is the sign of a cause.
pub(crate) struct Sign {
    pub phrases: &'static [&'static str],
    pub code: FailureCode,
    /// What people can do about it; follows the message.
    pub hint: &'static str,
}

impl Sign {
    pub const fn new(code: FailureCode, phrases: &'static [&'static str]) -> Self {
        Self { phrases, code, hint: "" }
    }

    pub const fn with_hint(phrases: &'static [&'static str], hint: &'static str) -> Self {
        Self { phrases, code: FailureCode::RemoteFailed, hint }
    }

    fn fits(&self, line: &str) -> bool {
        self.phrases.iter().all(|phrase| line.contains(phrase))
    }
}

/// Whether a dump is complete.
pub(super) fn judge(tool: Tool, exit: &Exit, lines: &[String], context: &Context) -> Result<()> {
    let is_incomplete = |line: &String| tool.messages.incomplete.iter().any(|phrase| line.contains(phrase));
    if !exit.success() || lines.iter().any(is_incomplete) {
        return Err(explain(tool, exit, lines, context));
    }
    lines.iter().for_each(|line| context.log.warn(line));
    Ok(())
}

/// The answer, or an error if the tool failed.
pub(crate) fn answered(answer: Answer, tool: Tool, context: &Context) -> Result<Answer> {
    if answer.exit.success() { Ok(answer) } else { Err(explain(tool, &answer.exit, &answer.stderr, context)) }
}

/// Why a database tool failed, derived from its output.
pub(crate) fn explain(tool: Tool, exit: &Exit, lines: &[String], context: &Context) -> EngineError {
    let Tool { name, messages } = tool;
    for line in lines {
        context.log.line(line);
    }
    if exit.status == Some(EXIT_NO_TOOL) || exit.status == Some(127) {
        return EngineError::new(FailureCode::ToolMissing, format!("The server has no {name}."));
    }
    let sign = messages.signs.iter().find(|sign| lines.iter().any(|line| sign.fits(line)));
    let (code, hint) = sign.map_or((FailureCode::RemoteFailed, ""), |sign| (sign.code, sign.hint));
    // Some clients print the statement before the error.
    let telling = lines.iter().find(|line| line.contains("ERROR") || line.contains("error:")).or(lines.first());
    let said = telling.map(|line| format!(": {line}")).unwrap_or_default();
    let error = EngineError::new(code, context.log.redacted(&format!("{name} {}{said}{hint}", ended(exit))));
    // The first number reported: a later line may be the rest of a name that contains a line break.
    EngineError { number: lines.iter().find_map(|line| (messages.number)(line)), ..error }
}
