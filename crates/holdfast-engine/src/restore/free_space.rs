//! Whether the files of a restore into a folder in use fit on each of the file systems that they are written to.

use std::collections::BTreeMap;

use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;
use holdfast_core::figures::size;
use tokio::sync::mpsc;

use crate::Engine;
use crate::archive::tar::{Member, MemberKind};
use crate::archive::{Choice, tidy_path};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::plan::RestorePlan;
use crate::remote::{self, Script};
use crate::source::sftp;
use crate::ssh::Connection;

/// Prints how much space there is in the target and in what is mounted below it: free kibibytes, block size, kind of
/// file system and path relative to the target. Mount points with line breaks or backslashes are left out.
const FREE: &str = r#"
cd -- "$1" || exit 97
t=$(pwd -P); t=${t%/}
say() {
  f=$(df -Pk -- "$1" 2>/dev/null | awk 'NR == 2 { print $4 }')
  b=$(stat -f -c %S -- "$1" 2>/dev/null); k=$(stat -f -c %T -- "$1" 2>/dev/null | tr ' ' _)
  echo "${f:-unknown} ${b:-unknown} ${k:-unknown} $2"
}
say . ''
T=$t/ awk '{ m = $2; gsub(/\\040/, " ", m); gsub(/\\011/, "\t", m)
  if (index(m, ENVIRON["T"]) == 1 && m !~ /\\/) print m }' /proc/self/mounts 2>/dev/null | sort -u |
  head -n 500 | while IFS= read -r m; do say "$m" "${m#"$t/"}"; done
