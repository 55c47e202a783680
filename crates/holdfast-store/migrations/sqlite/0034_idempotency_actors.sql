-- Each token has its own number of keys. Keys from before have no actor and count for nobody.
ALTER TABLE idempotency_keys ADD COLUMN actor TEXT NOT NULL DEFAULT '';
CREATE INDEX idempotency_keys_actor ON idempotency_keys (user_id, actor);
