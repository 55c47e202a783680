-- Where a backup came from, so that backups of another source are not counted as older ones of this; and what looked
-- wrong about it beside the ones before. Until now no task's server was recorded: older backups are taken to be of the
-- server that their task has today.
ALTER TABLE backups ADD COLUMN source_server TEXT NOT NULL DEFAULT '';
ALTER TABLE backups ADD COLUMN suspicion TEXT;
UPDATE backups SET source_server = COALESCE(
    (SELECT s.username || '@' || s.host || ':' || CAST(s.port AS TEXT) || COALESCE(
            (SELECT ' via ' || j.username || '@' || j.host || ':' || CAST(j.port AS TEXT)
             FROM remote_servers j WHERE j.id = s.jump_server_id), '')
     FROM backup_tasks t JOIN remote_servers s ON s.id = t.remote_server_id WHERE t.id = backups.task_id), '');

-- While a suspicious backup is the newest, old ones of its task are not removed: since when, why in words and for
-- people, and when they were last told.
ALTER TABLE backup_tasks ADD COLUMN retention_held_at BIGINT;
ALTER TABLE backup_tasks ADD COLUMN held_signs TEXT;
ALTER TABLE backup_tasks ADD COLUMN held_reason TEXT;
ALTER TABLE backup_tasks ADD COLUMN held_told_at BIGINT;
CREATE INDEX backup_tasks_held ON backup_tasks (user_id, id) WHERE retention_held_at IS NOT NULL;

-- A hold that somebody released must not come back from a catalogue.
DROP TRIGGER backup_tasks_wish_update;
CREATE TRIGGER backup_tasks_wish_update AFTER UPDATE OF
        remote_server_id, backup_destination_id, label, description, kind, source_path, database_name,
        database_engine, excluded_tables, excluded_paths, one_file_system, frequency, time_to_run_at, day_of_week,
        day_of_month, custom_cron, max_backups, appended_filename, store_path, streams_count, tags_count,
        encryption_password_sealed, trigger_sealed, heartbeat_sealed, paused_at, retention_held_at
    ON backup_tasks BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
