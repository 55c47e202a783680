-- Times are microseconds since 1970 in UTC; `…_sealed` columns hold ciphertext; `search_label` is the label in lower
-- case, made by the service so that both engines find the same rows.

CREATE TABLE data_keys (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    wrapped BLOB NOT NULL,
    is_current BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX data_keys_current ON data_keys (is_current) WHERE is_current;

CREATE TABLE users (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE,
    password_hash TEXT,
    timezone TEXT NOT NULL,
    language TEXT NOT NULL,
    is_admin BOOLEAN NOT NULL,
    weekly_summary_enabled BOOLEAN NOT NULL,
    totp_sealed BLOB,
    totp_last_step BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE sign_in_links (
    digest BLOB PRIMARY KEY,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    expires_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX sign_in_links_user ON sign_in_links (user_id);

CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    digest BLOB NOT NULL UNIQUE,
    expires_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX sessions_user ON sessions (user_id);

CREATE TABLE api_tokens (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    scopes TEXT NOT NULL,
    expires_at BIGINT,
    last_used_at BIGINT,
    created_at BIGINT NOT NULL
);
CREATE INDEX api_tokens_user ON api_tokens (user_id, id);

-- One row. It grows with every change that takes something away from a token, so that nodes notice within a second.
CREATE TABLE token_epoch (
    epoch BIGINT NOT NULL
);
INSERT INTO token_epoch (epoch) VALUES (1);

CREATE TABLE ssh_keys (
    user_id BIGINT PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    public_key BLOB NOT NULL,
    private_sealed BLOB NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE remote_servers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    label TEXT NOT NULL,
    search_label TEXT NOT NULL,
    host TEXT NOT NULL,
    port BIGINT NOT NULL,
    username TEXT NOT NULL,
    database_username TEXT,
    database_password_sealed BLOB,
    host_key TEXT,
    offered_host_key TEXT,
    connectivity TEXT NOT NULL,
    last_connected_at BIGINT,
    last_error TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX remote_servers_user ON remote_servers (user_id, id);

CREATE TABLE backup_destinations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    label TEXT NOT NULL,
    search_label TEXT NOT NULL,
    kind TEXT NOT NULL,
    s3_bucket TEXT,
    s3_region TEXT,
    s3_endpoint TEXT,
    s3_path_style BOOLEAN NOT NULL,
    s3_access_key_sealed BLOB,
    s3_secret_key_sealed BLOB,
    status TEXT NOT NULL,
    last_checked_at BIGINT,
    last_error TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX backup_destinations_user ON backup_destinations (user_id, id);

CREATE TABLE notification_streams (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    label TEXT NOT NULL,
    search_label TEXT NOT NULL,
    kind TEXT NOT NULL,
    value_sealed BLOB,
    pushover_token_sealed BLOB,
    on_success BOOLEAN NOT NULL,
    on_failure BOOLEAN NOT NULL,
    last_test_succeeded BOOLEAN,
    last_test_message TEXT,
    last_tested_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX notification_streams_user ON notification_streams (user_id, id);

CREATE TABLE tags (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    label TEXT NOT NULL,
    search_label TEXT NOT NULL,
    description TEXT,
    colour TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX tags_user ON tags (user_id, id);

-- Servers and destinations in use cannot be deleted: no ON DELETE here.
CREATE TABLE backup_tasks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    remote_server_id BIGINT NOT NULL REFERENCES remote_servers (id),
    backup_destination_id BIGINT NOT NULL REFERENCES backup_destinations (id),
    label TEXT NOT NULL,
    search_label TEXT NOT NULL,
    description TEXT,
    kind TEXT NOT NULL,
    source_path TEXT,
    database_name TEXT,
    database_engine TEXT,
    excluded_tables TEXT,
    excluded_paths TEXT NOT NULL,
    frequency TEXT NOT NULL,
    time_to_run_at TEXT,
    day_of_week BIGINT NOT NULL,
    day_of_month BIGINT NOT NULL,
    custom_cron TEXT,
    max_backups BIGINT NOT NULL,
    appended_filename TEXT,
    store_path TEXT NOT NULL,
    streams_count BIGINT NOT NULL,
    tags_count BIGINT NOT NULL,
    encryption_password_sealed BLOB,
    trigger_sealed BLOB,
    next_run_at BIGINT,
    last_run_at BIGINT,
    paused_at BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX backup_tasks_user ON backup_tasks (user_id, id);
CREATE INDEX backup_tasks_server ON backup_tasks (remote_server_id);
CREATE INDEX backup_tasks_destination ON backup_tasks (backup_destination_id);
-- Paused tasks have no next run, so both indexes hold what is due and nothing else.
CREATE INDEX backup_tasks_due ON backup_tasks (next_run_at) WHERE next_run_at IS NOT NULL;
CREATE INDEX backup_tasks_upcoming ON backup_tasks (user_id, next_run_at, id) WHERE next_run_at IS NOT NULL;

CREATE TABLE task_streams (
    task_id BIGINT NOT NULL REFERENCES backup_tasks (id) ON DELETE CASCADE,
    stream_id BIGINT NOT NULL REFERENCES notification_streams (id) ON DELETE CASCADE,
    PRIMARY KEY (task_id, stream_id)
);
CREATE INDEX task_streams_stream ON task_streams (stream_id);

CREATE TABLE task_tags (
    task_id BIGINT NOT NULL REFERENCES backup_tasks (id) ON DELETE CASCADE,
    tag_id BIGINT NOT NULL REFERENCES tags (id) ON DELETE CASCADE,
    PRIMARY KEY (task_id, tag_id)
);
CREATE INDEX task_tags_tag ON task_tags (tag_id);

-- A log of the API document is a run of kind `backup`; the others have no task.
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    task_id BIGINT REFERENCES backup_tasks (id) ON DELETE CASCADE,
    server_id BIGINT REFERENCES remote_servers (id) ON DELETE CASCADE,
    destination_id BIGINT REFERENCES backup_destinations (id) ON DELETE CASCADE,
    stream_id BIGINT REFERENCES notification_streams (id) ON DELETE CASCADE,
    status TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    slot_at BIGINT,
    attempt BIGINT NOT NULL,
    worker TEXT,
    lease_epoch BIGINT NOT NULL,
    lease_expires_at BIGINT,
    cancel_requested_at BIGINT,
    bytes_read BIGINT NOT NULL,
    bytes_stored BIGINT NOT NULL,
    files BIGINT NOT NULL,
    warnings BIGINT NOT NULL,
    error_code TEXT,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    finished_at BIGINT
);
CREATE INDEX runs_user ON runs (user_id, id) WHERE kind = 'backup';
CREATE INDEX runs_user_created ON runs (user_id, created_at) WHERE kind = 'backup';
CREATE INDEX runs_task ON runs (task_id, id);
CREATE INDEX runs_server ON runs (server_id) WHERE server_id IS NOT NULL;
CREATE INDEX runs_destination ON runs (destination_id) WHERE destination_id IS NOT NULL;
CREATE INDEX runs_stream ON runs (stream_id) WHERE stream_id IS NOT NULL;
CREATE INDEX runs_queued ON runs (id) WHERE status = 'queued';
CREATE INDEX runs_leased ON runs (lease_expires_at) WHERE status = 'running';
CREATE UNIQUE INDEX runs_one_per_slot ON runs (task_id, slot_at) WHERE slot_at IS NOT NULL;
CREATE UNIQUE INDEX runs_one_live_per_task ON runs (task_id) WHERE status IN ('queued', 'running') AND task_id IS NOT NULL;

CREATE TABLE run_lines (
    run_id BIGINT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    at BIGINT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (run_id, number)
);

CREATE TABLE audit_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at BIGINT NOT NULL,
    user_id BIGINT,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    detail TEXT NOT NULL,
    address TEXT,
    request_id TEXT
);
CREATE INDEX audit_events_user ON audit_events (user_id, id);
