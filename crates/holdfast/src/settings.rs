//! Settings: one table, from which flags, environment variables, help and documentation are generated.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use holdfast_app::Limits;
use holdfast_client::profile::{self, Profile};
use holdfast_core::Secret;
use holdfast_core::network::{self, Network};
use holdfast_core::queue::ConcurrencyLimits;
use holdfast_core::rate::{MinimumRate, Quota};
use holdfast_store::master_key::MasterKeySource;

use crate::audit_log::AuditLog;
use crate::failure::Failure;
use crate::listen;

/// One setting. Its flag is its name in lower case with hyphens, without the prefix.
pub struct Setting {
    pub name: &'static str,
    pub help: &'static str,
    pub default: &'static str,
    /// Secrets come from a file or the environment. They have no flag, because every user of the machine could read it.
    pub secret: bool,
    /// Whether it has a flag. A setting that contains a secret only sometimes, such as a database URL, has one as well.
    pub flag_too: bool,
}

const fn plain(name: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { name, help, default, secret: false, flag_too: true }
}

const fn secret(name: &'static str, help: &'static str) -> Setting {
    Setting { name, help, default: "", secret: true, flag_too: false }
}

const fn seldom_secret(name: &'static str, help: &'static str) -> Setting {
    Setting { name, help, default: "", secret: true, flag_too: true }
}

const PREFIX: &str = "HOLDFAST_";

