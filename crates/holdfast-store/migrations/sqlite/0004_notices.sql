-- What people are to be told: written with what it is about, delivered by whoever comes first. Without a stream it is a
-- heartbeat of its task, or a mail to its user.
CREATE TABLE notices (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    stream_id BIGINT REFERENCES notification_streams (id) ON DELETE CASCADE,
    task_id BIGINT REFERENCES backup_tasks (id) ON DELETE SET NULL,
    recipient TEXT NOT NULL,
    kind TEXT NOT NULL,
    event TEXT NOT NULL,
    title TEXT NOT NULL,
    content TEXT NOT NULL,
    status TEXT NOT NULL,
    tries BIGINT NOT NULL,
    is_held BOOLEAN NOT NULL,
    next_try_at BIGINT,
    claim BIGINT NOT NULL,
    answer TEXT,
    created_at BIGINT NOT NULL,
    ended_at BIGINT
);
CREATE INDEX notices_user ON notices (user_id, id);
CREATE INDEX notices_stream ON notices (stream_id) WHERE stream_id IS NOT NULL;
CREATE INDEX notices_task ON notices (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX notices_due ON notices (next_try_at) WHERE next_try_at IS NOT NULL;
CREATE INDEX notices_recipient ON notices (recipient, id) WHERE next_try_at IS NOT NULL;
CREATE INDEX notices_ended ON notices (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX notices_undelivered ON notices (user_id, id) WHERE status = 'undelivered';

-- The run that this one is the second try of, when nothing else asked for it.
ALTER TABLE runs ADD COLUMN retry_of BIGINT;

-- For the figures of a week.
CREATE INDEX runs_task_finished ON runs (task_id, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX runs_user_finished ON runs (user_id, finished_at) WHERE kind = 'backup' AND finished_at IS NOT NULL;

-- What the last delivery met.
ALTER TABLE notification_streams ADD COLUMN last_delivery_succeeded BOOLEAN;
ALTER TABLE notification_streams ADD COLUMN last_delivery_message TEXT;
ALTER TABLE notification_streams ADD COLUMN last_delivery_at BIGINT;

-- The failure that people heard of last, and when a task without a success is overdue.
ALTER TABLE backup_tasks ADD COLUMN heartbeat_sealed BLOB;
ALTER TABLE backup_tasks ADD COLUMN told_code TEXT;
ALTER TABLE backup_tasks ADD COLUMN told_at BIGINT;
ALTER TABLE backup_tasks ADD COLUMN overdue_at BIGINT;
UPDATE backup_tasks SET overdue_at = next_run_at + 86400000000 WHERE next_run_at IS NOT NULL;
CREATE INDEX backup_tasks_overdue ON backup_tasks (overdue_at) WHERE overdue_at IS NOT NULL;

-- Quiet hours as HH:MM in the user's own zone; when the next summary of the week is sent.
ALTER TABLE users ADD COLUMN quiet_from TEXT;
ALTER TABLE users ADD COLUMN quiet_until TEXT;
ALTER TABLE users ADD COLUMN summary_at BIGINT;
CREATE INDEX users_summary ON users (summary_at) WHERE summary_at IS NOT NULL;

ALTER TABLE api_tokens ADD COLUMN expiry_told_at BIGINT;
CREATE INDEX api_tokens_expiring ON api_tokens (expires_at) WHERE expires_at IS NOT NULL AND expiry_told_at IS NULL;
