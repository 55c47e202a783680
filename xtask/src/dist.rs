//! `cargo xtask dist`: builds the release artefacts from one binary: an archive, a Debian package, a software bill of
//! materials, and their checksums.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::commands::{PACKAGED, Result, cargo, output, root, step};

/// Shell completions, which the program generates, and where they are installed.
const SHELLS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/holdfast"),
    ("zsh", "usr/share/zsh/vendor-completions/_holdfast"),
    ("fish", "usr/share/fish/vendor_completions.d/holdfast.fish"),
];

pub fn run() -> Result<()> {
    step("build", &mut cargo(&["build", "--profile", PACKAGED, "--locked", "--package", "holdfast"]))?;
    let folder = root().join("target/dist");
    package(&root().join("target").join(PACKAGED).join("holdfast"), &folder)?;
    for entry in std::fs::read_dir(&folder).map_err(|error| error.to_string())?.flatten() {
        println!("{}", entry.path().display());
    }
    Ok(())
}

fn failed(what: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", what.display())
}

fn put(root: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf> {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap_or(root)).map_err(failed(&path))?;
    std::fs::write(&path, bytes).map_err(failed(&path))?;
    Ok(path)
}

fn copy(from: &str, root_of: &Path, name: &str, mode: &str) -> Result<()> {
    let to = root_of.join(name);
    run_quietly(Command::new("install").args(["-D", "--mode", mode]).arg(root().join(from)).arg(to))
}

fn run_quietly(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// The version in Cargo.toml.
pub fn version() -> Result<String> {
    let metadata: Value = metadata(&["--no-deps"])?;
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let own = packages.iter().find(|package| package["name"] == "holdfast");
    own.and_then(|package| package["version"].as_str()).map(str::to_owned).ok_or("no version".to_owned())
}

fn metadata(more: &[&str]) -> Result<Value> {
    let arguments = [&["metadata", "--format-version", "1", "--locked"][..], more].concat();
    serde_json::from_str(&output(&mut cargo(&arguments))?).map_err(|error| error.to_string())
}

/// Rebuilds everything below `folder` from this binary.
pub fn package(binary: &Path, folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(failed(folder))?;
    }
    let version = version()?;
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let stage = folder.join("stage");
    fill(binary, &stage)?;
    let name = format!("holdfast-{version}-linux-{architecture}");
    let archive = folder.join(format!("{name}.tar.gz"));
    // Files only: an entry for a directory would change, or even replace, the existing one on the target system.
    let files = output(Command::new("find").args([".", "-type", "f", "-printf", "%P\\n"]).current_dir(&stage))?;
    let mut files: Vec<&str> = files.lines().collect();
    files.sort_unstable();
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"]);
    tar.arg(format!("--transform=s,^,{name}/,")).arg("--file").arg(&archive).arg("--directory").arg(&stage);
    run_quietly(tar.args(files))?;
    debian(&stage, folder, &version, &architecture)?;
    let list = serde_json::to_vec_pretty(&bill_of_materials(&version)?).map_err(|error| error.to_string())?;
    put(folder, &format!("holdfast-{version}.cdx.json"), &list)?;
    std::fs::remove_dir_all(&stage).map_err(failed(&stage))?;
    let sums = output(Command::new("sh").args(["-c", "sha256sum holdfast*"]).current_dir(folder))?;
    put(folder, "SHA256SUMS", sums.as_bytes()).map(drop)
}

