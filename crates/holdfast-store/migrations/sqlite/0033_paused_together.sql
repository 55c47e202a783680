-- A task that was paused with all others of its account, and is resumed with them. Tasks that were paused before stay so.
ALTER TABLE backup_tasks ADD COLUMN paused_together BOOLEAN NOT NULL DEFAULT FALSE;
-- Slots that passed while no worker was running, for monitoring.
CREATE INDEX runs_missed ON runs (finished_at) WHERE error_code = 'missed';
