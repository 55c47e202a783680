-- The version that a response to a request with a key has told.
ALTER TABLE idempotency_keys ADD COLUMN version TEXT;
