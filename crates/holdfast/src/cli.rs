//! The command line: its parser, and the conversion of arguments into commands.

mod arguments;
mod fields;
mod remote;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches};
use holdfast_app::accounts;
use holdfast_app::supervision::Which;
use holdfast_client::apply::PlanOptions;

use self::arguments::{file, flag, id, many, option, optional, path, required, text, unknown, yes};
use crate::commands::apply::Options;
use crate::commands::doctor;
use crate::commands::remote::Remote;
use crate::commands::transfer::BootstrapSource;
use crate::failure::{Failure, SETTINGS as USAGE};
use crate::output::{self, Printer};
use crate::settings::TABLE;
use crate::vanguard;

pub enum Command {
    Serve,
    Worker,
    Migrate,
    Doctor(doctor::Options),
    OpenApi,
    Health,
    Completions { shell: clap_complete::Shell },
    Man { folder: PathBuf },
    Settings,
    KeyRotate,
    Demo { stay: bool },
    Export { output: PathBuf, passphrase_file: Option<PathBuf> },
    ExportYaml { output: Option<PathBuf> },
    Import { file: PathBuf, passphrase_file: Option<PathBuf>, is_paused: bool },
    ImportVanguard { file: PathBuf, options: vanguard::Options },
    Bootstrap { place: BootstrapSource, is_paused: bool },
    Apply { file: PathBuf, options: Options },
    Remote(Remote),
    Backup(BackupCommand),
    User(UserCommand),
    Token(TokenCommand),
    Maintenance(MaintenanceCommand),
    Drain(DrainCommand),
    Audit(AuditCommand),
    Pause(PauseCommand),
}

pub enum BackupCommand {
    Decrypt { file: PathBuf, output: Option<PathBuf>, password_file: Option<PathBuf> },
    Extract { file: PathBuf, to: PathBuf, entries: Vec<String>, password_file: Option<PathBuf> },
}

pub enum UserCommand {
    Create { email: String, name: String, timezone: String, admin: bool },
    List,
    ResetPassword { email: String, keep: accounts::Keep },
    EnableOtp { email: String },
    DisableOtp { email: String },
    MakeAdmin { email: String },
    Suspend { email: String },
    Resume { email: String },
    Delete { email: String, yes: bool, cancel_runs: bool },
    Transfer { from: String, to: String, how: Handover },
}

/// How everything of an account is transferred.
#[derive(Debug, Clone, Copy)]
pub struct Handover {
    pub yes: bool,
    /// End runs that are in progress, which are refused otherwise.
    pub cancel_runs: bool,
}

/// Pauses or resumes the tasks of an account, on this machine.
pub struct PauseCommand {
    pub email: String,
    pub which: Which,
    pub is_paused: bool,
}

pub enum AuditCommand {
    Export { since: Option<String> },
}

pub enum MaintenanceCommand {
    On { lasts: String },
    Off,
    Show,
}

/// Which workers start no further runs.
pub enum DrainCommand {
    On { name: String },
    Off { name: String },
    Show,
}

pub enum TokenCommand {
    Create { user: String, name: String, scopes: Vec<String>, all_scopes: bool, expires_in: Option<String> },
    List { user: String },
    Revoke { user: String, id: i64 },
}

/// Parses the arguments. On `--help`, `--version` or a usage error, prints the text and returns the exit code; an error
/// is printed as one line.
pub fn parse() -> Result<ArgMatches, ExitCode> {
    use clap::error::ErrorKind;
    parser().try_get_matches().map_err(|error| {
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                output::print(format_args!("{}", error.render()));
                return Printer { is_json: false }.report(output::finish());
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                output::print_error(format_args!("{}", error.render()));
            }
            _ => {
                let is_json = std::env::args().any(|argument| argument == "--json");
                return Printer { is_json }.report(Err(Failure::settings(one_line(&error.to_string()))));
            }
        }
        ExitCode::from(USAGE)
    })
}

/// Shortens a parser error, which consists of paragraphs: the first is the error, and a tip may suggest a correction.
fn one_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let rest: Vec<&str> = lines.collect();
    let mut out = first.trim_end_matches(':').to_owned();
    if first.ends_with(':') {
        // The missing arguments are listed on the following lines.
        let missing = rest.iter().take_while(|line| !line.starts_with("Usage")).copied();
        out = format!("{out}: {}", missing.collect::<Vec<_>>().join(" "));
    }
    if let Some(tip) = rest.iter().find_map(|line| line.strip_prefix("tip: ")) {
        out = format!("{out}; {tip}");
    }
    format!("{out}; see `holdfast --help`")
}