pub const TABLE: &[Setting] = &[
    plain("HOLDFAST_DATA_DIR", "", "Folder for the database, master key and local backups [~/.local/share/holdfast]"),
    plain("HOLDFAST_LISTEN", "127.0.0.1:8080", "Address and port to serve on"),
    plain("HOLDFAST_BASE_URL", "", "Public URL of the service, e.g. https://backup.example.org"),
    seldom_secret(
        "HOLDFAST_DATABASE_URL",
        "sqlite://PATH or postgres://…; use the file if it contains a password [SQLite in the data folder]",
    ),
    plain("HOLDFAST_DATABASE_CONNECTIONS", "10", "Maximum number of database connections"),
    secret("HOLDFAST_MASTER_KEY", "Key that encrypts all secrets: 32 bytes in base64 [a file in the data folder]"),
    plain(
        "HOLDFAST_NEW_INSTALLATION",
        "false",
        "true: start with an empty database although the data folder belongs to an installation or has backups of one",
    ),
    plain("HOLDFAST_ADMIN_EMAIL", "", "Email of the administrator that the first start creates"),
    secret("HOLDFAST_ADMIN_PASSWORD", "Password of the administrator that the first start creates"),
    plain("HOLDFAST_TRUSTED_PROXIES", "", "Proxies whose X-Forwarded-… headers are trusted, comma-separated"),
    plain("HOLDFAST_WORKERS", "1", "Workers inside `serve`; 0 leaves runs to `holdfast worker` processes"),
    plain("HOLDFAST_RUNS_AT_ONCE", "8", "Maximum number of concurrent runs per worker"),
    plain("HOLDFAST_RUNS_PER_SERVER", "2", "Concurrent backups and restores per server, across all workers"),
    plain(
        "HOLDFAST_DESTINATION_RUNS",
        "8",
        "Concurrent backups, restores, verifications and inventories per destination, across all workers",
    ),
    plain("HOLDFAST_RUNS_PER_USER", "4", "Concurrent backups, restores and verifications per user, across all workers"),
    plain(
        "HOLDFAST_CHECKS_PER_USER",
        "4",
        "Concurrent checks, tests and probes per user, across all workers; each worker runs up to 8",
    ),
    plain("HOLDFAST_CHECK_SECS", "90", "Time limit for a check, test or probe"),
    plain("HOLDFAST_LEASE_SECS", "60", "How long a worker may be silent before it loses its runs"),
    plain("HOLDFAST_RETRY_SECS", "60", "Wait before the one retry of a backup that failed temporarily; 0 is never"),
    plain(
        "HOLDFAST_INCIDENT_TASKS",
        "3",
        "How many tasks that fail for one cause within ten minutes are reported in one message; 0 is never",
    ),
    plain("HOLDFAST_KEEP_LOGS_DAYS", "400", "How long logs are kept; 0 keeps them forever"),
    plain("HOLDFAST_KEEP_REMOVED_DAYS", "90", "How long removed backups stay on record; 0 keeps them forever"),
    plain("HOLDFAST_KEEP_NOTICES_DAYS", "90", "How long notices are kept; 0 keeps them forever"),
    plain("HOLDFAST_KEEP_AUDIT_DAYS", "400", "How long the audit log is kept; 0 keeps it forever"),
    plain("HOLDFAST_KEEP_CHECKS_DAYS", "30", "How long checks and inventories are kept; 0 keeps them forever"),
    plain("HOLDFAST_VERIFY_DAYS", "30", "Days within which every stored backup is read back once; 0 is never"),
    plain("HOLDFAST_INVENTORY_DAYS", "1", "Days between checks of each destination for missing backups; 0 is never"),
    plain(
        "HOLDFAST_PRUNE_DAYS",
        "7",
        "Days after which a repository is pruned of what removed backups have left; earlier if that is much; 0 is never",
    ),
    plain("HOLDFAST_PRUNE_MINUTES", "30", "How long a prune may take, during which backups into its repository wait"),
    plain(
        "HOLDFAST_CACHE_MIB",
        "2048",
        "Space in the data folder for copies of the indexes and folders of repositories, which save fetching them for \
         every backup; 0 keeps none",
    ),
    plain("HOLDFAST_CONNECT_SECS", "15", "Time limit for connecting to a server"),
    plain("HOLDFAST_STALL_SECS", "600", "How long a run may stall before it fails"),
    plain(
        "HOLDFAST_EGRESS_ALLOW",
        "",
        "Private networks in which all users may have S3 endpoints and webhooks, comma-separated; link-local ones are \
         also open to SSH",
    ),
    plain(
        "HOLDFAST_SSH_EGRESS_GUARD",
        "false",
        "Whether servers of ordinary users must be outside private networks, except those in HOLDFAST_EGRESS_ALLOW",
    ),
    secret("HOLDFAST_SMTP_URL", "Mail server, e.g. smtp://user:password@mail.example.org:587 or smtps://…"),
    plain("HOLDFAST_MAIL_FROM", "Holdfast <holdfast@localhost>", "Sender of emails"),
    secret("HOLDFAST_PUSHOVER_TOKEN", "Pushover application token for streams without their own"),
    plain("HOLDFAST_PUSHOVER_URL", "https://api.pushover.net/1/messages.json", "URL of the Pushover API"),
    plain("HOLDFAST_GITHUB_CLIENT_ID", "", "Client ID at GitHub; enables signing in with GitHub"),
    secret("HOLDFAST_GITHUB_CLIENT_SECRET", "Client secret at GitHub"),
    plain("HOLDFAST_GITHUB_URL", "https://github.com", "URL at which users sign in to GitHub"),
    plain("HOLDFAST_GITHUB_API_URL", "https://api.github.com", "URL of the GitHub API"),
    plain("HOLDFAST_OIDC_ISSUER", "", "Exact URL of the issuer; enables signing in with OpenID Connect"),
    plain("HOLDFAST_OIDC_CLIENT_ID", "", "Client ID at the issuer"),
    secret("HOLDFAST_OIDC_CLIENT_SECRET", "Client secret at the issuer"),
    plain("HOLDFAST_OIDC_NAME", "OpenID Connect", "Name of the issuer on the sign-in button"),
    plain("HOLDFAST_CA_FILE", "", "Certificates (PEM) to trust in addition to the system's"),
    plain(
        "HOLDFAST_DESTINATION_RATE",
        "0",
        "Maximum bytes per second between a run and its destination; 0 is no limit",
    ),
    plain("HOLDFAST_DESTINATION_RETRY_SECS", "120", "How long temporary failures of a destination are retried"),
    secret("HOLDFAST_S3_ACCESS_KEY", "Access key of the bucket that `holdfast bootstrap` reads"),
    secret("HOLDFAST_S3_SECRET_KEY", "Secret key of the bucket that `holdfast bootstrap` reads"),
    secret("HOLDFAST_SFTP_PASSWORD", "Password of the SFTP server that `holdfast bootstrap` reads"),
    plain("HOLDFAST_RATE_PER_SECOND", "50", "Average API requests per second and token"),
    plain("HOLDFAST_RATE_BURST", "500", "API requests that a token may make at once"),
    plain("HOLDFAST_RUNS_PER_MINUTE", "30", "Runs and checks that a token may request per minute"),
    plain("HOLDFAST_SIGN_INS_PER_MINUTE", "5", "Sign-in attempts per minute for an email from one address"),
    plain(
        "HOLDFAST_METRICS_LISTEN",
        "",
        "Separate address and port for /healthz, /readyz and /metrics, for `worker` and for remote collectors",
    ),
    plain("HOLDFAST_CONNECTIONS", "2048", "Maximum number of open client connections"),
    plain(
        "HOLDFAST_CONNECTIONS_PER_ADDRESS",
        "256",
        "Maximum number of open connections per IPv4 address or IPv6 /64 network; trusted proxies are exempt",
    ),
    plain("HOLDFAST_HEADER_SECS", "10", "How long a client may take to send the headers of a request"),
    plain("HOLDFAST_IDLE_SECS", "75", "How long a connection stays open between two requests"),
    plain(
        "HOLDFAST_CLIENT_RATE",
        "1024",
        "Minimum bytes per second at which a client must send a request body or receive a response",
    ),
    plain("HOLDFAST_CLIENT_RATE_SECS", "30", "Period over which HOLDFAST_CLIENT_RATE is measured"),
    plain("HOLDFAST_URL", "", "Service that `task`, `backup`, `run`, `server`, `apply` and others connect to"),
    secret("HOLDFAST_TOKEN", "API token for that service, from its account page"),
    plain("HOLDFAST_PROFILE", "", "Which service of ~/.config/holdfast/config.yaml these commands connect to"),
    plain("HOLDFAST_SHUTDOWN_SECS", "30", "How long runs may take to finish after SIGTERM"),
    plain("HOLDFAST_LOG", "info", "Which log lines are written, e.g. debug, or info,holdfast_api=debug"),
    plain("HOLDFAST_LOG_FORMAT", "text", "text or json"),
    plain(
        "HOLDFAST_AUDIT_LOG",
        "",
        "Where events of the audit log are written as they happen: the path of a file, - for standard output, syslog: or \
         syslog:SOCKET",
    ),
    plain("ENABLE_DEVICE_AUTH_ENDPOINT", "false", "Whether devices may exchange a password for a token"),
];

