use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use holdfast_testkit::{Fingerprint, SampleTree, SshServer, assert_same, free_port};

use crate::process::start_in;

/// The commands below a heading of the README, as somebody copies them.
fn commands(heading: &str) -> String {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let section = text.split(&format!("\n## {heading}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    let (mut out, mut is_inside) = (String::from("set -euo pipefail\n"), false);
    for line in section.lines() {
        match line.trim() {
            "```sh" => is_inside = true,
            "```" => is_inside = false,
            // Lists indent their blocks; heredocs end at the margin.
            _ if is_inside => out += &format!("{}\n", line.strip_prefix("   ").unwrap_or(line)),
            _ => {}
        }
    }
    out
}

/// A fresh home, an empty environment, the program, and the README: from nothing to a proven backup and its restore.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_who_follows_the_readme_gets_there() {
    let home = tempfile::tempdir().unwrap();
    let programs = home.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_holdfast"), programs.join("holdfast")).unwrap();
    // A server of theirs, that they can already get into.
    let there = tempfile::tempdir().unwrap();
    let ssh = SshServer::builder().set_env("HOME", there.path().to_str().unwrap()).start();
    let keys = home.path().join(".ssh");
    std::fs::create_dir(&keys).unwrap();
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o700)).unwrap();
    let key = keys.join("id_ed25519");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status().unwrap();
    assert!(made.success());
    ssh.authorize(&std::fs::read_to_string(keys.join("id_ed25519.pub")).unwrap());
    let folder = there.path().join("www");
    std::fs::create_dir(&folder).unwrap();
    SampleTree::create(&folder);

    let port = free_port();
    let service = start_in(home.path(), port);
    let restored = there.path().join("restored");
    let script = commands("Your first backup");
    let changes = [
        (
            "SERVER=web-1.example.org PORT=22 ACCOUNT=backup FOLDER=/var/www".to_owned(),
            format!("SERVER=127.0.0.1 PORT={} ACCOUNT={} FOLDER={}", ssh.port(), ssh.username(), folder.display()),
        ),
        ("127.0.0.1:8080".to_owned(), format!("127.0.0.1:{port}")),
        ("/tmp/restored".to_owned(), restored.display().to_string()),
        // They know their server; and it reads its keys from where every server does.
        (
            "ssh -p".to_owned(),
            format!("ssh -i {} -o IdentitiesOnly=yes -o StrictHostKeyChecking=accept-new -p", key.display()),
        ),
    ];
    let script = changes.iter().fold(script, |script, (from, to)| {
        assert!(script.contains(from.as_str()), "the README does not say {from}");
        script.replace(from, to)
    });
    // The private server has its keys elsewhere than at home.
    let (before, after) = script.split_once("cat > holdfast.yaml").unwrap();
    let follow = |commands: &str| {
        let mut shell = Command::new("bash");
        shell.args(["-c", commands]).env_clear().env("HOME", home.path()).current_dir(home.path());
        let output = shell.env("PATH", format!("{}:/usr/bin:/bin", programs.display())).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{commands}\n{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    };
    let saved = format!("{before}\ndeclare -p SERVER PORT ACCOUNT FOLDER HOLDFAST_URL HOLDFAST_TOKEN > state\n");
    follow(&saved);
    let installed = std::fs::read_to_string(there.path().join(".ssh/authorized_keys")).unwrap();
    assert!(installed.starts_with("ssh-ed25519 ") && installed.lines().count() == 1, "{installed}");
    ssh.authorize(installed.trim());
    let said = follow(&format!("set -euo pipefail\n. ./state\ncat > holdfast.yaml{after}"));
    assert!(said.contains("3 to make") && said.contains("online"), "{said}");
    assert_same(&Fingerprint::of(&folder), &Fingerprint::of(Path::new(&restored)));
    drop(service);
}
