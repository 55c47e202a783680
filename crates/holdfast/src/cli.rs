//! The command line: what can be typed, and what it means.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches};

use crate::failure::Failure;
use crate::settings::TABLE;

pub enum Command {
    Serve,
    Worker,
    Migrate,
    Doctor,
    OpenApi,
    KeyRotate,
    Demo { stay: bool },
    Backup(BackupCommand),
    User(UserCommand),
    Token(TokenCommand),
}

pub enum BackupCommand {
    Decrypt { file: PathBuf, output: Option<PathBuf>, password_file: Option<PathBuf> },
    Extract { file: PathBuf, to: PathBuf, entries: Vec<String>, password_file: Option<PathBuf> },
}

pub enum UserCommand {
    Create { email: String, name: String, timezone: String, admin: bool },
    List,
    ResetPassword { email: String },
    EnableOtp { email: String },
    DisableOtp { email: String },
}

pub enum TokenCommand {
    Create { user: String, name: String, scopes: Vec<String>, all_scopes: bool, expires_in: Option<String> },
    List { user: String },
    Revoke { user: String, id: i64 },
}

/// Without a command, `serve`. Every setting is a flag of every command.
pub fn parser() -> clap::Command {
    let mut parser = clap::Command::new("holdfast")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Self-hosted backups: pulls files and databases from your servers over SSH")
        .after_help(environment_help())
        .subcommand(clap::Command::new("serve").about("Serve API and pages, and do the work (the default)"))
        .subcommand(clap::Command::new("worker").about("Only do the work: another process beside `serve`"))
        .subcommand(clap::Command::new("migrate").about("Bring the database up to date and exit"))
        .subcommand(clap::Command::new("doctor").about("Look for what is wrong and say what to do"))
        .subcommand(clap::Command::new("openapi").about("Print the OpenAPI document"))
        .subcommand(
            clap::Command::new("key")
                .about("The master key that seals all secrets")
                .subcommand_required(true)
                .subcommand(
                    clap::Command::new("rotate").about("Replace it and seal everything anew; safe while running"),
                ),
        )
        .subcommand(
            clap::Command::new("demo")
                .about("Show a backup and its restore on this machine alone, then stay up for a look around")
                .arg(Arg::new("no-stay").long("no-stay").action(ArgAction::SetTrue).help("End when it has been shown")),
        )
        .subcommand(backup_parser())
        .subcommand(user_parser())
        .subcommand(token_parser());
    for setting in TABLE {
        let default = if setting.default.is_empty() { String::new() } else { format!(" [{}]", setting.default) };
        let arg = |name: String, flag: String, value: &'static str| {
            let help = format!("{}{default}", setting.help);
            Arg::new(name).long(flag).value_name(value).global(true).help(help).help_heading("Settings")
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

fn environment_help() -> String {
    let names = TABLE.iter().map(|setting| {
        if setting.secret { format!("{} or {}", setting.name, setting.file_name()) } else { setting.name.to_owned() }
    });
    format!("Every setting can also come from the environment:\n  {}", names.collect::<Vec<_>>().join("\n  "))
}

fn required(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).required(true).help(help)
}

fn backup_parser() -> clap::Command {
    let path = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("PATH").value_parser(clap::value_parser!(PathBuf)).help(help)
    };
    let command = |name: &'static str, about: &'static str| {
        let file = Arg::new("file").required(true).value_name("FILE").value_parser(clap::value_parser!(PathBuf));
        let password = "A file with the password; without it, it is read from standard input";
        clap::Command::new(name)
            .about(about)
            .arg(file.help("The backup, as it was stored"))
            .arg(path("password-file", password))
    };
    clap::Command::new("backup")
        .about("Open a backup file by hand, without the service and its database")
        .subcommand_required(true)
        .subcommand(
            command("decrypt", "Write the tar archive or dump that is inside")
                .arg(path("output", "Where to; standard output without it")),
        )
        .subcommand(
            command("extract", "Put the files that are inside into a folder")
                .arg(path("to", "The folder; made when it is missing").required(true))
                .arg(
                    Arg::new("entry")
                        .long("entry")
                        .action(ArgAction::Append)
                        .help("Only this file or folder; can be given several times"),
                ),
        )
}

