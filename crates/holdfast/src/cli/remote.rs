//! The commands that talk to a service over its API.

use clap::{Arg, ArgAction, ArgMatches, Command};
use holdfast_client::kinds::{DESTINATIONS, ResourceKind, SERVERS, STREAMS, TAGS, TASKS};
use holdfast_core::run::RunStatus;

use super::arguments::{
    file, flag, id, many, number, option, optional, path, text, timeout, unknown, wait, wait_at_most, waiting, yes,
};
use super::fields;
use crate::commands::remote::Remote;
use crate::commands::remote::backups::{BackupAction, RestoreArguments, RunAction};
use crate::commands::remote::resources::{CHECK_DESTINATION, CHECK_SERVER, ResourceAction, TEST_STREAM};
use crate::commands::remote::tasks::{Maintenance, TaskAction};
use crate::failure::Failure;

/// The switches of a restore: the name in the API and the help text.
const RESTORE_SWITCHES: &[(&str, &str, &str)] = &[
    ("overwrite", "overwrite", "Replace existing data"),
    ("no-owner", "no_owner", "Do not restore owners or, for a database, privileges"),
    ("numeric-owner", "numeric_owner", "Restore file owners by numeric ID instead of by name"),
    ("restore-devices", "restore_devices", "Also restore device nodes; requires root on the server"),
    ("dry-run", "dry_run", "Write nothing; the log of the run lists what would be written, kept and refused"),
];

/// How a command knows which service to talk to.
pub const CONNECTION: &str = "Set HOLDFAST_URL to the service and HOLDFAST_TOKEN (or HOLDFAST_TOKEN_FILE) to an API \
                              token, or choose a profile with --profile.";

/// A command that talks to a service.
pub fn parser(name: &'static str, about: &'static str) -> Command {
    Command::new(name).about(about).after_help(CONNECTION).subcommand_required(true).arg_required_else_help(true)
}

/// All of them but `backup`, which can also open a file.
pub fn parsers() -> [Command; 6] {
    [
        task_parser(),
        run_parser(),
        server_parser(),
        resource_parser(&DESTINATIONS, "Manage the destinations of a service")
            .subcommand(one(&DESTINATIONS, "check", "Check a destination by using it").args(waiting())),
        resource_parser(&STREAMS, "Manage the notification streams of a service")
            .subcommand(one(&STREAMS, "test", "Send a test message over a stream").args(waiting())),
        resource_parser(&TAGS, "Manage the tags of a service"),
    ]
}

/// A command for one resource.
fn one(kind: &ResourceKind, name: &'static str, about: &'static str) -> Command {
    let help = format!("ID or label of the {}", kind.one);
    Command::new(name).about(about).arg(Arg::new("name").required(true).value_name("NAME").help(help))
}

/// What all resources have.
fn resource_parser(kind: &'static ResourceKind, about: &'static str) -> Command {
    let search = format!("Only {}s whose label contains this", kind.one);
    let create = Command::new("create").about(format!("Create a {}", kind.one));
    let update = one(kind, "update", "Change the given fields");
    parser(kind.one, about)
        .subcommand(
            Command::new("list")
                .about(format!("List {}s", kind.one))
                .arg(Arg::new("search").long("search").help(search)),
        )
        .subcommand(one(kind, "show", "Show it"))
        .subcommand(create.args(fields::arguments(kind, true)))
        .subcommand(update.args(fields::arguments(kind, false)))
        .subcommand(one(kind, "delete", "Delete it").arg(yes()))
}

/// A command for a task of a service, or for the tasks of an account of this machine.
fn one_of_account(name: &'static str, about: &'static str) -> Command {
    one(&TASKS, name, about)
        .mut_arg("name", |arg| arg.required(false).required_unless_present("all"))
        .arg(option("user", "Email of the account whose task it is, in the database of this machine"))
        .arg(flag("all", "All tasks of the account").requires("user").conflicts_with("name"))
}

