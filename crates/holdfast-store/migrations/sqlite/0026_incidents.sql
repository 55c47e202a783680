-- Backups of several tasks that fail for one cause, the tasks, and the streams that were told of it.
CREATE TABLE incidents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    place TEXT NOT NULL,
    server_id BIGINT REFERENCES remote_servers (id) ON DELETE CASCADE,
    destination_id BIGINT REFERENCES backup_destinations (id) ON DELETE CASCADE,
    code TEXT NOT NULL,
    told_tasks BIGINT NOT NULL,
    told_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX incidents_cause
    ON incidents (user_id, code, place, COALESCE(server_id, 0), COALESCE(destination_id, 0));

CREATE TABLE incident_tasks (
    task_id BIGINT PRIMARY KEY REFERENCES backup_tasks (id) ON DELETE CASCADE,
    incident_id BIGINT NOT NULL REFERENCES incidents (id) ON DELETE CASCADE,
    has_recovered BOOLEAN NOT NULL
);
CREATE INDEX incident_tasks_incident ON incident_tasks (incident_id);

CREATE TABLE incident_streams (
    incident_id BIGINT NOT NULL REFERENCES incidents (id) ON DELETE CASCADE,
    stream_id BIGINT NOT NULL REFERENCES notification_streams (id) ON DELETE CASCADE,
    PRIMARY KEY (incident_id, stream_id)
);
CREATE INDEX incident_streams_stream ON incident_streams (stream_id);
