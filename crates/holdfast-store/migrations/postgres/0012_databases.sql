-- The databases that a backup of a whole server holds, as a list in JSON; NULL for other backups.
ALTER TABLE backups ADD COLUMN databases TEXT;
