-- Messages are counted for each stream, too: one that has all messages of a user counted half a million for its list.
DELETE FROM totals WHERE subject = 'notice';
INSERT INTO totals (subject, user_id, kind, status, part, amount)
    SELECT 'notice', user_id, COALESCE(CAST(stream_id AS TEXT), ''), status, 0, COUNT(*) FROM notices GROUP BY 2, 3, 4;
CREATE OR REPLACE FUNCTION keep_notice_totals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO totals (subject, user_id, kind, status, amount)
        SELECT 'notice', user_id, COALESCE(CAST(stream_id AS TEXT), ''), status, COUNT(*) FROM new_rows
        GROUP BY 2, 3, 4;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO totals (subject, user_id, kind, status, amount)
        SELECT 'notice', user_id, COALESCE(CAST(stream_id AS TEXT), ''), status, -COUNT(*) FROM old_rows
        GROUP BY 2, 3, 4;
    ELSE
        INSERT INTO totals (subject, user_id, kind, status, amount)
        SELECT 'notice', user_id, kind, status, SUM(amount) FROM (
            SELECT user_id, COALESCE(CAST(stream_id AS TEXT), '') AS kind, status, -1 AS amount FROM old_rows
            UNION ALL
            SELECT user_id, COALESCE(CAST(stream_id AS TEXT), '') AS kind, status, 1 AS amount FROM new_rows
        ) changes GROUP BY 2, 3, 4 HAVING SUM(amount) <> 0;
    END IF;
    RETURN NULL;
END $$;