/// Creates the file tree as it is installed.
fn fill(binary: &Path, stage: &Path) -> Result<()> {
    let program = stage.join("usr/bin/holdfast");
    std::fs::create_dir_all(stage.join("usr/bin")).map_err(failed(stage))?;
    run_quietly(Command::new("strip").arg("-o").arg(&program).arg(binary))?;
    for (shell, place) in SHELLS {
        let text = output(Command::new(&program).args(["completions", shell]))?;
        put(stage, place, text.as_bytes())?;
    }
    let manual = stage.join("usr/share/man/man1");
    run_quietly(Command::new(&program).arg("man").arg(&manual))?;
    run_quietly(Command::new("sh").args(["-c", "gzip --best --no-name *.1"]).current_dir(&manual))?;
    copy("packaging/holdfast.service", stage, "usr/lib/systemd/system/holdfast.service", "0644")?;
    copy("packaging/debian/default", stage, "etc/default/holdfast", "0644")?;
    let documents = [
        ("README.md", "README.md"),
        ("CHANGELOG.md", "CHANGELOG.md"),
        ("LICENSE", "copyright"),
        ("docs/recover.md", "recover.md"),
        ("packaging/prometheus/alerts.yml", "prometheus-alerts.yml"),
        ("packaging/grafana/holdfast.json", "grafana-dashboard.json"),
    ];
    for (from, name) in documents {
        copy(from, stage, &format!("usr/share/doc/holdfast/{name}"), "0644")?;
    }
    Ok(())
}

fn debian(stage: &Path, folder: &Path, version: &str, architecture: &str) -> Result<()> {
    let size = output(Command::new("du").args(["--summarize", "--block-size=1024"]).arg(stage))?;
    let size = size.split_whitespace().next().unwrap_or("0").to_owned();
    let control = format!(
        "Package: holdfast\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The Holdfast authors <holdfast@localhost>\n\
         Installed-Size: {size}\nDepends: libc6 (>= {}), libgcc-s1, adduser, ca-certificates\nSection: admin\nPriority: optional\n\
         Description: self-hosted backups over SSH\n Pulls files and databases from your servers over SSH, with nothing installed on them,\n \
         keeps the newest copies on disk or S3, encrypted when asked, proves that they\n restore, and tells you how it went.\n",
        newest_libc(&stage.join("usr/bin/holdfast"))?
    );
    put(stage, "DEBIAN/control", control.as_bytes())?;
    put(stage, "DEBIAN/conffiles", b"/etc/default/holdfast\n")?;
    for script in ["postinst", "prerm", "postrm"] {
        copy(&format!("packaging/debian/{script}"), stage, &format!("DEBIAN/{script}"), "0755")?;
    }
    let package = folder.join(format!("holdfast_{version}_{architecture}.deb"));
    run_quietly(Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(stage).arg(package))
}

/// The newest glibc version that the program requires. Fails if it needs a library that not every system has.
fn newest_libc(program: &Path) -> Result<String> {
    let needed = output(Command::new("readelf").arg("--dynamic").arg(program))?;
    let libraries: Vec<&str> = needed.lines().filter_map(|line| line.split("[").nth(1)?.split(']').next()).collect();
    let usual = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];
    if let Some(other) = libraries.iter().find(|library| library.contains(".so") && !usual.contains(library)) {
        return Err(format!("the program needs {other}, which not every system has"));
    }
    let versions = output(Command::new("readelf").arg("--version-info").arg(program))?;
    let newest = versions
        .split("GLIBC_")
        .skip(1)
        .filter_map(|rest| {
            let text: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
            let mut numbers = text.split('.').map(|part| part.parse::<u32>().ok());
            Some((numbers.next()??, numbers.next()??))
        })
        .max();
    newest.map(|(major, minor)| format!("{major}.{minor}")).ok_or("the program requires no glibc version".to_owned())
}

