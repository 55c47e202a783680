//! What Holdfast is compared with: restic, borg and rsync, each set up as its manual advises.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use holdfast_testkit::S3Server;

use crate::measuring::{Cost, cpu_of_tree, memory_mib, run, stored_mb, timed};
use crate::service::PASSWORD;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    Holdfast,
    /// On the server itself, without SSH.
    Restic,
    ResticOverSshfs,
    /// On the server itself, into a repository that is served over SSH.
    Borg,
    /// Pulls into a folder for each date, in which unchanged files are hard links.
    Rsync,
}

impl Tool {
    pub const ALL: [Self; 5] = [Self::Holdfast, Self::Restic, Self::ResticOverSshfs, Self::Borg, Self::Rsync];
    /// Those that can write to S3.
    pub const OF_BUCKETS: [Self; 2] = [Self::Holdfast, Self::Restic];

    pub fn title(self) -> &'static str {
        match self {
            Self::Holdfast => "Holdfast",
            Self::Restic => "restic on the server",
            Self::ResticOverSshfs => "restic over sshfs",
            Self::Borg => "borg over SSH",
            Self::Rsync => "rsync over SSH",
        }
    }
}

/// The repositories of the rivals, for one round of runs over one source.
pub struct Rivals {
    pub folder: PathBuf,
    pub ssh_config: PathBuf,
    /// A host of `ssh_config`.
    pub host: &'static str,
    pub source: PathBuf,
    /// Where restic on the server writes to, if not to a folder.
    pub bucket: Option<Bucket>,
}

/// A part of a bucket.
pub struct Bucket {
    pub url: String,
    /// Where the S3 server keeps it.
    pub folder: PathBuf,
}

impl Rivals {
    /// Makes empty repositories, which is not measured.
    pub fn prepare(&self, tools: &[Tool]) {
        std::fs::create_dir_all(&self.folder).expect("a folder");
        for tool in tools {
            match tool {
                Tool::Holdfast => {}
                Tool::Restic | Tool::ResticOverSshfs => {
                    run(self.restic(*tool).args(["init", "--repository-version", "2"]));
                }
                Tool::Borg => {
                    let url = self.borg_url();
                    run(self.borg().args(["init", "--encryption", "repokey-blake2", &url]));
                }
                Tool::Rsync => std::fs::create_dir(self.stored(*tool)).expect("a folder"),
            }
        }
    }

    /// Backs up once; `number` counts the runs of the round.
    pub fn back_up(&self, tool: Tool, number: usize) -> Cost {
        let before = stored_mb(&self.stored(tool));
        let mut cost = match tool {
            Tool::Holdfast => unreachable!("Holdfast is not its own rival"),
            Tool::Restic => timed(self.restic(tool).arg("backup").arg(&self.source)),
            Tool::ResticOverSshfs => self.restic_over_sshfs(),
            Tool::Borg => {
                let archive = format!("{}::{number}", self.borg_url());
                timed(self.borg().args(["create", "--compression", "zstd,3", &archive]).arg(&self.source))
            }
            Tool::Rsync => timed(&self.rsync(number)),
        };
        cost.added_mb = stored_mb(&self.stored(tool)) - before;
        cost
    }

    fn stored(&self, tool: Tool) -> PathBuf {
        match (tool, &self.bucket) {
            (Tool::Restic, Some(bucket)) => bucket.folder.clone(),
            _ => self.folder.join(format!("{tool:?}").to_lowercase()),
        }
    }

