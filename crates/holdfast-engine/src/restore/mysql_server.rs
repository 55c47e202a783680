//! Restores whole MySQL and MariaDB servers. Every database is first loaded beside the one that it replaces; only if
//! all of them succeed is anything replaced. Users and privileges follow the databases, then views.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;

use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;

use super::database_messages::{not_empty, not_held};
use super::dumps::{Dump, Reading};
use super::mysql_definitions::{DefinitionPlace, FoundByName};
use super::mysql_load::later_of;
use super::mysql_session::{CLIENT, MysqlSession, name_beside};
use super::mysql_warnings::left_events;
use crate::Engine;
use crate::archive::MysqlFacts;
use crate::archive::server::{VIEWS, describe_mysql};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::mysql::definitions::{Definition, DefinitionKind, LONGEST, takes_prepared};
use crate::mysql::rewriting::{FoundTables, Rewriting};
use crate::mysql::{ACCOUNTS, DumpedDatabase, ServerFacts, View, quoted};
use crate::plan::{RestorePlan, RestoreReport};
use crate::source::database::Login;
use crate::source::mysql::{self, MYSQL_CLIENT, mysql};
use crate::ssh::Connection;

/// A database of the archive and what is there under its name.
struct DatabaseTarget<'a> {
    index: usize,
    facts: &'a DumpedDatabase,
    /// How many tables, routines and events it has; `None` if there is no such database.
    held: Option<u64>,
    /// Its settings, if it is empty.
    before: Option<MysqlFacts>,
    /// The name under which it is loaded first.
    first: String,
}

impl DatabaseTarget<'_> {
    fn is_replaced(&self) -> bool {
        self.held > Some(0)
    }

    /// Whether it is loaded under another name first.
    fn is_copied(&self) -> bool {
        self.first != self.facts.name
    }
}

impl Engine {
    pub(crate) async fn restore_mysql_server(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        only: Option<&str>,
        login: &Login,
        context: &Context,
    ) -> Result<RestoreReport> {
        let session = MysqlSession { engine: self, connection, plan, login, context };
        context.log.line("Reading the whole backup before anything is changed.");
        let mut facts = self.read_as(&plan.backup, context, describe_mysql).await?;
        let has_accounts = facts.has_accounts && only.is_none();
        if let Some(name) = only {
            // In this case, users, privileges and roles stay as they are.
            if !facts.databases.iter().any(|database| database.name == name) {
                return Err(not_held(name));
            }
            facts.views.retain(|view| view.database == name);
            facts.roles.clear();
        }
        if only.is_none() {
            session.are_apart(&facts).await?;
        }
        let mut places = Vec::new();
        let chosen = facts.databases.iter().enumerate();
        for (index, database) in chosen.filter(|(_, database)| only.is_none_or(|only| only == database.name)) {
            session.refuse_the_servers(&database.name).await?;
            let held = session.count_tables(&database.name).await?;
            let before = if held == Some(0) { session.set_up_of(&database.name).await? } else { None };
            let mut place = DatabaseTarget { index, facts: database, held, before, first: database.name.clone() };
            if place.is_replaced() || database.set_up.has_definitions {
                place.first = name_beside(&database.name);
            }
            places.push(place);
        }
        if let Some(place) = places.iter().find(|place| place.is_replaced()).filter(|_| !plan.overwrite) {
            return Err(not_empty(&place.facts.name));
        }
        session.tell(has_accounts, &places);
        if plan.options.dry_run {
            return Ok(RestoreReport { is_dry: true, ..RestoreReport::default() });
        }
        if !plan.options.no_owner {
            session.make_roles(&facts.roles).await?;
        }
        if only.is_some() {
            session.do_without_copies(&mut places).await?;
        }
        let copied: Vec<&DatabaseTarget<'_>> = places.iter().filter(|place| place.is_copied()).collect();
        if copied.len() < places.len() {
            context.begin_writing().await?;
        }
        let (mut begun, mut found) = (Vec::new(), Found::default());
        let report = match session.prove(&facts, &places, &mut begun, &mut found).await {
            Ok(report) => report,
            Err(error) => {
                if session.undo(&places, &begun).await {
                    context.note_undone().await;
                }
                let message = format!("{} No database that was there was changed.", error.message);
                return Err(error.reworded(message));
            }
        };
        let replaced = session.replace_all(&facts, &copied, &mut found).await;
        // Before the views: a view that reads from another can only be created if its definer may. One database that
        // failed does not prevent the accounts of all others from being restored.
        let accounts =
            if has_accounts && !plan.options.no_owner { session.load_accounts(&facts).await } else { Ok(()) };
        // Whatever was replaced gets its views back, even if something else failed.
        let left = replaced.as_ref().err().map(|stopped| stopped.left.as_slice()).unwrap_or_default();
        let mut defaults = Ok(());
        for (name, tables) in found.later.iter().filter(|(name, _)| !left.contains(name)) {
            let making = session.make(name, tables).await;
            defaults = defaults.and(making);
        }
        let views = facts.views.iter().chain(&found.views);
        let views: Vec<&View> = views.filter(|view| !left.contains(&view.database)).collect();
        let views = session.make_views(views, has_accounts).await.map_err(|error| {
            let message = format!("{} All tables and routines were restored.", error.message);
            error.reworded(message)
        });
        let mut made = Ok(());
        for (name, events) in found.events.iter().filter(|(name, _)| !left.contains(name)) {
            let making = session.make_events(name, events).await;
            made = made.and(making);
        }
        replaced.map_err(|stopped| stopped.error)?;
        accounts?;
        defaults?;
        views?;
        made?;
        for place in &places {
            session.warn_of_definers(&place.facts.name).await;
        }
        Ok(report)
    }
}