/// All settings, validated.
#[derive(Debug, Clone)]
pub struct Settings {
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    pub metrics_listen: Option<SocketAddr>,
    pub base_url: Option<String>,
    pub database_url: Secret,
    pub database_connections: u32,
    pub master_key: MasterKeySource,
    pub admin: Option<(String, Secret)>,
    pub trusted_proxies: Vec<Network>,
    pub connections: listen::Limits,
    pub workers: u32,
    pub work: holdfast_worker::Settings,
    pub engine: holdfast_engine::Settings,
    pub notify: holdfast_notify::Settings,
    pub identity: holdfast_identity::Settings,
    pub limits: Limits,
    /// The keys of the bucket that `bootstrap` reads.
    pub s3_keys: Option<(Secret, Secret)>,
    pub sftp_password: Option<Secret>,
    pub device_auth_enabled: bool,
    /// Start empty, whatever an earlier installation has left.
    pub is_new_installation: bool,
    /// Where the audit log is exported to.
    pub audit_log: Option<AuditLog>,
    /// Variables that look like settings, but were set by Kubernetes.
    pub service_links: Vec<String>,
}

/// What is logged, and in which form. Every command has a log.
pub struct LogSettings {
    pub filter: String,
    pub is_json: bool,
}

/// The settings of commands that talk to a service. They read no others, so settings of a service on the same machine
/// cannot be in their way.
pub struct ClientSettings {
    pub url: Option<String>,
    pub token: Option<Secret>,
    pub ca_pem: Option<Vec<u8>>,
}

pub type Environment = BTreeMap<String, String>;

/// The environment as text. Fails if a setting is not valid UTF-8, and ignores other such variables.
pub fn process_environment() -> Result<Environment, Failure> {
    let mut environment = Environment::new();
    for (name, value) in std::env::vars_os() {
        let Ok(name) = name.into_string() else { continue };
        match value.into_string() {
            Ok(value) => drop(environment.insert(name, value)),
            Err(_) if name.starts_with(PREFIX) || TABLE.iter().any(|setting| setting.name == name) => {
                return Err(Failure::settings(format!("{name} is not valid UTF-8")));
            }
            Err(_) => {}
        }
    }
    Ok(environment)
}

impl Setting {
    pub fn flag(&self) -> String {
        self.name.trim_start_matches(PREFIX).to_lowercase().replace('_', "-")
    }

    /// The variable with the path of the secret's file.
    pub fn file_name(&self) -> String {
        format!("{}_FILE", self.name)
    }
}

/// The configuration page of the manual, generated from the table.
pub fn reference() -> String {
    let mut page = "# Configuration\n\nGenerated by `cargo xtask docs` from the settings in the code.\n\nEvery setting is an \
        environment variable and, unless it is a secret, also a flag of every command. Flags take\nprecedence. A secret can \
        also be read from the file that its `…_FILE` variable names. Unknown variables that start\nwith `HOLDFAST_` are \
        refused at start, so that a misspelled one is not silently ignored.\n\n| setting | flag | default | what |\n|---|---|---|---|\n"
        .to_owned();
    for setting in TABLE {
        let name = match setting.secret {
            true => format!("`{}` or `{}`", setting.name, setting.file_name()),
            false => format!("`{}`", setting.name),
        };
        let flag = if setting.flag_too { format!("`--{}`", setting.flag()) } else { "–".to_owned() };
        // A default that depends on something else is in brackets at the end of the help text.
        let (help, stated) = match setting.help.rsplit_once(" [") {
            Some((help, stated)) => (help, stated.trim_end_matches(']')),
            None => (setting.help, setting.default),
        };
        let default = match (stated, setting.default) {
            ("", _) => String::new(),
            (stated, "") => stated.to_owned(),
            (_, default) => format!("`{default}`"),
        };
        page += &format!("| {name} | {flag} | {default} | {} |\n", help.replace('|', "\\|"));
    }
    page
}

/// The given values by name; flags take precedence over the environment.
struct Given<'a> {
    matches: &'a ArgMatches,
    environment: &'a Environment,
}