/// Every library in the program, in CycloneDX format.
fn bill_of_materials(version: &str) -> Result<Value> {
    // Dependencies for other platforms are not compiled in.
    let compiler = output(Command::new("rustc").arg("-vV"))?;
    let host = compiler.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default().to_owned();
    let metadata = metadata(&["--filter-platform", &host])?;
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).map_err(|error| error.to_string())?;
    let nodes = metadata["resolve"]["nodes"].as_array().cloned().unwrap_or_default();
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let find = |name: &str| packages.iter().find(|package| package["name"] == name && package["source"].is_null());
    let start = find("holdfast").and_then(|package| package["id"].as_str()).unwrap_or_default().to_owned();
    // Dependencies that are only for tests or for building are not compiled in.
    let (mut inside, mut open) = (vec![start.clone()], vec![start]);
    while let Some(id) = open.pop() {
        let node = nodes.iter().find(|node| node["id"] == id.as_str());
        for dependency in node.and_then(|node| node["deps"].as_array()).into_iter().flatten() {
            let kinds = dependency["dep_kinds"].as_array().cloned().unwrap_or_default();
            let id = dependency["pkg"].as_str().unwrap_or_default().to_owned();
            if kinds.iter().any(|kind| kind["kind"].is_null()) && !inside.contains(&id) {
                inside.push(id.clone());
                open.push(id);
            }
        }
    }
    let mut components: Vec<Value> = packages
        .iter()
        .filter(|package| inside.iter().any(|id| package["id"] == id.as_str()) && !package["source"].is_null())
        .map(|package| {
            let (name, version) =
                (package["name"].as_str().unwrap_or_default(), package["version"].as_str().unwrap_or_default());
            let mut component = json!({"type": "library", "name": name, "version": version,
                "purl": format!("pkg:cargo/{name}@{version}")});
            if let Some(licence) = package["license"].as_str() {
                component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
            }
            if let Some(hash) = checksum(&lock, name, version) {
                component["hashes"] = json!([{"alg": "SHA-256", "content": hash}]);
            }
            component
        })
        .collect();
    components.sort_by_key(|component| component["purl"].as_str().unwrap_or_default().to_owned());
    Ok(json!({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "application", "name": "holdfast", "version": version}},
        "components": components}))
}

