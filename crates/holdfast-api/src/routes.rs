//! The route table: every route of the API with its scope. A test checks access to each of them.

use holdfast_app::Resource::{
    Backup, BackupDestination, BackupTask, BackupTaskLog, Notice, NotificationStream, RemoteServer, Run, Tag,
};
use holdfast_core::scope::Scope;

use crate::access::Access;
use crate::openapi::doc::{
    DELETE_TASK, DOWNLOAD, LIST, LIST_AUDIT_EVENTS, LIST_BACKUPS, LIST_ENTRIES, LIST_LOGS, LIST_NOTICES, LIST_RUNS,
    LIST_TASK_LOGS, LIST_TASKS, TRIGGER, UPCOMING,
};
use crate::table::{Route, delete, get, patch, post, put};
use crate::{
    audit, backups, destinations, device, docs, events, logs, notices, repositories, runs, servers, ssh_key, streams,
    tags, tasks, triggers, user,
};

/// Served only if the operator has enabled it.
pub(crate) const DEVICE_TOKEN: &str = "/api/device-auth/token";

pub fn routes() -> Vec<Route> {
    [
        general(),
        notification_streams(),
        backup_tasks(),
        backup_task_logs(),
        stored_backups(),
        backup_destinations(),
        remote_servers(),
        tag_routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// An event names whatever it concerns, with old and new values: whoever may not view all of that must not learn it
/// here. The addresses of clients are no reason for a scope of its own: a token of this user sees where this user works.
const AUDIT: Access = Access::All(&[
    Scope::ViewBackupTasks,
    Scope::ViewRemoteServers,
    Scope::ViewBackupDestinations,
    Scope::ViewNotificationStreams,
    Scope::ManageTags,
]);

fn general() -> Vec<Route> {
    vec![
        get("/api/user", Access::Token, user::show_user).says("Show the current user").shows::<user::UserResource>(),
        get("/api/ssh-key", Scope::CreateRemoteServers, ssh_key::show_ssh_key)
            .says("Show the public SSH key to install on servers")
            .shows::<ssh_key::SshKeyResource>(),
        get("/api/events", Scope::ViewBackupTasks, events::follow_events)
            .says("Follow what happens to your runs and backups as server-sent events; also to your notices, with the scope \
                   view-notification-streams")
            .sends_events::<events::EventResource>(),
        get("/api/audit-events", AUDIT, audit::list_audit_events)
            .says("List the user's own audit events: who did what, and from where")
            .asks(LIST_AUDIT_EVENTS)
            .lists::<audit::AuditEventResource>(),
        post(DEVICE_TOKEN, Access::Public, device::create_device_token)
            .says("Exchange credentials for a token with every scope; off unless ENABLE_DEVICE_AUTH_ENDPOINT is true")
            .takes::<device::DeviceBody>()
            .answers::<device::DeviceToken>(),
        get("/api/openapi.json", Access::Public, docs::show_document)
            .says("This document")
            .answers::<docs::OpenApiDocument>(),
    ]
}

fn notification_streams() -> Vec<Route> {
    const LIST_PATH: &str = "/api/notification-streams";
    const PATH: &str = "/api/notification-streams/{id}";
    use streams::{StreamResource, stream_body};
    vec![
        get(LIST_PATH, Scope::ViewNotificationStreams, streams::list_streams)
            .says("List notification streams")
            .asks(LIST)
            .lists::<StreamResource>(),
        post(LIST_PATH, Scope::CreateNotificationStreams, streams::create_stream)
            .says("Create a notification stream")
            .takes_fields(stream_body())
            .creates::<StreamResource>(),
        get(PATH, Scope::ViewNotificationStreams, streams::show_stream)
            .says("Show a notification stream")
            .of(NotificationStream)
            .shows::<StreamResource>(),
        put(PATH, Scope::UpdateNotificationStreams, streams::update_stream)
            .says("Update a notification stream")
            .of(NotificationStream)
            .takes_some_fields(stream_body())
            .shows::<StreamResource>(),
        patch(PATH, Scope::UpdateNotificationStreams, streams::update_stream)
            .says("Update a notification stream (the same as PUT)")
            .of(NotificationStream)
            .takes_some_fields(stream_body())
            .shows::<StreamResource>(),
        delete(PATH, Scope::DeleteNotificationStreams, streams::delete_stream)
            .says("Delete a notification stream")
            .of(NotificationStream)
            .confirms(200),
        post("/api/notification-streams/{id}/test", Scope::UpdateNotificationStreams, streams::test_stream)
            .says("Send a test message; the result appears as `last_test` on the stream")
            .of(NotificationStream)
            .confirms_queued(),
        get("/api/notices", Scope::ViewNotificationStreams, notices::list_notices)
            .says("List sent and pending notices")
            .asks(LIST_NOTICES)
            .lists::<notices::NoticeResource>(),
        get("/api/notices/{id}", Scope::ViewNotificationStreams, notices::show_notice)
            .says("Show a notice")
            .of(Notice)
            .shows::<notices::NoticeResource>(),
        post("/api/notices/{id}/retry", Scope::UpdateNotificationStreams, notices::retry_notice)
            .says("Retry an undelivered notice")
            .of(Notice)
            .confirms_queued(),
        get("/api/notification-settings", Scope::ViewNotificationStreams, notices::show_notification_settings)
            .says("Show the quiet hours and whether the weekly summary is enabled")
            .shows::<notices::NotificationSettingsResource>(),
        put("/api/notification-settings", Scope::UpdateNotificationStreams, notices::update_notification_settings)
            .says("Update the quiet hours and the weekly summary")
            .takes_part_of::<notices::NotificationSettingsBody>()
            .shows::<notices::NotificationSettingsResource>(),
        patch("/api/notification-settings", Scope::UpdateNotificationStreams, notices::update_notification_settings)
            .says("Update the quiet hours and the weekly summary (the same as PUT)")
            .takes_part_of::<notices::NotificationSettingsBody>()
            .shows::<notices::NotificationSettingsResource>(),
    ]
}

fn backup_tasks() -> Vec<Route> {
    const LIST_PATH: &str = "/api/backup-tasks";
    const PATH: &str = "/api/backup-tasks/{id}";
    const RUN_AND_UPDATE: Access = Access::Both(Scope::RunBackupTasks, Scope::UpdateBackupTasks);
    use tasks::{StatusResource, TaskResource, UpcomingResource, task_body};
    vec![
        get(LIST_PATH, Scope::ViewBackupTasks, tasks::list_tasks)
            .says("List backup tasks")
            .asks(LIST_TASKS)
            .lists::<TaskResource>(),
        get("/api/backup-tasks/upcoming", Scope::ViewBackupTasks, tasks::list_upcoming)
            .says("List upcoming runs, soonest first")
            .asks(UPCOMING)
            .shows_all::<UpcomingResource>(),
        post(LIST_PATH, Scope::CreateBackupTasks, tasks::create_task)
            .says("Create a backup task")
            .takes_fields(task_body())
            .creates::<TaskResource>(),
        get(PATH, Scope::ViewBackupTasks, tasks::show_task)
            .says("Show a backup task")
            .of(BackupTask)
            .shows::<TaskResource>(),
        put(PATH, Scope::UpdateBackupTasks, tasks::update_task)
            .says("Update a backup task")
            .of(BackupTask)
            .takes_some_fields(task_body())
            .shows::<TaskResource>(),
        patch(PATH, Scope::UpdateBackupTasks, tasks::update_task)
            .says("Update a backup task (the same as PUT)")
            .of(BackupTask)
            .takes_some_fields(task_body())
            .shows::<TaskResource>(),
        delete(PATH, Scope::DeleteBackupTasks, tasks::delete_task)
            .says("Delete a backup task and its logs; its stored backups are kept unless `delete_backups` is set")
            .of(BackupTask)
            .asks(DELETE_TASK)
            .confirms(200),
        get("/api/backup-tasks/{id}/status", Scope::ViewBackupTasks, tasks::show_status)
            .says("Show the status of a backup task")
            .of(BackupTask)
            .shows::<StatusResource>(),
        get("/api/backup-tasks/{id}/latest-log", Scope::ViewBackupTasks, tasks::show_latest_log)
            .says("Show the newest log of a backup task")
            .of(BackupTask)
            .shows::<logs::LogResource>(),
        get("/api/backup-tasks/{id}/logs", Scope::ViewBackupTasks, logs::list_task_logs)
            .says("List the logs of a backup task")
            .of(BackupTask)
            .asks(LIST_TASK_LOGS)
            .lists::<logs::LogResource>(),
        post("/api/backup-tasks/{id}/run", Scope::RunBackupTasks, tasks::run_task)
            .says("Run a backup task now")
            .of(BackupTask)
            .confirms_queued(),
        post("/api/backup-tasks/{id}/cancel", Scope::RunBackupTasks, tasks::cancel_task)
            .says("Cancel the current run of a backup task")
            .of(BackupTask)
            .confirms(200),
        post("/api/backup-tasks/{id}/pause", Scope::UpdateBackupTasks, tasks::pause_task)
            .says("Pause a backup task")
            .of(BackupTask)
            .shows::<TaskResource>(),
        post("/api/backup-tasks/{id}/resume", Scope::UpdateBackupTasks, tasks::resume_task)
            .says("Resume a backup task")
            .of(BackupTask)
            .shows::<TaskResource>(),
        post("/api/backup-tasks/{id}/release-retention", Scope::UpdateBackupTasks, tasks::release_retention)
            .says("Resume removing old backups of a backup task after a suspicious backup was reviewed")
            .of(BackupTask)
            .may_take::<tasks::ReleaseRetentionBody>()
            .shows::<TaskResource>(),
        get("/api/backup-tasks/{id}/repository", Scope::ViewBackupTasks, repositories::show_repository)
            .says("Show the repository of a backup task")
            .of(BackupTask)
            .shows::<repositories::RepositoryResource>(),
        post("/api/backup-tasks/{id}/repository/prune", Scope::RunBackupTasks, repositories::prune_repository)
            .says("Remove from the repository of a backup task what no backup needs any more")
            .of(BackupTask)
            .queues::<runs::RunResource>(),
        post("/api/backup-tasks/{id}/repository/check", Scope::RunBackupTasks, repositories::check_repository)
            .says("Check the repository of a backup task, and read all of it")
            .of(BackupTask)
            .queues::<runs::RunResource>(),
        // Anyone with the URL can run the task, so creating one also requires the right to run it.
        post("/api/backup-tasks/{id}/trigger-url", RUN_AND_UPDATE, triggers::rotate_trigger)
            .says("Create a new trigger URL for a backup task; the previous one stops working")
            .of(BackupTask)
            .shows::<triggers::TriggerResource>(),
        post("/webhooks/backup-tasks/{id}/run", Access::Public, triggers::trigger_run)
            .says("Run a backup task from an external system, authenticated by the task's trigger secret")
            .of(BackupTask)
            .asks(TRIGGER)
            .confirms_queued(),
    ]
}

fn backup_task_logs() -> Vec<Route> {
    vec![
        get("/api/backup-task-logs", Scope::ViewBackupTasks, logs::list_logs)
            .says("List backup task logs")
            .asks(LIST_LOGS)
            .lists::<logs::LogResource>(),
        get("/api/backup-task-logs/{id}", Scope::ViewBackupTasks, logs::show_log)
            .says("Show a backup task log")
            .of(BackupTaskLog)
            .shows::<logs::LogResource>(),
        delete("/api/backup-task-logs/{id}", Scope::DeleteBackupTasks, logs::delete_log)
            .says("Delete a backup task log")
            .of(BackupTaskLog)
            .confirms(200),
    ]
}

fn stored_backups() -> Vec<Route> {
    use backups::{BackupResource, EntryResource, RestoreBody};
    use runs::RunResource;
    vec![
        get("/api/backups", Scope::ViewBackupTasks, backups::list_backups)
            .says("List stored backups")
            .asks(LIST_BACKUPS)
            .lists::<BackupResource>(),
        get("/api/backups/{id}", Scope::ViewBackupTasks, backups::show_backup)
            .says("Show a stored backup")
            .of(Backup)
            .shows::<BackupResource>(),
        get("/api/backups/{id}/entries", Scope::ViewBackupTasks, backups::list_entries)
            .says("List the contents of a folder in a backup")
            .of(Backup)
            .asks(LIST_ENTRIES)
            .lists::<EntryResource>(),
        get("/api/backups/{id}/download", Scope::ViewBackupTasks, backups::download_backup)
            .says("Download a backup as it is stored, or one file from it")
            .of(Backup)
            .asks(DOWNLOAD)
            .sends_bytes(),
        post("/api/backups/{id}/verify", Scope::RunBackupTasks, backups::verify_backup)
            .says("Verify a stored backup by reading it back completely")
            .of(Backup)
            .queues::<RunResource>(),
        post("/api/backups/{id}/restores", Scope::RunBackupTasks, backups::restore_backup)
            .says("Restore a backup to a server")
            .of(Backup)
            .takes::<RestoreBody>()
            .queues::<RunResource>(),
        delete("/api/backups/{id}", Scope::DeleteBackupTasks, backups::delete_backup)
            .says("Delete a stored backup")
            .of(Backup)
            .confirms(200),
        get("/api/runs", Scope::ViewBackupTasks, runs::list_runs)
            .says("List restores and verifications")
            .asks(LIST_RUNS)
            .lists::<RunResource>(),
        get("/api/runs/{id}", Scope::ViewBackupTasks, runs::show_run)
            .says("Show a run with its output and progress")
            .of(Run)
            .shows::<RunResource>(),
        post("/api/runs/{id}/cancel", Scope::RunBackupTasks, runs::cancel_run)
            .says("Cancel a run")
            .of(Run)
            .confirms(200),
    ]
}

fn backup_destinations() -> Vec<Route> {
    const LIST_PATH: &str = "/api/backup-destinations";
    const PATH: &str = "/api/backup-destinations/{id}";
    use destinations::{DestinationResource, destination_body};
    use holdfast_core::destination::shown_fields;
    vec![
        get(LIST_PATH, Scope::ViewBackupDestinations, destinations::list_destinations)
            .says("List backup destinations")
            .asks(LIST)
            .lists::<DestinationResource>()
            .with_shown(shown_fields()),
        post(LIST_PATH, Scope::CreateBackupDestinations, destinations::create_destination)
            .says("Create a backup destination")
            .takes_fields(destination_body())
            .creates::<DestinationResource>()
            .with_shown(shown_fields()),
        get(PATH, Scope::ViewBackupDestinations, destinations::show_destination)
            .says("Show a backup destination")
            .of(BackupDestination)
            .shows::<DestinationResource>()
            .with_shown(shown_fields()),
        put(PATH, Scope::UpdateBackupDestinations, destinations::update_destination)
            .says("Update a backup destination")
            .of(BackupDestination)
            .takes_some_fields(destination_body())
            .shows::<DestinationResource>()
            .with_shown(shown_fields()),
        patch(PATH, Scope::UpdateBackupDestinations, destinations::update_destination)
            .says("Update a backup destination (the same as PUT)")
            .of(BackupDestination)
            .takes_some_fields(destination_body())
            .shows::<DestinationResource>()
            .with_shown(shown_fields()),
        delete(PATH, Scope::DeleteBackupDestinations, destinations::delete_destination)
            .says("Delete a backup destination")
            .of(BackupDestination)
            .confirms(200),
        post("/api/backup-destinations/{id}/check", Scope::UpdateBackupDestinations, destinations::check_destination)
            .says("Check a backup destination; the result appears as its `status`")
            .of(BackupDestination)
            .confirms_queued(),
    ]
}

fn remote_servers() -> Vec<Route> {
    const LIST_PATH: &str = "/api/remote-servers";
    const PATH: &str = "/api/remote-servers/{id}";
    use servers::{AcceptHostKeyBody, ServerResource, server_body};
    vec![
        get(LIST_PATH, Scope::ViewRemoteServers, servers::list_servers)
            .says("List remote servers")
            .asks(LIST)
            .lists::<ServerResource>(),
        post(LIST_PATH, Scope::CreateRemoteServers, servers::create_server)
            .says("Create a remote server")
            .takes_fields(server_body())
            .creates::<ServerResource>(),
        get(PATH, Scope::ViewRemoteServers, servers::show_server)
            .says("Show a remote server")
            .of(RemoteServer)
            .shows::<ServerResource>(),
        put(PATH, Scope::UpdateRemoteServers, servers::update_server)
            .says("Update a remote server")
            .of(RemoteServer)
            .takes_some_fields(server_body())
            .shows::<ServerResource>(),
        patch(PATH, Scope::UpdateRemoteServers, servers::update_server)
            .says("Update a remote server (the same as PUT)")
            .of(RemoteServer)
            .takes_some_fields(server_body())
            .shows::<ServerResource>(),
        delete(PATH, Scope::DeleteRemoteServers, servers::delete_server)
            .says("Delete a remote server")
            .of(RemoteServer)
            .confirms(200),
        post("/api/remote-servers/{id}/check", Scope::UpdateRemoteServers, servers::check_server)
            .says("Check the connection to a remote server; the result appears as its `status`")
            .of(RemoteServer)
            .confirms_queued(),
        post("/api/remote-servers/{id}/accept-host-key", Scope::UpdateRemoteServers, servers::accept_host_key)
            .says("Trust the changed host key of a remote server")
            .of(RemoteServer)
            .may_take::<AcceptHostKeyBody>()
            .shows::<ServerResource>(),
    ]
}

fn tag_routes() -> Vec<Route> {
    const PATH: &str = "/api/tags/{id}";
    use tags::{TagResource, tag_body};
    vec![
        get("/api/tags", Scope::ManageTags, tags::list_tags).says("List tags").asks(LIST).lists::<TagResource>(),
        post("/api/tags", Scope::ManageTags, tags::create_tag)
            .says("Create a tag")
            .takes_fields(tag_body())
            .creates::<TagResource>(),
        get(PATH, Scope::ManageTags, tags::show_tag).says("Show a tag").of(Tag).shows::<TagResource>(),
        put(PATH, Scope::ManageTags, tags::update_tag)
            .says("Update a tag")
            .of(Tag)
            .takes_some_fields(tag_body())
            .shows::<TagResource>(),
        patch(PATH, Scope::ManageTags, tags::update_tag)
            .says("Update a tag (the same as PUT)")
            .of(Tag)
            .takes_some_fields(tag_body())
            .shows::<TagResource>(),
        delete(PATH, Scope::ManageTags, tags::delete_tag).says("Delete a tag").of(Tag).confirms(200),
    ]
}