fn user_parser() -> clap::Command {
    let by_email = |name: &'static str, about: &'static str| {
        clap::Command::new(name).about(about).arg(required("email", "The account's e-mail"))
    };
    clap::Command::new("user")
        .about("Accounts")
        .subcommand_required(true)
        .subcommand(
            by_email("create", "Create an account; the password is read from standard input")
                .arg(required("name", "Full name"))
                .arg(Arg::new("timezone").long("timezone").default_value("UTC").help("Zone in which times are shown"))
                .arg(Arg::new("admin").long("admin").action(ArgAction::SetTrue).help("Make it an administrator")),
        )
        .subcommand(clap::Command::new("list").about("List accounts"))
        .subcommand(by_email("reset-password", "Set a new password, read from standard input"))
        .subcommand(by_email("enable-otp", "Turn two-factor on and print the address for an authenticator"))
        .subcommand(by_email("disable-otp", "Turn two-factor off"))
}

fn token_parser() -> clap::Command {
    let user = || required("user", "E-mail of the account");
    clap::Command::new("token")
        .about("API tokens")
        .subcommand_required(true)
        .subcommand(
            clap::Command::new("create")
                .about("Create a token and print it, and nothing else")
                .arg(user())
                .arg(required("name", "What the token is for"))
                .arg(
                    Arg::new("scope")
                        .long("scope")
                        .action(ArgAction::Append)
                        .required_unless_present("all-scopes")
                        .help("What it may do; can be given several times"),
                )
                .arg(Arg::new("all-scopes").long("all-scopes").action(ArgAction::SetTrue).help("It may do everything"))
                .arg(Arg::new("expires-in").long("expires-in").help("When it ends, like 30d, 12h or 90m [never]")),
        )
        .subcommand(clap::Command::new("list").about("List an account's tokens").arg(user()))
        .subcommand(
            clap::Command::new("revoke")
                .about("Revoke a token; it stops working within a second")
                .arg(user())
                .arg(required("id", "Its number in `token list`").value_parser(clap::value_parser!(i64))),
        )
}

pub fn command(matches: &ArgMatches) -> Result<Command, Failure> {
    let Some((name, matches)) = matches.subcommand() else { return Ok(Command::Serve) };
    Ok(match name {
        "serve" => Command::Serve,
        "worker" => Command::Worker,
        "migrate" => Command::Migrate,
        "doctor" => Command::Doctor,
        "openapi" => Command::OpenApi,
        "key" => Command::KeyRotate,
        "demo" => Command::Demo { stay: !matches.get_flag("no-stay") },
        "backup" => Command::Backup(backup_command(matches)?),
        "user" => Command::User(user_command(matches)?),
        "token" => Command::Token(token_command(matches)?),
        other => return Err(unknown(other)),
    })
}

fn unknown(name: &str) -> Failure {
    Failure::settings(format!("unknown command {name}; see `holdfast --help`"))
}

fn text(matches: &ArgMatches, name: &str) -> String {
    matches.get_one::<String>(name).cloned().unwrap_or_default()
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
            entries: matches.get_many::<String>("entry").into_iter().flatten().cloned().collect(),
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
        "reset-password" => UserCommand::ResetPassword { email: text(matches, "email") },
        "enable-otp" => UserCommand::EnableOtp { email: text(matches, "email") },
        "disable-otp" => UserCommand::DisableOtp { email: text(matches, "email") },
        other => return Err(unknown(other)),
    })
}

fn token_command(matches: &ArgMatches) -> Result<TokenCommand, Failure> {
    let (name, matches) = matches.subcommand().ok_or_else(|| unknown("token"))?;
    Ok(match name {
        "create" => TokenCommand::Create {
            user: text(matches, "user"),
            name: text(matches, "name"),
            scopes: matches.get_many::<String>("scope").into_iter().flatten().cloned().collect(),
            all_scopes: matches.get_flag("all-scopes"),
            expires_in: matches.get_one::<String>("expires-in").cloned(),
        },
        "list" => TokenCommand::List { user: text(matches, "user") },
        "revoke" => {
            TokenCommand::Revoke { user: text(matches, "user"), id: matches.get_one("id").copied().unwrap_or_default() }
        }
        other => return Err(unknown(other)),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_parser_is_sound() {
        super::parser().debug_assert();
    }
}