fn checksum(lock: &str, name: &str, version: &str) -> Option<String> {
    let head = format!("name = \"{name}\"\nversion = \"{version}\"\n");
    let rest = lock.split(&head).nth(1)?;
    let own = rest.split("[[package]]").next()?;
    Some(own.split("checksum = \"").nth(1)?.split('"').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packages the binary that the other tests use: it installs and runs, and the bill of materials is complete.
    #[test]
    fn the_release_artefacts_are_complete() {
        let binary = root().join("target/debug/holdfast");
        assert!(binary.exists(), "cargo test --workspace builds it");
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("dist");
        package(&binary, &out).unwrap();
        let version = version().unwrap();
        run_quietly(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&out)).unwrap();
        let sums = std::fs::read_to_string(out.join("SHA256SUMS")).unwrap();
        assert_eq!(sums.lines().count(), 3, "archive, package and bill of materials: {sums}");

        let architecture = output(Command::new("dpkg").arg("--print-architecture")).unwrap().trim().to_owned();
        let deb = out.join(format!("holdfast_{version}_{architecture}.deb"));
        let there = folder.path().join("there");
        run_quietly(Command::new("dpkg-deb").arg("--extract").arg(&deb).arg(&there)).unwrap();
        let said = output(Command::new(there.join("usr/bin/holdfast")).arg("--version")).unwrap();
        assert_eq!(said.trim(), format!("holdfast {version}"));
        for path in [
            "etc/default/holdfast",
            "usr/lib/systemd/system/holdfast.service",
            "usr/share/man/man1/holdfast.1.gz",
            "usr/share/man/man1/holdfast-task-run.1.gz",
            "usr/share/doc/holdfast/copyright",
        ] {
            assert!(there.join(path).exists(), "{path}");
        }
        for (_, path) in SHELLS {
            assert!(std::fs::read_to_string(there.join(path)).unwrap().contains("bootstrap"), "{path}");
        }
        let syntax = Command::new("bash").arg("-n").arg(there.join(SHELLS[0].1)).status().unwrap();
        assert!(syntax.success());
        let control = output(Command::new("dpkg-deb").arg("--field").arg(&deb)).unwrap();
        assert!(control.contains("Depends: libc6 (>= 2."), "{control}");

        let list = std::fs::read(out.join(format!("holdfast-{version}.cdx.json"))).unwrap();
        let list: Value = serde_json::from_slice(&list).unwrap();
        let components = list["components"].as_array().unwrap();
        let names: Vec<&str> = components.iter().filter_map(|component| component["name"].as_str()).collect();
        assert!(
            names.contains(&"russh") && names.contains(&"axum") && !names.contains(&"s3s"),
            "test dependencies must not be listed"
        );
        let all_hashed = components.iter().all(|component| component["hashes"].is_array());
        assert!(all_hashed && components.iter().all(|component| component["licenses"].is_array()));

        let archive = out.join(format!("holdfast-{version}-linux-{architecture}.tar.gz"));
        let files = output(Command::new("tar").arg("--list").arg("--file").arg(&archive)).unwrap();
        assert!(files.contains("/usr/bin/holdfast") && !files.contains("DEBIAN"), "{files}");
        assert!(files.lines().all(|name| !name.ends_with('/')), "an entry for a directory: {files}");
        // As in the manual, into a system whose /lib is a symbolic link.
        let system = folder.path().join("system");
        std::fs::create_dir_all(system.join("usr/lib")).unwrap();
        std::os::unix::fs::symlink("usr/lib", system.join("lib")).unwrap();
        let mut extract = Command::new("tar");
        extract.args(["--extract", "--gzip", "--strip-components=1", "--no-overwrite-dir", "--directory"]).arg(&system);
        run_quietly(extract.arg("--file").arg(&archive)).unwrap();
        assert!(system.join("lib/systemd/system/holdfast.service").exists() && system.join("lib").is_symlink());
    }

    /// Checked by systemd itself.
    #[test]
    fn the_systemd_unit_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        let unit = std::fs::read_to_string(root().join("packaging/holdfast.service")).unwrap();
        let path = folder.path().join("holdfast.service");
        // systemd-analyze checks that the program exists, which is elsewhere here.
        std::fs::write(&path, unit.replace("/usr/bin/holdfast", "/bin/true")).unwrap();
        let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        let own: Vec<&str> = said.lines().filter(|line| line.contains("holdfast.service")).collect();
        assert!(verified.status.success() && own.is_empty(), "{said}");
    }

    /// Only linted: running them would change the system.
    #[test]
    fn the_maintainer_scripts_pass_shellcheck() {
        for script in ["postinst", "prerm", "postrm"] {
            let path = root().join("packaging/debian").join(script);
            let checked =
                Command::new("shellcheck").args(["--shell=sh", "--severity=style"]).arg(&path).output().unwrap();
            assert!(checked.status.success(), "{script}: {}", String::from_utf8_lossy(&checked.stdout));
        }
    }

    /// Every metric used by the alerts and the dashboard is one that the service exports.
    #[test]
    fn alerts_and_dashboard_use_existing_metrics() {
        let folder = root().join("packaging/prometheus");
        let mut check = Command::new("promtool");
        let checked = check.args(["check", "rules", "alerts.yml"]).current_dir(&folder).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        let mut test = Command::new("promtool");
        let tested = test.args(["test", "rules", "alerts_test.yml"]).current_dir(&folder).output().unwrap();
        assert!(
            tested.status.success(),
            "{}{}",
            String::from_utf8_lossy(&tested.stdout),
            String::from_utf8_lossy(&tested.stderr)
        );
        let alerts = std::fs::read_to_string(folder.join("alerts.yml")).unwrap();
        let board = std::fs::read_to_string(root().join("packaging/grafana/holdfast.json")).unwrap();
        let _board: Value = serde_json::from_str(&board).unwrap();
        let sources = ["holdfast/src/serve.rs", "holdfast/src/process_figures.rs", "holdfast-app/src/health.rs"]
            .map(|path| format!("crates/{path}"));
        let known: String = sources.iter().map(|path| std::fs::read_to_string(root().join(path)).unwrap()).collect();
        for text in [alerts, board] {
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for name in words.filter(|word| word.starts_with("holdfast_")) {
                let name = name.trim_end_matches("_bucket");
                assert!(known.contains(&format!("\"{name}\"")), "the service does not export {name}");
            }
        }
    }
}
