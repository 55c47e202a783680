//! The repository of a task: found, begun or adopted before a backup, and recorded after it.

use holdfast_core::Secret;
use holdfast_core::backup::repository_folder;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{RepositoryId, TaskId, UserId};
use holdfast_engine::{EngineError, RepositoryPlan};
use holdfast_store::repositories::{self, NewRepository, RepositoryRow};
use holdfast_store::{StoreError, Tx};

use crate::plans::{PlannedBackup, address};
use crate::runs::job::{of_app, of_store};
use crate::services::Services;

/// Adds to the plan of a backup where its repository is, and what opens it. It is on record before it exists, so that a
/// run that is lost leaves none that nobody knows.
pub(super) async fn prepare(
    services: &Services,
    task: TaskId,
    planned: &mut PlannedBackup,
) -> Result<Option<RepositoryId>, EngineError> {
    if !planned.plan.storage.format.is_shared() {
        return Ok(None);
    }
    let no_password = || {
        let message = "A repository needs an encryption password, and this task has none. Set one.";
        EngineError::new(FailureCode::WrongPassword, message)
    };
    let password = planned.plan.password.clone().ok_or_else(no_password)?;
    let row = match find(services, task, planned).await? {
        Some(row) => row,
        None => begin(services, task, planned, &password).await?,
    };
    let mut tx = services.app.store.begin().await.map_err(of_store)?;
    let mut passwords = repositories::open_passwords(&mut tx, &row).await.map_err(of_store)?;
    let is_same = |known: &Secret| known.reveal() == password.reveal();
    if !passwords.first().is_some_and(is_same) {
        // The new one is on record before it is set, and the old ones stay until a backup has been made with it.
        passwords.retain(|known| !is_same(known));
        passwords.insert(0, password.clone());
        repositories::write_passwords(&mut tx, row.id, row.user_id, &passwords).await.map_err(of_store)?;
    }
    let (source, server) = (planned.plan.source.text(), address(&planned.plan.server));
    let parent = repositories::find_parent(&mut tx, row.id, &source, &server).await.map_err(of_store)?;
    tx.commit().await.map_err(of_store)?;
    passwords.remove(0);
    planned.plan.repository = Some(RepositoryPlan { folder: row.folder, earlier_passwords: passwords, parent });
    Ok(Some(row.id))
}

async fn find(
    services: &Services,
    task: TaskId,
    planned: &PlannedBackup,
) -> Result<Option<RepositoryRow>, EngineError> {
    let (destination, path) = (planned.settings.destination, &planned.settings.spec.storage.path);
    let mut tx = services.app.store.read().await.map_err(of_store)?;
    repositories::find_of_task(&mut tx, task, destination, path).await.map_err(of_store)
}

/// Records the repository of a task that has none: a new one, or one that is where the task is to store its backups.
async fn begin(
    services: &Services,
    task: TaskId,
    planned: &PlannedBackup,
    password: &Secret,
) -> Result<RepositoryRow, EngineError> {
    let (settings, now) = (&planned.settings, services.app.now());
    let path = &settings.spec.storage.path;
    let own = repository_folder(path, &settings.label, task);
    let folder = services.engine.find_repository_folder(&planned.plan.destination, path, &own).await?;
    let new = NewRepository {
        task,
        destination: settings.destination,
        store_path: path.clone(),
        folder: folder.clone(),
        password: password.clone(),
    };
    let mut tx = services.app.store.begin().await.map_err(of_store)?;
    let mut inserted = repositories::insert(&mut tx, planned.owner, &new, now).await.map_err(of_store)?;
    if inserted.is_none() {
        drop(tx);
        // A task takes over the repository of a deleted one only with its password, as it would adopt any other.
        let is_known = services.engine.opens_repository(&planned.plan.destination, &folder, password).await?;
        tx = services.app.store.begin().await.map_err(of_store)?;
        if is_known {
            inserted = repositories::take_over(&mut tx, planned.owner, &new).await.map_err(of_store)?;
        }
    }
    let taken = || {
        let message = format!(
            "The repository in \"{folder}\" belongs to another task, or to a deleted one with another password. Set another \
             folder at the destination for this one."
        );
        EngineError::new(FailureCode::DestinationDenied, message)
    };
    let id = inserted.ok_or_else(taken)?;
    let row = repositories::find(&mut tx, id).await.map_err(of_store)?;
    tx.commit().await.map_err(of_store)?;
    row.ok_or_else(|| of_app(crate::plans::gone("repository")))
}

/// Records what a backup tells about its repository: how large it is, and that it has the new password alone.
pub(super) async fn record(
    tx: &mut Tx,
    id: RepositoryId,
    owner: UserId,
    password: Option<&Secret>,
    stored_bytes: Option<u64>,
) -> Result<(), StoreError> {
    if let Some(bytes) = stored_bytes {
        repositories::update_stored(tx, id, i64::try_from(bytes).unwrap_or(i64::MAX)).await?;
    }
    let Some(row) = repositories::find(tx, id).await? else { return Ok(()) };
    let known = repositories::open_passwords(tx, &row).await?;
    match password {
        Some(password) if known.len() > 1 => {
            repositories::write_passwords(tx, id, owner, std::slice::from_ref(password)).await
        }
        Some(_) | None => Ok(()),
    }
}
