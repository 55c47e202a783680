//! A private OpenSSH server on loopback, with its own host key and authorized keys, running as the user of the tests.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::service::{MARK, Service, StopSignal, free_port};

const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The settings of a server.
#[derive(Default)]
pub struct SshServerBuilder {
    environment: Vec<(String, String)>,
    sftp_only: bool,
}

impl SshServerBuilder {
    /// Sets an environment variable for all commands in all sessions.
    pub fn set_env(mut self, name: &str, value: &str) -> Self {
        let plain = |text: &str| !text.contains(['"', '\\', '\n']);
        assert!(plain(name) && plain(value), "sshd_config cannot carry {name}={value}");
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Puts a folder first on the path, so that commands in it replace those of the system.
    pub fn with_path_shims(self, folder: &Path) -> Self {
        let folder = folder.to_str().expect("a plain folder name");
        self.set_env("PATH", &format!("{folder}:{SYSTEM_PATH}"))
    }

    /// Allows SFTP only, and no commands.
    pub fn sftp_only(mut self) -> Self {
        self.sftp_only = true;
        self
    }

    pub fn start(mut self) -> SshServer {
        let folder = tempfile::Builder::new().prefix("holdfast-ssh-").tempdir().expect("a temporary folder").keep();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).expect("our own folder");
        std::fs::write(folder.join("authorized_keys"), "").expect("our own folder");
        // An empty home folder: in the real one, .bashrc may change the path, and database clients would find stored
        // passwords.
        let home = folder.join("home");
        std::fs::create_dir(&home).expect("our own folder");
        if !self.environment.iter().any(|(name, _)| name == "HOME") {
            let home = home.display().to_string();
            self = self.set_env("HOME", &home);
        }
        if own_uid() == 0 {
            // As the start script of the package does: sshd's unprivileged process is confined to this folder.
            std::fs::create_dir_all("/run/sshd").expect("root can make folders");
        }
        let mut server = SshServer {
            port: 0,
            folder,
            settings: self,
            username: own_name(),
            service: None,
            fingerprint: String::new(),
        };
        server.make_host_key();
        // Another process can take the port before sshd binds it.
        let started = (0..10).any(|_| {
            server.port = free_port();
            server.try_start()
        });
        assert!(started, "sshd did not start:\n{}", server.log());
        server
    }
}

pub struct SshServer {
    port: u16,
    folder: PathBuf,
    settings: SshServerBuilder,
    username: String,
    fingerprint: String,
    /// `None` while it is stopped.
    service: Option<Service>,
}

impl SshServer {
    pub fn start() -> Self {
        Self::builder().start()
    }

    pub fn builder() -> SshServerBuilder {
        SshServerBuilder::default()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The user that the tests run as: the only one that a server without root can log in.
    pub fn username(&self) -> &str {
        &self.username
    }

    /// `SHA256:…` of the host key, as `ssh-keygen -l` shows it.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The public host key: `ssh-ed25519 AAAA…`.
    pub fn host_key(&self) -> String {
        std::fs::read_to_string(self.folder.join("host_key.pub")).expect("the host key").trim().to_owned()
    }

    /// Adds a line to `authorized_keys`; effective from the next connection.
    pub fn authorize(&self, public_key_line: &str) {
        let mut file = OpenOptions::new().append(true).open(self.folder.join("authorized_keys")).expect("the key list");
        writeln!(file, "{}", public_key_line.trim()).expect("the key list");
    }

    /// Removes all authorized keys.
    pub fn revoke_all(&self) {
        std::fs::write(self.folder.join("authorized_keys"), "").expect("the key list");
    }

    /// Stops the server, its sessions and their commands. The port is not reserved: another process may take it.
    pub fn stop(&mut self) {
        if let Some(service) = self.service.take() {
            service.stop_keeping_folder();
        }
    }

    /// Starts the server again on the same port, with the same keys.
    pub fn start_again(&mut self) {
        assert!(self.service.is_none(), "the server is running");
        assert!(self.try_start(), "sshd did not start again:\n{}", self.log());
    }

    /// Restarts with another host key on the same port, like a reinstalled machine or an impostor.
    pub fn rekey_host(&mut self) {
        self.stop();
        self.make_host_key();
        self.start_again();
    }

    /// The log of sshd since the first start.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.join("log")).unwrap_or_default()).into_owned()
    }

