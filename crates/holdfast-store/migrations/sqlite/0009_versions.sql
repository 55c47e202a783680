-- Whether what is deleted at a destination stays there as an older version, as the last check found it.
ALTER TABLE backup_destinations ADD COLUMN keeps_versions BOOLEAN NOT NULL DEFAULT FALSE;
