//! `cargo xtask test`: everything that must hold before a change lands.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::free_port;
use crate::commands::{Result, cargo, output, root, step};
use crate::packages::{
    self, AGE, AIOSMTPD, BSDTAR, BUSYBOX, CHROMIUM, CHROMIUM_DRIVER, GO, MARIADB, NGINX, OPENSSL, POSTGRESQL,
    PROMETHEUS, RESTIC, SHELLCHECK, SQLITE, SSH, SSHD, SYSTEMD, ZSTD,
};

pub fn run() -> Result<()> {
    packages::install(&[POSTGRESQL, MARIADB, SQLITE, SSHD, SSH, BUSYBOX, BSDTAR, GO, OPENSSL, AGE, ZSTD, RESTIC])?;
    packages::install(&[AIOSMTPD, CHROMIUM, CHROMIUM_DRIVER, NGINX, PROMETHEUS, SHELLCHECK, SYSTEMD])?;
    step("formatting", &mut cargo(&["fmt", "--all", "--check"]))?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"];
    step("clippy", &mut cargo(&clippy))?;
    containers()?;
    book()?;
    let moto = Moto::start()?;
    let mut tests = cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    step("tests", tests.env("TEST_MOTO_URL", &moto.url).env("TEST_AXE", packages::axe()?))?;
    drop(moto);
    lint_document()?;
    generated_client()?;
    schemathesis()
}

/// Checks the OpenAPI document with two linters, and that it becomes valid TypeScript.
pub fn lint_document() -> Result<()> {
    let folder = packages::node_tools()?;
    let programs = folder.join("node_modules/.bin");
    let document = root().join("docs/openapi.json");
    let program = |name: &str| {
        let mut command = Command::new(programs.join(name));
        command.current_dir(&folder).env("REDOCLY_TELEMETRY", "off").env("NO_UPDATE_NOTIFIER", "1");
        command
    };
    // Without a configuration of its own, Redocly applies its recommended rules.
    step("lint the API document (Redocly)", program("redocly").args(["lint", "--format=stylish"]).arg(&document))?;
    let rules = folder.join("spectral.yaml");
    std::fs::write(&rules, "extends: [\"spectral:oas\"]\n").map_err(|error| format!("{}: {error}", rules.display()))?;
    let mut spectral = program("spectral");
    spectral.args(["lint", "--fail-severity=warn", "--ruleset"]).arg(&rules).arg(&document);
    step("lint the API document (Spectral)", &mut spectral)?;
    let types = folder.join("schema.d.ts");
    let mut typescript = program("openapi-typescript");
    step("generate TypeScript", typescript.arg(&document).arg("--output").arg(&types))?;
    step("check TypeScript", program("tsc").args(["--noEmit", "--strict"]).arg(&types))
}

/// Drives the service with a Python and a TypeScript client that are generated from the OpenAPI document.
pub fn generated_client() -> Result<()> {
    packages::install(&[SSHD, SSH])?;
    let (python, node) = (packages::openapi_python_client()?, packages::node_tools()?);
    let mut test = cargo(&["test", "--locked", "--package", "holdfast", "--test", "generated_client"]);
    step("generated clients", test.env("OPENAPI_PYTHON_CLIENT", python).env("NODE_TOOLS", node))
}

/// Checks the Dockerfile and the compose files as far as possible without a container engine.
fn containers() -> Result<()> {
    step("Dockerfile", Command::new(packages::hadolint()?).args(["Dockerfile"]).current_dir(root()))?;
    let mut compose = Command::new(packages::jsonschema()?);
    compose.args(["--builtin-schema", "vendor.compose-spec", "compose.yaml", "compose.postgres.yaml"]);
    step("compose files", compose.current_dir(root()))
}

/// A second S3 implementation for the conformance suite; stopped when dropped.
struct Moto {
    child: Child,
    url: String,
}

impl Moto {
    fn start() -> Result<Self> {
        let program = packages::moto()?;
        let port = free_port()?;
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("cannot run moto: {error}"))?;
        let moto = Self { child, url: format!("http://127.0.0.1:{port}") };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > deadline {
                return Err("moto did not start".to_owned());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(moto)
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        if self.child.kill().is_err() || self.child.wait().is_err() {
            eprintln!("moto may still be running");
        }
    }
}

/// Fuzzes the served API from its OpenAPI document, on both databases.
pub fn schemathesis() -> Result<()> {
    packages::install(&[POSTGRESQL])?;
    let program = packages::schemathesis()?;
    let mut test = cargo(&["test", "--locked", "--package", "holdfast", "--test", "schemathesis"]);
    step("schemathesis", test.env("SCHEMATHESIS", program))
}

/// Takes the screenshots of the README, from a service with sample data.
pub fn screenshots() -> Result<()> {
    packages::install(&[SSHD, SSH, CHROMIUM, CHROMIUM_DRIVER])?;
    let folder = root().join("docs/screenshots");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let arguments =
        ["test", "--locked", "--package", "holdfast", "--test", "browser", "screenshots", "--", "--ignored"];
    step("screenshots", cargo(&arguments).env("SCREENSHOTS", folder))
}

/// Writes the pages that are generated from the code, and builds the manual.
pub fn docs() -> Result<()> {
    let page = output(&mut cargo(&["run", "--quiet", "--package", "holdfast", "--", "settings"]))?;
    let path = root().join("docs/configuration.md");
    std::fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))?;
    book()
}

/// Builds the manual.
fn book() -> Result<()> {
    let program = packages::mdbook()?;
    step("manual", Command::new(program).arg("build").current_dir(root()))
}

pub fn write_openapi() -> Result<()> {
    let document = output(&mut cargo(&["run", "--quiet", "--package", "holdfast", "--", "openapi"]))?;
    let path = root().join("docs/openapi.json");
    std::fs::write(&path, document).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}
