//! Restores views into databases of MySQL and MariaDB. To create a view, a server opens everything that it reads from,
//! and may run functions that are called there, whoever wrote them. So each view is created with no more rights than
//! its owner has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use holdfast_core::Secret;
use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;
use holdfast_core::random;
use tokio_util::sync::CancellationToken;

use super::mysql_session::{LACKS_RIGHTS, MAY_NOT_READ, MysqlSession, name_beside};
use super::mysql_warnings::NAMED;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::mysql::definitions::{Definition, DefinitionKind, takes_prepared};
use crate::mysql::grants::{Grant, Grants, closest_host};
use crate::mysql::renaming::{calls_functions, names_in};
use crate::mysql::{View, name_length, quoted, unquoted_name};
use crate::remote::{self, CLEANING_UP};
use crate::source::database::{Login, unhex};
use crate::source::mysql::error_number;
use crate::source::mysql::mysql_text;
use crate::ssh::Exit;

/// The view is broken wherever it is created: a table, column, routine or sequence is missing, a function runs as a
/// user who does not exist, the view would read from itself, or it compares what cannot be compared.
const BROKEN: [u16; 8] = [1146, 1054, 1305, 4091, 1449, 1462, 1267, 1271];

/// How much time each view adds to the limit for the views of one owner in a database. Creating a view takes
/// milliseconds, unless somebody wrote a function for it that waits.
const FOR_EACH_VIEW: Duration = Duration::from_millis(100);

/// An account may not create other accounts, or not give them the right to specify owners.
const MAY_NOT: [u16; 3] = [1227, 1044, 1045];

/// A temporary account that creates views in place of their owner. Functions that run with the rights of their caller
/// can only read and run what the owner may, and can change nothing except sequences of their own database.
struct TemporaryAccount {
    login: Login,
    account: String,
}

/// Who creates the views of an owner in a database: a temporary account if possible, otherwise the user of the restore.
struct Maker {
    owner: Vec<u8>,
    database: String,
    /// Why the views cannot be created.
    failure: Option<String>,
    temporary_account: Option<TemporaryAccount>,
}

/// Views that could not be created, and the last errors of the client.
struct Missing<'a> {
    views: Vec<&'a View>,
    errors: Vec<String>,
}

