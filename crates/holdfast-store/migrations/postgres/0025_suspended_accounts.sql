-- An administrator can suspend an account: nobody signs in to it, and nothing of it starts, until it is resumed.
ALTER TABLE users ADD COLUMN suspended_at BIGINT;
CREATE INDEX users_suspended ON users (id) WHERE suspended_at IS NOT NULL;

DROP TRIGGER users_wish ON users;
CREATE TRIGGER users_wish AFTER UPDATE OF
        name, email, password_hash, timezone, language, is_admin, weekly_summary_enabled, totp_sealed,
        quiet_from, quiet_until, suspended_at
    ON users FOR EACH ROW EXECUTE FUNCTION wish_own_catalogue();