    /// Successful and failed login attempts. The `none` request, which asks for the methods, does not count.
    pub fn auth_attempts(&self) -> usize {
        let log = self.log();
        log.lines()
            .filter(|line| line.starts_with("Accepted ") || line.starts_with("Failed "))
            // "Accepted key …" only means that the key is authorized.
            .filter(|line| line.contains(" for ") && !line.starts_with("Failed none "))
            .count()
    }

    fn make_host_key(&mut self) {
        for name in ["host_key", "host_key.pub"] {
            // Absent the first time; ssh-keygen would ask before overwriting it.
            let _absent = std::fs::remove_file(self.folder.join(name));
        }
        let key = self.folder.join("host_key");
        run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(&key));
        let shown = run(Command::new("ssh-keygen").args(["-l", "-E", "sha256", "-f"]).arg(key.with_extension("pub")));
        self.fingerprint = shown.split(' ').nth(1).expect("bits, then the fingerprint").to_owned();
    }

    fn config(&self) -> String {
        let folder = self.folder.display();
        let mut text = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host_key\nPidFile none\n\
             AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
             Subsystem sftp internal-sftp\nMaxStartups 100:30:200\nMaxSessions 100\nMaxAuthTries 20\n\
             LogLevel VERBOSE\nUseDNS no\nPrintMotd no\nX11Forwarding no\n",
            port = self.port,
        );
        if self.settings.sftp_only {
            text.push_str("ForceCommand internal-sftp\n");
        }
        // One directive with all variables: sshd uses only the first one.
        write!(text, "SetEnv \"{MARK}={folder}\"").expect("text grows");
        for (name, value) in &self.settings.environment {
            write!(text, " \"{name}={value}\"").expect("text grows");
        }
        text.push('\n');
        text
    }

    /// Returns false when the port is in use.
    fn try_start(&mut self) -> bool {
        let sshd = find_sshd().display().to_string();
        let config = self.folder.join("sshd_config");
        // Since 9.8 OpenSSH blocks addresses with failed logins, and all tests share one address. Older versions do
        // not know the setting.
        std::fs::write(&config, format!("{}PerSourcePenalties no\n", self.config())).expect("our own folder");
        let known = Command::new(&sshd).args(["-t", "-f"]).arg(&config).output().expect("sshd can be run");
        if !known.status.success() {
            std::fs::write(&config, self.config()).expect("our own folder");
        }
        let config = config.display().to_string();
        let from = self.log().len();
        let command = [sshd.as_str(), "-D", "-e", "-f", &config];
        let mut service = Service::start_ended_by(StopSignal::Terminate, &self.folder, None, &command);
        if service.wait_for_log(from, "Server listening on 127.0.0.1") {
            self.service = Some(service);
            return true;
        }
        service.stop_keeping_folder();
        let said = self.log();
        assert!(said[from..].contains("Address already in use"), "sshd did not start:\n{}", &said[from..]);
        false
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        // The keeper of a running server removes the folder; a stopped server has no keeper.
        if self.service.take().is_none() {
            let _gone = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// sshd must be called by its full path, which is not on the path of users other than root.
fn find_sshd() -> PathBuf {
    let places = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"];
    let found = places.iter().map(PathBuf::from).find(|path| path.exists());
    found.expect("the OpenSSH server is installed; `cargo xtask test` does that")
}

/// The SFTP server of OpenSSH.
pub(crate) fn find_sftp_server() -> PathBuf {
    let places = ["/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/ssh", "/usr/libexec"];
    let found = places.iter().map(|place| Path::new(place).join("sftp-server")).find(|path| path.exists());
    found.expect("OpenSSH's SFTP server is installed; `cargo xtask test` does that")
}

fn own_uid() -> u32 {
    std::fs::metadata("/proc/self").expect("Linux").uid()
}

fn own_name() -> String {
    run(Command::new("id").arg("-un")).trim().to_owned()
}

fn run(command: &mut Command) -> String {
    let done = command.output().expect("OpenSSH and coreutils are installed");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("plain text")
}
