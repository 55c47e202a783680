-- Where a destination is becomes one value, as what a task does did before.
ALTER TABLE backup_destinations ADD COLUMN spec TEXT NOT NULL DEFAULT '';
UPDATE backup_destinations SET spec = CAST(json_strip_nulls(json_build_object(
    'type', kind,
    's3_bucket_name', s3_bucket,
    's3_region', s3_region,
    'custom_s3_endpoint', s3_endpoint,
    'path_style_endpoint', CASE WHEN s3_bucket IS NOT NULL THEN s3_path_style END)) AS TEXT);

DROP TRIGGER backup_destinations_wish ON backup_destinations;
CREATE TRIGGER backup_destinations_wish AFTER INSERT OR DELETE OR UPDATE OF
        label, kind, spec, s3_access_key_sealed, s3_secret_key_sealed, marker
    ON backup_destinations FOR EACH ROW EXECUTE FUNCTION wish_catalogue();

ALTER TABLE backup_destinations DROP COLUMN s3_bucket;
ALTER TABLE backup_destinations DROP COLUMN s3_region;
ALTER TABLE backup_destinations DROP COLUMN s3_endpoint;
ALTER TABLE backup_destinations DROP COLUMN s3_path_style;
