-- A restore into a folder that was empty proves that nothing incomplete was left in it.
ALTER TABLE restores ADD COLUMN found_empty BOOLEAN NOT NULL DEFAULT FALSE;
