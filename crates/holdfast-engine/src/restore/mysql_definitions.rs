//! Restores routines, triggers, views and events that a backup holds as data.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;
use holdfast_core::random;

use super::mysql_session::MysqlSession;
use super::mysql_warnings::left_events;
use crate::error::{EngineError, Result};
use crate::mysql::definitions::{Definition, DefinitionKind, takes_prepared};
use crate::mysql::rewriting::{Found, Tables};
use crate::mysql::{View, is_copy};
use crate::source::mysql::mysql_text;

/// A database that gets definitions.
pub(super) struct DefinitionPlace<'a> {
    pub name: &'a str,
    /// The name of the database that was backed up, if it was another.
    pub old_name: Option<&'a str>,
    /// Whether it is a temporary copy beside the real one.
    pub is_copy: bool,
}

/// What the dumps of an archive hold, by name of the database. A thread that reads ahead fills it.
#[derive(Clone, Default)]
pub(super) struct FoundByName(Arc<Mutex<BTreeMap<String, (Found, Tables)>>>);

impl FoundByName {
    pub(super) fn of(&self, name: &str) -> (Found, Tables) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name.to_owned()).or_default().clone()
    }
}

/// What a database gets, in this order.
#[derive(Default)]
pub(super) struct Definitions {
    /// Including triggers: none of these runs by itself.
    pub routines: Vec<Definition>,
    pub views: Vec<View>,
    pub events: Vec<Definition>,
}

impl MysqlSession<'_> {
    /// Adapts the definitions of a backup to a database and sorts them by kind.
    pub(super) fn fitted(&self, found: &[Definition], place: &DefinitionPlace<'_>) -> Result<Definitions> {
        let mut fitted = Definitions::default();
        for definition in found.iter().cloned() {
            let shown = shown(&definition);
            let moved = match place.old_name {
                Some(old) => definition.moved(old, place.name),
                None => Some(definition),
            };
            let Some(definition) = moved else {
                if place.is_copy {
                    self.context.log.line(format!(
                        "The {shown} is not tested in the copy, because its definition could not be parsed."
                    ));
                    continue;
                }
                let message = format!(
                    "The {shown} may name the database that it was made in, in a way that is unclear. Restore the database \
                     under the name that it had."
                );
                return Err(EngineError::new(FailureCode::HostileArchive, message));
            };
            let is_without = self.plan.options.no_owner && definition.kind != DefinitionKind::View;
            let definition = if is_without { definition.without_definer() } else { definition };
            match definition.kind {
                DefinitionKind::View => fitted.views.push(definition.view(place.name.to_owned())),
                DefinitionKind::Event => fitted.events.push(definition),
                DefinitionKind::Sequence
                | DefinitionKind::Table
                | DefinitionKind::SequenceValue
                | DefinitionKind::Function
                | DefinitionKind::Procedure
                | DefinitionKind::Package
                | DefinitionKind::PackageBody
                | DefinitionKind::Trigger => fitted.routines.push(definition),
            }
        }
        Ok(fitted)
    }

    /// Creates routines, triggers or events in a database. Ends with the first that fails, except for triggers that
    /// refer to missing columns and defaults that use missing sequences: those did not work before either.
    pub(super) async fn make(&self, name: &str, definitions: &[Definition]) -> Result<()> {
        let is_broken = |one: &Definition, error: &EngineError| {
            (one.kind == DefinitionKind::Trigger && error.has_number(&[1054]))
                || (one.kind == DefinitionKind::Table && error.has_number(&[1146, 4091]))
        };
        let mut rest = definitions;
        loop {
            let Err((failed, error)) = self.make_all(name, rest).await else { return Ok(()) };
            let broken = failed.and_then(|index| rest.get(index).map(|broken| (index, broken)));
            match broken {
                Some((index, broken)) if is_broken(broken, &error) => {
                    if !is_copy(name) {
                        let name = name_text(name.as_bytes());
                        let what = if broken.kind == DefinitionKind::Table { "A default or key" } else { "It" };
                        self.context.log.warn(format!("{name}: {} {what} was left out.", error.message));
                    }
                    rest = &rest[index + 1..];
                }
                _ => return Err(error),
            }
        }
    }

    async fn make_all(
        &self,
        name: &str,
        definitions: &[Definition],
    ) -> std::result::Result<(), (Option<usize>, EngineError)> {
        if definitions.is_empty() {
            return Ok(());
        }
        let plain = |error: EngineError| (None, error);
        let version = self.query("SELECT VERSION()").await.map_err(plain)?;
        let is_prepared = takes_prepared(&version);
        let sql: Vec<u8> = if is_prepared {
            definitions.iter().flat_map(|definition| definition.line().into_bytes()).collect()
        } else {
            let delimiter = format!("~{}", random::hex(&random::bytes::<7>()));
            let delimited = |one: &Definition| {
                let fitting = one.clone().for_version(&version);
                fitting
                    .delimited(&delimiter)
                    .map_err(|error| error.reworded(format!("The {}: {}", shown(one), error.message)))
            };
            definitions.iter().map(delimited).collect::<Result<Vec<_>>>().map_err(plain)?.concat()
        };
        let answer = self.run(Some(name), &sql, false).await.map_err(plain)?;
        self.judge(&answer.exit, &answer.stderr).map_err(|error| {
            // Each definition is one line, and the client reports the line number.
            let line =
                answer.stderr.iter().find_map(|line| line.split_once(" at line ")?.1.split(':').next()?.parse().ok());
            let index = line.and_then(|line: usize| line.checked_sub(1)).filter(|_| is_prepared);
            let Some(failed) = index.and_then(|index| definitions.get(index)) else { return (None, error) };
            let verb = if failed.kind == DefinitionKind::Table { "altered" } else { "made" };
            let message = format!("The {} could not be {verb}. {}", shown(failed), error.message);
            (index, error.reworded(message))
        })
    }

    /// Creates events, which start to run at once. Without owners they would run with the rights of the user of the
    /// restore.
    pub(super) async fn make_events(&self, name: &str, events: &[Definition]) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        if self.plan.options.no_owner {
            self.context.log.warn(left_events(events.len()));
            return Ok(());
        }
        self.make(name, events).await?;
        let sql =
            format!("SELECT HEX(event_name) FROM information_schema.events WHERE event_schema = {}", mysql_text(name));
        let there = self.names(&sql).await?;
        let passed: Vec<String> = events
            .iter()
            .filter(|event| !there.contains(&event.name))
            .map(|event| name_text(event.name.as_bytes()))
            .collect();
        if !passed.is_empty() {
            self.context.log.warn(format!(
                "The time of these events has passed, so the server did not make them: {}.",
                passed.join(", ")
            ));
        }
        Ok(())
    }

    /// Creates everything except views in a copy, which shows that it can be created. Events are disabled there;
    /// creating views might run functions, and their owners have no rights there.
    pub(super) async fn make_in_copy(&self, copy: &str, found: &[Definition], old_name: &str) -> Result<()> {
        let place = DefinitionPlace { name: copy, old_name: Some(old_name), is_copy: true };
        let fitted = self.fitted(found, &place)?;
        self.make(copy, &fitted.routines).await?;
        let events: Vec<Definition> = fitted.events.into_iter().map(Definition::disabled).collect();
        if self.plan.options.no_owner { Ok(()) } else { self.make(copy, &events).await }
    }
}

/// Kind and name of a definition, for messages.
fn shown(definition: &Definition) -> String {
    format!("{} {}", definition.kind.words().to_ascii_lowercase(), name_text(definition.name.as_bytes()))
}
