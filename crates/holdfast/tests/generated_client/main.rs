//! Drives every operation of the API with clients that are generated from the OpenAPI document. Run by `cargo xtask
//! test`, which installs the generators, and sets OPENAPI_PYTHON_CLIENT to the path of one and NODE_TOOLS to the folder
//! of the other.

#[path = "../it/process.rs"]
#[expect(dead_code, reason = "shared with the other tests")]
mod process;
mod stage;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stage::Stage;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
const DRIVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/generated_client");

/// The path in a variable that `cargo xtask test` sets.
fn tool(variable: &str) -> PathBuf {
    std::env::var_os(variable).expect("run this with `cargo xtask generated-client`").into()
}

#[track_caller]
fn succeed(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let told = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{told}");
    told
}

/// Waits for a program without blocking the stage.
async fn run(command: &mut Command) -> String {
    let mut command = std::mem::replace(command, Command::new("true"));
    succeed(&tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap())
}

/// Generates the client into a package called `generated`.
async fn generate_python(generator: &Path, into: &Path) {
    let mut command = Command::new(generator);
    command.args(["generate", "--meta", "none", "--overwrite", "--path", DOCUMENT, "--output-path"]);
    let told = run(command.arg(into.join("generated")).current_dir(into)).await;
    assert!(!told.contains("was not generated") && !told.contains("Skipping endpoint"), "{told}");
}

/// Compiles the driver against the generated types; returns the program.
async fn compile_typescript(tools: &Path, into: &Path) -> PathBuf {
    let program = |name: &str| {
        let mut command = Command::new(tools.join("node_modules/.bin").join(name));
        command.current_dir(into);
        command
    };
    std::os::unix::fs::symlink(tools.join("node_modules"), into.join("node_modules")).unwrap();
    std::fs::write(into.join("package.json"), r#"{"type": "module"}"#).unwrap();
    std::fs::copy(Path::new(DRIVERS).join("drive.ts"), into.join("drive.ts")).unwrap();
    // Otherwise TypeScript demands every field that has a default.
    let generate = [DOCUMENT, "--default-non-nullable=false", "--output", "schema.d.ts"];
    run(program("openapi-typescript").args(generate)).await;
    let compile = ["--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module", "nodenext"];
    run(program("tsc").args(compile).args(["--types", "node", "--outDir", "compiled", "drive.ts"])).await;
    into.join("compiled/drive.js")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_client_drives_every_operation() {
    let generator = tool("OPENAPI_PYTHON_CLIENT");
    let stage = Stage::new().await;
    let folder = stage.installation.folder.path();
    generate_python(&generator, folder).await;
    let mut python = Command::new(generator.with_file_name("python"));
    python.arg(Path::new(DRIVERS).join("drive.py")).arg(stage.told.to_string());
    print!("{}", run(python.env("PYTHONPATH", folder).env("PYTHONDONTWRITEBYTECODE", "1")).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_typescript_client_drives_every_operation() {
    let tools = tool("NODE_TOOLS");
    let stage = Stage::new().await;
    let program = compile_typescript(&tools, stage.installation.folder.path()).await;
    print!("{}", run(Command::new("node").arg(program).arg(stage.told.to_string())).await);
}