fn task_parser() -> Command {
    let of_task = |name: &'static str, about: &'static str| one(&TASKS, name, about);
    let backup = option("backup", "The backup that you reviewed, by ID [the newest one]");
    let delete_backups = flag("delete-backups", "Also delete the stored backups of the task");
    resource_parser(&TASKS, "Manage the backup tasks of a service")
        .mut_subcommand("delete", |delete| delete.arg(delete_backups))
        .subcommand(of_task("run", "Run a task now").args(waiting()))
        .subcommand(one_of_account("pause", "Pause the schedule of a task"))
        .subcommand(one_of_account("resume", "Resume the schedule of a task"))
        .subcommand(of_task("cancel", "Cancel the current run of a task"))
        .subcommand(of_task("log", "Show the log of a task's last run"))
        .subcommand(of_task("logs", "List the logs of a task").arg(of_status("logs")))
        .subcommand(of_task("repository", "Show how the repository of a task fares"))
        .subcommand(of_task("prune", "Remove from a task's repository what no backup needs any more").args(waiting()))
        .subcommand(of_task("check-repository", "Check a task's repository, and read all of it").args(waiting()))
        .subcommand(Command::new("upcoming").about("List the next runs, soonest first"))
        .subcommand(
            of_task("release-retention", "Remove old backups again, after a suspicious backup was reviewed")
                .arg(backup.value_parser(clap::value_parser!(i64))),
        )
}

/// A filter by status.
fn of_status(rows: &str) -> Arg {
    option("status", "").help(format!("Only {rows} with this status: {}", RunStatus::WORDS.join(", ")))
}

fn run_parser() -> Command {
    let of_run = |name: &'static str, about: &'static str| Command::new(name).about(about).arg(number("ID of the run"));
    parser("run", "Manage the runs of a service: restores and verifications, and backups by their ID")
        .subcommand(
            Command::new("list")
                .about("List restores and verifications")
                .arg(option("backup", "Only runs of this backup, by ID"))
                .arg(of_status("runs")),
        )
        .subcommand(of_run("show", "Show a run"))
        .subcommand(of_run("watch", "Follow a run until it finishes; exit non-zero if it failed").arg(timeout()))
        .subcommand(of_run("cancel", "Cancel a run"))
}

fn server_parser() -> Command {
    let fingerprint = "The key that you verified; fails if the server has presented another one since";
    resource_parser(&SERVERS, "Manage the servers that a service backs up")
        .subcommand(one(&SERVERS, "check", "Check the connection to a server").args(waiting()))
        .subcommand(
            one(&SERVERS, "accept-host-key", "Trust the changed host key of a server")
                .arg(option("fingerprint", fingerprint)),
        )
        .subcommand(Command::new("key").about("Print your public SSH key, to install on servers"))
}

/// The subcommands of `backup` that talk to a service.
pub fn backup_parsers() -> [Command; 7] {
    let of_backup = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).arg(number("ID of the backup, as shown by `backup list`"))
    };
    [
        Command::new("list").about("List stored backups").arg(option("task", "Only for this task")),
        of_backup("show", "Show a backup"),
        of_backup("entries", "List the contents of a backup").arg(option("path", "Folder to list").default_value("")),
        of_backup("verify", "Verify a backup by reading it back").args(waiting()),
        of_backup("restore", "Restore a backup to a server")
            .arg(option("server", "ID or label of the server").required(true))
            .arg(option("path", "Folder on the server, for files"))
            .arg(option("database", "Database on the server, for dumps"))
            .arg(option("entry", "Only this file or folder; can be given several times").action(ArgAction::Append))
            .args(RESTORE_SWITCHES.iter().map(|(name, _, help)| flag(name, help)))
            .args(waiting()),
        of_backup("download", "Download a backup, or one file from it")
            .arg(option("entry", "Download only this file"))
            .arg(path("output", "Output file, which must not exist yet, or - for standard output").required(true)),
        of_backup("delete", "Delete a backup").arg(yes()),
    ]
}

pub fn command(name: &str, matches: &ArgMatches) -> Result<Remote, Failure> {
    let (action, matches) = matches.subcommand().ok_or_else(|| unknown(name))?;
    match name {
        "task" => task_command(action, matches),
        "run" => run_action(action, matches).map(Remote::Run),
        "server" => resource(&SERVERS, action, matches),
        "destination" => resource(&DESTINATIONS, action, matches),
        "stream" => resource(&STREAMS, action, matches),
        "tag" => resource(&TAGS, action, matches),
        other => Err(unknown(other)),
    }
}

