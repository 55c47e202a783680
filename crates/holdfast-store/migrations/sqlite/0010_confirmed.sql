-- Somebody looked at this backup while the removal of old ones was on hold, and found it right: later ones are not
-- compared with those before it.
ALTER TABLE backups ADD COLUMN is_confirmed BOOLEAN NOT NULL DEFAULT FALSE;
