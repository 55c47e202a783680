"""Drives every operation of the API with the client that was generated into the package `generated`.

The argument is a JSON object that describes the stage; see stage.rs.
"""

import datetime
import hashlib
import importlib
import json
import pathlib
import sys
import time

import attrs
import httpx
from generated import AuthenticatedClient, Client, models

# Long enough for a busy machine.
PATIENCE_SECS = 120
LOOK_EVERY_SECS = 0.05


def check(is_so, *said):
    if not is_so:
        raise AssertionError(" ".join(str(part) for part in said))


def is_same(one, other):
    """Whether two JSON values are the same. A time can be written in several ways."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, str) and isinstance(other, str) and one != other:
        try:
            return read_time(one) == read_time(other)
        except ValueError:
            return False
    return one == other


def read_time(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def check_described(model, place):
    """Fails if a response has a field that the document does not describe."""
    if isinstance(model, list):
        for item in model:
            check_described(item, place)
    elif hasattr(model, "additional_properties"):
        described = [field.name for field in attrs.fields(type(model)) if field.name != "additional_properties"]
        more = model.additional_properties
        # A map, such as the errors of each field, and the document itself have nothing but such fields.
        check(not more or not described or isinstance(model, models.OpenApiDocument), place, "also has", more)
        for name in described:
            check_described(getattr(model, name, None), f"{place}.{name}")


def blocks(response):
    """The blocks of a stream of server-sent events, each with its fields."""
    block = {}
    for line in response.iter_lines():
        if line:
            name, _, value = line.partition(":")
            block[name] = value.strip()
        else:
            yield block
            block = {}


class Driver:
    def __init__(self, stage):
        self.stage = stage
        self.url = stage["url"]
        patience = httpx.Timeout(PATIENCE_SECS)
        self.nobody = Client(base_url=self.url, timeout=patience, raise_on_unexpected_status=True)
        self.client = self.with_token(stage["token"])
        self.operations = {}
        document = httpx.get(self.url + "/api/openapi.json").json()
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                self.operations[operation["operationId"]] = operation
        self.driven = set()

    def with_token(self, token):
        patience = httpx.Timeout(PATIENCE_SECS)
        return AuthenticatedClient(base_url=self.url, token=token, timeout=patience, raise_on_unexpected_status=True)

    def module(self, name):
        tag = self.operations[name]["tags"][0].lower().replace(" ", "_")
        return importlib.import_module(f"generated.api.{tag}.{name}")

    def type_of(self, name, status):
        """The type that the client has for a response."""
        content = self.operations[name]["responses"][str(status)]["content"]
        schema = content["application/json"]["schema"]
        if "$ref" in schema:
            return getattr(models, schema["$ref"].rsplit("/")[-1])
        return getattr(models, "".join(word.capitalize() for word in name.split("_")) + f"Response{status}")

    def call(self, name, code=200, client=None, **arguments):
        """Calls an operation, and checks the status and that the type of the answer describes all of it."""
        response = self.module(name).sync_detailed(client=client or self.client, **arguments)
        check(response.status_code == code, name, "answered", response.status_code.value, response.content)
        if 200 <= code < 300:
            self.driven.add(name)
        if response.headers["content-type"] == "application/json":
            expected, parsed = self.type_of(name, code), response.parsed
            check(isinstance(parsed, expected), name, "is", type(parsed), "instead of", expected)
            check(is_same(parsed.to_dict(), json.loads(response.content)), name, parsed, "is not", response.content)
            check_described(parsed, name)
        return response

    def data(self, name, code=200, **arguments):
        return self.call(name, code, **arguments).parsed.data

    def queue(self, name, **arguments):
        """Calls an operation that queues work, and returns the id of that."""
        response = self.call(name, 202, **arguments)
        found = response.parsed.data.id
        check(response.headers["location"].endswith(f"/{found}"), name, response.headers["location"])
        return found

    def wait(self, name, is_wanted, **arguments):
        """Calls an operation until its answer is the wanted one."""
        deadline = time.monotonic() + PATIENCE_SECS
        while True:
            data = self.data(name, **arguments)
            if is_wanted(data):
                return data
            check(time.monotonic() < deadline, name, "is still", data)
            time.sleep(LOOK_EVERY_SECS)

    def ended(self, run):
        return self.wait("get_runs_id", lambda run: run.finished_at is not None, id=run)

    def succeeded(self, run):
        run = self.ended(run)
        check(run.status == "successful", run)
        return run

    def rename(self, kind, identifier):
        """Renames a resource with both methods; nothing else of it may change."""
        for method in ("put", "patch"):
            before = self.data(f"get_{kind}_id", id=identifier).to_dict()
            name, label = f"{method}_{kind}_id", f"{before['label']}, renamed with {method}"
            schema = self.operations[name]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            body = getattr(models, schema.rsplit("/")[-1])(label=label)
            check(body.to_dict() == {"label": label}, name, "would send", body.to_dict())
            answer = self.data(name, id=identifier, body=body).to_dict()
            after = self.data(f"get_{kind}_id", id=identifier).to_dict()
            check(answer == after, name, "answered", answer, "instead of", after)
            check(after.pop("label") == label, name, after)
            del before["label"], before["updated_at"], after["updated_at"]
            check(before == after, name, "changed", before, "to", after)

    def is_listed(self, name, identifier, **arguments):
        """Whether a list has an item, on any of its pages."""
        cursor, found = None, False
        while True:
            more = {"cursor": cursor} if cursor else {}
            page = self.call(name, per_page=1, **more, **arguments).parsed
            found = found or any(item.id == identifier for item in page.data)
            cursor = page.meta.next_cursor
            if cursor is None:
                return found
            check(isinstance(cursor, str) and len(page.data) == 1, name, page)


def account(driver):
    public_key = driver.data("get_ssh_key").public_key
    check(public_key.startswith("ssh-ed25519 "), public_key)
    user = driver.data("get_user")
    check(user.personal_info.email == driver.stage["email"], user)
    document = driver.call("get_openapijson", client=driver.nobody).parsed
    check(set(document["paths"]) and document.openapi == "3.1.0", document.openapi)
    device = {"email": driver.stage["email"], "device_name": "phone"}
    wrong = models.DeviceBody(password="wrong", **device)
    refused = driver.call("post_device_auth_token", 422, client=driver.nobody, body=wrong).parsed
    check(refused.errors.additional_properties, refused)
    right = models.DeviceBody(password=driver.stage["password"], **device)
    token = driver.call("post_device_auth_token", client=driver.nobody, body=right).parsed.token
    check(driver.data("get_user", client=driver.with_token(token)).id == user.id, "the token is of another user")
    driver.call("get_user", 401, client=driver.with_token("1|wrong"))


def tags(driver):
    body = models.TagBody(label="web", description="What the public sees", colour="#0b5cad")
    created = driver.call("post_tags", 201, body=body)
    tag = created.parsed.data
    driver.rename("tags", tag.id)
    check(driver.is_listed("get_tags", tag.id), "the tag is not listed")
    # Versions: what somebody else changed meanwhile is neither changed nor deleted.
    old = created.headers["etag"]
    change = models.TagBodyUpdate(description=None)
    driver.call("patch_tags_id", 412, id=tag.id, body=change, if_match=old)
    driver.call("delete_tags_id", 412, id=tag.id, if_match=old)
    new = driver.call("get_tags_id", id=tag.id).headers["etag"]
    changed = driver.data("patch_tags_id", id=tag.id, body=change, if_match=new)
    check(changed.description is None and changed.colour == "#0b5cad", changed)
    strange = models.TagBodyUpdate.from_dict({"lable": "x"})
    refused = driver.call("patch_tags_id", 422, id=tag.id, body=strange, prefer="handling=strict").parsed
    check("lable" in refused.errors.additional_properties, refused)
    return tag.id


def streams(driver):
    body = models.StreamBody(
        label="chat",
        type_=models.StreamBodyType.SLACK,
        value=driver.stage["hook"],
        notifications=models.NotificationFlagsBody(on_success=True, on_failure=False),
    )
    stream = driver.data("post_notification_streams", 201, body=body)
    driver.ended(driver.queue("post_notification_streams_id_test", id=stream.id))
    tested = driver.data("get_notification_streams_id", id=stream.id)
    check(tested.last_test and not tested.last_test.succeeded and "no_service" in tested.last_test.message, tested)
    driver.rename("notification_streams", stream.id)
    check(driver.is_listed("get_notification_streams", stream.id), "the stream is not listed")
    quiet = models.QuietHoursResourceUpdate(from_="03:00", until="03:01")
    update = models.NotificationSettingsBodyUpdate(quiet_hours=quiet)
    set_ = driver.data("put_notification_settings", body=update)
    check(set_.quiet_hours.from_ == "03:00" and not set_.weekly_summary_enabled, set_)
    update = models.NotificationSettingsBodyUpdate(weekly_summary_enabled=True)
    check(update.to_dict() == {"weekly_summary_enabled": True}, update)
    driver.call("patch_notification_settings", body=update)
    both = driver.data("get_notification_settings")
    check(both.weekly_summary_enabled and both.quiet_hours == set_.quiet_hours, both)
    update = models.NotificationSettingsBodyUpdate(quiet_hours=None)
    check(driver.data("put_notification_settings", body=update).quiet_hours is None, "quiet hours stay")
    return stream.id


def servers(driver):
    body = models.ServerBody(
        label="web-1",
        ip_address="127.0.0.1",
        port=driver.stage["port"],
        username=driver.stage["username"],
        database_username="dump",
        database_password="secret",
    )
    server = driver.data("post_remote_servers", 201, body=body)
    driver.succeeded(driver.queue("post_remote_servers_id_check", id=server.id))
    checked = driver.data("get_remote_servers_id", id=server.id)
    check(checked.status.connectivity == "online" and checked.status.tools, checked)
    driver.rename("remote_servers", server.id)
    inner = models.ServerBody(label="db-1", ip_address="192.0.2.1", username="backup", jump_server_id=server.id)
    inner = driver.data("post_remote_servers", 201, body=inner)
    check(inner.connection.port == 22 and inner.connection.jump_server_id == server.id, inner)
    driver.rename("remote_servers", inner.id)
    check(driver.is_listed("get_remote_servers", inner.id), "the server is not listed")
    driver.call("delete_remote_servers_id", 409, id=server.id)
    driver.call("delete_remote_servers_id", id=inner.id)
    driver.call("get_remote_servers_id", 404, id=inner.id)
    other = driver.stage["reinstalled_server"]
    offered = driver.data("get_remote_servers_id", id=other).connection.offered_host_key_fingerprint
    wrong = models.AcceptHostKeyBody(fingerprint="SHA256:another")
    driver.call("post_remote_servers_id_accept_host_key", 409, id=other, body=wrong)
    body = models.AcceptHostKeyBody(fingerprint=offered)
    accepted = driver.data("post_remote_servers_id_accept_host_key", id=other, body=body)
    check(accepted.connection.host_key_fingerprint == offered, accepted)
    driver.succeeded(driver.queue("post_remote_servers_id_check", id=other))
    return server.id


def destinations(driver):
    s3 = {"s3_access_key": "key", "s3_secret_key": "secret", "s3_bucket_name": "bucket"}
    kinds = models.DestinationBodyType
    bodies = [
        models.DestinationBody(label="Amazon", type_=kinds.S3, s3_region="eu-west-1", **s3),
        models.DestinationBody(
            label="custom",
            type_=kinds.CUSTOM_S3,
            custom_s3_endpoint="https://s3.example.org",
            s3_region="eu-west-1",
            path_style_endpoint=False,
            **s3,
        ),
        models.DestinationBody(
            label="box",
            type_=kinds.SFTP,
            sftp_host="box.example.org",
            sftp_port=2222,
            sftp_username="u",
            sftp_path="/backups",
            sftp_password="secret",
        ),
    ]
    for body in bodies:
        destination = driver.data("post_backup_destinations", 201, body=body)
        driver.rename("backup_destinations", destination.id)
        driver.call("delete_backup_destinations_id", id=destination.id)
    local = models.DestinationBody(label="this machine", type_=kinds.LOCAL)
    destination = driver.data("post_backup_destinations", 201, body=local)
    driver.succeeded(driver.queue("post_backup_destinations_id_check", id=destination.id))
    checked = driver.data("get_backup_destinations_id", id=destination.id)
    check(checked.status == "reachable", checked)
    driver.rename("backup_destinations", destination.id)
    check(driver.is_listed("get_backup_destinations", destination.id), "the destination is not listed")
    return destination.id


def task_bodies(driver, server, destination, stream, tag):
    common = {"remote_server_id": server, "backup_destination_id": destination}
    files = models.TaskBody(
        label="web files",
        description="What the shop shows",
        type_=models.TaskBodyType.FILES,
        source_path=driver.stage["source"],
        excluded_paths=["*.tmp"],
        one_file_system=True,
        frequency=models.TaskBodyFrequency.WEEKLY,
        time_to_run_at="03:30",
        day_of_week=2,
        timezone="Europe/Berlin",
        spread_minutes=10,
        maximum_backups_to_keep=30,
        store_path="/offsite",
        appended_filename="web",
        encryption_password="correct horse",
        heartbeat_url=driver.stage["hook"],
        notification_stream_ids=[stream],
        tag_ids=[tag],
        **common,
    )
    database = models.TaskBody(
        label="shop",
        type_=models.TaskBodyType.DATABASE,
        database_engine=models.TaskBodyDatabaseEngineType0.POSTGRESQL,
        database_name="shop",
        excluded_tables="sessions,cache",
        custom_cron="15 3 * * 1-5",
        paused=True,
        **common,
    )
    endless = models.TaskBody(
        label="endless",
        type_=models.TaskBodyType.FILES,
        source_path=driver.stage["endless"],
        frequency=models.TaskBodyFrequency.MONTHLY,
        day_of_month=3,
        time_to_run_at="03:00",
        **common,
    )
    return files, database, endless


def tasks(driver, *needed):
    """Creates tasks and renames them; returns the ids of one of files and of one that only cancelling ends."""
    made = [driver.data("post_backup_tasks", 201, body=body) for body in task_bodies(driver, *needed)]
    files, database, endless = made
    check(database.paused_at and database.source.excluded_tables == "sessions,cache", database)
    check(files.has_encryption_password and files.has_heartbeat_url and files.storage.max_backups == 30, files)
    for task in made:
        driver.rename("backup_tasks", task.id)
    check(driver.is_listed("get_backup_tasks", files.id, tag_id=files.tag_ids[0]), "the task is not listed")
    check(driver.data("post_backup_tasks_id_pause", id=files.id).paused_at, "the task is not paused")
    check(driver.data("post_backup_tasks_id_resume", id=files.id).paused_at is None, "the task is paused")
    upcoming = driver.data("get_backup_tasks_upcoming", limit=100)
    check([item.label for item in upcoming if item.backup_task_id == str(files.id)], upcoming)
    held = driver.stage["held_task"]
    check(driver.data("get_backup_tasks_id", id=held).protection.retention_held, "retention goes on")
    release = models.ReleaseRetentionBody()
    released = driver.data("post_backup_tasks_id_release_retention", id=held, body=release)
    check(not released.protection.retention_held, released)
    driver.call("post_backup_tasks_id_release_retention", 409, id=held, body=release)
    driver.call("delete_backup_tasks_id", id=database.id)
    driver.call("get_backup_tasks_id", 404, id=database.id)
    return files.id, endless.id


def run_and_follow(driver, task):
    """Runs a task once, however often that is requested, and follows it in the stream of events."""
    follow = driver.module("get_events")._get_kwargs
    with driver.client.get_httpx_client().stream(**follow()) as events:
        check(events.status_code == 200, events)
        found = blocks(events)
        start = next(found)["id"]
        first = driver.call("post_backup_tasks_id_run", 202, id=task, idempotency_key="once")
        again = driver.call("post_backup_tasks_id_run", 202, id=task, idempotency_key="once")
        run = first.parsed.data.id
        check(again.parsed.data.id == run and again.headers["idempotency-replayed"] == "true", again)
        wait_for_event(found, run, "successful")
    with driver.client.get_httpx_client().stream(**follow(last_event_id=start)) as events:
        wait_for_event(blocks(events), run, "queued")
    driver.driven.add("get_events")
    return run


def wait_for_event(found, run, status):
    for block in found:
        if block.get("event") == "run":
            event = models.EventResource.from_dict(json.loads(block["data"]))
            check(not event.additional_properties, event)
            if event.id == run and event.status == status:
                return
    check(False, "the stream ended before run", run, "was", status)


def logs(driver, task, run):
    check(driver.data("get_backup_tasks_id_status", id=task).status == "ready", "the task is not ready")
    latest = driver.data("get_backup_tasks_id_latest_log", id=task)
    check(latest.id == run and latest.status == "successful" and latest.files > 0, latest)
    check(driver.is_listed("get_backup_tasks_id_logs", run, id=task), "the log is not listed")
    check(driver.is_listed("get_backup_task_logs", run, backup_task_id=task), "the log is not listed")
    check(driver.data("get_backup_task_logs_id", id=run).output == latest.output, "the logs differ")


def notices(driver, stream):
    undelivered = models.GetNoticesStatus.UNDELIVERED
    query = {"notification_stream_id": stream, "status": undelivered}
    notice = driver.wait("get_notices", lambda notices: len(notices) > 0, **query)[0]
    check(notice.answer == "The channel answered 404: no_service", notice)
    check(driver.queue("post_notices_id_retry", id=notice.id) == notice.id, "another notice")
    retried = driver.wait("get_notices_id", lambda now: now.status == notice.status, id=notice.id)
    check(retried.ended_at >= notice.ended_at, retried)


def cancel(driver, task):
    for name, of in (("post_backup_tasks_id_cancel", lambda run: task), ("post_runs_id_cancel", lambda run: run)):
        run = driver.queue("post_backup_tasks_id_run", id=task)
        driver.wait("get_runs_id", lambda run: run.progress and run.progress.bytes_ > 0, id=run)
        driver.call(name, id=of(run))
        check(driver.ended(run).status == "cancelled", "it was not cancelled")
        driver.call(name, 409, id=of(run))
    driver.call("delete_backup_task_logs_id", id=run)
    driver.call("get_backup_task_logs_id", 404, id=run)


def trigger(driver, task):
    trigger = driver.data("post_backup_tasks_id_trigger_url", id=task)
    check(trigger.url.endswith(f"/webhooks/backup-tasks/{task}/run"), trigger)
    name = "post_webhooks_backup_tasks_id_run"
    driver.call(name, 404, client=driver.nobody, id=task, x_holdfast_secret="wrong")
    run = driver.queue(name, client=driver.nobody, id=task, x_holdfast_secret=trigger.secret)
    driver.succeeded(run)


def backups(driver, task, run, server):
    listed = [item for item in driver.data("get_backups", backup_task_id=task) if item.run_id == run]
    check(len(listed) == 1, listed)
    backup = driver.data("get_backups_id", id=listed[0].id)
    check(backup == listed[0] and backup.is_encrypted, backup)
    whole = driver.call("get_backups_id_download", id=backup.id).parsed.payload.read()
    check(hashlib.sha256(whole).hexdigest() == backup.sha256 and len(whole) == backup.size_bytes, "another object")
    entries = driver.data("get_backups_id_entries", id=backup.id, path="pictures")
    check([(entry.path, entry.type_) for entry in entries] == [("pictures/cat.txt", "file")], entries)
    file = driver.call("get_backups_id_download", id=backup.id, entry="pictures/cat.txt").parsed.payload.read()
    check(file == b"meow", file)
    driver.call("get_backups_id_download", 404, id=backup.id, entry="pictures/dog.txt")
    verification = driver.data("post_backups_id_verify", 202, id=backup.id)
    driver.succeeded(verification.id)
    check(driver.data("get_backups_id", id=backup.id).verification.status == "verified", "not verified")
    target = pathlib.Path(driver.stage["target"])
    body = models.RestoreBody(remote_server_id=server, path=str(target), entries=["index.html"])
    restore = driver.data("post_backups_id_restores", 202, id=backup.id, body=body)
    driver.succeeded(restore.id)
    check([path.name for path in target.iterdir()] == ["index.html"], "something else was restored")
    check((target / "index.html").read_text() == "<h1>Hello</h1>", "another file")
    kind = models.GetRunsKind.RESTORE
    check(driver.is_listed("get_runs", restore.id, backup_id=backup.id, kind=kind), "the restore is not listed")
    driver.call("delete_backups_id", id=backup.id)
    check(driver.data("get_backups_id", id=backup.id).deleted_at, "the backup is not deleted")


def repository(driver, task):
    driver.call("get_backup_tasks_id_repository", 404, id=task)
    driver.call("post_backup_tasks_id_repository_prune", 409, id=task)
    repository = models.TaskBodyUpdateFormatType0.REPOSITORY
    body = models.TaskBodyUpdate(format_=repository, encryption_password="correct horse")
    driver.data("patch_backup_tasks_id", id=task, body=body)
    driver.succeeded(driver.queue("post_backup_tasks_id_run", id=task))
    found = driver.data("get_backup_tasks_id_repository", id=task)
    check(found.backups == 1 and found.stored_bytes > 0 and found.error is None, found)
    for name in ("post_backup_tasks_id_repository_check", "post_backup_tasks_id_repository_prune"):
        run = driver.data(name, 202, id=task)
        check(run.repository_id == found.id, run)
        driver.succeeded(run.id)


def clean_up(driver, server, destination, stream, tag, tasks):
    driver.call("delete_backup_destinations_id", 409, id=destination)
    for task in tasks:
        driver.call("delete_backup_tasks_id", id=task, delete_backups=True)
    driver.call("delete_remote_servers_id", id=server)
    driver.call("delete_notification_streams_id", id=stream)
    driver.call("delete_tags_id", id=tag)
    actions = {event.action for event in driver.data("get_audit_events", per_page=100)}
    check({"tag.deleted", "backup_task.updated"} <= actions, actions)


def main():
    driver = Driver(json.loads(sys.argv[1]))
    account(driver)
    tag, stream = tags(driver), streams(driver)
    server, destination = servers(driver), destinations(driver)
    task, endless = tasks(driver, server, destination, stream, tag)
    run = run_and_follow(driver, task)
    logs(driver, task, run)
    notices(driver, stream)
    cancel(driver, endless)
    trigger(driver, task)
    backups(driver, task, run, server)
    repository(driver, task)
    clean_up(driver, server, destination, stream, tag, [task, endless])
    missing = set(driver.operations) - driver.driven
    check(not missing, "these operations were not driven:", *sorted(missing))
    print(f"The Python client drove all {len(driver.driven)} operations.")


main()
