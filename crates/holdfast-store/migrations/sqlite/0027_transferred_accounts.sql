-- When everything of an account is transferred to another one, servers still know the key of the former owner, and
-- local folders have the number of theirs: what moved keeps both.
ALTER TABLE remote_servers ADD COLUMN login_key_sealed BLOB;
ALTER TABLE backup_destinations ADD COLUMN login_key_sealed BLOB;
ALTER TABLE backup_destinations ADD COLUMN folder_user_id BIGINT;

DROP TRIGGER remote_servers_wish_update;
CREATE TRIGGER remote_servers_wish_update AFTER UPDATE OF
        label, host, port, username, database_username, database_password_sealed, host_key, jump_server_id,
        login_key_sealed
    ON remote_servers BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
DROP TRIGGER backup_destinations_wish_update;
CREATE TRIGGER backup_destinations_wish_update AFTER UPDATE OF
        label, kind, spec, s3_access_key_sealed, s3_secret_key_sealed, marker, login_key_sealed, folder_user_id
    ON backup_destinations BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