impl Given<'_> {
    fn find(&self, setting: &Setting) -> Result<Option<String>, Failure> {
        if setting.secret {
            return self.find_secret(setting);
        }
        let flag = self.matches.get_one::<String>(setting.name);
        Ok(flag.or_else(|| self.environment.get(setting.name)).filter(|text| !text.is_empty()).cloned())
    }

    fn file_of(&self, setting: &Setting) -> Option<PathBuf> {
        let name = setting.file_name();
        let path = self.matches.get_one::<String>(&name).or_else(|| self.environment.get(&name));
        path.filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    fn find_secret(&self, setting: &Setting) -> Result<Option<String>, Failure> {
        let flag = if setting.flag_too { self.matches.get_one::<String>(setting.name) } else { None };
        if let Some(text) = flag.filter(|text| !text.is_empty()) {
            return Ok(Some(text.clone()));
        }
        let direct = self.environment.get(setting.name).filter(|text| !text.is_empty());
        match (direct, self.file_of(setting)) {
            (Some(_), Some(_)) => {
                Err(Failure::settings(format!("{} and {} are both set; keep one", setting.name, setting.file_name())))
            }
            (Some(text), None) => Ok(Some(text.clone())),
            (None, Some(path)) => read_secret(&setting.file_name(), &path).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn text(&self, name: &str) -> Result<Option<String>, Failure> {
        let setting = setting(name);
        let found = self.find(setting)?;
        Ok(found.or_else(|| (!setting.default.is_empty()).then(|| setting.default.to_owned())))
    }

    fn parse<T>(&self, name: &str, wanted: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let parsed = parse(text.trim());
        parsed.map(Some).ok_or_else(|| Failure::settings(format!("{name} must be {wanted}, not {text:?}")))
    }

    fn networks(&self, name: &str) -> Result<Vec<Network>, Failure> {
        let parsed = self.parse(name, "addresses or networks like 10.0.0.0/8, comma-separated", |text| {
            text.split(',').map(|part| part.trim().parse().ok()).collect()
        });
        Ok(parsed?.unwrap_or_default())
    }

    fn number(&self, name: &str, least: u32, most: u32) -> Result<u32, Failure> {
        let wanted = format!("a whole number from {least} to {most}");
        let number = self.parse(name, &wanted, |text| text.parse().ok().filter(|n| (least..=most).contains(n)))?;
        Ok(number.unwrap_or(least))
    }
}

fn setting(name: &str) -> &'static Setting {
    TABLE.iter().find(|setting| setting.name == name).expect("a setting of the table")
}

fn read_secret(name: &str, path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::settings(format!("{name}: cannot read {}: {error}", path.display())))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

impl Settings {
    pub fn load(matches: &ArgMatches, environment: &Environment) -> Result<Self, Failure> {
        let service_links = refuse_unknown(environment)?;
        let given = Given { matches, environment };
        let data_dir = given.text("HOLDFAST_DATA_DIR")?.map_or_else(|| default_data_dir(environment), PathBuf::from);
        let database_url = given.text("HOLDFAST_DATABASE_URL")?;
        let database_url =
            database_url.unwrap_or_else(|| format!("sqlite://{}", data_dir.join("holdfast.db").display()));
        if !["sqlite:", "postgres:", "postgresql:"].iter().any(|scheme| database_url.starts_with(scheme)) {
            return Err(Failure::settings("HOLDFAST_DATABASE_URL must begin with sqlite:// or postgres://"));
        }
        let second = |rate: u32, burst: u32| Quota::per_second(rate, burst.max(rate));
        Ok(Self {
            listen: given
                .parse("HOLDFAST_LISTEN", "an address and port like 127.0.0.1:8080", |text| text.parse().ok())?
                .expect("has a default"),
            metrics_listen: given.parse(
                "HOLDFAST_METRICS_LISTEN",
                "an address and port like 127.0.0.1:9090",
                |text| text.parse().ok(),
            )?,
            base_url: given.parse("HOLDFAST_BASE_URL", "an http or https URL without a path", |text| {
                let origin = text.trim_end_matches('/');
                let has_path = origin.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
                (network::is_endpoint_url(text) && !has_path).then(|| origin.to_owned())
            })?,
            database_url: Secret::new(database_url),
            database_connections: given.number("HOLDFAST_DATABASE_CONNECTIONS", 1, 1000)?,
            master_key: master_key(&given, &data_dir)?,
            admin: admin(&given)?,
            trusted_proxies: given.networks("HOLDFAST_TRUSTED_PROXIES")?,
            connections: connections(&given)?,
            workers: given.number("HOLDFAST_WORKERS", 0, 64)?,
            work: work(&given)?,
            notify: notify(&given)?,
            identity: identity(&given)?,
            engine: engine(&given)?,
            s3_keys: s3_keys(&given)?,
            sftp_password: given.text("HOLDFAST_SFTP_PASSWORD")?.map(Secret::new),
            limits: Limits {
                requests: second(
                    given.number("HOLDFAST_RATE_PER_SECOND", 1, 1_000_000)?,
                    given.number("HOLDFAST_RATE_BURST", 1, 10_000_000)?,
                ),
                runs: Quota::per_minute(given.number("HOLDFAST_RUNS_PER_MINUTE", 1, 1_000_000)?),
                sign_ins: Quota::per_minute(given.number("HOLDFAST_SIGN_INS_PER_MINUTE", 1, 1_000_000)?),
            },
            device_auth_enabled: given
                .parse("ENABLE_DEVICE_AUTH_ENDPOINT", "true or false", parse_switch)?
                .unwrap_or(false),
            is_new_installation: given
                .parse("HOLDFAST_NEW_INSTALLATION", "true or false", parse_switch)?
                .unwrap_or(false),
            audit_log: given.parse(
                "HOLDFAST_AUDIT_LOG",
                "an absolute path, - for standard output, syslog: or syslog:SOCKET",
                AuditLog::parse,
            )?,
            data_dir,
            service_links,
        })
    }
}

impl LogSettings {
    pub fn load(matches: &ArgMatches, environment: &Environment) -> Result<Self, Failure> {
        let given = Given { matches, environment };
        let is_json = given.parse("HOLDFAST_LOG_FORMAT", "text or json", |text| match text {
            "text" => Some(false),
            "json" => Some(true),
            _ => None,
        })?;
        Ok(Self { filter: given.text("HOLDFAST_LOG")?.expect("has a default"), is_json: is_json.unwrap_or(false) })
    }
}

impl ClientSettings {
    /// Flags and the environment take precedence over the profile.
    pub fn load(matches: &ArgMatches, environment: &Environment) -> Result<Self, Failure> {
        let given = Given { matches, environment };
        let trimmed = |name: &str| Ok::<_, Failure>(given.text(name)?.map(|text| text.trim().to_owned()));
        let profile = match trimmed("HOLDFAST_PROFILE")? {
            Some(name) => profile::read(&profiles_file(environment), &name)?,
            None => Profile::default(),
        };
        let (url, mut token) = (trimmed("HOLDFAST_URL")?, trimmed("HOLDFAST_TOKEN")?);
        // The token of a profile is only for its own service.
        if token.is_none() && (url.is_none() || url == profile.url) {
            token = profile.token_file.as_deref().map(profile::read_token).transpose()?;
        }
        if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(Failure::settings("HOLDFAST_TOKEN is not a token: it has spaces or line breaks in it"));
        }
        let ca_pem = match (ca_pem(&given)?, &profile.ca_file) {
            (None, Some(path)) => Some(std::fs::read(path).map_err(|error| Failure::io(&error, path))?),
            (given, _) => given,
        };
        Ok(Self { url: url.or(profile.url), token: token.map(Secret::new), ca_pem })
    }
}

