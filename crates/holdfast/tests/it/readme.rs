use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use holdfast_testkit::{Client, Fingerprint, SampleTree, SshServer, assert_same, free_port};
use serde_json::json;
use tempfile::TempDir;

use crate::process::{Service, start_in};

/// The code blocks of a document.
fn blocks(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap();
    let (mut blocks, mut block) = (Vec::new(), None::<String>);
    for line in text.lines() {
        match (line.trim(), &mut block) {
            ("```sh", _) => block = Some(String::new()),
            ("```", Some(_)) => blocks.extend(block.take()),
            // Blocks in lists are indented, but heredocs must end at the first column.
            (_, Some(block)) => *block += &format!("{}\n", line.strip_prefix("   ").unwrap_or(line)),
            _ => {}
        }
    }
    blocks
}

/// A new user, with an empty home folder and the program.
struct Newcomer {
    home: TempDir,
    port: u16,
    _service: Service,
}

impl Newcomer {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let programs = home.path().join("bin");
        std::fs::create_dir(&programs).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_holdfast"), programs.join("holdfast")).unwrap();
        let port = free_port();
        let service = start_in(home.path(), port);
        Self { home, port, _service: service }
    }

    /// Runs commands in the same shell state as before, and returns the output.
    fn follow(&self, commands: &str) -> String {
        let whole = format!(
            "set -euo pipefail\n[ ! -e state ] || . ./state\n{commands}\n\
             {{ declare -p $(compgen -v | grep -E '^(SERVER|PORT|ACCOUNT|FOLDER|TOKEN|URL|HOLDFAST_.*)$'); declare -f; }} > state\n"
        );
        let path = format!("{}:/usr/bin:/bin", self.home.path().join("bin").display());
        let mut shell = Command::new("bash");
        shell.args(["-c", &whole]).env_clear().env("HOME", self.home.path()).env("PATH", path);
        let output = shell.current_dir(self.home.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{commands}\n{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }
}

/// Replaces the values that differ in the test.
fn here(text: &str, changes: &[(&str, String)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Follows the README in an empty environment, to a verified backup and its restore.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_who_follows_the_readme_gets_there() {
    let newcomer = Newcomer::new();
    // A server that the user can already log in to.
    let there = tempfile::tempdir().unwrap();
    let ssh = SshServer::builder().set_env("HOME", there.path().to_str().unwrap()).start();
    let keys = newcomer.home.path().join(".ssh");
    std::fs::create_dir(&keys).unwrap();
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o700)).unwrap();
    let key = keys.join("id_ed25519");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status().unwrap();
    assert!(made.success());
    ssh.authorize(&std::fs::read_to_string(keys.join("id_ed25519.pub")).unwrap());
    let (folder, restored) = (there.path().join("www"), there.path().join("restored"));
    std::fs::create_dir(&folder).unwrap();
    SampleTree::create(&folder);
    let own = format!("SERVER=127.0.0.1 PORT={} ACCOUNT={} FOLDER={}", ssh.port(), ssh.username(), folder.display());
    let changes = [
        ("SERVER=web-1.example.org PORT=22 ACCOUNT=backup FOLDER=/var/www", own),
        ("127.0.0.1:8080", format!("127.0.0.1:{}", newcomer.port)),
        ("/tmp/restored", restored.display().to_string()),
        // The user accepts the host key and has their own key.
        ("ssh -p", format!("ssh -i {} -o IdentitiesOnly=yes -o StrictHostKeyChecking=accept-new -p", key.display())),
    ];
    let blocks = blocks("README.md");
    assert_eq!(blocks.len(), 5, "five steps");
    for (from, _) in &changes {
        assert!(blocks.iter().any(|block| block.contains(from)), "the README does not say {from}");
    }
    let mut said = String::new();
    for (number, block) in blocks.iter().enumerate() {
        said += &newcomer.follow(&here(block, &changes));
        if number == 2 {
            // The test server does not read its keys from the home folder.
            let installed = std::fs::read_to_string(there.path().join(".ssh/authorized_keys")).unwrap();
            assert!(installed.starts_with("ssh-ed25519 ") && installed.lines().count() == 1, "{installed}");
            ssh.authorize(installed.trim());
        }
    }
    assert!(said.contains("3 to create") && said.contains("online"), "{said}");
    assert_same(&Fingerprint::of(&folder), &Fingerprint::of(&restored));
}

/// Runs the commands of the API guide unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_who_follows_the_guide_to_the_api_gets_there() {
    let newcomer = Newcomer::new();
    let ssh = SshServer::start();
    let there = tempfile::tempdir().unwrap();
    let (folder, restored) = (there.path().join("www"), there.path().join("restored"));
    std::fs::create_dir_all(folder.join("html")).unwrap();
    std::fs::write(folder.join("html/index.html"), "<h1>Hello</h1>").unwrap();
    let server =
        format!("\"ip_address\": \"127.0.0.1\", \"port\": {}, \"username\": \"{}\"", ssh.port(), ssh.username());
    let changes = [
        ("http://127.0.0.1:8080", format!("http://127.0.0.1:{}", newcomer.port)),
        ("\"ip_address\": \"web-1.example.org\", \"username\": \"backup\"", server),
        ("/var/www", folder.display().to_string()),
        ("/srv/restored", restored.display().to_string()),
        // Failed requests end the script.
        ("curl --silent", "curl --silent --fail-with-body".to_owned()),
    ];
    let mut client = None;
    for block in blocks("docs/api.md") {
        if block.contains("$URL/backups/1/verify") {
            let client: &Client = client.as_ref().unwrap();
            client.wait_for("/api/backup-tasks/1/latest-log", |log| log["data"]["finished_at"].is_string()).await;
        }
        newcomer.follow(&here(&block, &changes));
        if client.is_none() {
            let token = newcomer.follow("printf %s \"$TOKEN\"");
            let caller = Client::new(&format!("http://127.0.0.1:{}", newcomer.port), Some(&token));
            ssh.authorize(caller.get("/api/ssh-key").await.data(200)["public_key"].as_str().unwrap());
            client = Some(caller);
        }
    }
    let downloaded = std::fs::read_to_string(newcomer.home.path().join("index.html")).unwrap();
    assert_eq!(downloaded, "<h1>Hello</h1>");
    let client = client.unwrap();
    let run = client.wait_for("/api/runs/4", |run| run["data"]["finished_at"].is_string()).await;
    assert_eq!((&run["data"]["kind"], &run["data"]["status"]), (&json!("restore"), &json!("successful")), "{run}");
    assert_eq!(std::fs::read_to_string(restored.join("html/index.html")).unwrap(), "<h1>Hello</h1>");
}
