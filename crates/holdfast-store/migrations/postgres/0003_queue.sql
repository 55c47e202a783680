-- Whose turn it is: see the queue of the core. Long runs on a server are counted by it; no reference, since a run outlives
-- what it was about.
ALTER TABLE runs ADD COLUMN turn BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN load_server_id BIGINT;
DROP INDEX runs_queued;
CREATE INDEX runs_queued ON runs (turn, id) WHERE status = 'queued';
CREATE INDEX runs_queued_short ON runs (turn, id)
    WHERE status = 'queued' AND kind IN ('check-server', 'check-destination', 'test-stream');
CREATE INDEX runs_turns ON runs (user_id, turn);
CREATE INDEX runs_served ON runs (turn) WHERE started_at IS NOT NULL;

-- A run that failed in passing is tried once more, unless another comes first. Workers lost in a row pause a task.
ALTER TABLE backup_tasks ADD COLUMN retry_at BIGINT;
ALTER TABLE backup_tasks ADD COLUMN retry_run_id BIGINT;
ALTER TABLE backup_tasks ADD COLUMN losses BIGINT NOT NULL DEFAULT 0;
CREATE INDEX backup_tasks_retry ON backup_tasks (retry_at) WHERE retry_at IS NOT NULL;

-- What an unfinished run left is cleared away again for a while: its worker may wake up late.
ALTER TABLE uploads ADD COLUMN cleared_at BIGINT;

-- For what is tidied up: what ended long ago, and stored backups, the one that nobody has read for longest first.
CREATE INDEX runs_finished ON runs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX runs_checks ON runs (finished_at) WHERE kind IN ('check-server', 'check-destination', 'test-stream');
CREATE INDEX runs_verifying ON runs (user_id) WHERE kind = 'verify' AND status IN ('queued', 'running');
CREATE INDEX backups_read ON backups (COALESCE(verified_at, created_at)) WHERE deleted_at IS NULL;
CREATE INDEX audit_events_at ON audit_events (at);
