//! Restores: a stored backup back onto a server, as files or into a database. Everything that is read is hashed; what
//! turns out damaged ends the remote process before it can take a half for a whole.

mod psql_guard;

use std::collections::HashSet;
use std::io::{self, Write};
use std::ops::ControlFlow;

use bytes::Bytes;
use holdfast_core::backup::Content;
use holdfast_core::run::FailureCode;
use holdfast_core::task::DatabaseEngine;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::psql_guard::PsqlGuard;
use crate::Engine;
use crate::archive::{Entry, EntryKind, forward, unpack};
use crate::context::Context;
use crate::error::{EngineError, Result, classify};
use crate::plan::{RestorePlan, RestoreReport, RestoreTarget, StoredBackup};
use crate::remote::{self, connect, ended, stalled};
use crate::source::database::{self, Login, MYSQL_CLIENT, mysql, mysql_text, pg_name, pg_text, postgres};
use crate::source::sftp::{self, SftpTarget};
use crate::ssh::{Connection, Control, Exit, Process, SshError, Stdin};
use crate::stored::Whole;

/// Pieces on their way to the server.
const WAITING_PIECES: usize = 8;
const PIECE_BYTES: usize = 256 * 1024;
/// How long a process that we ended may take to end.
const GOODBYE: std::time::Duration = std::time::Duration::from_secs(2);

impl Engine {
    pub async fn restore(&self, plan: &RestorePlan, context: &Context) -> Result<RestoreReport> {
        match (&plan.target, plan.backup.content) {
            (RestoreTarget::Files { path, entries }, Content::Files) => {
                let choice = self.choose(&plan.backup, entries).await?;
                let (whole, connection) = self.open_both(plan, context).await?;
                let report = self.restore_files(&connection, plan, whole, path, choice, context).await?;
                remote::leave(connection, context).await;
                Ok(report)
            }
            (RestoreTarget::Database { name, login }, content) if content != Content::Files => {
                let (whole, connection) = self.open_both(plan, context).await?;
                let report = self.restore_database(&connection, plan, whole, name.as_deref(), login, context).await?;
                remote::leave(connection, context).await;
                Ok(report)
            }
            _ => Err(EngineError::internal("the target does not fit what is in the backup")),
        }
    }

    /// The backup and the server, at the same time. Nothing is touched on the server before the backup opens.
    async fn open_both(&self, plan: &RestorePlan, context: &Context) -> Result<(Whole, Connection)> {
        tokio::try_join!(self.open_whole(&plan.backup, context), connect(&plan.server, &self.settings.remote, context))
    }

    /// Which entries to put back. Folders bring everything below them, a file the folders above it, and a further name
    /// of a file the file itself.
    pub(crate) async fn choose(&self, backup: &StoredBackup, entries: &[String]) -> Result<Choice> {
        if entries.is_empty() {
            return Ok(Choice::Everything);
        }
        let wanted: Vec<String> = entries.iter().map(|path| path.trim_matches('/').to_owned()).collect();
        let start = (Chosen { wanted, also: HashSet::new() }, HashSet::new());
        let (chosen, found) = self
            .visit(backup, start, |(chosen, found), entry| {
                if let Some(wanted) = chosen.wanted.iter().find(|wanted| covers(wanted, &entry.path)) {
                    found.insert(wanted.clone());
                    if entry.kind == EntryKind::Hardlink {
                        let link = entry.link.clone().unwrap_or_default();
                        chosen.also.insert(link.strip_prefix("./").unwrap_or(&link).to_owned());
                    }
                }
                ControlFlow::Continue(())
            })
            .await?;
        match chosen.wanted.iter().find(|wanted| !found.contains(*wanted)) {
            Some(missing) => Err(EngineError::new(
                FailureCode::EntryMissing,
                format!("There is no {missing} in this backup; nothing was restored."),
            )),
            None => Ok(Choice::Some(chosen)),
        }
    }

