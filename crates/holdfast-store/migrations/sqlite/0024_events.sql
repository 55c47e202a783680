-- What happened to a user's runs, backups and notices, for clients that follow it. Written by triggers, so that nothing
-- is forgotten. SQLite has one writer, so the ids are in the order of the commits and all have the same position.
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    position BIGINT NOT NULL DEFAULT 0,
    user_id BIGINT NOT NULL,
    subject TEXT NOT NULL,
    subject_id BIGINT NOT NULL,
    kind TEXT,
    status TEXT NOT NULL,
    task_id BIGINT,
    at BIGINT NOT NULL
);
CREATE INDEX events_user ON events (user_id, position, id);
CREATE INDEX events_at ON events (at);

CREATE TRIGGER runs_event_insert AFTER INSERT ON runs BEGIN
    INSERT INTO events (user_id, subject, subject_id, kind, status, task_id, at)
    VALUES (NEW.user_id, 'run', NEW.id, NEW.kind, NEW.status, NEW.task_id,
        COALESCE(NEW.finished_at, NEW.started_at, NEW.created_at));
END;
CREATE TRIGGER runs_event_update AFTER UPDATE OF status ON runs WHEN NEW.status <> OLD.status BEGIN
    INSERT INTO events (user_id, subject, subject_id, kind, status, task_id, at)
    VALUES (NEW.user_id, 'run', NEW.id, NEW.kind, NEW.status, NEW.task_id,
        COALESCE(NEW.finished_at, NEW.started_at, NEW.created_at));
END;
CREATE TRIGGER backups_event_insert AFTER INSERT ON backups BEGIN
    INSERT INTO events (user_id, subject, subject_id, kind, status, task_id, at)
    VALUES (NEW.user_id, 'backup', NEW.id, NULL, NEW.verification, NEW.task_id, NEW.created_at);
END;
CREATE TRIGGER backups_event_update AFTER UPDATE OF verification, deleted_at ON backups
    WHEN NEW.verification <> OLD.verification OR (NEW.deleted_at IS NULL) <> (OLD.deleted_at IS NULL) BEGIN
    INSERT INTO events (user_id, subject, subject_id, kind, status, task_id, at)
    VALUES (NEW.user_id, 'backup', NEW.id, NULL,
        CASE WHEN NEW.deleted_at IS NULL THEN NEW.verification ELSE 'deleted' END, NEW.task_id,
        COALESCE(NEW.deleted_at, NEW.verified_at, NEW.created_at));
END;
CREATE TRIGGER notices_event_insert AFTER INSERT ON notices BEGIN
    INSERT INTO events (user_id, subject, subject_id, kind, status, task_id, at)
    VALUES (NEW.user_id, 'notice', NEW.id, NEW.kind, NEW.status, NEW.task_id, NEW.created_at);
END;
CREATE TRIGGER notices_event_update AFTER UPDATE OF status ON notices WHEN NEW.status <> OLD.status BEGIN
    INSERT INTO events (user_id, subject, subject_id, kind, status, task_id, at)
    VALUES (NEW.user_id, 'notice', NEW.id, NEW.kind, NEW.status, NEW.task_id, COALESCE(NEW.ended_at, NEW.created_at));
END;

-- Lists of backups can be sorted by time.
CREATE INDEX backups_user_created ON backups (user_id, created_at, id);
