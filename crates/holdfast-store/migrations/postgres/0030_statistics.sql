-- How the time of a run's last change is distributed: PostgreSQL takes no figures from the indexes that hold it,
-- because they hold only some of the runs, and would read all of them for those of the last hour. Older servers lack
-- this.
DO $$ BEGIN
    IF current_setting('server_version_num')::bigint >= 140000 THEN
        EXECUTE 'CREATE STATISTICS runs_changed ON (COALESCE(finished_at, started_at, created_at)) FROM runs';
    END IF;
END $$;