fn resource(kind: &'static ResourceKind, action: &str, matches: &ArgMatches) -> Result<Remote, Failure> {
    let name = || text(matches, "name");
    let check = |check| Ok::<_, Failure>(ResourceAction::Check { name: name(), check, wait: wait(matches)? });
    let action = match action {
        "list" => ResourceAction::List { search: optional(matches, "search") },
        "show" => ResourceAction::Show { name: name() },
        "create" => ResourceAction::Create { given: fields::given(kind, matches)? },
        "update" => ResourceAction::Update { name: name(), given: fields::given(kind, matches)? },
        "delete" => {
            let deletes_backups = kind.name == TASKS.name && matches.get_flag("delete-backups");
            let query = if deletes_backups { "?delete_backups=true" } else { "" };
            ResourceAction::Delete { name: name(), yes: matches.get_flag("yes"), query }
        }
        "check" if kind.name == SERVERS.name => check(&CHECK_SERVER)?,
        "check" => check(&CHECK_DESTINATION)?,
        "test" => check(&TEST_STREAM)?,
        "key" => ResourceAction::Key,
        "accept-host-key" => {
            ResourceAction::AcceptHostKey { name: name(), fingerprint: optional(matches, "fingerprint") }
        }
        other => return Err(unknown(other)),
    };
    Ok(Remote::Resource(kind, action))
}

fn task_command(action: &str, matches: &ArgMatches) -> Result<Remote, Failure> {
    let task = || text(matches, "name");
    Ok(Remote::Task(match action {
        "run" => TaskAction::Run { task: task(), wait: wait(matches)? },
        "pause" => TaskAction::Pause { task: task() },
        "resume" => TaskAction::Resume { task: task() },
        "cancel" => TaskAction::Cancel { task: task() },
        "log" => TaskAction::Log { task: task() },
        "logs" => TaskAction::Logs { task: task(), status: optional(matches, "status") },
        "repository" => TaskAction::Repository { task: task() },
        "prune" => TaskAction::Maintain { task: task(), what: Maintenance::Prune, wait: wait(matches)? },
        "check-repository" => TaskAction::Maintain { task: task(), what: Maintenance::Check, wait: wait(matches)? },
        "upcoming" => TaskAction::Upcoming,
        "release-retention" => {
            TaskAction::ReleaseRetention { task: task(), backup: matches.get_one("backup").copied() }
        }
        _ => return resource(&TASKS, action, matches),
    }))
}

fn run_action(action: &str, matches: &ArgMatches) -> Result<RunAction, Failure> {
    Ok(match action {
        "list" => RunAction::List { backup: optional(matches, "backup"), status: optional(matches, "status") },
        "show" => RunAction::Show { id: id(matches) },
        "watch" => RunAction::Watch { id: id(matches), wait: wait_at_most(matches)? },
        "cancel" => RunAction::Cancel { id: id(matches) },
        other => return Err(unknown(other)),
    })
}

/// `None` for the commands that open a local file.
pub fn backup_action(matches: &ArgMatches) -> Result<Option<BackupAction>, Failure> {
    let Some((action, matches)) = matches.subcommand() else { return Ok(None) };
    Ok(Some(match action {
        "list" => BackupAction::List { task: optional(matches, "task") },
        "show" => BackupAction::Show { id: id(matches) },
        "entries" => BackupAction::Entries { id: id(matches), path: text(matches, "path") },
        "verify" => BackupAction::Verify { id: id(matches), wait: wait(matches)? },
        "restore" => {
            BackupAction::Restore { id: id(matches), target: restore_arguments(matches), wait: wait(matches)? }
        }
        "download" => BackupAction::Download {
            id: id(matches),
            entry: optional(matches, "entry"),
            output: file(matches, "output").unwrap_or_default(),
        },
        "delete" => BackupAction::Delete { id: id(matches), yes: matches.get_flag("yes") },
        _ => return Ok(None),
    }))
}

fn restore_arguments(matches: &ArgMatches) -> RestoreArguments {
    let switches = RESTORE_SWITCHES.iter().filter(|(name, ..)| matches.get_flag(name));
    RestoreArguments {
        server: text(matches, "server"),
        path: optional(matches, "path"),
        database: optional(matches, "database"),
        entries: many(matches, "entry"),
        switches: switches.map(|(_, field, _)| *field).collect(),
    }
}