impl MysqlSession<'_> {
    /// Creates views in their databases. `has_rights` tells that users and privileges are as they were, so that a view
    /// whose definer lacks rights did not work before either.
    pub(super) async fn make_views(&self, views: Vec<&View>, has_rights: bool) -> Result<()> {
        if views.is_empty() {
            return Ok(());
        }
        let mut makers = Vec::new();
        let made = match self.find_makers(&views, &mut makers).await {
            Ok(()) => self.try_making(&makers, views).await,
            Err(error) => Err(error),
        };
        let temporary_accounts: Vec<TemporaryAccount> =
            makers.into_iter().filter_map(|maker| maker.temporary_account).collect();
        self.drop_accounts(&temporary_accounts).await;
        self.judge_views(&made?, has_rights)
    }

    /// Tests whether the owners of views may create them in an existing database: a view that reads from another, or
    /// calls a function, can only be created if its owner may do that.
    pub(super) async fn prove_owners(&self, database: &str, views: &[View], routines: &[Definition]) -> Result<()> {
        if self.plan.options.no_owner {
            return Ok(());
        }
        let names: BTreeSet<&str> = views.iter().map(|view| view.name.as_str()).collect();
        let has_function = routines.iter().any(|routine| routine.kind == DefinitionKind::Function);
        let mut owners: BTreeMap<String, bool> = BTreeMap::new();
        for view in views {
            let Some(parts) = view.parts() else { continue };
            let is_other = |name: &String| *name != view.name && names.contains(name.as_str());
            let is_calling = has_function && calls_functions(&parts.rest);
            if is_calling || names_in(&parts.rest).iter().any(is_other) {
                let owner = String::from_utf8_lossy(&parts.definer).into_owned();
                *owners.entry(owner).or_default() |= is_calling;
            }
        }
        for (owner, is_calling) in owners {
            self.try_views(database, &owner, is_calling).await.map_err(|error| {
                if error.number.is_none() {
                    return error;
                }
                let message = format!(
                    "Some views run as {owner}, who may not make them here: {} Restore without owners, or give that user the \
                     rights to it.",
                    error.message
                );
                error.reworded(message)
            })?;
        }
        Ok(())
    }

    /// Creates temporary views of views in a database, and one of a function. The third view can only be created if the
    /// definer of the second may read the first.
    pub(super) async fn try_views(&self, database: &str, definer: &str, with_function: bool) -> Result<()> {
        let is_able = takes_prepared(&self.query("SELECT VERSION()").await?);
        let temporary_account =
            if is_able { self.temporary_account(definer.as_bytes(), database).await? } else { None };
        let probe = name_beside("probe");
        let named = |number: u32| format!("{}.`{probe}_{number}`", quoted(database));
        let [first, second, third, fourth, function] = [1, 2, 3, 4, 5].map(named);
        let mut views = vec![
            (&first, "1 AS a".to_owned()),
            (&second, format!("a FROM {first}")),
            (&third, format!("a FROM {second}")),
        ];
        if with_function {
            views.push((&fourth, format!("{function}() AS a")));
        }
        let view = |(view, what): (&String, String)| format!("CREATE DEFINER={definer} VIEW {view} AS SELECT {what}; ");
        let views: String = views.into_iter().map(view).collect();
        let login = temporary_account.as_ref().map_or(self.login, |temporary_account| &temporary_account.login);
        let maker = MysqlSession { login, ..*self };
        let making = async {
            if with_function {
                let sql = format!("CREATE DEFINER={definer} FUNCTION {function}() RETURNS INT DETERMINISTIC RETURN 1");
                self.query(&sql).await?;
            }
            maker.query(&views).await.map(drop)
        };
        let made = making.await;
        // Runs even if the run was cancelled.
        let context = Context { cancel: CancellationToken::new(), ..self.context.clone() };
        let session = MysqlSession { context: &context, ..*self };
        let sql =
            format!("DROP VIEW IF EXISTS {first}, {second}, {third}, {fourth}; DROP FUNCTION IF EXISTS {function}");
        if !matches!(tokio::time::timeout(CLEANING_UP, session.query(&sql)).await, Ok(Ok(_))) {
            let shown = name_text(database.as_bytes());
            context.log.warn(format!("Views called {probe}_… may have been left behind in the database {shown}."));
        }
        self.drop_accounts(temporary_account.as_slice()).await;
        made
    }

    async fn find_makers(&self, views: &[&View], makers: &mut Vec<Maker>) -> Result<()> {
        let own = self.own_account().await?;
        let places: BTreeSet<(Vec<u8>, &str)> =
            views.iter().map(|view| (self.owner_of(view, &own), view.database.as_str())).collect();
        let mut is_able = takes_prepared(&self.query("SELECT VERSION()").await?);
        for (owner, database) in places {
            let database = database.to_owned();
            let mut maker = Maker { owner, database, failure: None, temporary_account: None };
            if is_able {
                match self.temporary_account(&maker.owner, &maker.database).await {
                    Ok(Some(temporary_account)) => maker.temporary_account = Some(temporary_account),
                    Ok(None) => {
                        is_able = false;
                        self.context.log.line(
                            "This restore's database user may not make users, so views are made with its own rights.",
                        );
                    }
                    Err(error) if error.code == FailureCode::Cancelled => return Err(error),
                    // Whatever the reason, they are not created with more rights instead.
                    Err(error) => maker.failure = Some(format!("ERROR {}", error.message)),
                }
            }
            makers.push(maker);
        }
        Ok(())
    }

    /// The account of this restore, as written in statements.
    async fn own_account(&self) -> Result<Vec<u8>> {
        let own = self.query("SELECT CURRENT_USER()").await?;
        let (user, host) = own.rsplit_once('@').unwrap_or((&own, ""));
        Ok(format!("{}@{}", quoted(user), quoted(host)).into_bytes())
    }

    /// The account that a view will belong to.
    fn owner_of(&self, view: &View, own: &[u8]) -> Vec<u8> {
        let definer = view.parts().filter(|_| !self.plan.options.no_owner).map(|parts| parts.definer);
        definer.unwrap_or_else(|| own.to_vec())
    }

    /// Creates a temporary account; `None` if this account may not.
    async fn temporary_account(&self, owner: &[u8], database: &str) -> Result<Option<TemporaryAccount>> {
        let unclear = || EngineError::new(FailureCode::RemoteFailed, "The server did not report our host name.");
        let host = self.query("SELECT HEX(SUBSTRING_INDEX(USER(), '@', -1))").await?;
        let host = unhex(&host).ok_or_else(unclear)?;
        let user = format!("holdfast_{}", random::hex(&random::bytes::<8>()));
        // Upper and lower case, a digit and a special character: some servers refuse other passwords.
        let password = format!("Hf1!{}", random::hex(&random::bytes::<16>()));
        let account = format!("{}@{}", quoted(&user), quoted(&host));
        // These statements depend on nothing that others can change.
        let made = format!("CREATE USER {account} IDENTIFIED BY '{password}';\nGRANT SET USER ON *.* TO {account};\n");
        let temporary_account =
            TemporaryAccount { login: Login { username: Some(user), password: Some(Secret::new(password)) }, account };
        let answer = self.run(None, made.as_bytes(), false).await?;
        if answer.stderr.iter().any(|line| says(line, &MAY_NOT)) {
            let is_made = !answer.stderr.iter().any(|line| line.contains(" at line 1:"));
            self.drop_accounts(if is_made { std::slice::from_ref(&temporary_account) } else { &[] }).await;
            return Ok(None);
        }
        let given = async {
            self.judge(&answer.exit, &answer.stderr)?;
            self.give_rights(owner, database, &temporary_account.account).await
        };
        match given.await {
            Ok(()) => Ok(Some(temporary_account)),
            Err(error) => {
                self.drop_accounts(&[temporary_account]).await;
                Err(error)
            }
        }
    }

    /// Gives an account the rights to create views in a database, and to read and run what their owner may.
    async fn give_rights(&self, owner: &[u8], database: &str, account: &str) -> Result<()> {
        const IN_ITS_DATABASE: &str = "SELECT, SHOW VIEW, CREATE VIEW, DROP, EXECUTE";
        let pattern = database.replace('\\', "\\\\").replace('_', "\\_").replace('%', "\\%");
        let sql = format!("GRANT {IN_ITS_DATABASE} ON {}.* TO {account};\n", quoted(&pattern));
        let answer = self.run(None, sql.as_bytes(), false).await?;
        self.judge(&answer.exit, &answer.stderr)?;
        // Without owners, all views belong to the user of the restore. It is not known who wrote the functions that
        // they call, so these get rights to the database itself only.
        let grants = if self.plan.options.no_owner { String::new() } else { self.grants_of(owner).await? };
        let grants: Vec<&[u8]> = grants.lines().map(str::as_bytes).collect();
        // Creating a view that uses a sequence takes the right to change it.
        let all = Grants::parse(grants.iter().copied());
        let is_given = |schema: &str, name: &str| schema == database || all.are_of_table(schema, name, &["INSERT"]);
        let sequences = self.sequences().await?;
        let sequences = sequences.iter().filter(|(schema, name)| is_given(schema, name));
        let insert = |(schema, name): &(String, String)| {
            format!("GRANT INSERT ON {}.{} TO {account};\n", quoted(schema), quoted(name))
        };
        let mut sql: String = sequences.map(insert).collect();
        let grants = grants.into_iter().filter_map(Grant::parse);
        sql.extend(grants.filter_map(|grant| readable(&grant, account)));
        // A table may have been dropped meanwhile; then there is nothing to read.
        self.run(None, sql.as_bytes(), true).await.map(drop)
    }

    /// What an owner may do here, line by line. An owner without an account here has the rights of the account that the
    /// server would use when somebody reads the view: the one with the same name whose host matches best.
    async fn grants_of(&self, owner: &[u8]) -> Result<String> {
        let text = String::from_utf8_lossy(owner);
        if let Ok(grants) = self.query(&format!("SHOW GRANTS FOR {text}")).await {
            return Ok(grants);
        }
        let nobody = Ok(String::new());
        let Some((user, host)) =
            name_length(owner).and_then(|end| Some((&owner[..end], owner[end..].strip_prefix(b"@")?)))
        else {
            return nobody;
        };
        let (user, host) = (unquoted_name(user), unquoted_name(host));
        let accounts = format!("SELECT HEX(Host) FROM mysql.user WHERE BINARY User = {}", mysql_text(&user));
        // If this user may not read that table, no rights are given.
        let hosts = self.names(&accounts).await.unwrap_or_default();
        let Some(found) = closest_host(&hosts, &host) else { return nobody };
        let grants = self.query(&format!("SHOW GRANTS FOR {}@{}", quoted(&user), quoted(found))).await;
        Ok(grants.unwrap_or_default())
    }

    /// The schemas and names of all sequences.
    async fn sequences(&self) -> Result<Vec<(String, String)>> {
        const SEQUENCES: &str = "SELECT CONCAT(HEX(table_schema), ' ', HEX(table_name)) FROM information_schema.tables WHERE \
            table_type = 'SEQUENCE'";
        let unclear = || EngineError::new(FailureCode::RemoteFailed, "The server did not say what sequences it has.");
        let parse = |line: &str| line.split_once(' ').and_then(|(schema, name)| Some((unhex(schema)?, unhex(name)?)));
        self.query(SEQUENCES).await?.lines().map(|line| parse(line).ok_or_else(unclear)).collect()
    }

    /// Drops the temporary accounts, even if the run was cancelled.
    async fn drop_accounts(&self, temporary_accounts: &[TemporaryAccount]) {
        let accounts: Vec<&str> =
            temporary_accounts.iter().map(|temporary_account| temporary_account.account.as_str()).collect();
        if accounts.is_empty() {
            return;
        }
        let context = Context { cancel: CancellationToken::new(), ..self.context.clone() };
        let session = MysqlSession { context: &context, ..*self };
        let kill: String = accounts.iter().map(|account| format!("KILL CONNECTION USER {account};\n")).collect();
        let dropping = async {
            // A function that does not end keeps its session alive, and its locks.
            session.run(None, kill.as_bytes(), true).await?;
            session.query(&format!("DROP USER IF EXISTS {}", accounts.join(", "))).await
        };
        if !matches!(tokio::time::timeout(CLEANING_UP, dropping).await, Ok(Ok(_))) {
            context
                .log
                .warn(format!("These users were left behind on the server; drop them: {}.", accounts.join(", ")));
        }
    }

    /// A view may read from another, so those that could not be created are tried again while any can be created. Each
    /// database has its own session: whatever happens to one, its views are created in no other.
    async fn try_making<'v>(&self, makers: &[Maker], mut views: Vec<&'v View>) -> Result<Missing<'v>> {
        let own = self.own_account().await?;
        let mut errors = Vec::new();
        // Creating a view takes no time, unless it calls a function that does.
        let seconds = self.engine.settings.remote.answer.as_secs().max(1);
        let at_once = format!("SET SESSION sql_quote_show_create=1 /*M!100101 , max_statement_time={seconds} */;\n");
        let in_all = self.engine.settings.remote.stall + FOR_EACH_VIEW * u32::try_from(views.len()).unwrap_or(u32::MAX);
        let mut left = vec![in_all; makers.len()];
        while !views.is_empty() {
            errors.clear();
            for (Maker { owner, database, failure, temporary_account }, left) in makers.iter().zip(&mut left) {
                let is_theirs = |view: &&&View| view.database == *database && self.owner_of(view, &own) == *owner;
                // An account that creates a view for somebody else has to specify the definer.
                let definer = (temporary_account.is_some() || !self.plan.options.no_owner).then_some(owner.as_slice());
                let sql: String = views.iter().filter(is_theirs).map(|view| view.sql(definer)).collect();
                if sql.is_empty() {
                    continue;
                }
                if let Some(failure) = failure {
                    errors.push(failure.clone());
                    continue;
                }
                let login = temporary_account.as_ref().map_or(self.login, |temporary_account| &temporary_account.login);
                let session = MysqlSession { login, ..*self };
                let (sql, begun) = (format!("{at_once}{sql}"), Instant::now());
                match session.run_within(Some(database), sql.as_bytes(), true, *left).await {
                    Err(error) if error.code == FailureCode::Timeout => errors.push(format!("ERROR {}", error.message)),
                    answer => errors.extend(answer?.stderr),
                }
                *left = left.saturating_sub(begun.elapsed());
            }
            let there = self.view_names().await?;
            let before = views.len();
            views.retain(|view| !there.has(view));
            if views.len() == before {
                break;
            }
        }
        if views.is_empty() {
            errors.clear();
        }
        // Errors that only follow from a failed PREPARE are of no interest.
        let is_telling = |line: &str| line.starts_with("ERROR") && !says(line, &[1243]);
        errors.retain(|line| is_telling(line) || remote::is_about_dropped(line));
        Ok(Missing { views, errors })
    }

    /// A view of something that is missing did not work before either; any other reason is an error.
    fn judge_views(&self, missing: &Missing<'_>, has_rights: bool) -> Result<()> {
        let Missing { views, errors } = missing;
        if views.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = views.iter().map(|view| format!("{}.{}", view.database, view.name)).collect();
        let names: Vec<String> = names.iter().take(NAMED).map(|name| name_text(name.as_bytes())).collect();
        let count = if let [_] = views[..] { "1 view".to_owned() } else { format!("{} views", views.len()) };
        let said = format!("{count} could not be made: {}.", names.join(", "));
        let no_owner = self.plan.options.no_owner;
        // A view that runs with the rights of its reader may have worked, whatever its definer may do.
        let is_as_before = no_owner || has_rights && !views.iter().any(|view| is_invokers(view));
        let is_broken = |line: &String| {
            says(line, &BROKEN) || is_as_before && says(line, &LACKS_RIGHTS) || no_owner && says(line, &MAY_NOT_READ)
        };
        if !errors.is_empty() && errors.iter().all(is_broken) {
            errors.iter().for_each(|line| self.context.log.line(line));
            let why = if no_owner {
                "Something that they read from or call does not exist, or is in another database: without owners, views \
                 only have rights to their own database."
            } else {
                "Something that they read from or call does not exist, or not every user may use it."
            };
            self.context.log.warn(format!("{said} {why} They are in the backup."));
            return Ok(());
        }
        let failed = Exit { status: Some(1), signal: None };
        self.judge(&failed, errors).map_err(|error| {
            let is_denied = errors.iter().any(|line| line.contains("'holdfast_"));
            let hint = if is_denied && !no_owner {
                " A view is made with the rights that its owner has on this server, also one that runs with the rights of its \
                 reader: create that user, give it the right to read and run what the view names, and restore again."
            } else {
                ""
            };
            error.reworded(format!("{said} {}{hint}", error.message))
        })
    }

    async fn view_names(&self) -> Result<ViewNames> {
        let sql = "SELECT @@lower_case_table_names; SELECT CONCAT(HEX(table_schema), ' ', HEX(table_name)) FROM \
            information_schema.views";
        let answer = self.query(sql).await?;
        let is_folded = answer.lines().next().is_some_and(|line| line != "0");
        let parse = |line: &str| {
            let (schema, name) = line.split_once(' ')?;
            Some(folded(&unhex(schema)?, &unhex(name)?, is_folded))
        };
        let unclear = || EngineError::new(FailureCode::RemoteFailed, "The server did not say what views it has.");
        let names = answer.lines().skip(1).map(|line| parse(line).ok_or_else(unclear)).collect::<Result<_>>()?;
        Ok(ViewNames { names, is_folded })
    }
}

