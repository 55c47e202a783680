-- Where a browser's session is, and what a one-time link is for.
ALTER TABLE sessions ADD COLUMN device TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN address TEXT;
ALTER TABLE sessions ADD COLUMN seen_at BIGINT NOT NULL DEFAULT 0;
UPDATE sessions SET seen_at = created_at;
ALTER TABLE sign_in_links ADD COLUMN purpose TEXT NOT NULL DEFAULT 'set-up';

-- Each stands in for a one-time code, once. Only digests are kept.
CREATE TABLE recovery_codes (
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    digest BLOB NOT NULL,
    PRIMARY KEY (user_id, digest)
);

-- Accounts elsewhere that a user signs in with.
CREATE TABLE identities (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    provider TEXT NOT NULL,
    subject TEXT NOT NULL,
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (provider, subject),
    UNIQUE (user_id, provider)
);

-- What administrators decide for the whole installation, and what workers remember between them.
CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- Processes that work, as they last said themselves.
CREATE TABLE workers (
    name TEXT PRIMARY KEY,
    version TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL
);

-- What somebody wants to know of a server, and what a worker found.
CREATE TABLE probes (
    run_id BIGINT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    question TEXT NOT NULL,
    answer TEXT
);

-- How a task stands, written with the end of its runs.
ALTER TABLE backup_tasks ADD COLUMN last_run_id BIGINT;
ALTER TABLE backup_tasks ADD COLUMN last_status TEXT;
ALTER TABLE backup_tasks ADD COLUMN last_error_code TEXT;
ALTER TABLE backup_tasks ADD COLUMN last_warnings BIGINT NOT NULL DEFAULT 0;
ALTER TABLE backup_tasks ADD COLUMN last_success_at BIGINT;
ALTER TABLE backup_tasks ADD COLUMN overdue_since BIGINT;
ALTER TABLE backup_tasks ADD COLUMN proven_at BIGINT;
UPDATE backup_tasks SET
    last_run_id = (SELECT MAX(r.id) FROM runs r WHERE r.task_id = backup_tasks.id AND r.started_at IS NOT NULL
        AND r.finished_at IS NOT NULL AND r.status <> 'cancelled'),
    last_success_at = (SELECT MAX(r.finished_at) FROM runs r WHERE r.task_id = backup_tasks.id
        AND r.status = 'successful'),
    proven_at = (SELECT MAX(b.verified_at) FROM backups b WHERE b.task_id = backup_tasks.id
        AND b.verification = 'verified' AND b.deleted_at IS NULL),
    overdue_since = (SELECT MIN(n.created_at) FROM notices n WHERE n.task_id = backup_tasks.id AND n.kind = 'overdue'
        AND n.created_at > COALESCE((SELECT MAX(r.finished_at) FROM runs r WHERE r.task_id = backup_tasks.id
            AND r.status = 'successful'), 0));
UPDATE backup_tasks SET
    last_status = (SELECT r.status FROM runs r WHERE r.id = backup_tasks.last_run_id),
    last_error_code = (SELECT r.error_code FROM runs r WHERE r.id = backup_tasks.last_run_id),
    last_warnings = COALESCE((SELECT r.warnings FROM runs r WHERE r.id = backup_tasks.last_run_id), 0);
CREATE INDEX backup_tasks_standing
    ON backup_tasks (user_id, last_status, overdue_since, paused_at, last_warnings, proven_at);
CREATE INDEX backup_tasks_wanting ON backup_tasks (user_id, id)
    WHERE paused_at IS NULL AND (last_status = 'failed' OR overdue_since IS NOT NULL);

-- One day of a user's, in the zone that they had then; counted every minute while something happens.
CREATE TABLE user_days (
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    day TEXT NOT NULL,
    successful BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    cancelled BIGINT NOT NULL,
    busy_micros BIGINT NOT NULL,
    stored_bytes BIGINT,
    PRIMARY KEY (user_id, day)
);
INSERT INTO user_days (user_id, day, successful, failed, cancelled, busy_micros)
    SELECT user_id, strftime('%Y-%m-%d', finished_at / 1000000, 'unixepoch'), SUM(CASE WHEN status = 'successful' THEN 1 ELSE 0 END),
        SUM(CASE WHEN status = 'failed' THEN 1 ELSE 0 END), SUM(CASE WHEN status = 'cancelled' THEN 1 ELSE 0 END),
        SUM(CASE WHEN status = 'successful' THEN finished_at - COALESCE(started_at, finished_at) ELSE 0 END)
    FROM runs WHERE kind = 'backup' AND finished_at IS NOT NULL GROUP BY 1, 2;

DROP INDEX runs_user_finished;
CREATE INDEX runs_user_finished ON runs (user_id, finished_at, status, started_at)
    WHERE kind = 'backup' AND finished_at IS NOT NULL;
DROP INDEX runs_task_finished;
CREATE INDEX runs_task_finished ON runs (task_id, finished_at, status) WHERE finished_at IS NOT NULL;
CREATE INDEX runs_live ON runs (user_id, id) WHERE status IN ('queued', 'running');
DROP INDEX runs_queued_short;
CREATE INDEX runs_queued_short ON runs (turn, id)
    WHERE status = 'queued' AND kind IN ('check-server', 'check-destination', 'test-stream', 'probe');
DROP INDEX runs_checks;
CREATE INDEX runs_checks ON runs (finished_at)
    WHERE kind IN ('check-server', 'check-destination', 'test-stream', 'probe');
CREATE INDEX runs_of_checks ON runs (user_id, id)
    WHERE kind IN ('check-server', 'check-destination', 'test-stream', 'probe');
CREATE INDEX backups_stored ON backups (user_id, size_bytes) WHERE deleted_at IS NULL;
CREATE INDEX backups_proven ON backups (user_id, verified_at) WHERE verification = 'verified' AND deleted_at IS NULL;
CREATE INDEX backups_damaged ON backups (user_id, id)
    WHERE verification IN ('corrupt', 'missing') AND deleted_at IS NULL;
CREATE INDEX remote_servers_offline ON remote_servers (user_id, id) WHERE connectivity = 'offline';
CREATE INDEX backup_destinations_unreachable ON backup_destinations (user_id, id) WHERE status = 'unreachable';
