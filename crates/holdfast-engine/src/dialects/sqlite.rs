//! SQLite. A database is a file; the `sqlite3` tool copies it while programs write to it, and restores it in the same
//! way. The file itself is never read or replaced while a program has it open: the content of its write-ahead log would
//! be lost, or would belong to another database.

use async_trait::async_trait;
use holdfast_core::backup::name_text;
use holdfast_core::content::Content;
use holdfast_core::database::DatabaseEngine;
use holdfast_core::failure::FailureCode;

use crate::Engine;
use crate::archive::Manifest;
use crate::dialect::{DatabaseRestore, Dialect, Listed, RestoreInto, Size, Tools, mismatch};
use crate::error::{EngineError, Result, classify};
use crate::plan::{RestorePlan, RestoreReport};
use crate::remote::{Remote, Script};
use crate::restore::feed::Feeding;
use crate::source::PlainSink;
use crate::source::database::{DatabasePlan, Login};
use crate::source::database_dump::{self, Dumping};
use crate::source::tool::{EXIT_NO_TOOL, Messages, Sign, Tool, explain};
use crate::ssh::Exit;

pub(super) struct Sqlite;

static TOOLS: Tools = Tools { dump: &["sqlite3"], package: "sqlite3", all: &["sqlite3"] };

static TOOL: Tool = Tool {
    name: "sqlite3",
    messages: &Messages {
        signs: &[
            Sign::new(FailureCode::TargetFull, &["No space left on device"]),
            Sign::new(FailureCode::TargetFull, &["database or disk is full"]),
        ],
        incomplete: &[],
        number: |_| None,
    },
};

/// The exit codes of the scripts, in addition to those of the tool itself.
mod exit {
    pub(super) const NO_FILE: u32 = 81;
    pub(super) const UNREADABLE: u32 = 82;
    pub(super) const NO_ROOM: u32 = 83;
    pub(super) const NO_FOLDER: u32 = 84;
    pub(super) const IS_THERE: u32 = 85;
    pub(super) const REMAINS: u32 = 86;
    pub(super) const CUT: u32 = 87;
    pub(super) const OTHER: u32 = 89;
}

/// Functions used by every script. Expressions in a database are never evaluated: the tool has functions that run
/// programs and write files, and a constraint can call them. So the content of a database is not checked; it is
/// verified by its size and hash. The tool guesses the type of a file and opens some as something other than a
/// database, so only files that begin like a database are opened. A name preceded by a folder is not taken for an
/// option or a URI, and the account's own settings are not read.
const COMMON: &str = r#"command -v sqlite3 >/dev/null 2>&1 || exit 98
open() { sqlite3 -batch -init /dev/null "$@"; }
is_database() { [ "$(dd if="$1" bs=15 count=1 2>/dev/null)" = 'SQLite format 3' ]; }
"#;

/// `$1` is the path. Opened read-only: a malicious journal next to the file could name any file for deletion, and the
/// tool would delete it when rolling back. The write-ahead log of a program that has ended is still read.
const OPEN: &str = r#"case $1 in /*) f=$1 ;; *) f=$PWD/$1 ;; esac
read_from() { open -readonly "$f" '.timeout 60000' "$@"; }
[ -f "$f" ] || exit 81
[ -r "$f" ] && is_database "$f" || exit 82
"#;

