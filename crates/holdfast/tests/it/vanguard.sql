-- Tables as Vanguard's migrations make them, with what its forms and API write; a test loads this into a PostgreSQL and dumps it.
CREATE TABLE users (id bigint PRIMARY KEY, name varchar(255) NOT NULL, email varchar(255) NOT NULL, password varchar(255),
    timezone varchar(255) NOT NULL DEFAULT 'UTC', language varchar(255) NOT NULL DEFAULT 'en', created_at timestamp(0), updated_at timestamp(0));
CREATE TABLE remote_servers (id bigint PRIMARY KEY, user_id bigint NOT NULL, label varchar(255) NOT NULL, ip_address varchar(255) NOT NULL,
    username varchar(255) NOT NULL, port varchar(255) NOT NULL DEFAULT '22', last_connected_at timestamp(0), connectivity_status varchar(255),
    database_password varchar(255), marked_for_deletion_at timestamp(0), created_at timestamp(0), updated_at timestamp(0));
CREATE TABLE backup_destinations (id bigint PRIMARY KEY, user_id bigint NOT NULL, label varchar(255) NOT NULL, type varchar(255) NOT NULL,
    s3_access_key text, s3_secret_key text, s3_bucket_name text, custom_s3_endpoint text, custom_s3_region varchar(255),
    path_style_endpoint boolean NOT NULL DEFAULT false, status varchar(255) NOT NULL DEFAULT 'unknown', created_at timestamp(0), updated_at timestamp(0));
CREATE TABLE backup_tasks (id bigint PRIMARY KEY, label varchar(255) NOT NULL, description text, source_path varchar(255), user_id bigint NOT NULL,
    backup_destination_id bigint NOT NULL, remote_server_id bigint, status varchar(255) NOT NULL DEFAULT 'ready', time_to_run_at varchar(255),
    frequency varchar(255), custom_cron_expression varchar(255), last_run_at timestamp(0), maximum_backups_to_keep integer NOT NULL DEFAULT 5,
    type varchar(255) NOT NULL DEFAULT 'files', database_name varchar(255), paused_at timestamp(0), appended_file_name varchar(255), store_path varchar(255),
    excluded_database_tables varchar(255), encryption_password varchar(255), webhook_token varchar(64), created_at timestamp(0), updated_at timestamp(0));
CREATE TABLE notification_streams (id bigint PRIMARY KEY, label varchar(255) NOT NULL, type varchar(255) NOT NULL, value varchar(255), user_id bigint NOT NULL,
    receive_successful_backup_notifications timestamp(0), receive_failed_backup_notifications timestamp(0), additional_field_one text, additional_field_two text,
    created_at timestamp(0), updated_at timestamp(0));
CREATE TABLE backup_task_notification_streams (id bigint PRIMARY KEY, backup_task_id bigint NOT NULL, notification_stream_id bigint NOT NULL);
CREATE TABLE tags (id bigint PRIMARY KEY, label varchar(255) NOT NULL, description text, user_id bigint NOT NULL, colour varchar(255));
CREATE TABLE taggables (tag_id bigint NOT NULL, taggable_type varchar(255) NOT NULL, taggable_id bigint NOT NULL);
CREATE TABLE backup_task_logs (id bigint PRIMARY KEY, output text NOT NULL);

INSERT INTO users VALUES (7, 'Grace Hopper', 'grace@example.org', '$2y$12$x', 'America/New_York'), (9, 'Nobody', 'nobody@example.org', NULL, 'UTC');
INSERT INTO remote_servers (id, user_id, label, ip_address, username, port, database_password) VALUES
    (3, 7, 'web''s server', '127.0.0.1', 'backup', '2222', 'eyJpdiI6IkJBUUVCQVFFQkFRRUJBUUVCQVFFQkE9PSIsInZhbHVlIjoia3Y0byszWkhwc1IrNlBYZnpYVDYyUT09IiwibWFjIjoiNTdmOWNlYjUwNWQwMTE0MTRmNzE1MjhmOTY0MGQyYTkzMGM4NTkwYTYxMWViNjdjNjdhZmQ4OGMxMGYwYTk5YiIsInRhZyI6IiJ9'),
    (4, 7, 'gone', '127.0.0.1', 'backup', '22', NULL);
