-- What a repository takes is on record with the repository: a backup in one adds no bytes of its own.
INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    SELECT 'copy', user_id, CASE WHEN remove_after IS NULL THEN 'stored' ELSE 'unwanted' END,
        CASE WHEN position = 0 THEN 'first' ELSE 'further' END, 0, -SUM(size_bytes)
        FROM backup_copies WHERE repository_id IS NOT NULL GROUP BY 2, 3, 4;
INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
    SELECT 'copy', user_id, 'stored', 'repository', 0, SUM(COALESCE(stored_bytes, 0))
        FROM repositories WHERE removed_at IS NULL GROUP BY 2;

CREATE OR REPLACE FUNCTION keep_copy_totals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
        SELECT 'copy', user_id, CASE WHEN remove_after IS NULL THEN 'stored' ELSE 'unwanted' END,
            CASE WHEN position = 0 THEN 'first' ELSE 'further' END, COUNT(*),
            SUM(CASE WHEN repository_id IS NULL THEN size_bytes ELSE 0 END)
        FROM new_rows GROUP BY 2, 3, 4;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
        SELECT 'copy', user_id, CASE WHEN remove_after IS NULL THEN 'stored' ELSE 'unwanted' END,
            CASE WHEN position = 0 THEN 'first' ELSE 'further' END, -COUNT(*),
            -SUM(CASE WHEN repository_id IS NULL THEN size_bytes ELSE 0 END)
        FROM old_rows GROUP BY 2, 3, 4;
    ELSE
        INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
        SELECT 'copy', user_id, kind, status, SUM(amount), SUM(bytes) FROM (
            SELECT user_id, CASE WHEN remove_after IS NULL THEN 'stored' ELSE 'unwanted' END AS kind,
                CASE WHEN position = 0 THEN 'first' ELSE 'further' END AS status, -1 AS amount,
                CASE WHEN repository_id IS NULL THEN -size_bytes ELSE 0 END AS bytes
                FROM old_rows
            UNION ALL
            SELECT user_id, CASE WHEN remove_after IS NULL THEN 'stored' ELSE 'unwanted' END AS kind,
                CASE WHEN position = 0 THEN 'first' ELSE 'further' END AS status, 1 AS amount,
                CASE WHEN repository_id IS NULL THEN size_bytes ELSE 0 END AS bytes
                FROM new_rows
        ) changes GROUP BY 2, 3, 4 HAVING SUM(amount) <> 0 OR SUM(bytes) <> 0;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION keep_repository_totals() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before BIGINT := 0;
    after BIGINT := 0;
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.removed_at IS NULL THEN
        before := COALESCE(OLD.stored_bytes, 0);
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.removed_at IS NULL THEN
        after := COALESCE(NEW.stored_bytes, 0);
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.user_id = NEW.user_id THEN
        after := after - before;
        before := 0;
    END IF;
    IF before <> 0 THEN
        INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
        VALUES ('copy', OLD.user_id, 'stored', 'repository', 0, -before);
    END IF;
    IF after <> 0 THEN
        INSERT INTO totals (subject, user_id, kind, status, amount, bytes)
        VALUES ('copy', NEW.user_id, 'stored', 'repository', 0, after);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER repositories_total AFTER INSERT OR DELETE OR UPDATE OF user_id, stored_bytes, removed_at ON repositories
    FOR EACH ROW EXECUTE FUNCTION keep_repository_totals();

-- Lists of prunes and checks of a user.
CREATE INDEX runs_of_repositories ON runs (user_id, id) WHERE repository_id IS NOT NULL;

-- What went wrong with the last prune, apart from what went wrong with the last check: one says nothing about the other.
ALTER TABLE repositories ADD COLUMN prune_trouble_code TEXT;
ALTER TABLE repositories ADD COLUMN prune_trouble TEXT;
ALTER TABLE repositories ADD COLUMN prune_told_at BIGINT;
UPDATE repositories SET prune_trouble_code = trouble_code, prune_trouble = trouble, prune_told_at = trouble_told_at,
    trouble_code = NULL, trouble = NULL, trouble_told_at = NULL WHERE trouble_of = 'prune';
ALTER TABLE repositories DROP COLUMN trouble_of;
ALTER TABLE repositories RENAME COLUMN trouble_code TO check_trouble_code;
ALTER TABLE repositories RENAME COLUMN trouble TO check_trouble;
ALTER TABLE repositories RENAME COLUMN trouble_told_at TO check_told_at;
