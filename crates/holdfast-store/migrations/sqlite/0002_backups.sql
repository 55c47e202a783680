-- Stored backups outlive their task and their run; a deleted one stays on record until its object is gone, and after.
CREATE TABLE backups (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    task_id BIGINT REFERENCES backup_tasks (id) ON DELETE SET NULL,
    destination_id BIGINT NOT NULL REFERENCES backup_destinations (id),
    run_id BIGINT REFERENCES runs (id) ON DELETE SET NULL,
    task_label TEXT NOT NULL,
    source TEXT NOT NULL,
    content TEXT NOT NULL,
    format TEXT NOT NULL,
    object_key TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    plain_bytes BIGINT NOT NULL,
    plain_sha256 TEXT NOT NULL,
    entries BIGINT NOT NULL,
    is_encrypted BOOLEAN NOT NULL,
    password_sealed BLOB,
    verification TEXT NOT NULL,
    verified_at BIGINT,
    created_at BIGINT NOT NULL,
    deleted_at BIGINT,
    deleted_reason TEXT,
    removed_at BIGINT,
    remove_after BIGINT,
    remove_attempts BIGINT NOT NULL
);
CREATE INDEX backups_user ON backups (user_id, id);
CREATE INDEX backups_task ON backups (task_id, id) WHERE task_id IS NOT NULL;
CREATE UNIQUE INDEX backups_object ON backups (destination_id, object_key);
CREATE INDEX backups_run ON backups (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX backups_to_remove ON backups (remove_after) WHERE deleted_at IS NOT NULL AND removed_at IS NULL;

-- What a run is about to create at a destination, noted before it does, so that what a lost run left can be cleared
-- away. No reference to the run: its task may be deleted first.
CREATE TABLE uploads (
    run_id BIGINT PRIMARY KEY,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    destination_id BIGINT NOT NULL REFERENCES backup_destinations (id),
    object_key TEXT NOT NULL,
    upload_id TEXT,
    retry_after BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX uploads_user ON uploads (user_id);
CREATE INDEX uploads_destination ON uploads (destination_id);

-- What a restore was asked to do.
CREATE TABLE restores (
    run_id BIGINT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    server_id BIGINT NOT NULL REFERENCES remote_servers (id) ON DELETE CASCADE,
    overwrite BOOLEAN NOT NULL,
    path TEXT,
    database_name TEXT,
    entries TEXT NOT NULL
);
CREATE INDEX restores_server ON restores (server_id);

ALTER TABLE runs ADD COLUMN backup_id BIGINT REFERENCES backups (id) ON DELETE CASCADE;
ALTER TABLE runs ADD COLUMN bytes_total BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN files_total BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN bytes_per_second BIGINT NOT NULL DEFAULT 0;
CREATE INDEX runs_backup ON runs (backup_id) WHERE backup_id IS NOT NULL;
CREATE INDEX runs_of_backups ON runs (user_id, id) WHERE kind IN ('restore', 'verify');

ALTER TABLE remote_servers ADD COLUMN jump_server_id BIGINT REFERENCES remote_servers (id);
ALTER TABLE remote_servers ADD COLUMN last_error_code TEXT;
ALTER TABLE remote_servers ADD COLUMN latency_micros BIGINT;
ALTER TABLE remote_servers ADD COLUMN tools TEXT NOT NULL DEFAULT '';
CREATE INDEX remote_servers_jump ON remote_servers (jump_server_id) WHERE jump_server_id IS NOT NULL;

ALTER TABLE backup_destinations ADD COLUMN marker TEXT;
ALTER TABLE backup_destinations ADD COLUMN last_error_code TEXT;