/// Whether a view runs with the rights of its reader.
fn is_invokers(view: &View) -> bool {
    view.parts().is_some_and(|parts| parts.security == b"INVOKER")
}

fn says(line: &str, numbers: &[u16]) -> bool {
    error_number(line).is_some_and(|number| numbers.contains(&number))
}

/// The part of a grant that allows reading and running, for another account.
fn readable(grant: &Grant, account: &str) -> Option<String> {
    let mut kept = Vec::new();
    for right in grant.rights() {
        match right {
            b"ALL PRIVILEGES" if grant.is_of_table() => kept.extend([b"SELECT".as_slice(), b"SHOW VIEW"]),
            b"ALL PRIVILEGES" => kept.extend([b"SELECT".as_slice(), b"SHOW VIEW", b"EXECUTE"]),
            b"SELECT" | b"SHOW VIEW" | b"EXECUTE" => kept.push(right),
            columns if columns.starts_with(b"SELECT (") => kept.push(columns),
            _ => {}
        }
    }
    let kept = String::from_utf8(kept.join(b", ".as_slice())).ok()?;
    let place = std::str::from_utf8(grant.place()).ok()?;
    (!kept.is_empty()).then(|| format!("GRANT {kept} ON {place} TO {account};\n"))
}

/// The views of a server.
struct ViewNames {
    names: BTreeSet<(String, String)>,
    /// Whether the server ignores case in names.
    is_folded: bool,
}

