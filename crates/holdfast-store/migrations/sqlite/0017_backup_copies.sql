-- What was saved, and where: a backup has a copy at each destination that it went to. The first has position 0.
CREATE TABLE backup_copies (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    backup_id BIGINT NOT NULL REFERENCES backups (id) ON DELETE CASCADE,
    destination_id BIGINT NOT NULL REFERENCES backup_destinations (id),
    position BIGINT NOT NULL,
    -- The key of an object, or whatever else the backup's format finds it by.
    locator TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    verification TEXT NOT NULL,
    verified_at BIGINT,
    created_at BIGINT NOT NULL,
    remove_after BIGINT,
    removed_at BIGINT,
    remove_attempts BIGINT NOT NULL
);
INSERT INTO backup_copies (user_id, backup_id, destination_id, position, locator, size_bytes, sha256, verification,
        verified_at, created_at, remove_after, removed_at, remove_attempts)
    SELECT user_id, id, destination_id, 0, object_key, size_bytes, sha256, verification, verified_at, created_at,
        remove_after, removed_at, remove_attempts FROM backups ORDER BY id;
CREATE UNIQUE INDEX backup_copies_position ON backup_copies (backup_id, position);
CREATE UNIQUE INDEX backup_copies_locator ON backup_copies (destination_id, locator);
CREATE INDEX backup_copies_stored ON backup_copies (user_id, size_bytes) WHERE remove_after IS NULL;
CREATE INDEX backup_copies_to_remove ON backup_copies (remove_after)
    WHERE remove_after IS NOT NULL AND removed_at IS NULL;

DROP TRIGGER backups_wish_update;
CREATE TRIGGER backups_wish_update AFTER UPDATE OF verification, deleted_at, password_sealed
    ON backups WHEN OLD.verification IS NOT NEW.verification OR OLD.deleted_at IS NOT NEW.deleted_at
        OR OLD.password_sealed IS NOT NEW.password_sealed BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER backup_copies_wish_insert AFTER INSERT ON backup_copies BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER backup_copies_wish_update AFTER UPDATE OF verification, removed_at
    ON backup_copies WHEN OLD.verification IS NOT NEW.verification OR OLD.removed_at IS NOT NEW.removed_at BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (NEW.user_id);
END;
CREATE TRIGGER backup_copies_wish_delete AFTER DELETE ON backup_copies BEGIN
    INSERT INTO catalogue_wishes (user_id) VALUES (OLD.user_id);
END;

DROP INDEX backups_object;
DROP INDEX backups_to_remove;
DROP INDEX backups_stored;
ALTER TABLE backups DROP COLUMN destination_id;
ALTER TABLE backups DROP COLUMN object_key;
ALTER TABLE backups DROP COLUMN size_bytes;
ALTER TABLE backups DROP COLUMN sha256;
ALTER TABLE backups DROP COLUMN removed_at;
ALTER TABLE backups DROP COLUMN remove_after;
ALTER TABLE backups DROP COLUMN remove_attempts;