/// Dumps that are being read, and the definitions found in them.
struct Loading {
    reading: Reading,
    found: FoundByName,
}

/// What follows the tables of all databases and is created after all of them: views may read from any database, and
/// events start to run.
#[derive(Default)]
struct Found {
    /// All definitions of the databases that have copies.
    of_copies: BTreeMap<usize, Vec<Definition>>,
    views: Vec<View>,
    events: Vec<(String, Vec<Definition>)>,
    /// What tables get at the end: defaults that use sequences, which may be in any database, and foreign keys.
    later: Vec<(String, Vec<Definition>)>,
    /// The tables of each database.
    tables: BTreeMap<usize, Vec<String>>,
    bytes: usize,
}

impl Found {
    /// Keeps definitions up to a limit, since they are held in memory.
    fn keep(&mut self, index: usize, definitions: Vec<Definition>) -> Result<()> {
        self.bytes += definitions.iter().map(|definition| definition.statement.len()).sum::<usize>();
        if self.bytes > MOST_HELD {
            return Err(EngineError::corrupt("The routines, triggers, views and events of this server are too many."));
        }
        self.of_copies.insert(index, definitions);
        Ok(())
    }
}

/// The most bytes of all routines, triggers, views and events of a server; a large one has some mebibytes.
const MOST_HELD: usize = 4 * LONGEST;

/// A replacement that failed, and the databases that are half replaced or unchanged.
struct Stopped {
    error: EngineError,
    left: Vec<String>,
}

fn dumps_of(facts: &ServerFacts, is_wanted: impl Fn(usize) -> bool) -> Vec<Dump> {
    facts.dumps().map(|(index, name)| Dump { index, name: name.to_owned(), is_wanted: is_wanted(index) }).collect()
}

