-- The machine that a restore changed, as it was known then: its server may be changed or deleted later, and what a restore
-- left half done is still there. So a restore outlives its server.
CREATE TABLE restores_of_machines (
    run_id BIGINT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    server_id BIGINT NOT NULL,
    overwrite BOOLEAN NOT NULL,
    path TEXT,
    database_name TEXT,
    entries TEXT NOT NULL,
    no_owner BOOLEAN NOT NULL DEFAULT FALSE,
    numeric_owner BOOLEAN NOT NULL DEFAULT FALSE,
    restore_devices BOOLEAN NOT NULL DEFAULT FALSE,
    dry_run BOOLEAN NOT NULL DEFAULT FALSE,
    writes_at BIGINT,
    folder TEXT,
    host TEXT,
    port BIGINT,
    host_key TEXT,
    jump_host TEXT,
    jump_port BIGINT
);
INSERT INTO restores_of_machines (run_id, server_id, overwrite, path, database_name, entries, no_owner, numeric_owner,
    restore_devices, dry_run, writes_at, folder)
SELECT run_id, server_id, overwrite, path, database_name, entries, no_owner, numeric_owner, restore_devices, dry_run,
    writes_at, folder FROM restores;
DROP TABLE restores;
ALTER TABLE restores_of_machines RENAME TO restores;
CREATE INDEX restores_server ON restores (server_id);
UPDATE restores SET
    host = (SELECT s.host FROM remote_servers s WHERE s.id = restores.server_id),
    port = (SELECT s.port FROM remote_servers s WHERE s.id = restores.server_id),
    host_key = (SELECT s.host_key FROM remote_servers s WHERE s.id = restores.server_id),
    jump_host = (SELECT j.host FROM remote_servers s JOIN remote_servers j ON j.id = s.jump_server_id
        WHERE s.id = restores.server_id),
    jump_port = (SELECT j.port FROM remote_servers s JOIN remote_servers j ON j.id = s.jump_server_id
        WHERE s.id = restores.server_id)
WHERE writes_at IS NOT NULL;
