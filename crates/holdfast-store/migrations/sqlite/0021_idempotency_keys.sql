-- Responses to requests that clients may send again, by the key that they chose.
CREATE TABLE idempotency_keys (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id BIGINT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    request TEXT NOT NULL,
    status BIGINT,
    location TEXT,
    response_sealed BLOB,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX idempotency_keys_user ON idempotency_keys (user_id, key);
CREATE INDEX idempotency_keys_created ON idempotency_keys (created_at);