fn profiles_file(environment: &Environment) -> PathBuf {
    let folder = |name: &str| environment.get(name).filter(|path| path.starts_with('/')).map(PathBuf::from);
    folder("XDG_CONFIG_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".config")))
        .unwrap_or_else(|| PathBuf::from("/etc"))
        .join("holdfast/config.yaml")
}

/// The limits on client connections.
fn connections(given: &Given<'_>) -> Result<listen::Limits, Failure> {
    let seconds = |name: &str| given.number(name, 1, 86_400).map(|secs| Duration::from_secs(secs.into()));
    Ok(listen::Limits {
        total: given.number("HOLDFAST_CONNECTIONS", 16, 1_000_000)? as usize,
        per_client: given.number("HOLDFAST_CONNECTIONS_PER_ADDRESS", 1, 1_000_000)? as usize,
        headers: seconds("HOLDFAST_HEADER_SECS")?,
        idle: seconds("HOLDFAST_IDLE_SECS")?,
        least_rate: MinimumRate {
            bytes_per_second: given.number("HOLDFAST_CLIENT_RATE", 0, u32::MAX)?.into(),
            window: seconds("HOLDFAST_CLIENT_RATE_SECS")?,
        },
        proxies: given.networks("HOLDFAST_TRUSTED_PROXIES")?,
    })
}

/// The settings of workers.
fn work(given: &Given<'_>) -> Result<holdfast_worker::Settings, Failure> {
    let count = |name: &str| given.number(name, 1, 500).map(|count| count as usize);
    let seconds = |name: &str, least: u32, most: u32| {
        given.number(name, least, most).map(|secs| Duration::from_secs(secs.into()))
    };
    let days = |name: &str| given.number(name, 0, 36_500);
    Ok(holdfast_worker::Settings {
        runs_at_once: count("HOLDFAST_RUNS_AT_ONCE")?,
        at_once: ConcurrencyLimits {
            per_server: count("HOLDFAST_RUNS_PER_SERVER")?,
            per_destination: count("HOLDFAST_DESTINATION_RUNS")?,
            per_user: count("HOLDFAST_RUNS_PER_USER")?,
            checks_per_user: count("HOLDFAST_CHECKS_PER_USER")?,
        },
        short_limit: seconds("HOLDFAST_CHECK_SECS", 1, 3600)?,
        lease: seconds("HOLDFAST_LEASE_SECS", 5, 3600)?,
        retry_after: seconds("HOLDFAST_RETRY_SECS", 0, 86_400)?,
        incident_tasks: given.number("HOLDFAST_INCIDENT_TASKS", 0, 1000)? as usize,
        keep_logs_days: days("HOLDFAST_KEEP_LOGS_DAYS")?,
        keep_removed_days: days("HOLDFAST_KEEP_REMOVED_DAYS")?,
        keep_notices_days: days("HOLDFAST_KEEP_NOTICES_DAYS")?,
        keep_audit_days: days("HOLDFAST_KEEP_AUDIT_DAYS")?,
        keep_checks_days: days("HOLDFAST_KEEP_CHECKS_DAYS")?,
        verify_days: days("HOLDFAST_VERIFY_DAYS")?,
        inventory_days: days("HOLDFAST_INVENTORY_DAYS")?,
        prune_days: days("HOLDFAST_PRUNE_DAYS")?,
        prune_limit: Duration::from_secs(60 * u64::from(given.number("HOLDFAST_PRUNE_MINUTES", 1, 1440)?)),
        shutdown: seconds("HOLDFAST_SHUTDOWN_SECS", 0, 3600)?,
        ..holdfast_worker::Settings::default()
    })
}

/// restic writes its locks again as often as this; after half an hour, others take one for abandoned.
const MOST_LOCK_REFRESH: Duration = Duration::from_secs(5 * 60);

/// The settings of connections to servers and destinations.
fn engine(given: &Given<'_>) -> Result<holdfast_engine::Settings, Failure> {
    let seconds = |name: &str| given.number(name, 1, 86_400).map(|secs| Duration::from_secs(secs.into()));
    let mut settings = holdfast_engine::Settings::default();
    settings.remote.ssh.connect = seconds("HOLDFAST_CONNECT_SECS")?;
    settings.remote.stall = seconds("HOLDFAST_STALL_SECS")?;
    settings.destination.stall = settings.remote.stall;
    // A worker that lost its run has stopped long before others take its lock for abandoned.
    let lease = Duration::from_secs(given.number("HOLDFAST_LEASE_SECS", 5, 3600)?.into());
    settings.destination.lock_refresh = (2 * lease).min(MOST_LOCK_REFRESH);
    settings.destination.retry.give_up_after = seconds("HOLDFAST_DESTINATION_RETRY_SECS")?;
    settings.destination.bytes_per_second = given.number("HOLDFAST_DESTINATION_RATE", 0, u32::MAX)?.into();
    settings.destination.egress_allow = given.networks("HOLDFAST_EGRESS_ALLOW")?;
    settings.remote.egress_allow.clone_from(&settings.destination.egress_allow);
    settings.remote.guards_private =
        given.parse("HOLDFAST_SSH_EGRESS_GUARD", "true or false", parse_switch)?.unwrap_or(false);
    settings.destination.ca_pem = ca_pem(given)?;
    settings.cache.most_bytes = u64::from(given.number("HOLDFAST_CACHE_MIB", 0, 1024 * 1024)?) << 20;
    Ok(settings)
}

fn ca_pem(given: &Given<'_>) -> Result<Option<Vec<u8>>, Failure> {
    let Some(path) = given.text("HOLDFAST_CA_FILE")? else { return Ok(None) };
    let pem = std::fs::read(&path);
    pem.map(Some).map_err(|error| Failure::settings(format!("HOLDFAST_CA_FILE: cannot read {path}: {error}")))
}

/// The settings of sign-in providers. Each needs all of its settings or none.
fn identity(given: &Given<'_>) -> Result<holdfast_identity::Settings, Failure> {
    let engine = engine(given)?;
    let client = |id: &str, secret: &str| match (given.text(id)?, given.text(secret)?) {
        (Some(id), Some(secret)) => Ok(Some(holdfast_identity::Client { id, secret: Secret::new(secret) })),
        (None, None) => Ok(None),
        _ => Err(Failure::settings(format!("{id} and {secret} go together; set both or neither"))),
    };
    let url = |name: &str| {
        let parsed = given.parse(name, "a URL without a trailing slash", |text| {
            (network::is_web_url(text) && !text.ends_with('/')).then(|| text.to_owned())
        });
        parsed.map(Option::unwrap_or_default)
    };
    let github = match client("HOLDFAST_GITHUB_CLIENT_ID", "HOLDFAST_GITHUB_CLIENT_SECRET")? {
        Some(client) => Some(holdfast_identity::GitHubSettings {
            client,
            url: url("HOLDFAST_GITHUB_URL")?,
            api_url: url("HOLDFAST_GITHUB_API_URL")?,
        }),
        None => None,
    };
    let issuer = given.text("HOLDFAST_OIDC_ISSUER")?;
    let oidc = match (issuer, client("HOLDFAST_OIDC_CLIENT_ID", "HOLDFAST_OIDC_CLIENT_SECRET")?) {
        (Some(issuer), Some(client)) => Some(holdfast_identity::OidcSettings {
            client,
            issuer,
            name: given.text("HOLDFAST_OIDC_NAME")?.unwrap_or_default(),
        }),
        (None, None) => None,
        _ => {
            let text = "set HOLDFAST_OIDC_ISSUER, HOLDFAST_OIDC_CLIENT_ID and HOLDFAST_OIDC_CLIENT_SECRET together";
            return Err(Failure::settings(text.to_owned()));
        }
    };
    let destination = engine.destination;
    Ok(holdfast_identity::Settings { github, oidc, egress_allow: destination.egress_allow, ca_pem: destination.ca_pem })
}

/// The settings of notifications.
fn notify(given: &Given<'_>) -> Result<holdfast_notify::Settings, Failure> {
    let engine = engine(given)?;
    let smtp = match given.text("HOLDFAST_SMTP_URL")? {
        // The value may contain a password, so the message does not repeat it.
        Some(url) => Some(holdfast_notify::Smtp::parse(url.trim()).ok_or_else(|| {
            Failure::settings("HOLDFAST_SMTP_URL must be smtp://… or smtps://… with host, optional port and login")
        })?),
        None => None,
    };
    let mail_from = given.parse("HOLDFAST_MAIL_FROM", "an address like Holdfast <backup@example.org>", |text| {
        holdfast_notify::is_mail_sender(text).then(|| text.to_owned())
    })?;
    let pushover_url = given.parse("HOLDFAST_PUSHOVER_URL", "an http or https URL", |text| {
        network::is_web_url(text).then(|| text.to_owned())
    })?;
    let defaults = holdfast_notify::Settings::default();
    Ok(holdfast_notify::Settings {
        smtp,
        mail_from: mail_from.unwrap_or(defaults.mail_from),
        pushover_token: given.text("HOLDFAST_PUSHOVER_TOKEN")?.map(Secret::new),
        pushover_url: pushover_url.unwrap_or(defaults.pushover_url),
        egress_allow: engine.destination.egress_allow,
        ca_pem: engine.destination.ca_pem,
        ..defaults
    })
}

fn parse_switch(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

/// Unlike other secret files, the key file is not read here: the store creates and rotates it, so it needs the path.
fn master_key(given: &Given<'_>, data_dir: &Path) -> Result<MasterKeySource, Failure> {
    let setting = setting("HOLDFAST_MASTER_KEY");
    let direct = given.environment.get(setting.name).filter(|text| !text.is_empty());
    match (direct, given.file_of(setting)) {
        (Some(_), Some(_)) => {
            Err(Failure::settings("HOLDFAST_MASTER_KEY and HOLDFAST_MASTER_KEY_FILE are both set; keep one"))
        }
        (Some(text), None) => Ok(MasterKeySource::Given(Secret::new(text.clone()))),
        (None, path) => Ok(MasterKeySource::File(path.unwrap_or_else(|| data_dir.join("master.key")))),
    }
}

fn s3_keys(given: &Given<'_>) -> Result<Option<(Secret, Secret)>, Failure> {
    match (given.text("HOLDFAST_S3_ACCESS_KEY")?, given.text("HOLDFAST_S3_SECRET_KEY")?) {
        (Some(access), Some(secret)) => Ok(Some((Secret::new(access), Secret::new(secret)))),
        (None, None) => Ok(None),
        _ => Err(Failure::settings("HOLDFAST_S3_ACCESS_KEY and HOLDFAST_S3_SECRET_KEY must be set together")),
    }
}

fn admin(given: &Given<'_>) -> Result<Option<(String, Secret)>, Failure> {
    let (email, password) = (given.text("HOLDFAST_ADMIN_EMAIL")?, given.text("HOLDFAST_ADMIN_PASSWORD")?);
    match (email, password) {
        (Some(email), Some(password)) => Ok(Some((email, Secret::new(password)))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Failure::settings("HOLDFAST_ADMIN_EMAIL is set, but HOLDFAST_ADMIN_PASSWORD is not")),
        (None, Some(_)) => Err(Failure::settings("HOLDFAST_ADMIN_PASSWORD is set, but HOLDFAST_ADMIN_EMAIL is not")),
    }
}

fn default_data_dir(environment: &Environment) -> PathBuf {
    let folder = |name: &str| environment.get(name).filter(|path| path.starts_with('/')).map(PathBuf::from);
    folder("XDG_DATA_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".local/share")))
        .unwrap_or_else(|| PathBuf::from("/var/lib"))
        .join("holdfast")
}

/// Refuses unknown variables, because a misspelled setting would otherwise be ignored silently. Returns those that
/// Kubernetes sets in every pod for services whose names begin with `holdfast`; they are no settings.
fn refuse_unknown(environment: &Environment) -> Result<Vec<String>, Failure> {
    let known = |name: &str| {
        TABLE.iter().any(|setting| setting.name == name || (setting.secret && setting.file_name() == name))
    };
    let unknown = environment.iter().filter(|(name, _)| name.starts_with(PREFIX) && !known(name));
    let (links, misspelled): (Vec<_>, Vec<_>) = unknown.partition(|(name, value)| is_service_link(name, value));
    match misspelled.first() {
        Some((name, _)) => Err(Failure::settings(format!(
            "{name} is not a setting of Holdfast; `holdfast serve --help` lists them{}",
            nearest(name).map(|near| format!(" (did you mean {near}?)")).unwrap_or_default()
        ))),
        None => Ok(links.into_iter().map(|(name, _)| name.clone()).collect()),
    }
}

/// For a service `holdfast-web`, for example: `HOLDFAST_WEB_SERVICE_HOST`, `HOLDFAST_WEB_SERVICE_PORT_HTTP`,
/// `HOLDFAST_WEB_PORT=tcp://…`, `HOLDFAST_WEB_PORT_8080_TCP_ADDR`.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_address = |value: &str| ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let of_port = |rest: &str| {
        let mut parts = rest.splitn(3, '_');
        parts.next().is_some_and(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
            && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
            && matches!(parts.next(), None | Some("PROTO" | "PORT" | "ADDR"))
    };
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.ends_with("_PORT") && is_address(value)
        || name.split("_PORT_").skip(1).any(of_port)
}

fn nearest(name: &str) -> Option<&'static str> {
    let shared = |other: &str| name.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let best = TABLE.iter().map(|setting| setting.name).max_by_key(|other| shared(other))?;
    (shared(best) > PREFIX.len() + 2).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(flags: &[&str], environment: &[(&str, &str)]) -> Result<Settings, String> {
        let arguments = std::iter::once("holdfast").chain(flags.iter().copied());
        let matches = crate::cli::parser().try_get_matches_from(arguments).map_err(|error| error.to_string())?;
        let environment = environment.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Settings::load(&matches, &environment).map_err(|failure| failure.message)
    }

    #[test]
    fn defaults_are_safe() {
        let settings = load(&[], &[("HOME", "/home/ada")]).unwrap();
        assert!(settings.listen.ip().is_loopback());
        assert!(!settings.device_auth_enabled);
        assert_eq!(settings.data_dir, Path::new("/home/ada/.local/share/holdfast"));
        assert_eq!(settings.database_url.reveal(), "sqlite:///home/ada/.local/share/holdfast/holdfast.db");
        assert!(settings.admin.is_none());
    }

    #[test]
    fn flags_win_over_the_environment() {
        let environment = [("HOLDFAST_LISTEN", "127.0.0.1:1"), ("ENABLE_DEVICE_AUTH_ENDPOINT", "true")];
        let settings = load(&["--listen", "127.0.0.1:2"], &environment).unwrap();
        assert_eq!(settings.listen.port(), 2);
        assert!(settings.device_auth_enabled);
        let environment = [("HOLDFAST_DATABASE_URL", "postgres://127.0.0.1/x")];
        let settings = load(&["--database-url", "sqlite:///tmp/x.db"], &environment).unwrap();
        assert_eq!(settings.database_url.reveal(), "sqlite:///tmp/x.db");
    }

    #[test]
    fn invalid_and_unknown_settings_are_reported_in_one_line() {
        let cases: [(&str, &str, &str); 7] = [
            ("HOLDFAST_LISTEN", "somewhere", "HOLDFAST_LISTEN must be an address and port"),
            ("HOLDFAST_LISTNE", "127.0.0.1:1", "did you mean HOLDFAST_LISTEN?"),
            ("HOLDFAST_WORKERS", "many", "HOLDFAST_WORKERS must be a whole number from 0 to 64"),
            ("HOLDFAST_DATABASE_URL", "mysql://x", "must begin with sqlite:// or postgres://"),
            ("HOLDFAST_BASE_URL", "example.org", "HOLDFAST_BASE_URL must be an http or https URL"),
            (
                "HOLDFAST_BASE_URL",
                "https://example.org/backup/",
                "HOLDFAST_BASE_URL must be an http or https URL without",
            ),
            ("HOLDFAST_ADMIN_EMAIL", "a@example.org", "HOLDFAST_ADMIN_PASSWORD is not"),
        ];
        for (name, value, expected) in cases {
            let message = load(&[], &[(name, value)]).unwrap_err();
            assert!(message.contains(expected) && !message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn what_kubernetes_sets_for_services_is_ignored() {
        let links = [
            ("HOLDFAST_PORT", "tcp://10.0.0.1:8080"),
            ("HOLDFAST_SERVICE_HOST", "10.0.0.1"),
            ("HOLDFAST_SERVICE_PORT", "8080"),
            ("HOLDFAST_SERVICE_PORT_HTTP", "8080"),
            ("HOLDFAST_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
            ("HOLDFAST_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("HOLDFAST_WEB_PORT_53_UDP_PROTO", "udp"),
        ];
        let mut ignored = load(&[], &links).unwrap().service_links;
        ignored.sort();
        let mut expected: Vec<&str> = links.iter().map(|(name, _)| *name).collect();
        expected.sort_unstable();
        assert_eq!(ignored, expected);
        for (name, value) in [("HOLDFAST_PORT", "8080"), ("HOLDFAST_PORT_LISTEN", "1"), ("HOLDFAST_SERVICE", "x")] {
            assert!(load(&[], &[(name, value)]).is_err(), "{name}");
        }
    }

    #[test]
    fn the_page_on_configuration_is_current() {
        let written = include_str!("../../../docs/configuration.md");
        assert_eq!(written, reference(), "run cargo xtask docs");
    }

    #[test]
    fn secrets_come_from_files_and_not_from_flags() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "correct horse\n").unwrap();
        let path = file.path().to_str().unwrap();
        let environment = [("HOLDFAST_ADMIN_EMAIL", "a@example.org"), ("HOLDFAST_ADMIN_PASSWORD_FILE", path)];
        let (_, password) = load(&[], &environment).unwrap().admin.unwrap();
        assert_eq!(password.reveal(), "correct horse");
        assert!(load(&["--admin-password", "x"], &[]).is_err());
        let both = [("HOLDFAST_ADMIN_PASSWORD", "x"), ("HOLDFAST_ADMIN_PASSWORD_FILE", path)];
        assert!(load(&[], &both).unwrap_err().contains("both set"));
        let missing = [("HOLDFAST_ADMIN_PASSWORD_FILE", "/nonexistent/secret")];
        assert!(load(&[], &missing).unwrap_err().contains("HOLDFAST_ADMIN_PASSWORD_FILE: cannot read"));
    }
}
