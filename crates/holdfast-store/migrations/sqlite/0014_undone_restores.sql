-- Whether a restore failed and left everything as it was.
ALTER TABLE restores ADD COLUMN is_undone BOOLEAN NOT NULL DEFAULT FALSE;
