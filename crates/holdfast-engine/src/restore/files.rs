//! Restores files onto a server. The contents of the target are queried before anything is written, so that nothing is
//! written through an existing link, nothing is replaced that was to stay, and the counts are correct.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use holdfast_core::failure::FailureCode;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::feed::{Fed, Feeding};
use super::free_space::FreeSpace;
use crate::Engine;
use crate::archive::tar::Member;
use crate::archive::{
    Choice, Counted, Options, PathLimits, Selection, SkipReason, forward, read_through, shown_short, unpack,
};
use crate::context::Context;
use crate::entry_scan::{EntryScan, Scanned};
use crate::error::{EngineError, Result};
use crate::format::PlainReader;
use crate::plan::{RestorePlan, RestoreReport, StoredBackup};
use crate::remote::{self, Script, ended};
use crate::scope::Scope;
use crate::source::sftp::{self, FolderState, SftpTarget};
use crate::ssh::{Connection, Exit};
use crate::thread::on_thread;

/// What is known about the target before anything is written.
struct TargetFacts {
    state: FolderState,
    flavour: Flavour,
    is_root: bool,
    /// The longest name that its file system takes, in bytes.
    longest_name: usize,
}

impl TargetFacts {
    /// Whether nothing in it can be in the way.
    fn is_empty(&self) -> bool {
        self.state != FolderState::InUse
    }

