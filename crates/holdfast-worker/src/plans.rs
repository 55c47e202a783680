//! From rows to plans: everything a run needs, gathered once when it starts.

use std::path::{Path, PathBuf};

use holdfast_app::{App, AppError, Result, ssh_key};
use holdfast_core::Secret;
use holdfast_core::backup::{RestoreDraft, RestoreTarget, server_address};
use holdfast_core::ids::{BackupId, DestinationId, ServerId, TaskId, UserId};
use holdfast_core::probe::Question;
use holdfast_core::source::SourceSpec;
use holdfast_core::task::TaskSettings;
use holdfast_engine::ssh::{Credential, KeySeed, Target};
use holdfast_engine::{
    BackupPlan, DatabasePlan, DestinationPlan, Login, Probe, RepositoryAccess, RestorePlan, Scope, Server, Source,
    StoredBackup, VerifiedBlocks,
};
use holdfast_store::backups::{self, BackupRow};
use holdfast_store::destinations::DestinationRow;
use holdfast_store::repositories::RepositoryRow;
use holdfast_store::servers::{self, ServerRow};
use holdfast_store::{Store, Tx, destinations, repositories, ssh_keys, tasks, users};

/// Makes plans; knows where local destinations are.
#[derive(Debug, Clone)]
pub(crate) struct Planner {
    /// Each local destination is a separate folder below this one.
    pub folder: PathBuf,
}

/// A backup's plan, and what is recorded with the backup.
pub(crate) struct PlannedBackup {
    pub plan: BackupPlan,
    pub settings: TaskSettings,
    pub jump: Option<ServerId>,
    pub has_heartbeat: bool,
    pub owner: UserId,
}

pub(crate) fn gone(what: &str) -> AppError {
    AppError::Internal(format!("the {what} of this run is gone"))
}

impl Planner {
    pub(crate) async fn backup(&self, app: &App, task: TaskId) -> Result<PlannedBackup> {
        let mut tx = app.store.read().await?;
        let row = tasks::find(&mut tx, task).await?.ok_or_else(|| gone("task"))?;
        let settings = row.settings();
        let owner = row.user_id;
        let password = tasks::open_encryption_password(&mut tx, &row).await?;
        let destination = self.destination(&mut tx, settings.destination).await?;
        drop(tx);
        let (server, server_row) = self.server(app, owner, settings.server).await?;
        let source = self.source(app, &settings.spec.source, &server_row).await?;
        // Another source says nothing about the size of this one.
        let last = backups::find_last_size(&mut app.store.read().await?, task, &source.text()).await?;
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let plan = BackupPlan {
            server,
            source,
            destination,
            password,
            label: settings.label.clone(),
            storage: settings.spec.storage.clone(),
            started_at: app.now(),
            last: last.map(|(bytes, files)| (count(bytes), count(files))),
            repository: None,
        };
        let jump = server_row.jump_server_id;
        Ok(PlannedBackup { plan, settings, jump, has_heartbeat: row.has_heartbeat, owner })
    }

    /// The plan, and the jump host on the way if there is one.
    pub(crate) async fn restore(
        &self,
        app: &App,
        backup: &BackupRow,
        draft: &RestoreDraft,
    ) -> Result<(RestorePlan, Option<ServerId>)> {
        let stored = self.stored(&app.store, backup).await?;
        let (server, row) = self.server(app, backup.user_id, draft.server).await?;
        let target = match &draft.target {
            RestoreTarget::Path { path, entries } => {
                holdfast_engine::RestoreTarget::Path { path: path.clone(), entries: entries.clone() }
            }
            RestoreTarget::Database { name } => {
                holdfast_engine::RestoreTarget::Database { name: name.clone(), login: self.login(app, &row).await? }
            }
        };
        let stored = StoredBackup { proven: Some(VerifiedBlocks::default()), opened_at: Some(app.now()), ..stored };
        let plan = RestorePlan { backup: stored, server, overwrite: draft.overwrite, options: draft.options, target };
        Ok((plan, row.jump_server_id))
    }

    /// Where a repository is, and what opens it.
    pub(crate) async fn repository(&self, app: &App, row: &RepositoryRow) -> Result<RepositoryAccess> {
        let mut tx = app.store.read().await?;
        Ok(RepositoryAccess {
            destination: self.destination(&mut tx, row.destination_id).await?,
            folder: row.folder.clone(),
            passwords: repositories::open_passwords(&mut tx, row).await?,
            started_at: app.now(),
        })
    }

    pub(crate) async fn stored_by_id(&self, store: &Store, backup: BackupId) -> Result<StoredBackup> {
        let row = backups::find(&mut store.read().await?, backup).await?;
        self.stored(store, &row.ok_or_else(|| gone("backup"))?).await
    }