    async fn restore_files(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        whole: Whole,
        path: &str,
        choice: Choice,
        context: &Context,
    ) -> Result<RestoreReport> {
        let (is_new, flavour) = match self.prepare(connection, path, context).await {
            Err(error) if error.code == FailureCode::ToolMissing => (false, Flavour::Sftp),
            prepared => prepared?,
        };
        // The root of the archive is the target itself; a folder that was there keeps its own mode and owner.
        let chooser = move |entry: &Entry| (is_new || !entry.path.is_empty()) && choice.includes(entry);
        let keeps = !(plan.overwrite || is_new);
        let command = match flavour {
            Flavour::Gnu => extract_command(GNU_EXTRACT, if keeps { GNU_KEEP } else { "" }, path),
            Flavour::Bsd => extract_command(BSD_EXTRACT, if keeps { "-k" } else { "" }, path),
            Flavour::Sftp => return self.restore_over_sftp(connection, plan, whole, path, chooser, context).await,
        };
        let process = connection.exec(&command).await?;
        let files = context.progress.clone();
        let (report, exit, lines) = self
            .feed(process, String::new(), whole, plan, context, move |plain, out| {
                forward(
                    plain,
                    &mut |entry| {
                        chooser(entry) && {
                            files.add_file();
                            true
                        }
                    },
                    out,
                )
            })
            .await?;
        judge_extract(&exit, &lines, context)?;
        Ok(report)
    }

