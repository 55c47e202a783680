-- A worker that starts no further runs, although it goes on with everything else.
ALTER TABLE workers ADD COLUMN is_draining BOOLEAN NOT NULL DEFAULT FALSE;