    pub(crate) async fn stored(&self, store: &Store, backup: &BackupRow) -> Result<StoredBackup> {
        let mut tx = store.read().await?;
        let mut passwords = match backup.repository_id {
            Some(repository) => {
                let row = repositories::find(&mut tx, repository).await?.ok_or_else(|| gone("repository"))?;
                repositories::open_passwords(&mut tx, &row).await?
            }
            None => backups::open_password(&mut tx, backup).await?.into_iter().collect(),
        }
        .into_iter();
        Ok(StoredBackup {
            destination: self.destination(&mut tx, backup.destination_id).await?,
            locator: backup.locator.clone(),
            format: backup.format,
            content: backup.content,
            size_bytes: stored_number(backup.size_bytes)?,
            sha256: backup.sha256.clone(),
            plain_bytes: stored_number(backup.plain_bytes)?,
            plain_sha256: backup.plain_sha256.clone(),
            entries: stored_number(backup.entries)?,
            is_encrypted: backup.is_encrypted,
            password: passwords.next(),
            other_passwords: passwords.collect(),
            opened_at: None,
            proven: None,
            scope: Scope::default(),
            hold: None,
        })
    }

    pub(crate) async fn server(&self, app: &App, owner: UserId, id: ServerId) -> Result<(Server, ServerRow)> {
        let own = ssh_key::private(app, owner).await?;
        let mut tx = app.store.read().await?;
        let row = servers::find(&mut tx, id).await?.ok_or_else(|| gone("server"))?;
        let key = servers::open_login_key(&mut tx, &row).await?.unwrap_or_else(|| own.clone());
        let jump = match row.jump_server_id {
            Some(jump) => Some(servers::find(&mut tx, jump).await?.ok_or_else(|| gone("jump host"))?),
            None => None,
        };
        let allow_private = users::find(&mut tx, owner).await?.is_some_and(|owner| owner.is_admin);
        let jump = match jump {
            Some(row) => Some(target(&row, &servers::open_login_key(&mut tx, &row).await?.unwrap_or(own))?),
            None => None,
        };
        let server = Server { target: target(&row, &key)?, jump, allow_private };
        Ok((server, row))
    }

    /// What the engine is to find out about a server.
    pub(crate) async fn probe(&self, app: &App, server: &ServerRow, question: Question) -> Result<Probe> {
        Ok(match question {
            Question::Folder(path) => Probe::Folder(path),
            Question::Databases => Probe::Databases(self.login(app, server).await?),
            Question::Size(source) => Probe::Size(self.source(app, &source, server).await?),
        })
    }

    async fn source(&self, app: &App, source: &SourceSpec, server: &ServerRow) -> Result<Source> {
        Ok(match source {
            SourceSpec::Files(files) if files.path.is_empty() => return Err(gone("source path")),
            SourceSpec::Files(files) => Source::Files(files.clone()),
            SourceSpec::Database { engine, source } => Source::Database(DatabasePlan {
                engine: *engine,
                database: source.clone(),
                login: self.login(app, server).await?,
            }),
        })
    }

    async fn login(&self, app: &App, server: &ServerRow) -> Result<Login> {
        let password = servers::open_database_password(&mut app.store.read().await?, server).await?;
        Ok(Login { username: server.database_username.clone(), password })
    }

    pub(crate) async fn destination(&self, tx: &mut Tx, id: DestinationId) -> Result<DestinationPlan> {
        let row = destinations::find(tx, id).await?.ok_or_else(|| gone("destination"))?;
        let (access_key, secret_key) = destinations::open_keys(tx, &row).await?;
        let owner = users::find(tx, row.user_id).await?.ok_or_else(|| gone("owner"))?;
        let owner_key = match (row.spec.uses_owner_key(), destinations::open_login_key(tx, &row).await?) {
            (false, _) => None,
            (true, Some(key)) => Some(key),
            (true, None) => ssh_keys::find_private(tx, row.user_id).await?,
        };
        Ok(DestinationPlan {
            folder: destination_folder(&self.folder, &row),
            spec: row.spec,
            access_key,
            secret_key,
            marker: row.marker,
            owner_key: owner_key.map(KeySeed),
            allow_private: owner.is_admin,
        })
    }
}

/// One folder per user and destination, so that no key of one can refer to a file of another.
pub(crate) fn destination_folder(root: &Path, row: &DestinationRow) -> PathBuf {
    root.join(row.folder_user_id.unwrap_or(row.user_id).to_string()).join(row.id.to_string())
}

/// The address of a run's server, as it is recorded with the backup.
pub(crate) fn address(server: &Server) -> String {
    fn of(target: &Target) -> (&str, &str, u16) {
        (&target.username, &target.host, target.port)
    }
    server_address(of(&server.target), server.jump.as_ref().map(of))
}

fn target(row: &ServerRow, key: &Secret) -> Result<Target> {
    let micros = row.latency_micros.and_then(|micros| u64::try_from(micros).ok());
    Ok(Target {
        round_trip: micros.map(std::time::Duration::from_micros),
        host: row.host.clone(),
        port: stored_number(row.port)?,
        username: row.username.clone(),
        credential: Credential::Key(KeySeed(key.clone())),
        pinned_host_key: row.host_key.clone(),
    })
}

/// A number that cannot be out of range, unless the database is damaged.
fn stored_number<T: TryFrom<i64>>(number: i64) -> Result<T> {
    T::try_from(number).map_err(|_| AppError::Internal(format!("the database has {number} where it cannot be")))
}