    /// Makes the target folder, says whether it is new or empty, and which tar the server has.
    async fn prepare(&self, connection: &Connection, path: &str, context: &Context) -> Result<(bool, Flavour)> {
        const SCRIPT: &str = r#"
LC_ALL=C; export LC_ALL
if [ -d "$1" ]; then
  if [ -z "$(ls -A -- "$1" 2>/dev/null)" ]; then echo new; else echo old; fi
else mkdir -p -- "$1" || exit 97; echo new; fi
[ -w "$1" ] || exit 97
command -v tar >/dev/null 2>&1 || exit 98
case $(tar --version 2>&1) in *'GNU tar'*) echo gnu ;; *bsdtar*) echo bsd ;; *) echo other ;; esac
"#;
        let no_tar = || EngineError::new(FailureCode::ToolMissing, "The server runs no tar for this user.");
        let asked =
            remote::ask(connection, &self.settings.remote, context, &remote::command(SCRIPT, &[path]), "").await;
        let answer = asked.map_err(|error| if error.message.contains("refused to run") { no_tar() } else { error })?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        let mut words = text.lines();
        match (answer.exit.status, words.next(), words.next()) {
            (Some(97), ..) => Err(EngineError::new(
                FailureCode::TargetUnwritable,
                format!("The SSH user may not write to {path}: {}", answer.stderr.join("; ")),
            )),
            (Some(0), Some(state), Some(flavour)) => {
                let flavour = match flavour {
                    "gnu" => Flavour::Gnu,
                    "bsd" => Flavour::Bsd,
                    _ => Flavour::Sftp,
                };
                Ok((state == "new", flavour))
            }
            _ => Err(no_tar()),
        }
    }

    async fn restore_over_sftp(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        mut whole: Whole,
        path: &str,
        chooser: impl Fn(&Entry) -> bool + Send + 'static,
        context: &Context,
    ) -> Result<RestoreReport> {
        let session = sftp::open(connection, &self.settings.remote).await?;
        context.log.line("The server's tar is not one we know; writing over SFTP.");
        if !session.try_exists(path).await.unwrap_or(false) {
            let made = session.create_dir(path).await;
            made.map_err(|error| EngineError::new(FailureCode::TargetUnwritable, format!("{path}: {error}")))?;
        }
        let (backup, context) = (plan.backup.clone(), context.clone());
        let (root, overwrite, runtime) = (path.to_owned(), plan.overwrite, Handle::current());
        crate::stored::on_thread(move || {
            let mut target = SftpTarget { session, root, overwrite, runtime, context: &context, folders: Vec::new() };
            let entries = unpack(
                &mut whole.plain,
                &mut |entry| {
                    let is_chosen = !entry.path.is_empty() && chooser(entry);
                    is_chosen && {
                        context.progress.add_file();
                        true
                    }
                },
                &mut target,
            )?;
            let plain_bytes = whole.plain.bytes;
            whole.finish(&backup)?;
            Ok(RestoreReport { entries, plain_bytes })
        })
        .await
    }

    /// Runs a remote process on the backup's plain stream as `transform` passes it on. The process's own end is given
    /// back with what it said; an error of ours ends it first.
    async fn feed(
        &self,
        process: Process,
        login: String,
        mut whole: Whole,
        plan: &RestorePlan,
        context: &Context,
        transform: impl FnOnce(&mut dyn io::Read, &mut dyn Write) -> Result<u64> + Send + 'static,
    ) -> Result<(RestoreReport, Exit, Vec<String>)> {
        let backup = plan.backup.clone();
        let (sender, mut pieces) = mpsc::channel::<Bytes>(WAITING_PIECES);
        let reading = tokio::task::spawn_blocking(move || {
            let mut out = Pieces { sender, filling: Vec::new() };
            let entries = transform(&mut whole.plain, &mut out)?;
            let plain_bytes = whole.plain.bytes;
            // Before the last piece: the process must not see an end that is none.
            whole.finish(&backup)?;
            let sent = out.flush();
            sent.map_err(|error| classify(&error, FailureCode::RemoteFailed, "The server took no more"))?;
            Ok(RestoreReport { entries, plain_bytes })
        });
        let Process { mut stdin, mut stdout, control } = process;
        let stall = self.settings.remote.stall;
        let feeding = async {
            if !login.is_empty() {
                write(&mut stdin, login.into(), stall).await?;
            }
            while let Some(piece) = pieces.recv().await {
                write(&mut stdin, piece, stall).await?;
            }
            // Nobody writes any more; why, the reading thread says.
            let read = reading.await.map_err(EngineError::internal)?;
            match &read {
                Ok(_) => stdin.close().await?,
                Err(_) => end_process(&control).await,
            }
            read
        };
        let (cancel, given_up) = (context.cancel.clone(), CancellationToken::new());
        let (fed, exit) = tokio::join!(
            async {
                let fed = tokio::select! {
                    () = cancel.cancelled() => Err(EngineError::cancelled()),
                    fed = feeding => fed,
                };
                if fed.is_err() {
                    given_up.cancel();
                    end_process(&control).await;
                }
                fed
            },
            // Drained all the while: a full pipe there would stop the process.
            async {
                tokio::select! {
                    exit = stdout.wait() => exit,
                    // All is fed, and the process takes its time; somebody does not want to wait for it.
                    () = async { cancel.cancelled().await; end_process(&control).await } => {
                        Err(SshError::Lost("cancelled".to_owned()))
                    }
                    // The reason is known; the server may take its time to say goodbye, but not for ever.
                    () = async { given_up.cancelled().await; tokio::time::sleep(GOODBYE).await } => {
                        Err(SshError::Lost("given up".to_owned()))
                    }
                }
            }
        );
        let lines = remote::lines(stdout.stderr());
        if context.cancel.is_cancelled() {
            return Err(EngineError::cancelled());
        }
        match (fed, exit) {
            (Ok(report), Ok(exit)) => Ok((report, exit, lines)),
            // A process that ended early explains a write that failed, not the other way round.
            (Err(error), Ok(exit)) if error.code == FailureCode::Lost && exit != Exit::default() => {
                Ok((RestoreReport::default(), exit, lines))
            }
            (Err(error), _) => Err(error),
            (Ok(_), Err(error)) => Err(error.into()),
        }
    }

    async fn restore_database(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        whole: Whole,
        name: Option<&str>,
        login: &Login,
        context: &Context,
    ) -> Result<RestoreReport> {
        if let Some(password) = &login.password {
            context.log.hide(password);
        }
        let (engine, command) = match (plan.backup.content, name) {
            (Content::PostgresDatabase, Some(name)) => {
                self.prepare_postgres(connection, name, plan.overwrite, login, context).await?;
                let script = "command -v pg_restore >/dev/null 2>&1 || exit 98\nexec pg_restore --no-password \
                    --exit-on-error --single-transaction $2 --dbname=\"$1\"";
                let clean = if plan.overwrite { "--clean --if-exists" } else { "" };
                (DatabaseEngine::Postgresql, postgres(script, &[&pg_name(name), clean]))
            }
            (Content::PostgresCluster, None) => {
                // Errors are told apart by their words, which must be the ones we know.
                let script = "command -v psql >/dev/null 2>&1 || exit 98\nPGOPTIONS='-c lc_messages=C'; export PGOPTIONS\n\
                    exec psql --no-psqlrc --no-password --quiet --output=/dev/null --dbname=\"$1\"";
                (DatabaseEngine::Postgresql, postgres(script, &[&pg_name("postgres")]))
            }
            (Content::MysqlDatabase, Some(name)) => {
                self.prepare_mysql(connection, name, plan.overwrite, login, context).await?;
                (DatabaseEngine::Mysql, mysql(MYSQL_CLIENT, MYSQL_RESTORE, "3", &[name]))
            }
            (Content::MysqlServer, None) => (DatabaseEngine::Mysql, mysql(MYSQL_CLIENT, MYSQL_RESTORE_ALL, "3", &[])),
            _ => return Err(EngineError::internal("the target does not fit what is in the backup")),
        };
        let is_psql = plan.backup.content == Content::PostgresCluster;
        let process = connection.exec(&command).await?;
        let (report, exit, lines) = self
            .feed(process, login.lines(engine), whole, plan, context, move |plain, out| {
                let copied = if is_psql { io::copy(&mut PsqlGuard::new(plain), out) } else { io::copy(plain, out) };
                copied.map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged")).map(|_| 0)
            })
            .await?;
        self.judge_database(plan.backup.content, &exit, &lines, context)?;
        Ok(report)
    }

    /// Makes the database when it is missing. With `pg_restore` in one transaction, a full one stays as it is.
    async fn prepare_postgres(
        &self,
        connection: &Connection,
        name: &str,
        overwrite: bool,
        login: &Login,
        context: &Context,
    ) -> Result<()> {
        const ENGINE: DatabaseEngine = DatabaseEngine::Postgresql;
        let settings = &self.settings.remote;
        let ask = async |database: &str, sql: &str| {
            let answer = database::query(connection, ENGINE, database, sql, login, settings, context).await?;
            if answer.exit.success() {
                return Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned());
            }
            Err(database::explain("psql", &answer.exit, &answer.stderr, context))
        };
        let exists = format!("SELECT count(*) FROM pg_database WHERE datname = {}", pg_text(name));
        if ask("postgres", &exists).await? == "0" {
            ask("postgres", &format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\""))).await?;
            context.log.line(format!("The database {name} was made."));
            return Ok(());
        }
        let tables = "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";
        if !overwrite && ask(name, tables).await? != "0" {
            return Err(not_empty(name));
        }
        Ok(())
    }

    async fn prepare_mysql(
        &self,
        connection: &Connection,
        name: &str,
        overwrite: bool,
        login: &Login,
        context: &Context,
    ) -> Result<()> {
        const ENGINE: DatabaseEngine = DatabaseEngine::Mysql;
        let settings = &self.settings.remote;
        let create = format!("CREATE DATABASE IF NOT EXISTS `{}`", name.replace('`', "``"));
        let count = format!("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = {}", mysql_text(name));
        let sql = format!("{create}; {count}");
        let answer = database::query(connection, ENGINE, "", &sql, login, settings, context).await?;
        if !answer.exit.success() {
            return Err(database::explain("mysql", &answer.exit, &answer.stderr, context));
        }
        let tables = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
        if !overwrite && tables != "0" {
            return Err(not_empty(name));
        }
        Ok(())
    }

    fn judge_database(&self, content: Content, exit: &Exit, lines: &[String], context: &Context) -> Result<()> {
        let tool = match content {
            Content::PostgresDatabase => "pg_restore",
            Content::PostgresCluster => "psql",
            _ => "mysql",
        };
        if !exit.success() {
            return Err(database::explain(tool, exit, lines, context));
        }
        if content != Content::PostgresCluster {
            for line in lines {
                context.log.warn(line);
            }
            return Ok(());
        }
        // psql goes on after errors, since a cluster's own roles and databases always are there already.
        let is_expected = |line: &&String| {
            !line.contains("ERROR:")
                || (line.contains("role \"") && (line.contains("already exists") || line.contains("cannot be dropped")))
                || line.contains("current user cannot be dropped")
        };
        let is_unseen = |line: &&String| line.ends_with("further lines)");
        let (expected, errors): (Vec<&String>, Vec<&String>) =
            lines.iter().partition(|line| is_expected(line) && !is_unseen(line));
        for line in expected {
            context.log.line(line);
        }
        for line in &errors {
            context.log.warn(line);
        }
        match errors.first() {
            Some(first) => {
                let message = format!("psql met {} errors, the first: {first}", errors.len());
                Err(EngineError::new(FailureCode::RemoteFailed, message))
            }
            None => Ok(()),
        }
    }
}

