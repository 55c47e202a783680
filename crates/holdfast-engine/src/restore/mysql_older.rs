//! Dumps in which the tool wrote routines, triggers, views and events itself: those of MySQL, of older MariaDB servers
//! and of earlier releases. They are loaded twice, since a database cannot be renamed.

use super::mysql_session::{LACKS_RIGHTS, MysqlSession, name_beside};
use crate::archive::MysqlFacts;
use crate::error::Result;
use crate::mysql::rewriting::Definers;
use crate::plan::RestoreReport;
use crate::source::mysql::mysql_text;

impl MysqlSession<'_> {
    /// Loads the dump into a copy beside the database first. Only if that succeeds is the old database dropped, created
    /// again and loaded; then the copy is dropped.
    pub(super) async fn replace(&self, name: &str, facts: Option<&MysqlFacts>) -> Result<RestoreReport> {
        let beside = name_beside(name);
        self.create(&beside, facts).await?;
        self.context.log.line(format!("Loading the dump into {beside} before {name} is touched."));
        if let Err(error) = self.load_beside(name, &beside, facts).await {
            self.drop_own(&beside).await;
            let message = format!("{} The database {name} was not changed.", error.message);
            return Err(error.reworded(message));
        }
        let ready = async {
            self.tell_lost(name, &self.tables_of(&beside).await?, "will be").await?;
            self.wait_for_locks(std::iter::once(name)).await?;
            self.context.begin_writing().await
        };
        if let Err(error) = ready.await {
            self.drop_own(&beside).await;
            let message = format!("{} The database {name} was not changed.", error.message);
            return Err(error.reworded(message));
        }
        let replaced = async {
            self.make_anew(name, facts).await?;
            self.load(Some(name)).await
        };
        match replaced.await {
            Ok(report) => {
                self.drop_own(&beside).await;
                Ok(report)
            }
            Err(error) => {
                let message = format!("{} The restored database is in {beside}, without its events.", error.message);
                Err(error.reworded(message))
            }
        }
    }

    /// Loads the dump into a copy of a database. A view that reads from another one can only be created where its
    /// definer may read, and rights are bound to the name of a database: a user with rights to the database may have
    /// none to the copy. In that case the copy gets no views, provided that their definers are known to have rights in
    /// the database itself.
    async fn load_beside(&self, name: &str, beside: &str, facts: Option<&MysqlFacts>) -> Result<()> {
        let refused = match self.feed_into(Some(beside), true, None).await {
            Err(error) if error.has_number(&LACKS_RIGHTS) && !self.plan.options.no_owner => error,
            loaded => return loaded.map(drop),
        };
        self.context.log.line("A view runs as a user without rights to the copy. Loading it again without views.");
        let definers = Definers::default();
        self.make_anew(beside, facts).await?;
        self.feed_into(Some(beside), true, Some(definers.clone())).await?;
        let functions = format!(
            "SELECT COUNT(*) FROM information_schema.routines WHERE routine_type = 'FUNCTION' AND routine_schema = {}",
            mysql_text(beside)
        );
        let calls_function = self.query(&functions).await? != "0";
        for definer in definers.all() {
            self.try_views(name, &definer, calls_function).await.map_err(|error| {
                let is_theirs = error.number.is_some();
                if is_theirs { refused.clone() } else { error }
            })?;
        }
        Ok(())
    }
}