UPDATE remote_servers SET marked_for_deletion_at = now() WHERE id = 4;
INSERT INTO backup_destinations (id, user_id, label, type, s3_access_key, s3_secret_key, s3_bucket_name, custom_s3_endpoint, custom_s3_region, path_style_endpoint) VALUES
    (1, 7, 'bucket', 'custom_s3', 'eyJpdiI6IkFBQUFBQUFBQUFBQUFBQUFBQUFBQUE9PSIsInZhbHVlIjoiS3dDNVlzZG85OUdva3ZMS0FZcVZ2UT09IiwibWFjIjoiYTI5MGZhOGRiMDBhMGRhMTBkYTk5ZWE4NWIyNzA4YTEzNWMyNTk4M2Y4NzMyMmU3MGNjN2EzMWEyMjhlZjMwMiIsInRhZyI6IiJ9', 'eyJpdiI6IkFRRUJBUUVCQVFFQkFRRUJBUUVCQVE9PSIsInZhbHVlIjoiTmdXMGpBSjZiNXdMMWlDMG4rajF5UT09IiwibWFjIjoiZDhkMTNkNTRkNDM3YzdkZmI5M2EyZDc0YmUyYmIzYWI1MjQxNDI1NmMyNWVmZDI0ZDc1ZWVkZDY5ODc3NGE3NyIsInRhZyI6IiJ9', 'eyJpdiI6IkFnSUNBZ0lDQWdJQ0FnSUNBZ0lDQWc9PSIsInZhbHVlIjoiaEMrU21rSEpSTTdYd1VlNDdDb0VwQT09IiwibWFjIjoiM2EzMzhhNzFkNmUyMDNiMzNkYjBiNGRlMjVkZThhOGY4Njg5OWIwYmRjMzE5OTE1NWJjNDM5YjllMGU3N2RiMSIsInRhZyI6IiJ9', 'eyJpdiI6IkF3TURBd01EQXdNREF3TURBd01EQXc9PSIsInZhbHVlIjoicDE1cjdGYmt6RjhLTjhwM25uWGp6NkRNbXNqNEk4SEV2QXRzbEZkem5lWT0iLCJtYWMiOiIxZmEyOTg1NmQzNzhmYmIzMmNlOTk3NGM2ZTZjNDRjMmUzZmU5MWZmZDExYjNhY2NhN2ZkMWVmZDNiOWEyMzNlIiwidGFnIjoiIn0=', NULL, true),
    (2, 7, 'on the server', 'local', NULL, NULL, NULL, NULL, NULL, false),
    (5, 7, 'amazon', 's3', 'PLAIN-OLD-KEY', 'plain old secret', 'old-bucket', NULL, 'eu-west-1', false);
INSERT INTO tags VALUES (1, 'important', NULL, 7, '#ff0000');
INSERT INTO notification_streams (id, label, type, value, user_id, receive_successful_backup_notifications, receive_failed_backup_notifications, additional_field_one) VALUES
    (1, 'mail', 'email', 'grace@example.org', 7, NULL, now(), NULL),
    (2, 'chat', 'discord_webhook', 'https://discord.com/api/webhooks/1/abc', 7, now(), now(), NULL),
    (3, 'phone', 'pushover', 'azGDORePK8gMaC0QOYAMyEEuzJnyUi', 7, NULL, now(), 'uQiRzpo4DXghDmr9QzzfQu27cmVRsG'),
    (4, 'bot', 'telegram', '12345', 7, NULL, now(), NULL);
INSERT INTO backup_tasks (id, label, description, source_path, user_id, backup_destination_id, remote_server_id, time_to_run_at, frequency,
    custom_cron_expression, maximum_backups_to_keep, type, database_name, paused_at, appended_file_name, store_path, excluded_database_tables, encryption_password) VALUES
    (11, 'site', E'two\nlines', '/var/www', 7, 1, 3, '04:00', 'daily', NULL, 14, 'files', NULL, NULL, 'site', '/web', NULL, 'eyJpdiI6IkJRVUZCUVVGQlFVRkJRVUZCUVVGQlE9PSIsInZhbHVlIjoieGdON1p0L1FOWFJiVEhUUnZjWmpEVDZxczd3K0VRVEUvZWMzVW12dTNNMD0iLCJtYWMiOiIwNjM3MmE3ZTUzNjk4N2YxZDNjM2YyNjk1ZWYzODJmN2EwZGFlYjY4MTFlZGIxNGNlZGNlNDFlZGZiM2RjYzM1IiwidGFnIjoiIn0='),
    (12, 'shop', '', NULL, 7, 5, 3, NULL, NULL, '*/30 * * * *', 0, 'database', 'shop', now(), NULL, NULL, 'sessions,cache', NULL),
    (13, 'of the gone', NULL, '/srv', 7, 1, 4, '01:00', 'weekly', NULL, 5, 'files', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO backup_task_notification_streams VALUES (1, 11, 1), (2, 11, 2), (3, 11, 2), (4, 11, 4);
INSERT INTO taggables VALUES (1, 'App\Models\BackupTask', 11);
INSERT INTO backup_task_logs VALUES (1, 'INSERT INTO users VALUES (8);');
