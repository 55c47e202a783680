-- The repositories of tasks: where each is, and how it fares. A backup in one is a snapshot, and all of them are opened
-- with the password of the repository.
CREATE TABLE repositories (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    task_id BIGINT REFERENCES backup_tasks (id) ON DELETE SET NULL,
    destination_id BIGINT NOT NULL REFERENCES backup_destinations (id) ON DELETE CASCADE,
    -- The folder that the task asked for, and the one that the repository has.
    store_path TEXT NOT NULL,
    folder TEXT NOT NULL,
    -- The newest first: a changed password counts once a backup has been made with it.
    passwords_sealed BLOB,
    stored_bytes BIGINT,
    -- Since when something in it may be needed by no snapshot, and how much that may be.
    garbage_since BIGINT,
    garbage_bytes BIGINT NOT NULL DEFAULT 0,
    -- What the last prune left unused.
    unused_bytes BIGINT NOT NULL DEFAULT 0,
    pruned_at BIGINT,
    prune_tried_at BIGINT,
    -- The last complete check, the last part of one, and the pack up to which the data has been read.
    checked_at BIGINT,
    check_tried_at BIGINT,
    check_began_at BIGINT,
    check_position TEXT,
    -- What went wrong with the last prune or check, and when somebody was told.
    trouble_of TEXT,
    trouble_code TEXT,
    trouble TEXT,
    trouble_told_at BIGINT,
    -- It had neither a backup nor a task any more, and was removed as a whole.
    removed_at BIGINT,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX repositories_folder ON repositories (destination_id, folder) WHERE removed_at IS NULL;
CREATE INDEX repositories_task ON repositories (task_id);
CREATE INDEX repositories_user ON repositories (user_id, id);
ALTER TABLE backup_copies ADD COLUMN repository_id BIGINT REFERENCES repositories (id) ON DELETE SET NULL;
CREATE INDEX backup_copies_repository ON backup_copies (repository_id) WHERE repository_id IS NOT NULL;
ALTER TABLE runs ADD COLUMN repository_id BIGINT REFERENCES repositories (id) ON DELETE CASCADE;
CREATE INDEX runs_repository ON runs (repository_id, id) WHERE repository_id IS NOT NULL;

CREATE TRIGGER repositories_wish_insert AFTER INSERT ON repositories BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER repositories_wish_update AFTER UPDATE OF
        task_id, destination_id, store_path, folder, passwords_sealed
    ON repositories BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER repositories_wish_delete AFTER DELETE ON repositories BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (OLD.user_id);
END;
