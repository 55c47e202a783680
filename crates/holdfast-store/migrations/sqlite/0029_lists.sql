-- Every list has an index for each of its filters and orders, and one for the time of the last change. Those of runs
-- and backups hold only the rows that the list shows, so that a page never reads past millions of others.
CREATE INDEX runs_long ON runs (user_id, id) WHERE is_long;
CREATE INDEX runs_user_status ON runs (user_id, status, id) WHERE kind = 'backup';
DROP INDEX runs_user_created;
CREATE INDEX runs_user_created ON runs (user_id, created_at, id) WHERE kind = 'backup';
CREATE INDEX runs_user_status_created ON runs (user_id, status, created_at, id) WHERE kind = 'backup';
CREATE INDEX runs_user_changed ON runs (user_id, COALESCE(finished_at, started_at, created_at), id)
    WHERE kind = 'backup';
CREATE INDEX runs_task_logs ON runs (task_id, user_id, id) WHERE kind = 'backup';
CREATE INDEX runs_task_status ON runs (task_id, user_id, status, id) WHERE kind = 'backup';
CREATE INDEX runs_task_created ON runs (task_id, user_id, created_at, id) WHERE kind = 'backup';
CREATE INDEX runs_of_backups_kind ON runs (user_id, kind, id) WHERE backup_id IS NOT NULL;
CREATE INDEX runs_of_backups_status ON runs (user_id, status, id) WHERE backup_id IS NOT NULL;
CREATE INDEX runs_of_backups_both ON runs (user_id, kind, status, id) WHERE backup_id IS NOT NULL;
CREATE INDEX runs_of_backups_created ON runs (user_id, created_at, id) WHERE backup_id IS NOT NULL;
CREATE INDEX runs_of_backups_changed ON runs (user_id, COALESCE(finished_at, started_at, created_at), id)
    WHERE backup_id IS NOT NULL;
CREATE INDEX backups_stored ON backups (user_id, id) WHERE deleted_at IS NULL;
CREATE INDEX backups_stored_created ON backups (user_id, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX backups_stored_status ON backups (user_id, verification, id) WHERE deleted_at IS NULL;
CREATE INDEX backups_stored_task ON backups (task_id, user_id, id) WHERE deleted_at IS NULL;
DROP INDEX backups_proven;
CREATE INDEX backups_proven ON backups (user_id, verification, verified_at)
    WHERE verification = 'verified' AND deleted_at IS NULL;
CREATE INDEX backups_user_status ON backups (user_id, verification, id);
CREATE INDEX backups_user_changed ON backups (user_id, COALESCE(deleted_at, verified_at, created_at), id);
CREATE INDEX notices_user_status ON notices (user_id, status, id);
CREATE INDEX notices_user_created ON notices (user_id, created_at, id);
CREATE INDEX notices_user_changed ON notices (user_id, COALESCE(ended_at, created_at), id);
DROP INDEX notices_stream;
CREATE INDEX notices_stream ON notices (stream_id, user_id, id) WHERE stream_id IS NOT NULL;
CREATE INDEX notices_stream_status ON notices (stream_id, user_id, status, id) WHERE stream_id IS NOT NULL;
CREATE INDEX audit_events_user_at ON audit_events (user_id, at, id);
-- Last, because SQLite takes the newest of those that are equally good.
DROP INDEX backups_damaged;
CREATE INDEX backups_damaged ON backups (user_id, id)
    WHERE verification IN ('corrupt', 'missing') AND deleted_at IS NULL;
DROP INDEX runs_live;
CREATE INDEX runs_live ON runs (user_id, id) WHERE status IN ('queued', 'running');

-- Upkeep asks for each user's backup that was not read for longest. Those of checks and inventories begin with a column
-- that has one value in them: without figures about their contents, SQLite chooses an index by the number of its
-- columns that are compared, and the others hold millions of rows.
DROP INDEX runs_checks;
CREATE INDEX runs_checks ON runs (is_long, finished_at) WHERE is_long = FALSE;
CREATE INDEX runs_inventories ON runs (kind, finished_at) WHERE kind = 'inventory';
DROP INDEX backups_read;
CREATE INDEX backups_read ON backups (user_id, COALESCE(verified_at, created_at), id) WHERE deleted_at IS NULL;
-- The kept totals are used instead.
DROP INDEX backup_copies_stored;