    fn restic(&self, tool: Tool) -> Command {
        let repository = match (tool, &self.bucket) {
            (Tool::Restic, Some(bucket)) => bucket.url.clone(),
            _ => self.stored(tool).display().to_string(),
        };
        let mut command = Command::new("restic");
        command.env("RESTIC_REPOSITORY", repository).env("RESTIC_PASSWORD", PASSWORD);
        command.env("RESTIC_CACHE_DIR", self.folder.join("restic-cache"));
        command.env("AWS_ACCESS_KEY_ID", S3Server::ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", S3Server::SECRET_KEY);
        command
    }

    /// Mounted for the run alone, so that nothing is cached from the run before.
    fn restic_over_sshfs(&self) -> Cost {
        let mount = Mount::of(self);
        let before = mount.cpu();
        // The numbers of inodes differ from one mount to the next.
        let mut cost = timed(self.restic(Tool::ResticOverSshfs).args(["backup", "--ignore-inode"]).arg(&mount.folder));
        cost.cpu += mount.cpu() - before;
        cost.peak_mib += mount.peak_mib();
        cost
    }

    fn borg_url(&self) -> String {
        format!("ssh://{}{}", self.host, self.stored(Tool::Borg).display())
    }

    fn borg(&self) -> Command {
        let mut command = Command::new("borg");
        command.env("BORG_PASSPHRASE", PASSWORD).env("BORG_BASE_DIR", self.folder.join("borg-base"));
        command.env("BORG_RSH", self.ssh());
        command
    }

    fn rsync(&self, number: usize) -> Command {
        let mut command = Command::new("rsync");
        command.arg("-a").arg("-e").arg(self.ssh());
        if let Some(previous) = number.checked_sub(1) {
            command.arg(format!("--link-dest=../{previous}"));
        }
        command.arg(format!("{}:{}/", self.host, self.source.display()));
        command.arg(self.stored(Tool::Rsync).join(number.to_string()));
        command
    }

    fn ssh(&self) -> String {
        format!("ssh -F {}", self.ssh_config.display())
    }
}

/// What somebody else's restic says about a repository of Holdfast: that it is sound, and how many blobs it has.
pub fn inspect(repository: &Path) -> usize {
    let restic = |arguments: &[&str]| {
        let mut command = Command::new("restic");
        command.args(["--no-cache", "--quiet", "--repo"]).arg(repository).args(arguments);
        run(command.env("RESTIC_PASSWORD", PASSWORD))
    };
    restic(&["check", "--read-data"]);
    restic(&["list", "blobs"]).lines().count()
}

/// Whether file systems can be mounted here.
pub fn has_fuse() -> bool {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
}

/// The source of the server, mounted until this is dropped.
struct Mount {
    sshfs: Child,
    folder: PathBuf,
}

impl Mount {
    const PATIENCE: Duration = Duration::from_secs(30);

    fn of(rivals: &Rivals) -> Self {
        let folder = rivals.folder.join("mounted");
        std::fs::create_dir_all(&folder).expect("a folder");
        let remote = format!("{}:{}", rivals.host, rivals.source.display());
        let mut sshfs = Command::new("sshfs");
        // In the foreground, so that it can be measured; read-only, so that cleaning up cannot reach the source.
        sshfs.args(["-f", "-o", "ro", "-F"]).arg(&rivals.ssh_config).arg(remote).arg(&folder);
        let mount = Self { sshfs: sshfs.spawn().expect("sshfs"), folder };
        let deadline = Instant::now() + Self::PATIENCE;
        while !mount.is_there() {
            assert!(Instant::now() < deadline, "sshfs did not mount");
            std::thread::sleep(Duration::from_millis(10));
        }
        mount
    }

    fn is_there(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("Linux");
        mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|place| Path::new(place) == self.folder))
    }

    fn cpu(&self) -> f64 {
        cpu_of_tree(self.sshfs.id())
    }

    fn peak_mib(&self) -> f64 {
        memory_mib(self.sshfs.id(), "VmHWM")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmount = |options: &[&str]| Command::new("fusermount3").args(options).arg(&self.folder).status();
        if !unmount(&["-u"]).is_ok_and(|status| status.success()) {
            let _reported = unmount(&["-u", "-z"]);
            let _ended = self.sshfs.kill();
        }
        let _ended = self.sshfs.wait();
    }
}