fn not_empty(name: &str) -> EngineError {
    EngineError::new(FailureCode::TargetNotEmpty, format!("The database {name} is not empty; nothing was changed."))
}

/// Binary mode leaves the client no commands of its own but `delimiter`: what is in a dump cannot run a program.
const MYSQL_RESTORE: &str =
    "--defaults-extra-file=/dev/fd/3 --binary-mode --default-character-set=utf8mb4 --database=\"$1\"";
const MYSQL_RESTORE_ALL: &str = "--defaults-extra-file=/dev/fd/3 --binary-mode --default-character-set=utf8mb4";

enum Flavour {
    Gnu,
    Bsd,
    Sftp,
}

const GNU_EXTRACT: &str =
    "tar --extract --file=- --preserve-permissions --delay-directory-restore --warning=no-timestamp";
const GNU_KEEP: &str = "--skip-old-files --warning=existing-file";
const BSD_EXTRACT: &str = "tar -x -p -f -";

fn extract_command(tar: &str, keep: &str, path: &str) -> String {
    remote::command(&format!("LC_ALL=C; export LC_ALL; cd -- \"$1\" || exit 97; exec {tar} {keep}"), &[path])
}

fn judge_extract(exit: &Exit, lines: &[String], context: &Context) -> Result<()> {
    for line in lines.iter().filter(|line| !line.contains("previous errors")) {
        // Folders that are there are no surprise.
        if line.contains("skipping existing file") {
            context.log.line(line.replace("skipping existing file", "was there already and stays as it is"));
        } else {
            context.log.warn(line);
        }
    }
    if exit.success() {
        return Ok(());
    }
    let said = lines.first().map(|line| format!(": {line}")).unwrap_or_default();
    let signs = ["Permission denied", "No space left", "Cannot ", "Read-only"];
    let is_target = lines.iter().any(|line| signs.iter().any(|sign| line.contains(sign)));
    let code = if is_target { FailureCode::TargetUnwritable } else { FailureCode::RemoteFailed };
    Err(EngineError::new(code, format!("tar {}{said}", ended(exit))))
}

