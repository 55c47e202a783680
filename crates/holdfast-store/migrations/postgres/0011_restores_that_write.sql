-- When a restore began to change something on its server, and the folder below which it did, without links in its path. What
-- failed or was cancelled before this was recorded may have changed something.
ALTER TABLE restores ADD COLUMN writes_at BIGINT;
ALTER TABLE restores ADD COLUMN folder TEXT;
UPDATE restores SET writes_at = (SELECT r.started_at FROM runs r WHERE r.id = restores.run_id) WHERE NOT dry_run;