    /// bsdtar changes into folders when a path is too long for a single call; others cannot do that.
    fn longest(&self, root: &str) -> PathLimits {
        let path = match self.flavour {
            Flavour::Gnu => PathLimits::USUAL.path,
            Flavour::Bsd => usize::MAX,
            Flavour::Sftp => (PathLimits::USUAL.path + 1).saturating_sub(root.trim_end_matches('/').len()),
        };
        PathLimits { path, name: self.longest_name }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flavour {
    Gnu,
    Bsd,
    Sftp,
}

/// How many entries the log of a dry run names.
const NAMED_ENTRIES: u64 = 500;

impl Engine {
    pub(super) async fn restore_files(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        path: &str,
        entries: &[String],
        context: &Context,
    ) -> Result<RestoreReport> {
        let choice = Choice::new(entries);
        let backup = StoredBackup { scope: Scope::of(&choice), ..plan.backup.clone() };
        let plan = &RestorePlan { backup, ..plan.clone() };
        let target = match self.prepare(connection, path, plan.options.dry_run, context).await {
            Err(error) if error.code == FailureCode::ToolMissing => TargetFacts {
                state: sftp::folder_state(connection, &self.settings.remote, path, context).await?,
                flavour: Flavour::Sftp,
                is_root: plan.server.target.username == "root",
                longest_name: PathLimits::USUAL.name,
            },
            prepared => prepared?,
        };
        context.with_findings(|findings| findings.folder_was_empty = target.is_empty());
        if !plan.overwrite && !target.is_empty() {
            refuse_incomplete(plan.options.dry_run, context).await?;
        }
        if plan.options.restore_devices && !target.is_root {
            context.log.warn("Device nodes can only be restored by root; they are skipped.");
        }
        let with_owners = target.is_root && !plan.options.no_owner;
        if !with_owners && !plan.options.no_owner {
            context.log.warn(
                "The SSH user is not root, so restored files belong to it, and no file gets setuid or setgid bits.",
            );
        }
        let options = Options {
            with_owners,
            overwrite: plan.overwrite || target.is_empty(),
            restore_devices: plan.options.restore_devices && target.is_root,
            // A folder that existed before keeps its owner and mode.
            with_root: choice.is_everything()
                && (target.state == FolderState::Missing || target.state == FolderState::Empty && plan.overwrite),
            without_special: target.flavour == Flavour::Sftp,
            longest: target.longest(path),
        };
        let scanned = self.scan_entries(connection, plan, path, &choice, &target, context).await?;
        let log = context.log.clone();
        let on_skipped = move |path: &str, reason: SkipReason| {
            let line = format!("{}: {}", shown_short(path), reason.text());
            if reason.is_as_requested() { log.line(line) } else { log.warn(line) }
        };
        let chosen = choice.clone();
        let mut selection = Selection::new(choice, options, scanned.existing, |_, _| {});
        // Each link is dropped as soon as it is noted: there may be many.
        for link in scanned.links {
            selection.expect(&link)?;
        }
        // Even if nothing is replaced, what is added to a folder in use must be what was backed up.
        if !target.is_empty() {
            let space = match target.flavour {
                Flavour::Sftp => self.free_space_over_sftp(connection, path, context).await?,
                Flavour::Gnu | Flavour::Bsd => self.free_space(connection, path, context).await?,
            };
            let (decided, space) = self.decide_all(&plan.backup, selection, space, context).await?;
            selection = decided;
            self.check_free_space(connection, plan, path, (&chosen, space), context).await?;
        } else if plan.options.dry_run {
            context.log.line("The contents of the backup are not read in this dry run.");
        }
        let selection = selection.again(on_skipped);
        if plan.options.dry_run {
            return self.preview(&plan.backup, selection, context).await;
        }
        let reader = self.open_plain(&plan.backup, context).await?;
        let progress = Arc::new(Mutex::new(SentEntries::default()));
        let writing = Writing { reader, selection, written: progress.clone() };
        let restored = match target.flavour {
            Flavour::Sftp => self.write_over_sftp(connection, plan, path, writing, context).await,
            flavour @ (Flavour::Gnu | Flavour::Bsd) => {
                self.write_by_tar(connection, plan, path, (flavour, writing), context).await
            }
        };
        if restored.is_err() {
            progress.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).tell(path, context);
        }
        restored
    }

    /// Reads the whole backup and decides everything before anything is changed: what cannot be restored must not
    /// destroy what is there, and what a destination forged must not be added to it. Notes what will be written, and where.
    async fn decide_all(
        &self,
        backup: &StoredBackup,
        mut selection: Selection,
        mut space: FreeSpace,
        context: &Context,
    ) -> Result<(Selection, FreeSpace)> {
        context.log.line("Reading the whole backup before anything is changed.");
        self.read_as(backup, context, move |plain| {
            read_through(plain, &mut selection, &mut |member| space.note(member))?;
            Ok((selection, space))
        })
        .await
    }

    /// Creates the target folder and finds out what was in it, and which tar the server has. A dry run creates nothing.
    async fn prepare(
        &self,
        connection: &Connection,
        path: &str,
        is_dry: bool,
        context: &Context,
    ) -> Result<TargetFacts> {
        const SCRIPT: &str = r#"
t=$1
command -v tar >/dev/null 2>&1 || exit 98
if [ -d "$t" ]; then
  # A folder that cannot be listed is not an empty one.
  if ls -A -- "$t" >/dev/null 2>&1 && [ "$(ls -A -- "$t" | head -n 2 | wc -c)" -eq 0 ]; then echo empty; else echo used; fi
elif [ -e "$t" ] || [ -L "$t" ]; then exit 96
elif [ -n "$2" ]; then
  echo missing
  while [ ! -e "$t" ]; do t=${t%/*}; [ -n "$t" ] || t=/; done
else mkdir -p -- "$t" || exit 97; echo missing; fi
[ -w "$t" ] || exit 97
case $(tar --version 2>&1) in *'GNU tar'*) echo gnu ;; *bsdtar*) echo bsd ;; *) echo other ;; esac
id -u
getconf NAME_MAX "$t" 2>/dev/null || echo unknown
cd -- "$t" 2>/dev/null && printf %s "$(pwd -P)" | tr '\n\r' '??' || :
"#;
        let script = Script::new(SCRIPT, &[path, if is_dry { "dry" } else { "" }]);
        let answer = remote::ask(connection, &self.settings.remote, context, &script, "").await?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        let words: Vec<&str> = text.splitn(5, '\n').collect();
        match (answer.exit.status, &words[..]) {
            (Some(96), _) => {
                Err(EngineError::new(FailureCode::TargetUnwritable, format!("{path} exists, but is not a folder.")))
            }
            (Some(97), _) => Err(EngineError::new(
                FailureCode::TargetUnwritable,
                format!("The SSH user may not write to {path}: {}", answer.stderr.join("; ")),
            )),
            (Some(0), [state, flavour, id, longest_name, folder]) => {
                context.note_folder(folder);
                // In a dry run, a missing folder has not been created.
                if !(is_dry && *state == "missing") && leads_elsewhere(path, folder) {
                    context.log.line(format!("A part of {path} is a link: the target is {folder}."));
                }
                let flavour = match *flavour {
                    "gnu" => Flavour::Gnu,
                    "bsd" => Flavour::Bsd,
                    _ => Flavour::Sftp,
                };
                let state = match *state {
                    "missing" => FolderState::Missing,
                    "empty" => FolderState::Empty,
                    _ => FolderState::InUse,
                };
                let longest_name = longest_name.parse().unwrap_or(PathLimits::USUAL.name);
                Ok(TargetFacts { state, flavour, is_root: *id == "0", longest_name })
            }
            _ => Err(EngineError::new(FailureCode::ToolMissing, "The server runs no tar for this user.")),
        }
    }

    /// Goes through the list of entries: whether the chosen ones exist, which of them are hard links to others, and
    /// what is at their places in the target.
    async fn scan_entries(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        path: &str,
        choice: &Choice,
        target: &TargetFacts,
        context: &Context,
    ) -> Result<Scanned> {
        if target.is_empty() {
            if choice.is_everything() {
                return Ok(Scanned::default());
            }
            let scan = EntryScan::new(choice.clone(), None);
            return self.visit(&plan.backup, scan, EntryScan::visit).await?.finish();
        }
        let (sender, receiver) = mpsc::channel(4);
        let visiting = self.ask_for(&plan.backup, choice, false, sender);
        let looking = async {
            match target.flavour {
                Flavour::Sftp => sftp::existing_kinds(connection, &self.settings.remote, path, receiver, context).await,
                Flavour::Gnu | Flavour::Bsd => self.existing_kinds(connection, path, receiver, context).await,
            }
        };
        let (scan, existing_kinds) = tokio::join!(visiting, looking);
        let (mut scan, existing_kinds) = (scan?, existing_kinds?);
        if scan.is_cut || existing_kinds.len() != scan.keys.len() {
            let message = "The server did not say what is in the target, so nothing was written.";
            return Err(EngineError::new(FailureCode::RemoteFailed, message));
        }
        let mut existing = scan.existing.take().unwrap_or_default();
        for (key, kind) in scan.keys.drain(..).zip(existing_kinds) {
            existing.set(key, kind);
        }
        Ok(Scanned { existing: Some(existing), ..scan.finish()? })
    }

    /// Logs what a restore would do.
    async fn preview(&self, backup: &StoredBackup, selection: Selection, context: &Context) -> Result<RestoreReport> {
        let log = context.log.clone();
        let selection = self
            .visit(backup, selection, move |selection, entry| {
                let before = selection.counted().restored;
                selection.preview(entry);
                let restored = selection.counted().restored;
                if restored > before && restored <= NAMED_ENTRIES {
                    log.line(format!("{}: would be written", entry.path));
                }
                ControlFlow::Continue(())
            })
            .await?;
        let Counted { restored, .. } = selection.counted();
        if restored > NAMED_ENTRIES {
            context.log.line(format!("{} further entries would be written", restored - NAMED_ENTRIES));
        }
        Ok(RestoreReport { counted: selection.counted(), plain_bytes: 0, is_dry: true })
    }

    async fn write_by_tar(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        path: &str,
        (flavour, writing): (Flavour, Writing),
        context: &Context,
    ) -> Result<RestoreReport> {
        let Writing { reader, mut selection, written } = writing;
        context.begin_writing().await?;
        let script = extract_script(flavour, !selection.overwrites(), plan, path);
        let process = script.start(connection).await?;
        let files = context.progress.clone();
        let feeding = Feeding { process, login: String::new(), finish: self.settings.remote.stall };
        let Fed { made, exit, lines, plain_bytes } = self
            .feed(connection, feeding, reader, &plan.backup, context, move |plain, out| {
                let mut on_member = |member: &Member| {
                    files.add_file();
                    note(&written, &member.path);
                };
                forward(plain, &mut selection, &mut on_member, (out, flavour == Flavour::Bsd))?;
                Ok(selection.counted())
            })
            .await?;
        judge(&exit, &lines, context)?;
        let counted = made.ok_or_else(|| EngineError::new(FailureCode::RemoteFailed, "tar stopped reading."))?;
        Ok(RestoreReport { counted, plain_bytes, is_dry: false })
    }

    async fn write_over_sftp(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        path: &str,
        writing: Writing,
        context: &Context,
    ) -> Result<RestoreReport> {
        let Writing { mut reader, mut selection, written } = writing;
        let mut client = sftp::open(connection, &self.settings.remote, context).await?;
        context.log.line("The server's tar is not supported; writing over SFTP.");
        sftp::prepare_target(&mut client, path, context).await?;
        context.begin_writing().await?;
        let (backup, context) = (plan.backup.clone(), context.clone());
        let (root, runtime) = (path.to_owned(), Handle::current());
        let (overwrite, no_owner) = (selection.overwrites(), plan.options.no_owner);
        on_thread(move || {
            let mut target = SftpTarget::new(client, &root, (overwrite, no_owner), runtime, &context);
            let mut on_member = |member: &Member| {
                context.progress.add_file();
                note(&written, &member.path);
            };
            unpack(&mut reader.plain, &mut selection, &mut on_member, &mut target)?;
            let plain_bytes = reader.plain.bytes;
            reader.finish(&backup)?;
            Ok(RestoreReport { counted: selection.counted(), plain_bytes, is_dry: false })
        })
        .await
    }
}

/// Without overwrite, files that an interrupted restore left incomplete would be kept.
async fn refuse_incomplete(is_dry: bool, context: &Context) -> Result<()> {
    let Some(run) = context.find_unfinished().await? else { return Ok(()) };
    let message = format!(
        "Restore {run}, which wrote here, was interrupted, so files may be incomplete, and without overwrite they would \
         be kept. Restore with overwrite, or into an empty folder."
    );
    if is_dry {
        context.log.warn(format!("This restore would be refused. {message}"));
        return Ok(());
    }
    Err(EngineError::new(FailureCode::TargetNotEmpty, format!("{message} Nothing was written.")))
}

/// What a restore of files works with.
struct Writing {
    reader: PlainReader,
    selection: Selection,
    written: Arc<Mutex<SentEntries>>,
}

/// What has been sent to the server so far.
#[derive(Debug, Default)]
struct SentEntries {
    entries: u64,
    last: String,
}

fn note(written: &Mutex<SentEntries>, path: &[u8]) {
    let mut written = written.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    written.entries += 1;
    written.last = holdfast_core::backup::name_text(path);
}

impl SentEntries {
    fn tell(&self, path: &str, context: &Context) {
        match self.entries {
            0 => context.log.line(format!("Nothing was written to {path}.")),
            entries => context.log.warn(format!(
                "Up to {entries} entries were written to {path} before the restore ended; the last one sent was {}, \
                 and what was sent shortly before it may be incomplete.",
                self.last
            )),
        }
    }
}

fn extract_script(flavour: Flavour, keeps: bool, plan: &RestorePlan, path: &str) -> Script {
    const GNU: &str = r#"
cd -- "$1" || exit 97; shift
v=$(tar --version 2>&1); x=
case $v in *'GNU tar'*)
  a=${v#*GNU tar) }; b=${a#*.}; a=${a%%.*}; b=${b%%[!0-9]*}
  { [ "$a" -gt 1 ] || [ "$b" -ge 27 ]; } 2>/dev/null && x='--acls --xattrs --xattrs-include=*' ;;
esac
set -f
set -- --extract --file=- --preserve-permissions --delay-directory-restore --warning=no-timestamp \
  --warning=no-unknown-keyword $x "$@"
"#;
    const BSD: &str = "cd -- \"$1\" || exit 97; shift\nset -- -x -p -f - \"$@\"\n";
    // On a full disk tar continues, and replaces each existing file with an empty one. Here it ends with the next
    // message that it prints, because `sed` has stopped reading.
    const RUN: &str = r#"
exec 3>&2
s=$({ { tar "$@" 2>&1 >/dev/null 3>&- 4>&-; echo $? >&4; } |
  sed -e '/Wrote only [0-9]* of [0-9]* bytes$/q' -e '/No space left on device$/q' -e '/Disk quota exceeded$/q' >&3; } 4>&1)
exit "${s:-1}"
"#;
    let (script, keep): (&str, &[&str]) = match flavour {
        Flavour::Bsd => (BSD, &["-k"]),
        Flavour::Gnu | Flavour::Sftp => (GNU, &["--skip-old-files", "--warning=existing-file"]),
    };
    let mut words = vec![path];
    if keeps {
        words.extend(keep);
    }
    if plan.options.no_owner {
        words.push("--no-same-owner");
    }
    if plan.options.numeric_owner {
        words.push("--numeric-owner");
    }
    Script::new(&format!("{script}{RUN}"), &words)
}

fn judge(exit: &Exit, lines: &[String], context: &Context) -> Result<()> {
    for line in lines.iter().filter(|line| !line.contains("previous errors")) {
        // Existing files that were kept are no reason for a warning.
        if line.contains("skipping existing file") {
            context.log.line(line.replace("skipping existing file", "exists already and was kept"));
        } else {
            context.log.warn(line);
        }
    }
    if exit.success() {
        return Ok(());
    }
    let said = lines.first().map(|line| format!(": {line}")).unwrap_or_default();
    let says = |signs: &[&str]| lines.iter().any(|line| signs.iter().any(|sign| line.contains(sign)));
    let code = if says(&["No space left", "Disk quota exceeded", "Wrote only"]) {
        FailureCode::TargetFull
    } else if says(&["Permission denied", "Cannot ", "Read-only"]) {
        FailureCode::TargetUnwritable
    } else {
        FailureCode::RemoteFailed
    };
    Err(EngineError::new(code, format!("tar {}{said}", ended(exit))))
}

/// Whether a path leads to another folder than it says. If the path contains `..`, this cannot be told.
fn leads_elsewhere(path: &str, folder: &str) -> bool {
    let parts = |path: &str| -> Vec<String> {
        path.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).collect()
    };
    let asked = parts(&path.replace(['\n', '\r'], "?"));
    !folder.is_empty() && path.starts_with('/') && !asked.iter().any(|part| part == "..") && asked != parts(folder)
}
