-- Runs that copy or read data wait in one queue, checks in another. Which it is was a list of kinds in every statement
-- and index; now each run says it.
ALTER TABLE runs ADD COLUMN is_long BOOLEAN NOT NULL DEFAULT TRUE;
UPDATE runs SET is_long = FALSE WHERE kind IN ('check-server', 'check-destination', 'test-stream', 'probe');
DROP INDEX runs_queued_short;
DROP INDEX runs_checks;
DROP INDEX runs_of_checks;
DROP INDEX runs_of_backups;
CREATE INDEX runs_queued_short ON runs (turn, id) WHERE status = 'queued' AND NOT is_long;
CREATE INDEX runs_checks ON runs (finished_at) WHERE NOT is_long;
CREATE INDEX runs_of_checks ON runs (user_id, id) WHERE NOT is_long;
CREATE INDEX runs_of_backups ON runs (user_id, id) WHERE backup_id IS NOT NULL;
