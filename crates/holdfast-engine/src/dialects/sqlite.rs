//! SQLite. A database is a file; its own tool copies it while programs write to it, and puts it back the same way. The file
//! itself is never read or replaced under a program that has it open: what is in its log would be lost or belong to another.

use async_trait::async_trait;
use holdfast_core::backup::name_text;
use holdfast_core::content::Content;
use holdfast_core::database::DatabaseEngine;
use holdfast_core::run::FailureCode;

use crate::Engine;
use crate::archive::Manifest;
use crate::dialect::{DatabaseRestore, Dialect, Listed, RestoreInto, Size, Tools, misfit};
use crate::error::{EngineError, Result, classify};
use crate::plan::{RestorePlan, RestoreReport};
use crate::remote::{Remote, Script};
use crate::restore::feed::Feeding;
use crate::source::Outlet;
use crate::source::database::{DatabasePlan, EXIT_NO_TOOL, Login, explain};
use crate::source::database_dump::{self, Dumping};
use crate::ssh::Exit;

pub(super) struct Sqlite;

static TOOLS: Tools = Tools { dump: &["sqlite3"], package: "sqlite3", all: &["sqlite3"] };

const TOOL: &str = "sqlite3";

/// What scripts end with, beside the status of the tool itself.
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

/// Functions of every script. What is in a database is never evaluated: the tool has functions that run programs and write
/// files, and a constraint can call them. So there is no check of what a database holds; bytes are proven by their number
/// and hash. The tool guesses what a file is, and opens some others as something else, so only files that begin as
/// databases do are opened. It reads neither options nor addresses from a name with a slash before it, and nothing from the
/// account's own settings.
const COMMON: &str = r#"command -v sqlite3 >/dev/null 2>&1 || exit 98
open() { sqlite3 -batch -init /dev/null "$@"; }
is_database() { [ "$(dd if="$1" bs=15 count=1 2>/dev/null)" = 'SQLite format 3' ]; }
"#;

/// `$1` is the path. Read-only: a journal that somebody laid beside the file could name any file to be deleted, and the tool
/// would do so when it rolls it back. A log (WAL) of a program that ended is read all the same.
const OPEN: &str = r#"case $1 in /*) f=$1 ;; *) f=$PWD/$1 ;; esac
read_from() { open -readonly "$f" '.timeout 60000' "$@"; }
[ -f "$f" ] || exit 81
[ -r "$f" ] && is_database "$f" || exit 82
"#;

/// The copy is made in a folder of its own and goes with it, whatever ends the script. In one transaction: programs that
/// write meanwhile would make the tool begin again and again.
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

/// What is there: nothing, a database, something else, or what a database that is gone left. A journal that is not empty is
/// not rolled back by us, for the reason above.
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

/// `$2` is the size and `$3` says whether a database that is there is replaced: by the tool, in one transaction, so that
/// programs that have it open see the one or the other.
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
    source.path.as_deref().ok_or_else(|| EngineError::internal("a database that is a file has no path"))
}

/// What a script's own status means.
fn ended(status: Option<u32>, path: &str) -> Option<EngineError> {
    let path = name_text(path.as_bytes());
    let (code, message) = match status? {
        exit::NO_FILE => (FailureCode::SourceMissing, format!("There is no file {path} on the server.")),
        exit::UNREADABLE => {
            (FailureCode::SourceUnreadable, format!("{path} is empty, no SQLite database, or may not be read."))
        }
        exit::NO_ROOM => (
            FailureCode::TargetFull,
            "There is no room for the database on the server. A backup needs as much as the database takes, in TMPDIR, \
             /var/tmp or /tmp; a restore needs it beside the database."
                .to_owned(),
        ),
        exit::NO_FOLDER => (FailureCode::TargetUnwritable, format!("The folder of {path} is not on the server.")),
        exit::IS_THERE => (FailureCode::TargetNotEmpty, format!("{path} is there already; nothing was changed.")),
        exit::REMAINS => (
            FailureCode::TargetNotEmpty,
            format!(
                "Beside {path} is a -journal, or a -wal of a database that is gone; nothing was changed. Let the program \
                 that it belongs to recover, or move it away."
            ),
        ),
        exit::CUT => (FailureCode::Lost, "The database did not reach the server whole; nothing was changed.".to_owned()),
        exit::OTHER => (
            FailureCode::TargetNotEmpty,
            format!(
                "{path} is there and no SQLite database; nothing was changed. Move it away, with its -wal and -shm, or \
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

    /// There is no server to ask.
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

    /// The file says everything itself.
    async fn describe(&self, _: Remote<'_>, _: &DatabasePlan, _: &mut Manifest) -> Result<()> {
        Ok(())
    }

    async fn dump(&self, at: Remote<'_>, source: &DatabasePlan, outlet: &mut Outlet) -> Result<()> {
        let path = path_of(source)?;
        let script = Script::new(&format!("{COMMON}{OPEN}{DUMP}"), &[path]);
        let dumping = Dumping { tool: TOOL, script, input: String::new(), first_wait: Some(at.settings.finish) };
        let ended = database_dump::run(at, dumping, outlet).await?;
        if !ended.exit.success() {
            return Err(failed(at, &ended.exit, &ended.lines, path));
        }
        ended.lines.iter().for_each(|line| at.context.log.warn(line));
        Ok(())
    }

    async fn restore(&self, engine: &Engine, at: Remote<'_>, restore: &DatabaseRestore<'_>) -> Result<RestoreReport> {
        match (restore.plan.backup.content, restore.into) {
            (Content::SqliteDatabase, RestoreInto::File(path)) => put_back(engine, at, restore.plan, path).await,
            _ => Err(misfit()),
        }
    }

    fn left_behind(&self, _: Content, has_written: bool) -> &'static str {
        if has_written {
            "The database is what it was before, or what was restored: it is replaced in one transaction. Files named \
             .holdfast-… beside it can be deleted."
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
        let would = if is_there { "replaced" } else { "made" };
        context.log.line(format!("The database {shown} would be {would}."));
        return Ok(RestoreReport { is_dry: true, ..RestoreReport::default() });
    }
    let size = plan.backup.plain_bytes.to_string();
    let script = Script::new(
        &format!("{COMMON}{LOOK}{RESTORE}"),
        &[path, &size, if plan.overwrite { "replace" } else { "make" }],
    );
    let whole = engine.open_whole(&plan.backup, context).await?;
    context.begin_writing().await?;
    let process = script.start(connection).await?;
    let feeding = Feeding { process, login: String::new(), finish: settings.finish };
    let fed = engine
        .feed(connection, feeding, whole, &plan.backup, context, |plain, out| {
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
