-- What a task does becomes one value, which the program reads and writes as a whole: a new field needs no column. Columns
-- stay where the database chooses by them: the kind, and how often it runs, where a cron expression is a frequency of its
-- own.
ALTER TABLE backup_tasks ADD COLUMN spec TEXT NOT NULL DEFAULT '';
UPDATE backup_tasks SET spec = json_patch('{}', json_object(
    'type', kind,
    'source_path', CASE kind WHEN 'files' THEN COALESCE(source_path, '') ELSE source_path END,
    'excluded_paths', CASE kind WHEN 'files' THEN json((
        WITH RECURSIVE split (line, rest) AS (
            SELECT '', backup_tasks.excluded_paths || char(10)
            UNION ALL
            SELECT substr(rest, 1, instr(rest, char(10)) - 1), substr(rest, instr(rest, char(10)) + 1)
            FROM split WHERE rest <> '')
        SELECT json_group_array(line) FROM split WHERE line <> '')) END,
    'one_file_system', CASE kind WHEN 'files' THEN json(CASE WHEN one_file_system THEN 'true' ELSE 'false' END) END,
    'database_engine', CASE kind WHEN 'database' THEN database_engine END,
    'database_name', CASE kind WHEN 'database' THEN database_name END,
    'excluded_tables', CASE kind WHEN 'database' THEN excluded_tables END,
    'frequency', frequency,
    'time_to_run_at', time_to_run_at,
    'day_of_week', day_of_week,
    'day_of_month', day_of_month,
    'custom_cron', custom_cron,
    'maximum_backups_to_keep', max_backups,
    'store_path', store_path,
    'appended_filename', appended_filename,
    'format', 'archive'));
UPDATE backup_tasks SET frequency = 'custom' WHERE custom_cron IS NOT NULL;

DROP TRIGGER backup_tasks_wish_update;
CREATE TRIGGER backup_tasks_wish_update AFTER UPDATE OF
        remote_server_id, backup_destination_id, label, description, kind, frequency, spec, streams_count, tags_count,
        encryption_password_sealed, trigger_sealed, heartbeat_sealed, paused_at, retention_held_at
    ON backup_tasks BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;

ALTER TABLE backup_tasks DROP COLUMN source_path;
ALTER TABLE backup_tasks DROP COLUMN database_name;
ALTER TABLE backup_tasks DROP COLUMN database_engine;
ALTER TABLE backup_tasks DROP COLUMN excluded_tables;
ALTER TABLE backup_tasks DROP COLUMN excluded_paths;
ALTER TABLE backup_tasks DROP COLUMN one_file_system;
ALTER TABLE backup_tasks DROP COLUMN time_to_run_at;
ALTER TABLE backup_tasks DROP COLUMN day_of_week;
ALTER TABLE backup_tasks DROP COLUMN day_of_month;
ALTER TABLE backup_tasks DROP COLUMN custom_cron;
ALTER TABLE backup_tasks DROP COLUMN max_backups;
ALTER TABLE backup_tasks DROP COLUMN appended_filename;
ALTER TABLE backup_tasks DROP COLUMN store_path;
