-- Roles and databases whose names and settings are odd.
CREATE ROLE app LOGIN PASSWORD 'secret' CONNECTION LIMIT 5 VALID UNTIL '2030-01-01';
CREATE ROLE "Odd ""role" ; CREATE ROLE "a'b\c" CREATEDB;
CREATE ROLE "rôle";
GRANT app TO "Odd ""role" WITH ADMIN OPTION;
ALTER ROLE app SET search_path = a, "B c", public; ALTER ROLE app SET work_mem='8MB';
COMMENT ON ROLE app IS E'it''s \\ a\nrole';
CREATE DATABASE "my-app" OWNER app; CREATE DATABASE "Wei""rd"; CREATE DATABASE "a'b"; CREATE DATABASE "x\y"; CREATE DATABASE "Upper"; CREATE DATABASE "user";
CREATE DATABASE "dätabase";
CREATE DATABASE ascii ENCODING SQL_ASCII TEMPLATE template0; CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C';
CREATE DATABASE tmpl IS_TEMPLATE true CONNECTION LIMIT 3;
ALTER DATABASE "my-app" SET search_path = "$user", 'x y', public;
ALTER ROLE app IN DATABASE "my-app" SET work_mem='9MB';
COMMENT ON DATABASE "my-app" IS 'comment \ with -- \! stuff'; REVOKE ALL ON DATABASE "my-app" FROM PUBLIC; GRANT CONNECT ON DATABASE "my-app" TO app WITH GRANT OPTION;
DO $do$ BEGIN
    IF current_setting('server_version_num')::int >= 150000 THEN
        EXECUTE $$GRANT SET ON PARAMETER work_mem TO "Odd ""role", "a'b\c"$$;
        EXECUTE $$REVOKE SET ON PARAMETER work_mem FROM "a'b\c"$$;
        EXECUTE $$GRANT SET ON PARAMETER log_statement TO "rôle" WITH GRANT OPTION$$;
        EXECUTE $$GRANT SET ON PARAMETER my.x TO PUBLIC$$;
    END IF;
END $do$;