/// Ends a remote process, or at least does not wait for it any longer.
async fn end_process(control: &Control) {
    if tokio::time::timeout(GOODBYE, control.terminate()).await.is_err() {
        tracing::debug!("a remote process did not take note of its end");
    }
}

async fn write(stdin: &mut Stdin, piece: Bytes, stall: std::time::Duration) -> Result<()> {
    let written = tokio::time::timeout(stall, stdin.write_all(piece)).await.map_err(|_| stalled(stall))?;
    written.map_err(|error: SshError| EngineError::new(FailureCode::Lost, error.to_string()))
}

/// What a restore puts back.
pub(crate) enum Choice {
    Everything,
    Some(Chosen),
}

pub(crate) struct Chosen {
    wanted: Vec<String>,
    /// Files that chosen hard links lead to.
    also: HashSet<String>,
}

impl Choice {
    pub(crate) fn includes(&self, entry: &Entry) -> bool {
        match self {
            Self::Everything => true,
            Self::Some(chosen) => {
                let is_above = |wanted: &String| entry.kind == EntryKind::Directory && covers(&entry.path, wanted);
                chosen.wanted.iter().any(|wanted| covers(wanted, &entry.path) || is_above(wanted))
                    || chosen.also.contains(&entry.path)
            }
        }
    }
}

/// The path itself, or anything below it.
fn covers(path: &str, other: &str) -> bool {
    path.is_empty() || other.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Hands what is written to the task that feeds the process, in pieces of some size.
struct Pieces {
    sender: mpsc::Sender<Bytes>,
    filling: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.filling.extend_from_slice(bytes);
        if self.filling.len() >= PIECE_BYTES {
            self.send_off()?;
        }
        Ok(bytes.len())
    }

    /// Only the end flushes: the last piece waits until everything before it is known to be whole.
    fn flush(&mut self) -> io::Result<()> {
        self.send_off()
    }
}

impl Pieces {
    fn send_off(&mut self) -> io::Result<()> {
        if self.filling.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.filling, Vec::with_capacity(PIECE_BYTES));
        self.sender.blocking_send(piece.into()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
