-- What a repository takes is on record with the repository: a backup in one adds no bytes of its own.
INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    SELECT 'copy', user_id, CASE WHEN remove_after IS NULL THEN 'stored' ELSE 'unwanted' END,
        CASE WHEN position = 0 THEN 'first' ELSE 'further' END, 0, -SUM(size_bytes)
        FROM backup_copies WHERE repository_id IS NOT NULL GROUP BY 2, 3, 4
    ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    SELECT 'copy', user_id, 'stored', 'repository', 0, SUM(COALESCE(stored_bytes, 0))
        FROM repositories WHERE removed_at IS NULL GROUP BY 2;

DROP TRIGGER backup_copies_total_insert;
DROP TRIGGER backup_copies_total_delete;
DROP TRIGGER backup_copies_total_update;
CREATE TRIGGER backup_copies_total_insert AFTER INSERT ON backup_copies BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    VALUES ('copy', NEW.user_id, CASE WHEN NEW.remove_after IS NULL THEN 'stored' ELSE 'unwanted' END,
        CASE WHEN NEW.position = 0 THEN 'first' ELSE 'further' END, 1,
        CASE WHEN NEW.repository_id IS NULL THEN NEW.size_bytes ELSE 0 END)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER backup_copies_total_delete AFTER DELETE ON backup_copies BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    VALUES ('copy', OLD.user_id, CASE WHEN OLD.remove_after IS NULL THEN 'stored' ELSE 'unwanted' END,
        CASE WHEN OLD.position = 0 THEN 'first' ELSE 'further' END, -1,
        CASE WHEN OLD.repository_id IS NULL THEN -OLD.size_bytes ELSE 0 END)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER backup_copies_total_update
    AFTER UPDATE OF user_id, remove_after, position, size_bytes, repository_id ON backup_copies
    WHEN OLD.user_id <> NEW.user_id OR (OLD.remove_after IS NULL) <> (NEW.remove_after IS NULL)
        OR (OLD.position = 0) <> (NEW.position = 0) OR OLD.size_bytes <> NEW.size_bytes
        OR (OLD.repository_id IS NULL) <> (NEW.repository_id IS NULL) BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    VALUES ('copy', OLD.user_id, CASE WHEN OLD.remove_after IS NULL THEN 'stored' ELSE 'unwanted' END,
        CASE WHEN OLD.position = 0 THEN 'first' ELSE 'further' END, -1,
        CASE WHEN OLD.repository_id IS NULL THEN -OLD.size_bytes ELSE 0 END)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount, bytes = bytes + excluded.bytes;
    INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    VALUES ('copy', NEW.user_id, CASE WHEN NEW.remove_after IS NULL THEN 'stored' ELSE 'unwanted' END,
        CASE WHEN NEW.position = 0 THEN 'first' ELSE 'further' END, 1,
        CASE WHEN NEW.repository_id IS NULL THEN NEW.size_bytes ELSE 0 END)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER repositories_total_insert AFTER INSERT ON repositories BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    VALUES ('copy', NEW.user_id, 'stored', 'repository', 0,
        CASE WHEN NEW.removed_at IS NULL THEN COALESCE(NEW.stored_bytes, 0) ELSE 0 END)
    ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER repositories_total_delete AFTER DELETE ON repositories BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    VALUES ('copy', OLD.user_id, 'stored', 'repository', 0,
        CASE WHEN OLD.removed_at IS NULL THEN -COALESCE(OLD.stored_bytes, 0) ELSE 0 END)
    ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER repositories_total_update AFTER UPDATE OF user_id, stored_bytes, removed_at ON repositories BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    VALUES ('copy', OLD.user_id, 'stored', 'repository', 0,
        CASE WHEN OLD.removed_at IS NULL THEN -COALESCE(OLD.stored_bytes, 0) ELSE 0 END)
    ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
    INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    VALUES ('copy', NEW.user_id, 'stored', 'repository', 0,
        CASE WHEN NEW.removed_at IS NULL THEN COALESCE(NEW.stored_bytes, 0) ELSE 0 END)
    ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;

-- Lists of prunes and checks of a user.
CREATE INDEX runs_of_repositories ON runs (user_id, id) WHERE repository_id IS NOT NULL;

-- What went wrong with the last prune, apart from what went wrong with the last check: one says nothing about the other.
ALTER TABLE repositories ADD COLUMN prune_trouble_code TEXT;
ALTER TABLE repositories ADD COLUMN prune_trouble TEXT;
ALTER TABLE repositories ADD COLUMN prune_told_at BIGINT;
UPDATE repositories SET prune_trouble_code = trouble_code, prune_trouble = trouble, prune_told_at = trouble_told_at,
    trouble_code = NULL, trouble = NULL, trouble_told_at = NULL WHERE trouble_of = 'prune';
ALTER TABLE repositories DROP COLUMN trouble_of;
ALTER TABLE repositories RENAME COLUMN trouble_code TO check_trouble_code;
ALTER TABLE repositories RENAME COLUMN trouble TO check_trouble;
ALTER TABLE repositories RENAME COLUMN trouble_told_at TO check_told_at;
