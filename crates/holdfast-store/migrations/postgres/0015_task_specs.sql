-- What a task does becomes one value, which the program reads and writes as a whole: a new field needs no column. Columns
-- stay where the database chooses by them: the kind, and how often it runs, where a cron expression is a frequency of its
-- own.
ALTER TABLE backup_tasks ADD COLUMN spec TEXT NOT NULL DEFAULT '';
UPDATE backup_tasks SET spec = CAST(json_strip_nulls(json_build_object(
    'type', kind,
    'source_path', CASE kind WHEN 'files' THEN COALESCE(source_path, '') ELSE source_path END,
    'excluded_paths',
        CASE kind WHEN 'files' THEN to_json(array_remove(string_to_array(excluded_paths, chr(10)), '')) END,
    'one_file_system', CASE kind WHEN 'files' THEN one_file_system END,
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
    'format', 'archive')) AS TEXT);
UPDATE backup_tasks SET frequency = 'custom' WHERE custom_cron IS NOT NULL;

DROP TRIGGER backup_tasks_wish ON backup_tasks;
CREATE TRIGGER backup_tasks_wish AFTER INSERT OR DELETE OR UPDATE OF
        remote_server_id, backup_destination_id, label, description, kind, frequency, spec, streams_count, tags_count,
        encryption_password_sealed, trigger_sealed, heartbeat_sealed, paused_at, retention_held_at
    ON backup_tasks FOR EACH ROW EXECUTE FUNCTION wish_catalogue();

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
