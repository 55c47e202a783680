-- Objects whose dump is odd: backslashes, quotes and psql commands wherever a text can be.
SET standard_conforming_strings=on;
CREATE SCHEMA app AUTHORIZATION app;
CREATE TABLE t (id serial primary key, a text, b bytea, begin int, "Odd ""col" text, arr int[], j jsonb);
INSERT INTO t(a,b,begin,"Odd ""col") VALUES (E'back\\slash\ttab\nnl\rcr', '\xdeadbeef', 1, NULL), ('\.', '', 2, '\'), (E'\x01\x02', NULL, 3, '\! id');
CREATE VIEW v AS SELECT '\'::text AS x, a, t.begin FROM t WHERE a <> 'it''s' AND a ~ '^\\d';
CREATE VIEW v2 AS SELECT arr[1:2] AS s, arr[t.begin:t.id] AS s2, j->>'a' AS ja, j ? 'k' AS q, -id AS neg, CASE WHEN id=1 THEN 'a' ELSE 'b' END c FROM t;
CREATE FUNCTION f() RETURNS text LANGUAGE plpgsql AS $a$ BEGIN /* \! id */ -- it's
 EXECUTE $b$ SELECT '\' $b$; RETURN $$x$$; END $a$;
CREATE FUNCTION g(i int) RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT CASE WHEN i > 1 THEN 2 ELSE $1 END; SELECT 3; END;
CREATE FUNCTION h(i int) RETURNS int LANGUAGE sql RETURN i + 1;
CREATE PROCEDURE p() LANGUAGE sql AS $$ SELECT 1 $$;
CREATE FUNCTION crlf() RETURNS int LANGUAGE sql AS E'\r\n SELECT 1\r\n';
CREATE DOMAIN d AS text CONSTRAINT cc CHECK (VALUE <> '\') CONSTRAINT c2 CHECK (VALUE <> E'a\tb');
CREATE TYPE e AS ENUM ('a','b\c','it''s'); CREATE TYPE comp AS (a int, b text);CREATE TYPE r AS RANGE (subtype=float8);
CREATE TABLE "Tab le" (); CREATE TABLE part (i int) PARTITION BY RANGE (i); CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (1) TO (10);
INSERT INTO part VALUES (2);
CREATE TABLE gen (a int, b int GENERATED ALWAYS AS (a*2) STORED, c int GENERATED ALWAYS AS IDENTITY);
INSERT INTO gen(a) values (1);
COMMENT ON TABLE t IS E'odd -- \\! id\n\\! id\n\\connect evil'; COMMENT ON COLUMN t.begin IS 'x';
ALTER TABLE t ALTER COLUMN begin SET DEFAULT 7;
CREATE RULE ru AS ON INSERT TO v2 DO INSTEAD (INSERT INTO part VALUES (1); INSERT INTO part VALUES (2););
CREATE POLICY pol ON t USING (a = '\'); ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE FUNCTION trg() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER tt BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.a <> '\') EXECUTE FUNCTION trg('a\b', E'c\nd');
CREATE FUNCTION et() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN END$$; CREATE EVENT TRIGGER ev ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION et();
SELECT lo_create(4711); SELECT lo_put(4711, 0, '\x00ff5c2e0a'); COMMENT ON LARGE OBJECT 4711 IS 'lo'; GRANT SELECT ON LARGE OBJECT 4711 TO app;
CREATE MATERIALIZED VIEW mv AS SELECT count(*) FROM t;
CREATE INDEX ix ON t (lower(a)) WHERE a <> '\'; CREATE UNIQUE INDEX ux ON t (id) INCLUDE (begin);
CREATE OPERATOR === (LEFTARG=int, RIGHTARG=int, FUNCTION=int4eq);
CREATE AGGREGATE ag(int) (SFUNC=int4pl, STYPE=int, INITCOND='0');
CREATE TEXT SEARCH CONFIGURATION tsc (COPY=simple);
CREATE FOREIGN DATA WRAPPER fdw OPTIONS (a 'x\y', b 'it''s'); CREATE SERVER srv FOREIGN DATA WRAPPER fdw OPTIONS (host 'h\h'); CREATE USER MAPPING FOR app SERVER srv OPTIONS (password 'p''w\');
CREATE FOREIGN TABLE ft (a int OPTIONS (x 'y\z')) SERVER srv OPTIONS (k 'v');
CREATE PUBLICATION pub FOR TABLE t WHERE (id > 1); CREATE STATISTICS st ON id, begin FROM t; CREATE CAST (e AS int) WITH INOUT; 
CREATE SEQUENCE sq; SELECT setval('sq', 42); ALTER DEFAULT PRIVILEGES IN SCHEMA app GRANT SELECT ON TABLES TO app;
CREATE TABLE bytes (a text); INSERT INTO bytes VALUES (chr(228) || '\');
ALTER FUNCTION f() COST 1000000;
CREATE FUNCTION fs() RETURNS int LANGUAGE sql SET search_path = 'a b', public SET work_mem='1MB' AS 'SELECT 1';
CREATE TABLE "evil
\! id
" (a int);
GRANT SELECT (a) ON t TO app; ALTER TABLE t OWNER TO app; ALTER TABLE t REPLICA IDENTITY FULL;
CREATE TABLE ex (c circle, EXCLUDE USING gist (c WITH &&)); ALTER TABLE t ADD CONSTRAINT chk CHECK (a <> E'\\x\n');
GRANT SELECT ON t TO app; GRANT SELECT ON t TO "Odd ""role" WITH GRANT OPTION; SET ROLE "Odd ""role"; GRANT SELECT ON t TO "a'b\c"; RESET ROLE;