impl MysqlSession<'_> {
    fn tell(&self, has_accounts: bool, places: &[DatabaseTarget<'_>]) {
        let verb = if self.plan.options.dry_run { "would be" } else { "will be" };
        for place in places {
            let fate = match place.held {
                None => "made",
                Some(0) => "filled",
                Some(_) => "replaced as a whole",
            };
            self.context.log.line(format!("The database {} {verb} {fate}.", place.facts.name));
        }
        self.context.log.line(match (has_accounts, self.plan.options.no_owner) {
            (true, false) => format!(
                "Users and privileges {verb} set to what they were in the backup; others stay, and so does the account \
                 of this restore."
            ),
            (true, true) => "Users and privileges stay as they are.".to_owned(),
            (false, _) => "Users and privileges are not restored.".to_owned(),
        });
    }

    /// Creates the roles that routines may run as, before the routines. Their rights come with the privileges.
    async fn make_roles(&self, roles: &[String]) -> Result<()> {
        for role in roles {
            self.query(&format!("CREATE ROLE IF NOT EXISTS {}", quoted(role))).await?;
        }
        Ok(())
    }

    /// Refuses databases whose names only differ by case on a server that ignores case.
    async fn are_apart(&self, facts: &ServerFacts) -> Result<()> {
        let mut names = BTreeMap::new();
        for name in facts.databases.iter().map(|database| &database.name) {
            if let Some(other) = names.insert(name.to_lowercase(), name)
                && self.folds_names().await?
            {
                let message =
                    format!("To this server, the names {other} and {name} are the same. Nothing was changed.");
                return Err(EngineError::new(FailureCode::RemoteFailed, message));
            }
        }
        Ok(())
    }

    /// Loads databases directly if the user may not create copies: a user who restores one database may have no rights
    /// beyond it.
    async fn do_without_copies(&self, places: &mut [DatabaseTarget<'_>]) -> Result<()> {
        for place in places.iter_mut().filter(|place| place.is_copied()) {
            if self.make_copy(&place.first, place.held, None).await? {
                self.drop_own(&place.first).await;
            } else {
                place.first = place.facts.name.clone();
            }
        }
        Ok(())
    }

    /// Makes the routines and triggers of a database; views and events come after those of all databases.
    async fn make_routines(&self, name: &str, definitions: &[Definition], found: &mut Found) -> Result<()> {
        let fitted = self.fitted(definitions, &DefinitionPlace { name, old_name: None, is_copy: false })?;
        found.views.extend(fitted.views);
        found.events.push((name.to_owned(), fitted.events));
        self.make(name, &fitted.routines).await
    }

    /// Begins to read the wanted dumps. Events of copies do not run.
    async fn read(&self, facts: &ServerFacts, are_copies: bool, is_wanted: impl Fn(usize) -> bool) -> Result<Loading> {
        let without_definers = self.plan.options.no_owner;
        let without_events = are_copies || without_definers;
        let log = self.context.log.clone();
        let all = FoundByName::default();
        let of_thread = all.clone();
        let version = self.query("SELECT VERSION()").await?;
        let unprepared = (!takes_prepared(&version)).then_some(version);
        let transform = move |name: &str, dump: &mut dyn io::Read, out: &mut dyn io::Write| {
            let old_name = are_copies.then(|| name.to_owned());
            let (found, tables) = of_thread.of(name);
            let unprepared = unprepared.clone();
            let rewriting = Rewriting {
                without_definers,
                without_events,
                old_name,
                unprepared,
                found,
                tables,
                ..Rewriting::default()
            };
            rewriting.copy(dump, out)?;
            let events = rewriting.events.load(Ordering::Relaxed);
            if events > 0 && !are_copies {
                log.warn(left_events(events));
            }
            Ok(())
        };
        let dumps = dumps_of(facts, is_wanted);
        let reading = self.engine.read_dumps(self.plan, self.context, VIEWS, dumps, transform).await?;
        Ok(Loading { reading, found: all })
    }

    /// Loads the next database into the one with this name.
    async fn load_next(
        &self,
        database: &DumpedDatabase,
        name: &str,
        loading: &mut Loading,
    ) -> Result<(Vec<Definition>, FoundTables)> {
        self.load_into(name, &mut loading.reading).await?;
        let (found, tables) = loading.found.of(&database.name);
        let (found, tables) = (found.take(), tables.take());
        // The archive describes each dump beforehand.
        if !found.is_empty() && !database.set_up.has_definitions {
            return Err(EngineError::corrupt(
                "A dump has routines, triggers, views or events that it should not have.",
            ));
        }
        Ok((found, tables))
    }

    /// Runs the dump that `reading` has just begun through the client.
    async fn load_into(&self, name: &str, reading: &mut Reading) -> Result<()> {
        let script = mysql(MYSQL_CLIENT, &format!("{CLIENT} --database=\"$1\""), "3", &[name]);
        let login = mysql::login_lines(self.login);
        let fed = self.engine.feed_dump(self.connection, &script, login, reading, self.context).await?;
        self.judge(&fed.exit, &fed.lines)
    }

    /// Loads every database to a place where nothing is: under its own name, or beside the existing one. This shows
    /// that all of it can be loaded.
    async fn prove(
        &self,
        facts: &ServerFacts,
        places: &[DatabaseTarget<'_>],
        begun: &mut Vec<usize>,
        found: &mut Found,
    ) -> Result<RestoreReport> {
        let mut report = RestoreReport::default();
        for are_copies in [true, false] {
            let place_of = |index: usize| places.iter().find(|place| place.index == index);
            let is_wanted = |index: usize| place_of(index).is_some_and(|place| place.is_copied() == are_copies);
            if !places.iter().any(|place| is_wanted(place.index)) {
                continue;
            }
            let mut loading = self.read(facts, are_copies, is_wanted).await?;
            while let Some(index) = loading.reading.next().await {
                let place = place_of(index).ok_or_else(|| EngineError::internal("a dump that nobody asked for"))?;
                self.context.log.line(format!("Loading {} into {}.", place.facts.name, place.first));
                if place.held == Some(0) && !are_copies {
                    begun.push(index);
                    self.set_up_as(&place.first, Some(&place.facts.set_up)).await?;
                } else {
                    self.create(&place.first, Some(&place.facts.set_up)).await?;
                    begun.push(index);
                }
                let of_place = |error: EngineError| {
                    let name = name_text(place.facts.name.as_bytes());
                    error.reworded(format!("{name}: {}", error.message))
                };
                let loaded = self.load_next(place.facts, &place.first, &mut loading).await;
                let (definitions, tables) = loaded.map_err(of_place)?;
                found.later.push((place.facts.name.clone(), later_of(&tables, &place.facts.name, None)));
                self.warn_of_directories(&tables.with_directory);
                found.tables.insert(index, tables.names);
                if are_copies {
                    self.make_in_copy(&place.first, &definitions, &place.facts.name).await.map_err(of_place)?;
                } else {
                    self.make_routines(&place.first, &definitions, found).await?;
                }
                found.keep(index, definitions)?;
            }
            report.plain_bytes = loading.reading.finish().await?;
        }
        let views = found.of_copies.values().flatten().filter(|definition| definition.kind == DefinitionKind::View);
        let views: Vec<View> = views.map(|definition| definition.view(String::new())).collect();
        self.check_definers(facts, places, &views).await?;
        self.wait_for_locks(places.iter().filter(|place| place.is_replaced()).map(|place| place.facts.name.as_str()))
            .await?;
        self.context.begin_writing().await?;
        Ok(report)
    }

    /// Removes what was loaded; true if all of it is gone.
    async fn undo(&self, places: &[DatabaseTarget<'_>], begun: &[usize]) -> bool {
        let mut is_gone = true;
        for place in places.iter().filter(|place| begun.contains(&place.index)) {
            is_gone &= match place.held {
                Some(0) if !place.is_copied() => self.empty_again(&place.first, place.before.as_ref()).await,
                _ => self.drop_own(&place.first).await,
            };
        }
        is_gone
    }

    /// Creating views that run as somebody else takes a right that loading tables does not.
    async fn check_definers(&self, facts: &ServerFacts, places: &[DatabaseTarget<'_>], views: &[View]) -> Result<()> {
        let own = self.query("SELECT CURRENT_USER()").await?;
        let own = own.rsplit_once('@').map(|(user, host)| format!("{}@{}", quoted(user), quoted(host)));
        let is_other = |view: &View| {
            view.parts().is_some_and(|found| Some(found.definer.as_slice()) != own.as_deref().map(str::as_bytes))
        };
        let (Some(place), false) = (places.first(), self.plan.options.no_owner) else { return Ok(()) };
        if !facts.views.iter().chain(views).any(is_other) {
            return Ok(());
        }
        let probe = format!("{}.{}", quoted(&place.first), quoted(&name_beside("probe")));
        let sql = format!("CREATE DEFINER=`holdfast`@`nowhere` VIEW {probe} AS SELECT 1; DROP VIEW {probe}");
        self.query(&sql).await.map(drop).map_err(|error| {
            let message = format!(
                "This database user may not make views that run as somebody else: {} Restore without owners, or as a user \
                 with the privilege SET USER (SUPER, SET_USER_ID).",
                error.message
            );
            error.reworded(message)
        })
    }

    /// Moves the tables of each copy to its database, and creates the rest again. One that fails does not stop the
    /// others.
    async fn move_all(&self, copied: &[&DatabaseTarget<'_>], found: &mut Found) -> std::result::Result<(), Stopped> {
        let (mut done, mut untouched, mut left) = (Vec::new(), Vec::new(), Vec::new());
        let mut first: Option<EngineError> = None;
        for place in copied {
            let (name, held) = (place.facts.name.as_str(), place.held);
            let mut is_changed = false;
            let moved = async {
                self.context.log.line(format!("Moving the tables of {} to {name}.", place.first));
                if place.is_replaced() {
                    let restored = found.tables.remove(&place.index).unwrap_or_default();
                    self.tell_lost(name, &restored, "will be").await?;
                }
                let set_up = Some(&place.facts.set_up);
                self.put_in_place(name, held, &place.first, set_up, &mut is_changed).await?;
                let definitions = found.of_copies.remove(&place.index).unwrap_or_default();
                self.make_routines(name, &definitions, found).await
            };
            let moved = moved.await;
            // Tables that were not moved yet exist only in the copy.
            let is_untouched = moved.is_err() && !is_changed;
            match moved {
                Ok(()) => done.push(name),
                Err(error) => {
                    if is_untouched {
                        untouched.push(name);
                    }
                    left.push(name.to_owned());
                    let message = format!("{name}: {}", error.message);
                    self.context.log.warn(&message);
                    first.get_or_insert_with(|| error.reworded(message));
                }
            }
            if done.last() == Some(&name) || is_untouched {
                self.drop_own(&place.first).await;
            }
        }
        let Some(error) = first else { return Ok(()) };
        let names = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let message = format!("{} Replaced: {}. Not changed: {}.", error.message, names(&done), names(&untouched));
        Err(Stopped { error: error.reworded(message), left })
    }

    /// By now, everything is known to load. A MySQL database cannot be renamed: its tables are moved, or it is loaded
    /// again.
    async fn replace_all(
        &self,
        facts: &ServerFacts,
        replaced: &[&DatabaseTarget<'_>],
        found: &mut Found,
    ) -> std::result::Result<(), Stopped> {
        if replaced.iter().any(|place| place.facts.set_up.has_definitions) {
            return self.move_all(replaced, found).await;
        }
        if replaced.is_empty() {
            return Ok(());
        }
        let mut begun = Vec::new();
        let loaded = self.load_again(facts, replaced, &mut begun).await;
        let stopped_at = begun.last().copied().filter(|_| loaded.is_err());
        for place in replaced.iter().filter(|place| Some(place.index) != stopped_at) {
            self.drop_own(&place.first).await;
        }
        loaded.map_err(|error| {
            let stopped = replaced.iter().find(|place| Some(place.index) == stopped_at);
            let names = |is_wanted: &dyn Fn(usize) -> bool| -> String {
                let chosen = replaced.iter().filter(|place| is_wanted(place.index));
                let names: Vec<&str> = chosen.map(|place| place.facts.name.as_str()).collect();
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            };
            let done = names(&|index| begun.contains(&index) && Some(index) != stopped_at);
            let untouched = names(&|index| !begun.contains(&index));
            let whole = stopped.map(|place| {
                let (name, first) = (&place.facts.name, &place.first);
                format!(
                    " All tables and routines of {name} are in {first}; its views and events are in the backup, which can \
                     be downloaded."
                )
            });
            let whole = whole.unwrap_or_default();
            let message = format!("{}{whole} Replaced: {done}. Not changed: {untouched}.", error.message);
            let is_left = |place: &&&DatabaseTarget<'_>| !begun.contains(&place.index) || Some(place.index) == stopped_at;
            let left = replaced.iter().filter(is_left).map(|place| place.facts.name.clone()).collect();
            Stopped { error: error.reworded(message), left }
        })
    }

    async fn load_again(
        &self,
        facts: &ServerFacts,
        replaced: &[&DatabaseTarget<'_>],
        begun: &mut Vec<usize>,
    ) -> Result<()> {
        let mut loading = self.read(facts, false, |index| replaced.iter().any(|place| place.index == index)).await?;
        while let Some(index) = loading.reading.next().await {
            let database = &facts.databases[index];
            self.context.log.line(format!("Replacing {}.", database.name));
            if let Some(place) = replaced.iter().find(|place| place.index == index) {
                self.tell_lost(&database.name, &self.tables_of(&place.first).await?, "will be").await?;
            }
            begun.push(index);
            self.make_anew(&database.name, Some(&database.set_up)).await?;
            self.load_next(database, &database.name, &mut loading).await?;
        }
        loading.reading.finish().await.map(drop)
    }

    /// The table in which this version keeps its accounts; the other one is missing or a view.
    async fn accounts_table(&self) -> Result<String> {
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{ACCOUNTS}' AND table_name = 'global_priv'"
        );
        let name = if self.query(&sql).await? == "0" { "user" } else { "global_priv" };
        Ok(format!("{ACCOUNTS}.{name}"))
    }

    /// Restores users and privileges after all databases, except for the connected account: with another password it
    /// could not continue.
    async fn load_accounts(&self, facts: &ServerFacts) -> Result<()> {
        self.context.log.line("Restoring users and privileges.");
        let loaded = async {
            let table = self.accounts_table().await?;
            let own = format!("{ACCOUNTS}.holdfast_own");
            let keeping = format!(
                "CREATE TEMPORARY TABLE {own} AS SELECT * FROM {table} WHERE CONCAT(user, '@', host) = CURRENT_USER();\n"
            );
            let putting_back = format!("\nREPLACE INTO {table} SELECT * FROM {own};\nDROP TEMPORARY TABLE {own};\n");
            let transform = move |_: &str, dump: &mut dyn io::Read, out: &mut dyn io::Write| {
                out.write_all(keeping.as_bytes())?;
                io::copy(dump, out)?;
                out.write_all(putting_back.as_bytes())
            };
            let dumps = dumps_of(facts, |index| index == facts.databases.len());
            let mut reading = self.engine.read_dumps(self.plan, self.context, VIEWS, dumps, transform).await?;
            while reading.next().await.is_some() {
                self.load_into(ACCOUNTS, &mut reading).await?;
            }
            reading.finish().await?;
            self.query("FLUSH PRIVILEGES").await
        };
        loaded.await.map_err(|error| {
            let message = format!("{} All databases were restored; users and privileges were not.", error.message);
            error.reworded(message)
        })?;
        Ok(())
    }
}