/// The parser. `serve` is the default command, and every setting is a flag of every command.
pub fn parser() -> clap::Command {
    let mut parser = clap::Command::new("holdfast")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Self-hosted backups: pulls files and databases from your servers over SSH")
        .after_help("Settings are flags or variables: `holdfast serve --help` lists them.")
        .arg(flag("json", "Print one JSON document, also for errors, for scripts").global(true))
        .subcommand(
            clap::Command::new("serve")
                .about("Run the API, the web interface and workers (default)")
                .after_help(settings_help()),
        )
        .subcommand(
            clap::Command::new("worker")
                .about("Run only a worker, as an additional process")
                .after_help(settings_help()),
        )
        .subcommand(clap::Command::new("migrate").about("Update the database schema and exit"))
        .subcommand(
            clap::Command::new("doctor")
                .about("Check the installation for problems and suggest fixes")
                .arg(flag("offline", "Do not connect to servers, destinations and the mail server")),
        )
        .subcommand(clap::Command::new("openapi").about("Print the OpenAPI document"))
        .subcommand(
            clap::Command::new("health").about("Check whether the process on this machine is ready, for containers"),
        )
        .subcommand(
            clap::Command::new("completions").about("Print shell completions").arg(
                Arg::new("shell")
                    .required(true)
                    .value_name("SHELL")
                    .value_parser(clap::value_parser!(clap_complete::Shell))
                    .help("bash, zsh, fish, elvish or powershell"),
            ),
        )
        .subcommand(clap::Command::new("settings").about("Print the configuration reference").hide(true))
        .subcommand(
            clap::Command::new("man").about("Write manual pages to a folder").hide(true).arg(
                Arg::new("folder")
                    .required(true)
                    .value_name("FOLDER")
                    .value_parser(clap::value_parser!(PathBuf))
                    .help("Where the pages are written"),
            ),
        )
        .subcommand(
            clap::Command::new("key")
                .about("Manage the master key that encrypts all secrets")
                .subcommand_required(true)
                .subcommand(
                    clap::Command::new("rotate").about("Replace it and re-encrypt all secrets; safe while running"),
                ),
        )
        .subcommand(
            clap::Command::new("demo")
                .about("Back up and restore sample data on this machine, then keep running for a look around")
                .arg(Arg::new("no-stay").long("no-stay").action(ArgAction::SetTrue).help("Exit after the demo")),
        )
        .subcommands(transfer_parsers())
        .subcommand(backup_parser())
        .subcommands(remote::parsers())
        .subcommand(apply_parser())
        .subcommand(user_parser())
        .subcommand(token_parser())
        .subcommand(maintenance_parser())
        .subcommand(drain_parser())
        .subcommand(audit_parser());
    for setting in TABLE {
        let default = if setting.default.is_empty() { String::new() } else { format!(" [{}]", setting.default) };
        let arg = |name: String, flag: String, value: &'static str| {
            let help = format!("{}{default}", setting.help);
            // Flags of every command, but listed only by those that run the service.
            Arg::new(name).long(flag).value_name(value).global(true).hide(true).help(help)
        };
        if setting.flag_too {
            parser = parser.arg(arg(setting.name.to_owned(), setting.flag(), "VALUE"));
        }
        if setting.secret {
            parser = parser.arg(arg(setting.file_name(), format!("{}-file", setting.flag()), "FILE"));
        }
    }
    parser
}

