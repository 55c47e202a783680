//! Holdfast: one binary with several roles. The arguments are parsed into settings and a command, which is then run.

mod audit_export;
mod audit_line;
mod audit_log;
mod cli;
mod commands;
mod failure;
mod listen;
mod logging;
mod output;
mod process_figures;
mod serve;
mod settings;
mod vanguard;
mod wiring;

use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;

use crate::cli::Command;
use crate::failure::Failure;
use crate::output::Printer;
use crate::settings::{ClientSettings, Environment, LogSettings, Settings};

/// Rows are allocated on SQLite's threads and freed on ours, which causes lock contention in the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The allocator keeps freed memory for a second, in which a backup frees many times what it needs. The delay can only
/// be set in the environment before `main`, so the process re-executes itself. If that fails, it continues and uses
/// more memory.
fn tell_allocator() {
    const WISH: &str = "MIMALLOC_PURGE_DELAY";
    if std::env::var_os(WISH).is_some() {
        return;
    }
    let mut arguments = std::env::args_os();
    let (Ok(program), Some(name)) = (std::env::current_exe(), arguments.next()) else { return };
    let _failed = std::process::Command::new(program).arg0(name).args(arguments).env(WISH, "0").exec();
}

/// Longer than the pauses between the steps of a run.
const THREAD_KEEP_ALIVE: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    let matches = match cli::parse() {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    let printer = cli::printer(&matches);
    let result = settings::process_environment().and_then(|environment| {
        let command = cli::command(&matches)?;
        let is_service = matches!(command, Command::Serve | Command::Worker);
        if is_service || matches!(command, Command::Demo { .. }) {
            tell_allocator();
        }
        let mut log = LogSettings::load(&matches, &environment)?;
        // Commands print what they do. Only that there is a new key nobody should miss.
        if !is_service && log.filter == "info" {
            log.filter = "warn,holdfast_store::master_key=info".to_owned();
        }
        let logging = logging::start(&log)?;
        // Idle blocking threads keep memory that they used for a run, so end them soon.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().thread_keep_alive(THREAD_KEEP_ALIVE).build();
        let runtime = runtime.map_err(|error| Failure::other(format!("cannot start the runtime: {error}")))?;
        let result = runtime.block_on(run(command, &Loader { matches: &matches, environment: &environment }, printer));
        // Do not wait for a password hash that is still being computed.
        runtime.shutdown_background();
        drop(logging);
        // A service has done its work even if nobody could read its greeting.
        if is_service { result } else { result.and_then(|()| output::finish()) }
    });
    printer.report(result)
}

/// Loads the settings that a command needs, and no others.
struct Loader<'a> {
    matches: &'a ArgMatches,
    environment: &'a Environment,
}

impl Loader<'_> {
    fn service(&self) -> Result<Settings, Failure> {
        Settings::load(self.matches, self.environment)
    }

    fn client(&self) -> Result<ClientSettings, Failure> {
        ClientSettings::load(self.matches, self.environment)
    }
}

async fn run(command: Command, load: &Loader<'_>, printer: Printer) -> Result<(), Failure> {
    match command {
        Command::Serve => Box::pin(serve::serve(load.service()?)).await,
        Command::Worker => Box::pin(serve::work(load.service()?)).await,
        Command::Migrate => commands::migrate(&load.service()?, printer).await,
        Command::Doctor(options) => match load.service() {
            Ok(settings) => Box::pin(commands::doctor::run(&settings, options)).await,
            Err(failure) => Err(commands::doctor::unusable(options, failure)),
        },
        Command::OpenApi => commands::openapi(),
        Command::Health => commands::health(&load.service()?, printer).await,
        Command::Completions { shell } => commands::shell::completions(shell),
        Command::Settings => {
            output::print(format_args!("{}", settings::reference()));
            Ok(())
        }
        Command::Man { folder } => commands::shell::manual(&folder),
        Command::KeyRotate => commands::rotate_key(&load.service()?, printer).await,
        Command::Demo { stay } => Box::pin(commands::demo::demo(load.service()?, stay)).await,
        Command::Export { output, passphrase_file } => {
            commands::transfer::export(&load.service()?, &output, passphrase_file.as_deref(), printer).await
        }
        Command::ExportYaml { output } => commands::export_yaml::run(&load.client()?, output.as_deref(), printer).await,
        Command::Import { file, passphrase_file, is_paused } => {
            let how = commands::transfer::ImportArguments { passphrase_file, is_paused };
            commands::transfer::import(&load.service()?, &file, &how, printer).await
        }
        Command::ImportVanguard { file, options } => vanguard::import(&load.service()?, &file, options).await,
        Command::Bootstrap { place, is_paused } => {
            commands::transfer::bootstrap(&load.service()?, &place, is_paused).await
        }
        Command::Apply { file, options } => commands::apply::run(&load.client()?, &file, options, printer).await,
        Command::Remote(command) => commands::remote::run(&load.client()?, command, printer).await,
        Command::Backup(command) => commands::backup::run(command, printer),
        Command::User(command) => commands::user::run(&load.service()?, command, printer).await,
        Command::Token(command) => commands::token::run(&load.service()?, command, printer).await,
        Command::Audit(command) => commands::audit::run(&load.service()?, command).await,
        Command::Pause(command) => commands::user::pause(&load.service()?, command, printer).await,
        Command::Drain(command) => commands::drain::run(&load.service()?, command, printer).await,
        Command::Maintenance(command) => commands::maintenance::run(&load.service()?, command, printer).await,
    }
}