impl ViewNames {
    fn has(&self, view: &View) -> bool {
        self.names.contains(&folded(&view.database, &view.name, self.is_folded))
    }
}

fn folded(schema: &str, name: &str, is_folded: bool) -> (String, String) {
    let fold = |text: &str| if is_folded { text.to_lowercase() } else { text.to_owned() };
    (fold(schema), fold(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rights_to_read_and_run_are_given() {
        let lent = |grant: &str| {
            let escaped = grant.replace('\\', "\\\\");
            readable(&Grant::parse(escaped.as_bytes())?, "`s`@`h`").map(|sql| sql.trim_end().to_owned())
        };
        let to = |what: &str| Some(format!("GRANT {what} TO `s`@`h`;"));
        for (grant, kept) in [
            (
                "GRANT ALL PRIVILEGES ON *.* TO `root`@`%` IDENTIFIED BY PASSWORD '*A TO ' WITH GRANT OPTION",
                to("SELECT, SHOW VIEW, EXECUTE ON *.*"),
            ),
            ("GRANT SELECT, INSERT, SUPER, EXECUTE ON `sh\\_op`.* TO `a`@`b`", to("SELECT, EXECUTE ON `sh\\_op`.*")),
            ("GRANT ALL PRIVILEGES ON ` TO `.` ON ` TO `a`@`b`", to("SELECT, SHOW VIEW ON ` TO `.` ON `")),
            (
                "GRANT INSERT (`a`), SELECT (`a, b)`, `c`), UPDATE (`d`) ON `x`.`y` TO `a`",
                to("SELECT (`a, b)`, `c`) ON `x`.`y`"),
            ),
            ("GRANT SELECT (`a`) ON `x`.`y` TO `a`", to("SELECT (`a`) ON `x`.`y`")),
            ("GRANT EXECUTE, ALTER ROUTINE ON FUNCTION `x`.`f` TO `a`", to("EXECUTE ON FUNCTION `x`.`f`")),
            ("GRANT USAGE ON *.* TO `a`@`b`", None),
            ("GRANT PROXY ON ''@'%' TO 'root'@'localhost' WITH GRANT OPTION", None),
            ("GRANT `role` TO `a`@`b`", None),
            ("SET DEFAULT ROLE `r` FOR `a`@`b`", None),
        ] {
            assert_eq!(lent(grant), kept, "{grant}");
        }
    }
}