fn settings_help() -> String {
    let lines = TABLE.iter().map(|setting| {
        let default = if setting.default.is_empty() { String::new() } else { format!(" [{}]", setting.default) };
        let file = setting.secret.then(|| format!("--{}-file", setting.flag()));
        let flag = setting.flag_too.then(|| format!("--{}", setting.flag()));
        let flags: Vec<String> = flag.into_iter().chain(file).collect();
        format!("  {}, {}\n          {}{default}", flags.join(", "), setting.name, setting.help)
    });
    format!("Settings, as a flag or in the environment:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

fn transfer_parsers() -> [clap::Command; 3] {
    let passphrase = || path("passphrase-file", "File with the passphrase; if omitted, you are asked for it");
    let paused = || flag("paused", "Pause all tasks, because another installation still runs them");
    let file = || Arg::new("file").required(true).value_name("FILE").value_parser(clap::value_parser!(PathBuf));
    let place = Arg::new("place")
        .required(true)
        .value_name("DESTINATION")
        .help("s3://BUCKET, sftp://USER@HOST:PORT/FOLDER, or a folder");
    [
        clap::Command::new("export")
            .about("Write everything except the backups themselves to one file, encrypted with a passphrase")
            .arg(
                path("output", "Output file; must not exist yet [with --yaml: standard output]")
                    .required_unless_present("yaml"),
            )
            .arg(flag("yaml", "Write the configuration of an account of a service, without secrets, for `apply`"))
            .arg(passphrase().conflicts_with("yaml")),
        clap::Command::new("import")
            .about("Import a file written by `export`, or the data of another product")
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
            .arg(file().help("The exported file"))
            .arg(passphrase())
            .arg(paused())
            .subcommand(
                clap::Command::new("vanguard")
                    .about("Import tasks, servers, destinations, streams and tags from a Vanguard database")
                    .arg(file().help("SQL dump of the database (pg_dump)"))
                    .arg(path("app-key-file", "Vanguard's .env file, whose APP_KEY decrypts its secrets"))
                    .arg(option("user", "Account that receives everything [each user's own, by email]"))
                    .arg(flag("check", "Only show what would be imported"))
                    .arg(paused()),
            ),
        clap::Command::new("bootstrap")
            .about("Rebuild an installation from a destination and the master key")
            .arg(place)
            .arg(Arg::new("region").long("region").default_value("us-east-1").help("Region of the bucket"))
            .arg(Arg::new("endpoint").long("endpoint").help("URL of an S3-compatible service"))
            .arg(Arg::new("host-key").long("host-key").help("Host key of the SFTP server, as ssh-keygen -l prints it"))
            .arg(option("only", "Only this account, by email; can be given several times").action(ArgAction::Append))
            .arg(flag("path-style", "Put the bucket in the path, as most S3-compatible services expect"))
            .arg(paused()),
    ]
}

fn backup_parser() -> clap::Command {
    let command = |name: &'static str, about: &'static str| {
        let file = Arg::new("file").required(true).value_name("FILE").value_parser(clap::value_parser!(PathBuf));
        let password = "File with the password; if omitted, it is read from the terminal or standard input";
        clap::Command::new(name)
            .about(about)
            .arg(file.help("The backup file, as it is stored at the destination"))
            .arg(path("password-file", password))
    };
    remote::parser("backup", "List, verify and restore stored backups, or open a backup file without a service")
        .subcommands(remote::backup_parsers())
        .subcommand(
            command("decrypt", "Write the tar archive or dump inside a backup file")
                .arg(path("output", "Output file [standard output]")),
        )
        .subcommand(
            command("extract", "Extract the files inside a backup file to a folder")
                .arg(path("to", "Target folder; created if it does not exist").required(true))
                .arg(
                    Arg::new("entry")
                        .long("entry")
                        .action(ArgAction::Append)
                        .help("Only this file or folder; can be given several times"),
                ),
        )
}

fn apply_parser() -> clap::Command {
    clap::Command::new("apply")
        .about("Apply the configuration in a file to a service; shows the plan first")
        .after_help(remote::CONNECTION)
        .arg(path("file", "YAML file with the configuration, or - for standard input").short('f').required(true))
        .arg(flag("check", "Only show the plan; exit with 14 if anything differs"))
        .arg(yes())
        .arg(flag("secrets", "Send every secret in the file, even if the service already has it"))
        .arg(flag("prune", "Delete what is not in the file, if the file has a list of its kind"))
}

fn user_parser() -> clap::Command {
    let by_email = |name: &'static str, about: &'static str| {
        clap::Command::new(name).about(about).arg(required("email", "Email of the account"))
    };
    let account = |name: &'static str, about: &'static str| {
        let email = Arg::new("email").required(true).value_name("EMAIL").help("Email of the account");
        clap::Command::new(name).about(about).arg(email)
    };
    clap::Command::new("user")
        .about("Manage accounts")
        .subcommand_required(true)
        .subcommand(
            by_email("create", "Create an account; the password is read from standard input")
                .arg(required("name", "Full name"))
                .arg(Arg::new("timezone").long("timezone").default_value("UTC").help("Time zone for displayed times"))
                .arg(Arg::new("admin").long("admin").action(ArgAction::SetTrue).help("Make it an administrator")),
        )
        .subcommand(clap::Command::new("list").about("List accounts"))
        .subcommand(
            by_email("reset-password", "Set a new password, read from standard input, and end all sessions")
                .arg(flag(
                    "keep-tokens",
                    "Do not revoke the API tokens of the account, nor the trigger URLs of its tasks",
                ))
                .arg(flag("keep-identities", "Do not unlink GitHub and OpenID Connect accounts")),
        )
        .subcommand(by_email("enable-otp", "Turn on two-factor sign-in and print the authenticator URL"))
        .subcommand(by_email("disable-otp", "Turn off two-factor sign-in"))
        .subcommand(account("make-admin", "Make an account an administrator"))
        .subcommand(account("suspend", "Let nobody sign in to an account, stop its schedules and cancel its runs"))
        .subcommand(account("resume", "Let a suspended account be used again; its tasks run at their next times"))
        .subcommand(
            account("delete", "Delete an account with everything in it; stored backups stay at their destinations")
                .arg(flag("yes", "Do not ask for the address of the account"))
                .arg(flag("cancel-runs", "Suspend the account first, and wait until its live runs have ended")),
        )
        .subcommand(
            account("transfer", "Give all tasks, servers, destinations, backups, streams and tags to another account")
                .arg(required("to", "Email of the account that receives them"))
                .arg(flag("yes", "Do not show what moves, nor ask for the address of the account").short('y'))
                .arg(flag("cancel-runs", "Suspend the account first, and wait until its live runs have ended")),
        )
}

fn audit_parser() -> clap::Command {
    clap::Command::new("audit").about("Read the audit log").subcommand_required(true).subcommand(
        clap::Command::new("export")
            .about("Print the events of all accounts as JSON lines, oldest first")
            .arg(option("since", "Only events from this time on, such as 2025-03-31T12:00:00Z").value_name("TIME")),
    )
}

fn maintenance_parser() -> clap::Command {
    clap::Command::new("maintenance")
        .about("Let workers start nothing for a while; requests are still answered")
        .subcommand_required(true)
        .subcommand(
            clap::Command::new("on")
                .about("Begin maintenance, or change when it ends")
                .arg(option("for", "How long, such as 2h or 90m; at most 7d").default_value("1h")),
        )
        .subcommand(clap::Command::new("off").about("End maintenance now"))
        .subcommand(clap::Command::new("show").about("Show whether there is maintenance, and until when"))
}

fn drain_parser() -> clap::Command {
    let name = || {
        let help = "Name of a worker in `drain show`, or of a host for all workers on it";
        Arg::new("name").required(true).value_name("NAME").help(help)
    };
    clap::Command::new("drain")
        .about("Let single workers start no further runs, while the others go on")
        .subcommand_required(true)
        .subcommand(clap::Command::new("on").about("Let a worker finish its runs and start no others").arg(name()))
        .subcommand(clap::Command::new("off").about("Let a worker start runs again").arg(name()))
        .subcommand(clap::Command::new("show").about("List the workers, and what they are told"))
}

fn token_parser() -> clap::Command {
    let user = || required("user", "Email of the account");
    clap::Command::new("token")
        .about("Manage API tokens")
        .subcommand_required(true)
        .subcommand(
            clap::Command::new("create")
                .about("Create a token and print only the token")
                .arg(user())
                .arg(required("name", "What the token is for"))
                .arg(
                    Arg::new("scope")
                        .long("scope")
                        .action(ArgAction::Append)
                        .required_unless_present("all-scopes")
                        .help("Scope of the token; can be given several times"),
                )
                .arg(Arg::new("all-scopes").long("all-scopes").action(ArgAction::SetTrue).help("Grant all scopes"))
                .arg(Arg::new("expires-in").long("expires-in").help("Lifetime, such as 30d, 12h or 90m [never]")),
        )
        .subcommand(clap::Command::new("list").about("List an account's tokens").arg(user()))
        .subcommand(
            clap::Command::new("revoke")
                .about("Revoke a token; it stops working within a second")
                .arg(user())
                .arg(required("id", "ID of the token in `token list`").value_parser(clap::value_parser!(i64))),
        )
}

pub fn command(matches: &ArgMatches) -> Result<Command, Failure> {
    let Some((name, matches)) = matches.subcommand() else { return Ok(Command::Serve) };
    Ok(match name {
        "serve" => Command::Serve,
        "worker" => Command::Worker,
        "migrate" => Command::Migrate,
        "doctor" => Command::Doctor(doctor::Options {
            is_offline: matches.get_flag("offline"),
            is_json: matches.get_flag("json"),
        }),
        "openapi" => Command::OpenApi,
        "health" => Command::Health,
        "completions" => {
            Command::Completions { shell: matches.get_one("shell").copied().unwrap_or(clap_complete::Shell::Bash) }
        }
        "settings" => Command::Settings,
        "man" => Command::Man { folder: matches.get_one::<PathBuf>("folder").cloned().unwrap_or_default() },
        "key" => Command::KeyRotate,
        "demo" => Command::Demo { stay: !matches.get_flag("no-stay") },
        "export" if matches.get_flag("yaml") => Command::ExportYaml { output: file(matches, "output") },
        "export" => {
            let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
            Command::Export { output: path("output").unwrap_or_default(), passphrase_file: path("passphrase-file") }
        }
        "import" if matches.subcommand().is_some() => import_vanguard(matches)?,
        "import" => {
            let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
            let (file, passphrase_file) = (path("file").unwrap_or_default(), path("passphrase-file"));
            Command::Import { file, passphrase_file, is_paused: matches.get_flag("paused") }
        }
        "bootstrap" => Command::Bootstrap {
            place: BootstrapSource {
                place: text(matches, "place"),
                region: text(matches, "region"),
                endpoint: optional(matches, "endpoint"),
                path_style: matches.get_flag("path-style"),
                host_key: optional(matches, "host-key"),
                only: many(matches, "only"),
            },
            is_paused: matches.get_flag("paused"),
        },
        "task" if has_user(matches) => Command::Pause(pause_command(matches)?),
        "apply" => {
            let has = |name: &str| matches.get_flag(name);
            let plan = PlanOptions { resend_secrets: has("secrets"), prune: has("prune"), only_shown: has("check") };
            let options = Options { check: has("check"), yes: has("yes"), plan };
            Command::Apply { file: file(matches, "file").unwrap_or_default(), options }
        }
        "backup" => match remote::backup_action(matches)? {
            Some(action) => Command::Remote(Remote::Backup(action)),
            None => Command::Backup(backup_command(matches)?),
        },
        "user" => Command::User(user_command(matches)?),
        "token" => Command::Token(token_command(matches)?),
        "audit" => Command::Audit(AuditCommand::Export {
            since: matches.subcommand().and_then(|(_, matches)| optional(matches, "since")),
        }),
        "maintenance" => Command::Maintenance(match matches.subcommand() {
            Some(("on", matches)) => MaintenanceCommand::On { lasts: text(matches, "for") },
            Some(("off", _)) => MaintenanceCommand::Off,
            Some(_) | None => MaintenanceCommand::Show,
        }),
        "drain" => Command::Drain(match matches.subcommand() {
            Some(("on", matches)) => DrainCommand::On { name: text(matches, "name") },
            Some(("off", matches)) => DrainCommand::Off { name: text(matches, "name") },
            Some(_) | None => DrainCommand::Show,
        }),
        other => Command::Remote(remote::command(other, matches)?),
    })
}

/// The output format that the arguments ask for.
pub fn printer(matches: &ArgMatches) -> Printer {
    Printer { is_json: matches.get_flag("json") }
}

fn import_vanguard(matches: &ArgMatches) -> Result<Command, Failure> {
    let (_, matches) = matches.subcommand().ok_or_else(|| unknown("import"))?;
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    let options = vanguard::Options {
        key_file: path("app-key-file"),
        user: optional(matches, "user"),
        check: matches.get_flag("check"),
        is_paused: matches.get_flag("paused"),
    };
    Ok(Command::ImportVanguard { file: path("file").unwrap_or_default(), options })
}

/// Whether it is about the tasks of an account of this machine, and not about those of a service.
fn has_user(matches: &ArgMatches) -> bool {
    let given = |matches: &ArgMatches| matches.try_contains_id("user").unwrap_or(false);
    matches.subcommand().is_some_and(|(_, matches)| given(matches))
}

fn pause_command(matches: &ArgMatches) -> Result<PauseCommand, Failure> {
    let (action, matches) = matches.subcommand().ok_or_else(|| unknown("task"))?;
    let which = if matches.get_flag("all") { Which::All } else { Which::One(text(matches, "name")) };
    Ok(PauseCommand { email: text(matches, "user"), which, is_paused: action == "pause" })
}

fn backup_command(matches: &ArgMatches) -> Result<BackupCommand, Failure> {
    let (name, matches) = matches.subcommand().ok_or_else(|| unknown("backup"))?;
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    let (file, password_file) = (path("file").unwrap_or_default(), path("password-file"));
    Ok(match name {
        "decrypt" => BackupCommand::Decrypt { file, output: path("output"), password_file },
        "extract" => BackupCommand::Extract {
            file,
            to: path("to").unwrap_or_default(),
            entries: many(matches, "entry"),
            password_file,
        },
        other => return Err(unknown(other)),
    })
}

fn user_command(matches: &ArgMatches) -> Result<UserCommand, Failure> {
    let (name, matches) = matches.subcommand().ok_or_else(|| unknown("user"))?;
    Ok(match name {
        "create" => UserCommand::Create {
            email: text(matches, "email"),
            name: text(matches, "name"),
            timezone: text(matches, "timezone"),
            admin: matches.get_flag("admin"),
        },
        "list" => UserCommand::List,
        "reset-password" => UserCommand::ResetPassword {
            email: text(matches, "email"),
            keep: accounts::Keep {
                tokens: matches.get_flag("keep-tokens"),
                identities: matches.get_flag("keep-identities"),
            },
        },
        "enable-otp" => UserCommand::EnableOtp { email: text(matches, "email") },
        "disable-otp" => UserCommand::DisableOtp { email: text(matches, "email") },
        "make-admin" => UserCommand::MakeAdmin { email: text(matches, "email") },
        "suspend" => UserCommand::Suspend { email: text(matches, "email") },
        "resume" => UserCommand::Resume { email: text(matches, "email") },
        "delete" => UserCommand::Delete {
            email: text(matches, "email"),
            yes: matches.get_flag("yes"),
            cancel_runs: matches.get_flag("cancel-runs"),
        },
        "transfer" => UserCommand::Transfer {
            from: text(matches, "email"),
            to: text(matches, "to"),
            how: Handover { yes: matches.get_flag("yes"), cancel_runs: matches.get_flag("cancel-runs") },
        },
        other => return Err(unknown(other)),
    })
}

fn token_command(matches: &ArgMatches) -> Result<TokenCommand, Failure> {
    let (name, matches) = matches.subcommand().ok_or_else(|| unknown("token"))?;
    Ok(match name {
        "create" => TokenCommand::Create {
            user: text(matches, "user"),
            name: text(matches, "name"),
            scopes: many(matches, "scope"),
            all_scopes: matches.get_flag("all-scopes"),
            expires_in: optional(matches, "expires-in"),
        },
        "list" => TokenCommand::List { user: text(matches, "user") },
        "revoke" => TokenCommand::Revoke { user: text(matches, "user"), id: id(matches) },
        other => return Err(unknown(other)),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_parser_is_valid() {
        super::parser().debug_assert();
    }

    /// Every command and each of its arguments, without help texts.
    fn unexplained(path: &str, command: &clap::Command) -> Vec<String> {
        let is_short = |text: Option<&clap::builder::StyledStr>| {
            text.is_none_or(|text| text.to_string().trim().chars().count() < 4)
        };
        let arguments = command.get_arguments().filter(|arg| is_short(arg.get_help()));
        let mut found: Vec<String> = arguments.map(|arg| format!("{path} {}", arg.get_id())).collect();
        if is_short(command.get_about()) {
            found.push(path.to_owned());
        }
        for inner in command.get_subcommands() {
            found.extend(unexplained(&format!("{path} {}", inner.get_name()), inner));
        }
        found
    }

    #[test]
    fn every_command_and_every_argument_has_a_help_text() {
        assert_eq!(unexplained("holdfast", &super::parser()), Vec::<String>::new());
    }
}