/// The copy is made in a temporary folder that is removed however the script ends. It is made in one transaction,
/// otherwise programs that write to the database would make the tool start over again and again.
const DUMP: &str = r#"umask 077
for t in "${TMPDIR:-}" /var/tmp /tmp; do
    case $t in /*) [ -w "$t" ] && break ;; esac
done
d=$(mktemp -d "$t/holdfast-XXXXXXXX") || exit 83
trap 'cd /; rm -rf "$d"' EXIT
trap 'exit 1' HUP INT PIPE TERM
cd "$d" && read_from 'BEGIN; SELECT COUNT(*) FROM sqlite_master' '.backup main copy' >/dev/null || exit 1
is_database copy || exit 82
cat copy
"#;

const SIZE: &str = r#"read_from 'SELECT COUNT(*) FROM sqlite_master WHERE type = '"'table'" || exit 1
wc -c < "$f"
"#;

/// Determines what exists at the path: nothing, a database, something else, or remains of a database that is gone. A
/// journal that is not empty is not rolled back by us, for the reason given above.
const LOOK: &str = r#"look() {
    if [ -e "$1" ]; then
        [ -f "$1" ] && is_database "$1" || return 89
        [ ! -s "$1-journal" ] || return 86
        return 85
    fi
    [ ! -L "$1" ] || return 89
    for s in -wal -journal; do [ ! -e "$1$s" ] || return 86; done
}
"#;

/// `$2` is the size and `$3` says whether an existing database is replaced. The tool does so in one transaction, so
/// that programs that have it open see either the old or the new content.
const RESTORE: &str = r#"f=$1; u=$(umask); umask 077
cd "${f%/*}/" || exit 84
f=./${f##*/}
t=$(mktemp ./.holdfast-XXXXXXXX) || exit 83
trap 'rm -f "$t"' EXIT
trap 'exit 1' HUP INT PIPE TERM
cat > "$t" || exit 83
[ "$(wc -c < "$t")" -eq "$2" ] && is_database "$t" || exit 87
look "$f"
case $? in
0)
    chmod "$(printf '%o' $((0666 & ~0$u)))" "$t"
    { sync "$t" || sync; } 2>/dev/null
    ln "$t" "$f" 2>/dev/null || { mv -n "$t" "$f" && [ ! -e "$t" ]; } || exit 85
    ;;
85)
    [ "$3" = replace ] || exit 85
    open "$f" '.timeout 60000' ".restore main $t" >&2 || exit 1
    ;;
86) exit 86 ;;
*) exit 89 ;;
esac
"#;

fn path_of(source: &DatabasePlan) -> Result<&str> {
    source.database.path.as_deref().ok_or_else(|| EngineError::internal("a database that is a file has no path"))
}

/// The error for one of the scripts' own exit codes.
fn ended(status: Option<u32>, path: &str) -> Option<EngineError> {
    let path = name_text(path.as_bytes());
    let (code, message) = match status? {
        exit::NO_FILE => (FailureCode::SourceMissing, format!("There is no file {path} on the server.")),
        exit::UNREADABLE => {
            (FailureCode::SourceUnreadable, format!("{path} is empty, not an SQLite database, or not readable."))
        }
        exit::NO_ROOM => (
            FailureCode::TargetFull,
            "The server has no space for the database. A backup needs as much as the size of the database, in TMPDIR, \
             /var/tmp or /tmp; a restore needs it next to the database."
                .to_owned(),
        ),
        exit::NO_FOLDER => (FailureCode::TargetUnwritable, format!("The folder of {path} does not exist.")),
        exit::IS_THERE => (FailureCode::TargetNotEmpty, format!("{path} already exists; nothing was changed.")),
        exit::REMAINS => (
            FailureCode::TargetNotEmpty,
            format!(
                "Next to {path} is a -journal, or a -wal of a database that is gone; nothing was changed. Let the \
                 program that it belongs to recover it, or move it away."
            ),
        ),
        exit::CUT => {
            (FailureCode::Lost, "The database did not reach the server whole; nothing was changed.".to_owned())
        }
        exit::OTHER => (
            FailureCode::TargetNotEmpty,
            format!(
                "{path} is not an SQLite database; nothing was changed. Move it away, with its -wal and -shm, or \
                 restore to another path."
            ),
        ),
        EXIT_NO_TOOL | 127 => (FailureCode::ToolMissing, "The server has no sqlite3.".to_owned()),
        _ => return None,
    };
    Some(EngineError::new(code, message))
}

fn failed(at: Remote<'_>, exit: &Exit, lines: &[String], path: &str) -> EngineError {
    match ended(exit.status, path) {
        Some(error) => {
            lines.iter().for_each(|line| at.context.log.line(line));
            error
        }
        None => explain(TOOL, exit, lines, at.context),
    }
}

#[async_trait]
impl Dialect for Sqlite {
    fn engine(&self) -> DatabaseEngine {
        DatabaseEngine::Sqlite
    }

