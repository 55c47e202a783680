-- When a restore began to change something on its server, and the folder below which it did, without links in its path. What
-- failed or was cancelled before this was recorded may have changed something, unless it was refused before.
ALTER TABLE restores ADD COLUMN writes_at BIGINT;
ALTER TABLE restores ADD COLUMN folder TEXT;
UPDATE restores SET writes_at = (SELECT r.started_at FROM runs r WHERE r.id = restores.run_id
    AND COALESCE(r.error_code, '') NOT IN ('connect', 'dns', 'host_key_changed', 'auth', 'engine_unclear',
        'target_not_empty', 'roles_missing', 'wrong_password', 'entry_missing'))
WHERE NOT dry_run;
