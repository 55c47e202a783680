-- A worker that was told to stop and is killed before its runs have ended is not taken for one that they have crashed.
ALTER TABLE workers ADD COLUMN is_stopping BOOLEAN NOT NULL DEFAULT FALSE;
