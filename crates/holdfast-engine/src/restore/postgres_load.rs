//! Loading a dump into a database with `pg_restore`.

use holdfast_core::failure::FailureCode;

use super::postgres_fresh::Fresh;
use super::postgres_session::PostgresSession;
use crate::error::{EngineError, Result};
use crate::postgres::globals::Name;
use crate::remote::{Script, ended};
use crate::source::postgres::{self, pg_name, postgres};
use crate::source::tool::explain;
use crate::ssh::Exit;

/// The dump is read by `pg_restore`, which unlike `psql` has no commands of its own that a dump could contain.
/// Tablespaces are folders on a server, which another server need not have.
const RESTORE: &str = "command -v pg_restore >/dev/null 2>&1 || exit 98\n\
    d=$1; shift\n[ -z \"$1\" ] || { PGOPTIONS=\"${PGOPTIONS-} $1\"; export PGOPTIONS; }\nshift\nexec pg_restore --no-password --no-tablespaces --dbname=\"$d\" \"$@\"";

/// Makes `pg_restore` stop at the first statement that fails.
pub(super) const STRICTLY: &str = "--exit-on-error";

impl PostgresSession<'_> {
    pub(super) async fn restore_script(
        &self,
        database: &Name,
        has_event_triggers: bool,
        more: &[&str],
    ) -> Result<Script> {
        let (name, options) = (pg_name(database.as_str()), self.options(database.as_str(), has_event_triggers).await?);
        let mut words = vec![name.as_str(), options.as_str()];
        words.extend(more);
        if self.plan.options.no_owner {
            words.extend(["--no-owner", "--no-privileges"]);
        }
        Ok(postgres(RESTORE, &words))
    }

    /// Options that turn off what would end `pg_restore` or keep it from writing in sessions of this role and this
    /// database, as far as it does not do so itself; mostly none. Connection poolers accept no options.
    async fn options(&self, database: &str, has_event_triggers: bool) -> Result<String> {
        const LIMITS_TO_TURN_OFF: &str = "SELECT coalesce(pg_catalog.string_agg('-c ' || name || '=0', ' '), '') FROM \
            pg_catalog.pg_settings WHERE name IN ('default_transaction_read_only', 'idle_session_timeout', \
            'transaction_timeout') AND reset_val NOT IN ('0', 'off')";
        // Materialized views are filled after event triggers were created, and a trigger that refuses this would end
        // the restore. Only users who may create event triggers may turn them off; from version 17 on, there is a
        // setting just for them.
        const EVENT_TRIGGERS: &str = "SELECT CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_settings WHERE name = \
            'event_triggers') THEN '-c event_triggers=off' ELSE '-c session_replication_role=replica' END FROM \
            pg_catalog.pg_roles WHERE rolname = session_user AND rolsuper";
        let mut options = self.query(database, LIMITS_TO_TURN_OFF).await?;
        if has_event_triggers {
            options = format!("{options} {}", self.query(database, EVENT_TRIGGERS).await?);
        }
        Ok(options.trim().to_owned())
    }

    /// Logs that a dump is restored once more, and creates a fresh database for it.
    pub(super) async fn begin_again(&self, made: &Fresh, lines: &[String]) -> Result<()> {
        const SHOWN: usize = 40;
        let log = &self.context.log;
        log.line(format!(
            "Not everything in {} could be restored at once. It is restored again, with indexes and the contents of \
             materialized views, which are derived from its rows, in a separate step. Output of the server:",
            made.target
        ));
        lines.iter().take(SHOWN).for_each(|line| log.line(line));
        self.make_again(made).await
    }

    pub(super) fn judge(&self, exit: &Exit, lines: &[String]) -> Result<()> {
        if exit.success() {
            lines.iter().for_each(|line| self.context.log.warn(line));
            return Ok(());
        }
        let missing = lines.iter().find(|line| line.contains("role \"") && line.contains("does not exist"));
        match missing {
            Some(line) => {
                lines.iter().for_each(|line| self.context.log.line(line));
                Err(EngineError::new(FailureCode::RolesMissing, format!("pg_restore {}: {line}", ended(exit))))
            }
            None => Err(explain(postgres::tool("pg_restore"), exit, lines, self.context)),
        }
    }
}
