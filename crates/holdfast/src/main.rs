//! Holdfast: one binary with several roles. The arguments are parsed into settings and a command, which is then run.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program prints to the terminal")]

mod cli;
mod commands;
mod failure;
mod listen;
mod logging;
mod serve;
mod settings;
mod vanguard;
mod wiring;

use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::Command;
use crate::failure::Failure;
use crate::settings::Settings;

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

/// Exits without an error message when the reader of standard output has closed the pipe.
fn end_quietly_at_closed_pipes() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<String>().map(String::as_str).unwrap_or_default();
        if text.starts_with("failed printing to std") {
            std::process::exit(0);
        }
        usual(info);
    }));
}

fn main() -> ExitCode {
    end_quietly_at_closed_pipes();
    let matches = match cli::parse() {
        Ok(matches) => matches,
        Err(code) => return code,
    };
    let environment = settings::process_environment();
    let result = environment.and_then(|environment| Settings::load(&matches, &environment)).and_then(|mut settings| {
        let command = cli::command(&matches)?;
        if matches!(command, Command::Serve | Command::Worker | Command::Demo { .. }) {
            tell_allocator();
        }
        // The demo prints its own progress, so log only warnings and errors.
        if matches!(command, Command::Demo { .. }) && settings.log == "info" {
            settings.log = "warn".to_owned();
        }
        logging::start(&settings)?;
        // Idle blocking threads keep memory that they used for a run, so end them soon.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().thread_keep_alive(THREAD_KEEP_ALIVE).build();
        let runtime = runtime.map_err(|error| Failure::other(format!("cannot start the runtime: {error}")))?;
        let result = runtime.block_on(run(command, settings));
        // Do not wait for a password hash that is still being computed.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("holdfast: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

async fn run(command: Command, settings: Settings) -> Result<(), Failure> {
    match command {
        Command::Serve => Box::pin(serve::serve(settings)).await,
        Command::Worker => Box::pin(serve::work(settings)).await,
        Command::Migrate => commands::migrate(&settings).await,
        Command::Doctor { is_offline } => Box::pin(commands::doctor::run(&settings, is_offline)).await,
        Command::OpenApi => commands::openapi(),
        Command::Health => commands::health(&settings).await,
        Command::Completions { shell } => commands::shell::completions(shell),
        Command::Settings => {
            print!("{}", settings::reference());
            Ok(())
        }
        Command::Man { folder } => commands::shell::manual(&folder),
        Command::KeyRotate => commands::rotate_key(&settings).await,
        Command::Demo { stay } => Box::pin(commands::demo::demo(settings, stay)).await,
        Command::Export { output, passphrase_file } => {
            commands::transfer::export(&settings, &output, passphrase_file.as_deref()).await
        }
        Command::Import { file, passphrase_file, is_paused } => {
            commands::transfer::import(&settings, &file, passphrase_file.as_deref(), is_paused).await
        }
        Command::ImportVanguard { file, options } => vanguard::import(&settings, &file, options).await,
        Command::Bootstrap { place, is_paused } => commands::transfer::bootstrap(&settings, &place, is_paused).await,
        Command::Apply { file, options } => commands::apply::run(&settings, &file, options).await,
        Command::Remote(command, printer) => commands::remote::run(&settings, command, printer).await,
        Command::Backup(command) => commands::backup::run(command),
        Command::User(command) => commands::user::run(&settings, command).await,
        Command::Token(command) => commands::token::run(&settings, command).await,
    }
}