    fn tools(&self) -> &'static Tools {
        &TOOLS
    }

    /// SQLite has no server.
    async fn has(&self, _: Remote<'_>, _: &Login, _: Option<&str>) -> Result<bool> {
        Ok(false)
    }

    async fn list(&self, _: Remote<'_>, _: &Login) -> Result<Listed> {
        Ok(Ok(Vec::new()))
    }

    async fn size(&self, at: Remote<'_>, source: &DatabasePlan) -> Result<Size> {
        let path = path_of(source)?;
        let answer = at.ask(&Script::new(&format!("{COMMON}{OPEN}{SIZE}"), &[path]), "").await?;
        if !answer.exit.success() {
            return Err(failed(at, &answer.exit, &answer.stderr, path));
        }
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        let mut numbers = text.lines().map(|line| line.trim().parse().unwrap_or(0));
        Ok(Size { entries: numbers.next().unwrap_or(0), bytes: numbers.next().unwrap_or(0) })
    }

    /// The file contains everything itself.
    async fn describe(&self, _: Remote<'_>, _: &DatabasePlan, _: &mut Manifest) -> Result<()> {
        Ok(())
    }

    async fn dump(&self, at: Remote<'_>, source: &DatabasePlan, sink: &mut PlainSink) -> Result<()> {
        let path = path_of(source)?;
        let script = Script::new(&format!("{COMMON}{OPEN}{DUMP}"), &[path]);
        let dumping = Dumping { tool: TOOL, script, input: String::new(), first_wait: Some(at.settings.finish) };
        let ended = database_dump::run(at, dumping, sink).await?;
        if !ended.exit.success() {
            return Err(failed(at, &ended.exit, &ended.lines, path));
        }
        ended.lines.iter().for_each(|line| at.context.log.warn(line));
        Ok(())
    }

    async fn restore(&self, engine: &Engine, at: Remote<'_>, restore: &DatabaseRestore<'_>) -> Result<RestoreReport> {
        match restore.into {
            RestoreInto::File(path) => put_back(engine, at, restore.plan, path).await,
            RestoreInto::Server { .. } => Err(mismatch()),
        }
    }

    fn left_behind(&self, _: Content, has_written: bool) -> &'static str {
        if has_written {
            "The database is either unchanged or restored: it is replaced in one transaction. Files named .holdfast-… \
             next to it can be deleted."
        } else {
            ""
        }
    }
}

async fn put_back(engine: &Engine, at: Remote<'_>, plan: &RestorePlan, path: &str) -> Result<RestoreReport> {
    let Remote { connection, settings, context } = at;
    let look = format!("{COMMON}{LOOK}[ -d \"${{1%/*}}/\" ] || exit 84\nlook \"$1\"\n");
    let looked = at.ask(&Script::new(&look, &[path]), "").await?;
    let is_there = looked.exit.status == Some(exit::IS_THERE);
    let may_go_on = looked.exit.success() || is_there && plan.overwrite;
    if !may_go_on {
        return Err(failed(at, &looked.exit, &looked.stderr, path));
    }
    engine.read_first(&plan.backup, context).await?;
    let shown = name_text(path.as_bytes());
    if plan.options.dry_run {
        let would = if is_there { "replaced" } else { "created" };
        context.log.line(format!("The database {shown} would be {would}."));
        return Ok(RestoreReport { is_dry: true, ..RestoreReport::default() });
    }
    let size = plan.backup.plain_bytes.to_string();
    let script = Script::new(
        &format!("{COMMON}{LOOK}{RESTORE}"),
        &[path, &size, if plan.overwrite { "replace" } else { "make" }],
    );
    let reader = engine.open_plain(&plan.backup, context).await?;
    context.begin_writing().await?;
    let process = script.start(connection).await?;
    let feeding = Feeding { process, login: String::new(), finish: settings.finish };
    let fed = engine
        .feed(connection, feeding, reader, &plan.backup, context, |plain, out| {
            std::io::copy(plain, out)
                .map(drop)
                .map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))
        })
        .await?;
    if !fed.exit.success() {
        let error = failed(at, &fed.exit, &fed.lines, path);
        if ended(fed.exit.status, path).is_some() {
            context.note_undone().await;
        }
        return Err(error);
    }
    fed.lines.iter().for_each(|line| context.log.warn(line));
    Ok(RestoreReport { plain_bytes: fed.plain_bytes, ..RestoreReport::default() })
}
