-- The machine that a restore changed, as it was known then: its server may be changed or deleted later, and what a restore
-- left half done is still there. So a restore outlives its server.
ALTER TABLE restores DROP CONSTRAINT restores_server_id_fkey;
ALTER TABLE restores ADD COLUMN host TEXT;
ALTER TABLE restores ADD COLUMN port BIGINT;
ALTER TABLE restores ADD COLUMN host_key TEXT;
ALTER TABLE restores ADD COLUMN jump_host TEXT;
ALTER TABLE restores ADD COLUMN jump_port BIGINT;
UPDATE restores SET
    host = (SELECT s.host FROM remote_servers s WHERE s.id = restores.server_id),
    port = (SELECT s.port FROM remote_servers s WHERE s.id = restores.server_id),
    host_key = (SELECT s.host_key FROM remote_servers s WHERE s.id = restores.server_id),
    jump_host = (SELECT j.host FROM remote_servers s JOIN remote_servers j ON j.id = s.jump_server_id
        WHERE s.id = restores.server_id),
    jump_port = (SELECT j.port FROM remote_servers s JOIN remote_servers j ON j.id = s.jump_server_id
        WHERE s.id = restores.server_id)
WHERE writes_at IS NOT NULL;
