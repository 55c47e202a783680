-- Messages are counted for each stream, too: one that has all messages of a user counted half a million for its list.
DROP TRIGGER notices_total_insert;
DROP TRIGGER notices_total_delete;
DROP TRIGGER notices_total_update;
DELETE FROM totals WHERE subject = 'notice';
INSERT INTO totals (subject, user_id, kind, status, amount)
    SELECT 'notice', user_id, COALESCE(CAST(stream_id AS TEXT), ''), status, COUNT(*) FROM notices GROUP BY 2, 3, 4;
CREATE TRIGGER notices_total_insert AFTER INSERT ON notices BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('notice', NEW.user_id, COALESCE(CAST(NEW.stream_id AS TEXT), ''), NEW.status, 1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
CREATE TRIGGER notices_total_delete AFTER DELETE ON notices BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('notice', OLD.user_id, COALESCE(CAST(OLD.stream_id AS TEXT), ''), OLD.status, -1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
CREATE TRIGGER notices_total_update AFTER UPDATE OF user_id, stream_id, status ON notices
    WHEN OLD.user_id <> NEW.user_id OR OLD.stream_id IS NOT NEW.stream_id OR OLD.status <> NEW.status BEGIN
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('notice', OLD.user_id, COALESCE(CAST(OLD.stream_id AS TEXT), ''), OLD.status, -1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
    INSERT INTO totals (subject, user_id, kind, status, amount)
    VALUES ('notice', NEW.user_id, COALESCE(CAST(NEW.stream_id AS TEXT), ''), NEW.status, 1)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