"#;
/// Prints how many bytes the files at the paths on standard input take, for each file system. Files with further hard
/// links do not count, since their content stays, nor do files in folders that are reached through links, since nothing
/// is written there. Prints nothing if `stat` cannot tell.
const REPLACED: &str = r#"
cd -- "$1" || exit 97
stat -c %b . >/dev/null 2>&1 || exit 0
t=$(pwd -P); t=${t%/}
T=$t xargs -0 sh -c 'l=//
for p do
  shift
  d=${p%/*}
  if [ "$d" != "$l" ]; then l=$d; k=$(cd -P -- "$d" 2>/dev/null && pwd -P && echo .); w=$T${d#.}; w=${w:-/}; fi
  [ "$k" = "$w
." ] && set -- "$@" "$p"
done
[ $# -eq 0 ] || stat -c "%b %h %m" -- "$@" 2>/dev/null
:' sh | T=$t/ awk '
$2 == 1 { b = $1; sub(/^[0-9]+ [0-9]+ /, ""); if (index($0, ENVIRON["T"]) == 1) m = substr($0, length(ENVIRON["T"]) + 1); else m = ""; s[m] += b }
END { print "0 "; for (m in s) printf "%.0f %s\n", s[m] * 512, m }'
"#;
/// The most file systems that the script prints.
const MOUNTS: usize = 501;
const ANSWER_BYTES: usize = 256 * 1024;
/// The block size that is assumed if the file system does not report one.
const USUAL_BLOCK: u64 = 4096;
/// File systems that may compress files, so that more may fit than is free.
const COMPRESSING: [&str; 4] = ["btrfs", "zfs", "f2fs", "bcachefs"];

/// A file system at the target, or mounted below it.
struct Mount {
    /// Relative to the target; empty for the file system of the target itself.
    path: String,
    free: u64,
    block: u64,
    kind: String,
    needed: u64,
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let free = words.next()?.parse::<u64>().ok()?.saturating_mul(1024);
        let block = words.next()?.parse().ok().filter(|block| *block > 0).unwrap_or(USUAL_BLOCK);
        let (kind, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some(Self { path, free, block, kind, needed: 0 })
    }

    /// Whether more may fit than is reported as free.
    fn may_compress(&self) -> bool {
        self.kind.to_ascii_lowercase().starts_with("unknown") || COMPRESSING.contains(&self.kind.as_str())
    }

    fn holds(&self, path: &str) -> bool {
        let below = path.strip_prefix(self.path.as_str());
        self.path.is_empty() || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

fn shown(bytes: u64) -> String {
    size(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// The file systems that a restore writes to, and how much.
pub(super) struct FreeSpace {
    all: Vec<Mount>,
    /// Whether a script can find out how much the replaced files take.
    has_shell: bool,
}

impl FreeSpace {
    /// Adds what a member needs to its file system.
    pub(super) fn note(&mut self, member: &Member) {
        if member.kind != MemberKind::File {
            return;
        }
        let path = name_text(tidy_path(&member.path));
        let mounts = self.all.iter_mut().filter(|mount| mount.holds(&path));
        if let Some(mount) = mounts.max_by_key(|mount| mount.path.len()) {
            // Holes take nothing.
            let blocks = member.content_bytes().div_ceil(mount.block);
            mount.needed = mount.needed.saturating_add(blocks.saturating_mul(mount.block));
        }
    }
}

impl Engine {
    /// How much space there is. If the server does not say, a lack of space shows while writing.
    pub(super) async fn free_space(&self, connection: &Connection, path: &str, context: &Context) -> Result<FreeSpace> {
        let answer = remote::ask(connection, &self.settings.remote, context, &Script::new(FREE, &[path]), "").await?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        let all: Vec<Mount> = text.lines().filter_map(Mount::parse).take(MOUNTS).collect();
        let is_known = all.iter().any(|mount| mount.path.is_empty());
        Ok(FreeSpace { all: if is_known { all } else { Vec::new() }, has_shell: true })
    }

    /// As `room`, over SFTP, which does not tell what is mounted below the target.
    pub(super) async fn free_space_over_sftp(
        &self,
        connection: &Connection,
        path: &str,
        context: &Context,
    ) -> Result<FreeSpace> {
        let mut client = sftp::open(connection, &self.settings.remote, context).await?;
        let all = client.space(path.as_bytes()).await.into_iter().map(|space| Mount {
            path: String::new(),
            free: space.free_bytes,
            block: USUAL_BLOCK,
            kind: String::new(),
            needed: 0,
        });
        Ok(FreeSpace { all: all.collect(), has_shell: false })
    }

    /// Refuses a restore that cannot fit, before anything is written.
    pub(super) async fn check_free_space(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        path: &str,
        (choice, space): (&Choice, FreeSpace),
        context: &Context,
    ) -> Result<()> {
        let mut short = space.all;
        short.retain(|mount| mount.needed > mount.free);
        if short.is_empty() {
            return Ok(());
        }
        // `None` if it is not known how much the replaced files free.
        let replaced = match (plan.overwrite, space.has_shell) {
            (false, _) => Some(BTreeMap::new()),
            (true, true) => self.replaced(connection, plan, path, choice, context).await?,
            (true, false) => None,
        };
        let freed = |mount: &Mount| replaced.as_ref().and_then(|freed| freed.get(&mount.path)).copied().unwrap_or(0);
        short.retain(|mount| mount.needed > mount.free.saturating_add(freed(mount)));
        for mount in &short {
            let place = if mount.path.is_empty() { String::new() } else { format!(" in {}", mount.path) };
            let (needed, space) = (shown(mount.needed), shown(mount.free.saturating_add(freed(mount))));
            if replaced.is_none() {
                context.log.warn(format!(
                    "The restore needs {needed}{place}, and there is room for {space} on the server, not counting the \
                     files that would be replaced."
                ));
                continue;
            }
            let with = if plan.overwrite { ", with the files that would be replaced" } else { "" };
            let message =
                format!("The restore needs {needed}{place}, and there is room for {space} on the server{with}.");
            if mount.may_compress() {
                context.log.warn(message);
                continue;
            }
            if plan.options.dry_run {
                context.log.warn(format!("{message} The restore would be refused."));
                continue;
            }
            return Err(EngineError::new(FailureCode::TargetFull, format!("{message} Nothing was written.")));
        }
        Ok(())
    }

    /// How much the files take that would be replaced, by file system; `None` if the server does not say.
    async fn replaced(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        path: &str,
        choice: &Choice,
        context: &Context,
    ) -> Result<Option<BTreeMap<String, u64>>> {
        let (sender, receiver) = mpsc::channel(4);
        let script = Script::new(REPLACED, &[path]);
        let asking = self.answers(connection, &script, receiver, context, |_| ANSWER_BYTES);
        let (visited, replaced) = tokio::join!(self.ask_for(&plan.backup, choice, true, sender), asking);
        visited?;
        let text = String::from_utf8_lossy(&replaced?).into_owned();
        let parse = |line: &str| {
            let (bytes, path) = line.split_once(' ')?;
            Some((path.to_owned(), bytes.parse().ok()?))
        };
        let replaced: BTreeMap<String, u64> = text.lines().filter_map(parse).collect();
        Ok(Some(replaced).filter(|replaced| !replaced.is_empty()))
    }
}
