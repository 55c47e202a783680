-- How many rows of a kind and status each user has, and how many bytes they stand for, so that the total of a list does
-- not mean counting millions of rows. Triggers keep it. SQLite has one writer, so each total is one row, of part 0.
CREATE TABLE totals (
    subject TEXT NOT NULL,
    user_id BIGINT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    part BIGINT NOT NULL DEFAULT 0,
    amount BIGINT NOT NULL,
    bytes BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (subject, user_id, kind, status, part)
) WITHOUT ROWID;
INSERT INTO totals (subject, user_id, kind, status, amount)
    SELECT 'run', user_id, kind, status, COUNT(*) FROM runs GROUP BY 2, 3, 4;
INSERT INTO totals (subject, user_id, kind, status, amount)
    SELECT 'backup', user_id, CASE WHEN deleted_at IS NULL THEN 'stored' ELSE 'deleted' END, verification, COUNT(*)
        FROM backups GROUP BY 2, 3, 4;
INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    SELECT 'copy', user_id, CASE WHEN remove_after IS NULL THEN 'stored' ELSE 'unwanted' END,
        CASE WHEN position = 0 THEN 'first' ELSE 'further' END, COUNT(*), SUM(size_bytes)
        FROM backup_copies GROUP BY 2, 3, 4;
INSERT INTO totals (subject, user_id, kind, status, amount)
    SELECT 'notice', user_id, '', status, COUNT(*) FROM notices GROUP BY 2, 3, 4;
INSERT INTO totals (subject, user_id, kind, status, amount)
    SELECT 'event', user_id, '', '', COUNT(*) FROM audit_events WHERE user_id IS NOT NULL GROUP BY 2, 3, 4;

CREATE TRIGGER runs_total_insert AFTER INSERT ON runs BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('run', NEW.user_id, NEW.kind, NEW.status, 1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
CREATE TRIGGER runs_total_delete AFTER DELETE ON runs BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('run', OLD.user_id, OLD.kind, OLD.status, -1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
CREATE TRIGGER runs_total_update AFTER UPDATE OF user_id, kind, status ON runs
    WHEN OLD.user_id <> NEW.user_id OR OLD.kind <> NEW.kind OR OLD.status <> NEW.status BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('run', OLD.user_id, OLD.kind, OLD.status, -1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('run', NEW.user_id, NEW.kind, NEW.status, 1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;

CREATE TRIGGER backups_total_insert AFTER INSERT ON backups BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('backup', NEW.user_id, CASE WHEN NEW.deleted_at IS NULL THEN 'stored' ELSE 'deleted' END,
        NEW.verification, 1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
CREATE TRIGGER backups_total_delete AFTER DELETE ON backups BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('backup', OLD.user_id, CASE WHEN OLD.deleted_at IS NULL THEN 'stored' ELSE 'deleted' END,
        OLD.verification, -1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
CREATE TRIGGER backups_total_update AFTER UPDATE OF user_id, deleted_at, verification ON backups
    WHEN OLD.user_id <> NEW.user_id OR (OLD.deleted_at IS NULL) <> (NEW.deleted_at IS NULL)
        OR OLD.verification <> NEW.verification BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('backup', OLD.user_id, CASE WHEN OLD.deleted_at IS NULL THEN 'stored' ELSE 'deleted' END,
        OLD.verification, -1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('backup', NEW.user_id, CASE WHEN NEW.deleted_at IS NULL THEN 'stored' ELSE 'deleted' END,
        NEW.verification, 1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;

CREATE TRIGGER backup_copies_total_insert AFTER INSERT ON backup_copies BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    VALUES ('copy', NEW.user_id, CASE WHEN NEW.remove_after IS NULL THEN 'stored' ELSE 'unwanted' END,
        CASE WHEN NEW.position = 0 THEN 'first' ELSE 'further' END, 1, NEW.size_bytes)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER backup_copies_total_delete AFTER DELETE ON backup_copies BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    VALUES ('copy', OLD.user_id, CASE WHEN OLD.remove_after IS NULL THEN 'stored' ELSE 'unwanted' END,
        CASE WHEN OLD.position = 0 THEN 'first' ELSE 'further' END, -1, -OLD.size_bytes)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER backup_copies_total_update AFTER UPDATE OF user_id, remove_after, position, size_bytes ON backup_copies
    WHEN OLD.user_id <> NEW.user_id OR (OLD.remove_after IS NULL) <> (NEW.remove_after IS NULL)
        OR (OLD.position = 0) <> (NEW.position = 0) OR OLD.size_bytes <> NEW.size_bytes BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    VALUES ('copy', OLD.user_id, CASE WHEN OLD.remove_after IS NULL THEN 'stored' ELSE 'unwanted' END,
        CASE WHEN OLD.position = 0 THEN 'first' ELSE 'further' END, -1, -OLD.size_bytes)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount, bytes = bytes + excluded.bytes;
    INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    VALUES ('copy', NEW.user_id, CASE WHEN NEW.remove_after IS NULL THEN 'stored' ELSE 'unwanted' END,
        CASE WHEN NEW.position = 0 THEN 'first' ELSE 'further' END, 1, NEW.size_bytes)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER notices_total_insert AFTER INSERT ON notices BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('notice', NEW.user_id, '', NEW.status, 1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
CREATE TRIGGER notices_total_delete AFTER DELETE ON notices BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('notice', OLD.user_id, '', OLD.status, -1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
CREATE TRIGGER notices_total_update AFTER UPDATE OF user_id, status ON notices
    WHEN OLD.user_id <> NEW.user_id OR OLD.status <> NEW.status BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('notice', OLD.user_id, '', OLD.status, -1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('notice', NEW.user_id, '', NEW.status, 1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;

CREATE TRIGGER audit_events_total_insert AFTER INSERT ON audit_events WHEN NEW.user_id IS NOT NULL BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('event', NEW.user_id, '', '', 1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
CREATE TRIGGER audit_events_total_delete AFTER DELETE ON audit_events WHEN OLD.user_id IS NOT NULL BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('event', OLD.user_id, '', '', -1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
