-- Whether a task stays on the file system of its source.
ALTER TABLE backup_tasks ADD COLUMN one_file_system BOOLEAN NOT NULL DEFAULT FALSE;

-- What a restore may be asked besides where to.
ALTER TABLE restores ADD COLUMN no_owner BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE restores ADD COLUMN numeric_owner BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE restores ADD COLUMN restore_devices BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE restores ADD COLUMN dry_run BOOLEAN NOT NULL DEFAULT FALSE;

-- Catalogues hear of the new column too.
DROP TRIGGER backup_tasks_wish_update;
CREATE TRIGGER backup_tasks_wish_update AFTER UPDATE OF
        remote_server_id, backup_destination_id, label, description, kind, source_path, database_name,
        database_engine, excluded_tables, excluded_paths, one_file_system, frequency, time_to_run_at, day_of_week,
        day_of_month, custom_cron, max_backups, appended_filename, store_path, streams_count, tags_count,
        encryption_password_sealed, trigger_sealed, heartbeat_sealed, paused_at
    ON backup_tasks BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
