-- When a server was last reached for, whatever came of it.
ALTER TABLE remote_servers ADD COLUMN last_checked_at BIGINT;

-- Every destination carries a sealed list of what its owner has: when it was last written and what it is called there,
-- when it is to be written again, and what went wrong.
ALTER TABLE backup_destinations ADD COLUMN catalogue_wanted_at BIGINT;
ALTER TABLE backup_destinations ADD COLUMN catalogue_next_at BIGINT;
ALTER TABLE backup_destinations ADD COLUMN catalogue_key TEXT;
ALTER TABLE backup_destinations ADD COLUMN catalogue_pending TEXT;
ALTER TABLE backup_destinations ADD COLUMN catalogue_at BIGINT;
ALTER TABLE backup_destinations ADD COLUMN catalogue_bytes BIGINT;
ALTER TABLE backup_destinations ADD COLUMN catalogue_error TEXT;
UPDATE backup_destinations SET catalogue_wanted_at = updated_at;
CREATE INDEX backup_destinations_catalogue ON backup_destinations (catalogue_next_at)
    WHERE catalogue_wanted_at IS NOT NULL;

-- Users something of whom has changed. Written by triggers, so that no change is forgotten; rows are only added, so that
-- nobody waits for anybody. No reference: what a user had may go with them.
CREATE TABLE catalogue_wishes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL
);
CREATE TRIGGER users_wish_update AFTER UPDATE OF
        name, email, password_hash, timezone, language, is_admin, weekly_summary_enabled, totp_sealed,
        quiet_from, quiet_until
    ON users BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.id);
END;
CREATE TRIGGER recovery_codes_wish_insert AFTER INSERT ON recovery_codes BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER recovery_codes_wish_update AFTER UPDATE ON recovery_codes BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER recovery_codes_wish_delete AFTER DELETE ON recovery_codes BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (OLD.user_id);
END;
CREATE TRIGGER identities_wish_insert AFTER INSERT ON identities BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER identities_wish_update AFTER UPDATE ON identities BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER identities_wish_delete AFTER DELETE ON identities BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (OLD.user_id);
END;
CREATE TRIGGER api_tokens_wish_insert AFTER INSERT ON api_tokens BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER api_tokens_wish_update AFTER UPDATE OF
        name, digest, scopes, expires_at
    ON api_tokens BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER api_tokens_wish_delete AFTER DELETE ON api_tokens BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (OLD.user_id);
END;
CREATE TRIGGER ssh_keys_wish_insert AFTER INSERT ON ssh_keys BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER ssh_keys_wish_update AFTER UPDATE ON ssh_keys BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER ssh_keys_wish_delete AFTER DELETE ON ssh_keys BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (OLD.user_id);
END;
CREATE TRIGGER remote_servers_wish_insert AFTER INSERT ON remote_servers BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER remote_servers_wish_update AFTER UPDATE OF
        label, host, port, username, database_username, database_password_sealed, host_key, jump_server_id
    ON remote_servers BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER remote_servers_wish_delete AFTER DELETE ON remote_servers BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (OLD.user_id);
END;
CREATE TRIGGER backup_destinations_wish_insert AFTER INSERT ON backup_destinations BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER backup_destinations_wish_update AFTER UPDATE OF
        label, kind, s3_bucket, s3_region, s3_endpoint, s3_path_style, s3_access_key_sealed,
        s3_secret_key_sealed, marker
    ON backup_destinations BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER backup_destinations_wish_delete AFTER DELETE ON backup_destinations BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (OLD.user_id);
END;
CREATE TRIGGER notification_streams_wish_insert AFTER INSERT ON notification_streams BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER notification_streams_wish_update AFTER UPDATE OF
        label, kind, value_sealed, pushover_token_sealed, on_success, on_failure
    ON notification_streams BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER notification_streams_wish_delete AFTER DELETE ON notification_streams BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (OLD.user_id);
END;
CREATE TRIGGER tags_wish_insert AFTER INSERT ON tags BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER tags_wish_update AFTER UPDATE ON tags BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER tags_wish_delete AFTER DELETE ON tags BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (OLD.user_id);
END;
CREATE TRIGGER backup_tasks_wish_insert AFTER INSERT ON backup_tasks BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER backup_tasks_wish_update AFTER UPDATE OF
        remote_server_id, backup_destination_id, label, description, kind, source_path, database_name,
        database_engine, excluded_tables, excluded_paths, frequency, time_to_run_at, day_of_week, day_of_month,
        custom_cron, max_backups, appended_filename, store_path, streams_count, tags_count,
        encryption_password_sealed, trigger_sealed, heartbeat_sealed, paused_at
    ON backup_tasks BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER backup_tasks_wish_delete AFTER DELETE ON backup_tasks BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (OLD.user_id);
END;
CREATE TRIGGER backups_wish_insert AFTER INSERT ON backups BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
-- Rows are also written to be locked; only what they say counts.
CREATE TRIGGER backups_wish_update AFTER UPDATE OF
        verification, deleted_at, removed_at, password_sealed
    ON backups WHEN OLD.verification IS NOT NEW.verification OR OLD.deleted_at IS NOT NEW.deleted_at
        OR OLD.removed_at IS NOT NEW.removed_at OR OLD.password_sealed IS NOT NEW.password_sealed BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER backups_wish_delete AFTER DELETE ON backups BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (OLD.user_id);
END;
