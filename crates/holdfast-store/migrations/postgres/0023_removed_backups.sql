-- Backups that were removed long ago are deleted from the records, too.
CREATE INDEX backups_removed ON backups (deleted_at) WHERE deleted_at IS NOT NULL;
