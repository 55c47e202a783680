// Drives every operation of the API with openapi-fetch and the types that openapi-typescript generated into
// `schema.d.ts`. The argument is a JSON object that describes the stage; see stage.rs.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFile, readdir } from "node:fs/promises";
import createClient, { type Middleware } from "openapi-fetch";
import type { components, operations, paths } from "./schema.js";

type Schemas = components["schemas"];

interface Stage {
  url: string;
  token: string;
  email: string;
  password: string;
  port: number;
  username: string;
  source: string;
  endless: string;
  target: string;
  hook: string;
  reinstalled_server: number;
  held_task: number;
}

/** Long enough for a busy machine. */
const PATIENCE_MS = 120_000;
const LOOK_EVERY_MS = 50;

const stage = JSON.parse(process.argv[2] ?? "") as Stage;
const driven = new Set<string>();
const notes: Middleware = {
  onResponse({ request, response, schemaPath }) {
    if (response.ok) driven.add(`${request.method.toLowerCase()} ${schemaPath}`);
  },
};

function clientWith(token: string) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const client = createClient<paths>({ baseUrl: stage.url, headers });
  client.use(notes);
  return client;
}

const api = clientWith(stage.token);
const nobody = clientWith("");

interface Result<T, E> {
  data?: T;
  error?: E;
  response: Response;
}

/** The body of a successful response. */
async function ok<T>(result: Promise<Result<T, unknown>>, status = 200): Promise<T> {
  const { data, error, response } = await result;
  const told = `${response.url} answered ${response.status}: ${JSON.stringify(error)}`;
  assert.ok(data !== undefined && response.status === status, told);
  return data;
}

/** The error of a refused request. */
async function refused<E>(result: Promise<Result<unknown, E>>, status: number): Promise<E> {
  const { error, response } = await result;
  assert.equal(response.status, status, response.url);
  assert.ok(error !== undefined, response.url);
  return error;
}

/** The id of what a request has queued. */
async function queued(result: Promise<Result<Schemas["Queued"], unknown>>): Promise<number> {
  const { data } = await ok(result, 202);
  const location = (await result).response.headers.get("location");
  assert.ok(location?.endsWith(`/${data.id}`), `${location} is not ${data.id}`);
  return data.id;
}

/** Asks until the answer is the wanted one. */
async function until<T>(ask: () => Promise<T>, isWanted: (answer: T) => boolean): Promise<T> {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const answer = await ask();
    if (isWanted(answer)) return answer;
    assert.ok(Date.now() < deadline, `it is still ${JSON.stringify(answer)}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
}

const of = (id: number) => ({ params: { path: { id } } });
const showRun = async (id: number) => (await ok(api.GET("/api/runs/{id}", of(id)))).data;
const ended = (id: number) => until(() => showRun(id), (run) => run.finished_at !== null);

async function succeeded(id: number) {
  const run = await ended(id);
  assert.equal(run.status, "successful", run.output);
}

interface Named {
  label: string;
  updated_at: string;
}

type Asked<T> = Promise<Result<{ data: T }, unknown>>;

/** Renames a resource with both methods; nothing else of it may change. */
async function rename<T extends Named>(
  show: () => Asked<T>,
  put: (body: { label: string }) => Asked<T>,
  patch: (body: { label: string }) => Asked<T>,
) {
  for (const [method, update] of [["PUT", put], ["PATCH", patch]] as const) {
    const before = (await ok(show())).data;
    const label = `${before.label}, renamed with ${method}`;
    const answer = (await ok(update({ label }))).data;
    const after = (await ok(show())).data;
    assert.deepEqual(answer, after);
    assert.deepEqual(after, { ...before, label, updated_at: after.updated_at });
  }
}

interface Page {
  data: { id: number }[];
  meta: { next_cursor: string | null };
}

type List = (query: { per_page: number; cursor?: string }) => Promise<Result<Page, unknown>>;

/** Whether a list has an item, on any of its pages. */
async function isListed(id: number, list: List) {
  let [cursor, isFound] = ["", false];
  for (;;) {
    const page = await ok(list({ per_page: 1, ...(cursor ? { cursor } : {}) }));
    isFound ||= page.data.some((item) => item.id === id);
    if (page.meta.next_cursor === null) return isFound;
    assert.equal(page.data.length, 1);
    cursor = page.meta.next_cursor;
  }
}

async function account() {
  const { public_key } = (await ok(api.GET("/api/ssh-key"))).data;
  assert.match(public_key, /^ssh-ed25519 /);
  const user = (await ok(api.GET("/api/user"))).data;
  assert.equal(user.personal_info.email, stage.email);
  const device = { email: stage.email, device_name: "phone" };
  const wrong = { ...device, password: "wrong" };
  const error = await refused(nobody.POST("/api/device-auth/token", { body: wrong }), 422);
  assert.ok("errors" in error && Object.keys(error.errors).length > 0);
  const right = { ...device, password: stage.password };
  const { token } = await ok(nobody.POST("/api/device-auth/token", { body: right }));
  assert.equal((await ok(clientWith(token).GET("/api/user"))).data.id, user.id);
  const message = await refused(clientWith("1|wrong").GET("/api/user"), 401);
  assert.match(message.message, /valid authentication token/);
}

async function tags() {
  const body = { label: "web", description: "What the public sees", colour: "#0b5cad" };
  const created = await api.POST("/api/tags", { body });
  const { id } = (await ok(Promise.resolve(created), 201)).data;
  await rename(
    () => api.GET("/api/tags/{id}", of(id)),
    (body) => api.PUT("/api/tags/{id}", { ...of(id), body }),
    (body) => api.PATCH("/api/tags/{id}", { ...of(id), body }),
  );
  assert.ok(await isListed(id, (query) => api.GET("/api/tags", { params: { query } })));
  // Versions: what somebody else changed meanwhile is neither changed nor deleted.
  const versioned = (response: Response) => {
    const header = { "If-Match": response.headers.get("etag") ?? "" };
    return { params: { path: { id }, header } };
  };
  const old = versioned(created.response);
  await refused(api.PATCH("/api/tags/{id}", { ...old, body: { description: null } }), 412);
  await refused(api.DELETE("/api/tags/{id}", old), 412);
  const current = versioned((await api.GET("/api/tags/{id}", of(id))).response);
  const changed = (await ok(api.PATCH("/api/tags/{id}", { ...current, body: { description: null } }))).data;
  assert.deepEqual([changed.description, changed.colour], [null, "#0b5cad"]);
  const strict = { params: { path: { id }, header: { Prefer: "handling=strict" } } };
  const strange: Schemas["TagBodyUpdate"] = JSON.parse('{"lable": "x"}');
  const error = await refused(api.PATCH("/api/tags/{id}", { ...strict, body: strange }), 422);
  assert.ok("errors" in error && "lable" in error.errors);
  return id;
}

async function streams() {
  const body: Schemas["StreamBody"] = {
    label: "chat",
    type: "slack",
    value: stage.hook,
    notifications: { on_success: true, on_failure: false },
  };
  const { id } = (await ok(api.POST("/api/notification-streams", { body }), 201)).data;
  await ended(await queued(api.POST("/api/notification-streams/{id}/test", of(id))));
  const { last_test } = (await ok(api.GET("/api/notification-streams/{id}", of(id)))).data;
  assert.ok(last_test && !last_test.succeeded && last_test.message.includes("no_service"));
  await rename(
    () => api.GET("/api/notification-streams/{id}", of(id)),
    (body) => api.PUT("/api/notification-streams/{id}", { ...of(id), body }),
    (body) => api.PATCH("/api/notification-streams/{id}", { ...of(id), body }),
  );
  assert.ok(await isListed(id, (query) => api.GET("/api/notification-streams", { params: { query } })));
  return id;
}

async function settings() {
  const path = "/api/notification-settings";
  const quiet_hours = { from: "03:00", until: "03:01" };
  const set = (await ok(api.PUT(path, { body: { quiet_hours } }))).data;
  assert.deepEqual(set, { quiet_hours, weekly_summary_enabled: false });
  await ok(api.PATCH(path, { body: { weekly_summary_enabled: true } }));
  assert.deepEqual((await ok(api.GET(path))).data, { quiet_hours, weekly_summary_enabled: true });
  const off = (await ok(api.PUT(path, { body: { quiet_hours: null } }))).data;
  assert.deepEqual(off, { quiet_hours: null, weekly_summary_enabled: true });
}

const showServer = async (id: number) => (await ok(api.GET("/api/remote-servers/{id}", of(id)))).data;

const renameServer = (id: number) =>
  rename(
    () => api.GET("/api/remote-servers/{id}", of(id)),
    (body) => api.PUT("/api/remote-servers/{id}", { ...of(id), body }),
    (body) => api.PATCH("/api/remote-servers/{id}", { ...of(id), body }),
  );

async function servers() {
  const body: Schemas["ServerBody"] = {
    label: "web-1",
    ip_address: "127.0.0.1",
    port: stage.port,
    username: stage.username,
    database_username: "dump",
    database_password: "secret",
  };
  const { id } = (await ok(api.POST("/api/remote-servers", { body }), 201)).data;
  await succeeded(await queued(api.POST("/api/remote-servers/{id}/check", of(id))));
  const { status } = await showServer(id);
  assert.ok(status.connectivity === "online" && status.tools.length > 0);
  await renameServer(id);
  const behind = { label: "db-1", ip_address: "192.0.2.1", username: "backup", jump_server_id: id };
  const inner = (await ok(api.POST("/api/remote-servers", { body: behind }), 201)).data;
  assert.deepEqual([inner.connection.port, inner.connection.jump_server_id], [22, id]);
  await renameServer(inner.id);
  assert.ok(await isListed(inner.id, (query) => api.GET("/api/remote-servers", { params: { query } })));
  await refused(api.DELETE("/api/remote-servers/{id}", of(id)), 409);
  await ok(api.DELETE("/api/remote-servers/{id}", of(inner.id)));
  await refused(api.GET("/api/remote-servers/{id}", of(inner.id)), 404);
  return id;
}

async function hostKeys() {
  const id = stage.reinstalled_server;
  const path = "/api/remote-servers/{id}/accept-host-key";
  const fingerprint = (await showServer(id)).connection.offered_host_key_fingerprint;
  assert.ok(fingerprint !== null);
  await refused(api.POST(path, { ...of(id), body: { fingerprint: "SHA256:another" } }), 409);
  const accepted = (await ok(api.POST(path, { ...of(id), body: { fingerprint } }))).data;
  assert.equal(accepted.connection.host_key_fingerprint, fingerprint);
  await succeeded(await queued(api.POST("/api/remote-servers/{id}/check", of(id))));
}

const renameDestination = (id: number) =>
  rename(
    () => api.GET("/api/backup-destinations/{id}", of(id)),
    (body) => api.PUT("/api/backup-destinations/{id}", { ...of(id), body }),
    (body) => api.PATCH("/api/backup-destinations/{id}", { ...of(id), body }),
  );

async function destinations() {
  const keys = { s3_access_key: "key", s3_secret_key: "secret", s3_bucket_name: "bucket", s3_region: "eu-west-1" };
  const bodies: Schemas["DestinationBody"][] = [
    { label: "Amazon", type: "s3", ...keys },
    {
      label: "custom",
      type: "custom_s3",
      custom_s3_endpoint: "https://s3.example.org",
      path_style_endpoint: false,
      ...keys,
    },
    {
      label: "box",
      type: "sftp",
      sftp_host: "box.example.org",
      sftp_port: 2222,
      sftp_username: "u",
      sftp_path: "/backups",
      sftp_password: "secret",
    },
  ];
  for (const body of bodies) {
    const { id } = (await ok(api.POST("/api/backup-destinations", { body }), 201)).data;
    await renameDestination(id);
    await ok(api.DELETE("/api/backup-destinations/{id}", of(id)));
  }
  const local: Schemas["DestinationBody"] = { label: "this machine", type: "local" };
  const { id } = (await ok(api.POST("/api/backup-destinations", { body: local }), 201)).data;
  await succeeded(await queued(api.POST("/api/backup-destinations/{id}/check", of(id))));
  assert.equal((await ok(api.GET("/api/backup-destinations/{id}", of(id)))).data.status, "reachable");
  await renameDestination(id);
  assert.ok(await isListed(id, (query) => api.GET("/api/backup-destinations", { params: { query } })));
  return id;
}

interface Needed {
  remote_server_id: number;
  backup_destination_id: number;
  stream: number;
  tag: number;
}

function taskBodies({ stream, tag, ...common }: Needed): Record<"files" | "database" | "endless", Schemas["TaskBody"]> {
  return {
    files: {
      ...common,
      label: "web files",
      description: "What the shop shows",
      type: "files",
      source_path: stage.source,
      excluded_paths: ["*.tmp"],
      one_file_system: true,
      frequency: "weekly",
      time_to_run_at: "03:30",
      day_of_week: 2,
      timezone: "Europe/Berlin",
      spread_minutes: 10,
      maximum_backups_to_keep: 30,
      store_path: "/offsite",
      appended_filename: "web",
      encryption_password: "correct horse",
      heartbeat_url: stage.hook,
      notification_stream_ids: [stream],
      tag_ids: [tag],
    },
    database: {
      ...common,
      label: "shop",
      type: "database",
      database_engine: "postgresql",
      database_name: "shop",
      excluded_tables: "sessions,cache",
      custom_cron: "15 3 * * 1-5",
      paused: true,
    },
    endless: {
      ...common,
      label: "endless",
      type: "files",
      source_path: stage.endless,
      frequency: "monthly",
      day_of_month: 3,
      time_to_run_at: "03:00",
    },
  };
}

async function createTask(body: Schemas["TaskBody"]) {
  const task = (await ok(api.POST("/api/backup-tasks", { body }), 201)).data;
  await rename(
    () => api.GET("/api/backup-tasks/{id}", of(task.id)),
    (body) => api.PUT("/api/backup-tasks/{id}", { ...of(task.id), body }),
    (body) => api.PATCH("/api/backup-tasks/{id}", { ...of(task.id), body }),
  );
  return task;
}

/** Creates tasks; returns the ids of one of files and of one that only cancelling ends. */
async function tasks(needed: Needed) {
  const bodies = taskBodies(needed);
  const files = await createTask(bodies.files);
  assert.ok(files.has_encryption_password && files.has_heartbeat_url && files.storage.max_backups === 30);
  const database = await createTask(bodies.database);
  assert.ok(database.paused_at !== null && database.source.excluded_tables === "sessions,cache");
  const endless = await createTask(bodies.endless);
  const tagged = { tag_id: needed.tag };
  assert.ok(
    await isListed(files.id, (query) => api.GET("/api/backup-tasks", { params: { query: { ...query, ...tagged } } })),
  );
  assert.ok((await ok(api.POST("/api/backup-tasks/{id}/pause", of(files.id)))).data.paused_at);
  assert.equal((await ok(api.POST("/api/backup-tasks/{id}/resume", of(files.id)))).data.paused_at, null);
  const upcoming = (await ok(api.GET("/api/backup-tasks/upcoming", { params: { query: { limit: 100 } } }))).data;
  assert.ok(upcoming.some((item) => item.backup_task_id === String(files.id)));
  await ok(api.DELETE("/api/backup-tasks/{id}", of(database.id)));
  await refused(api.GET("/api/backup-tasks/{id}", of(database.id)), 404);
  return [files.id, endless.id] as const;
}

async function retention() {
  const path = "/api/backup-tasks/{id}/release-retention";
  const held = of(stage.held_task);
  assert.ok((await ok(api.GET("/api/backup-tasks/{id}", held))).data.protection.retention_held);
  assert.ok(!(await ok(api.POST(path, held))).data.protection.retention_held);
  await refused(api.POST(path, held), 409);
}

/** The blocks of a stream of server-sent events, each with its fields. */
async function* blocks(stream: ReadableStream<Uint8Array> | null) {
  assert.ok(stream !== null);
  const decoder = new TextDecoder();
  let text = "";
  for await (const piece of stream) {
    text += decoder.decode(piece, { stream: true });
    const found = text.split("\n\n");
    text = found.pop() ?? "";
    for (const block of found) {
      yield new Map(block.split("\n").map((line) => line.split(/: ?(.*)/) as [string, string]));
    }
  }
}

type Blocks = ReturnType<typeof blocks>;

async function follow(header: { "Last-Event-ID"?: string }): Promise<Blocks> {
  return blocks(await ok(api.GET("/api/events", { params: { header }, parseAs: "stream" })));
}

async function waitForEvent(events: Blocks, run: number, status: string) {
  for await (const block of events) {
    if (block.get("event") !== "run") continue;
    const event = JSON.parse(block.get("data") ?? "") as Schemas["EventResource"];
    if (event.id === run && event.status === status) return;
  }
  assert.fail(`the stream ended before run ${run} was ${status}`);
}

/** Runs a task once, however often that is requested, and follows it in the stream of events. */
async function runAndFollow(id: number) {
  const events = await follow({});
  const start = await events.next();
  assert.ok(!start.done);
  const once = { params: { path: { id }, header: { "Idempotency-Key": "once" } } };
  const run = await queued(api.POST("/api/backup-tasks/{id}/run", once));
  const again = await api.POST("/api/backup-tasks/{id}/run", once);
  assert.equal(again.data?.data.id, run);
  assert.equal(again.response.headers.get("idempotency-replayed"), "true");
  await waitForEvent(events, run, "successful");
  const last = start.value.get("id");
  assert.ok(last !== undefined);
  await waitForEvent(await follow({ "Last-Event-ID": last }), run, "queued");
  return run;
}

async function logs(task: number, run: number) {
  assert.equal((await ok(api.GET("/api/backup-tasks/{id}/status", of(task)))).data.status, "ready");
  const latest = (await ok(api.GET("/api/backup-tasks/{id}/latest-log", of(task)))).data;
  assert.ok(latest.id === run && latest.status === "successful" && latest.files > 0);
  const path = { id: task };
  assert.ok(
    await isListed(run, (query) => api.GET("/api/backup-tasks/{id}/logs", { params: { path, query } })),
  );
  const filter = { backup_task_id: task };
  assert.ok(
    await isListed(run, (query) => api.GET("/api/backup-task-logs", { params: { query: { ...query, ...filter } } })),
  );
  assert.deepEqual((await ok(api.GET("/api/backup-task-logs/{id}", of(run)))).data, latest);
}

async function notices(stream: number) {
  const query = { notification_stream_id: stream, status: "undelivered" } as const;
  const list = async () => (await ok(api.GET("/api/notices", { params: { query } }))).data;
  const [notice] = await until(list, (notices) => notices.length > 0);
  assert.equal(notice?.answer, "The channel answered 404: no_service");
  const { id } = notice;
  assert.equal(await queued(api.POST("/api/notices/{id}/retry", of(id))), id);
  const show = async () => (await ok(api.GET("/api/notices/{id}", of(id)))).data;
  await until(show, (now) => now.status === "undelivered" && now.ended_at !== null);
}

async function cancel(task: number) {
  const start = async () => {
    const run = await queued(api.POST("/api/backup-tasks/{id}/run", of(task)));
    await until(() => showRun(run), ({ progress }) => progress !== null && progress.bytes > 0);
    return run;
  };
  const first = await start();
  await ok(api.POST("/api/backup-tasks/{id}/cancel", of(task)));
  assert.equal((await ended(first)).status, "cancelled");
  await refused(api.POST("/api/backup-tasks/{id}/cancel", of(task)), 409);
  const second = await start();
  await ok(api.POST("/api/runs/{id}/cancel", of(second)));
  assert.equal((await ended(second)).status, "cancelled");
  await refused(api.POST("/api/runs/{id}/cancel", of(second)), 409);
  await ok(api.DELETE("/api/backup-task-logs/{id}", of(second)));
  await refused(api.GET("/api/backup-task-logs/{id}", of(second)), 404);
}

async function trigger(id: number) {
  const { url, secret } = (await ok(api.POST("/api/backup-tasks/{id}/trigger-url", of(id)))).data;
  assert.ok(url.endsWith(`/webhooks/backup-tasks/${id}/run`), url);
  const send = (secret: string) =>
    nobody.POST("/webhooks/backup-tasks/{id}/run", {
      params: { path: { id }, header: { "X-Holdfast-Secret": secret } },
    });
  await refused(send("wrong"), 404);
  await succeeded(await queued(send(secret)));
}

/** A backup as it is stored, or one file from it. */
async function download(id: number, query: { entry?: string }) {
  const params = { path: { id }, query };
  return Buffer.from(await ok(api.GET("/api/backups/{id}/download", { params, parseAs: "arrayBuffer" })));
}

async function browse(task: number, run: number) {
  const listed = (await ok(api.GET("/api/backups", { params: { query: { backup_task_id: task } } }))).data;
  const found = listed.filter((item) => item.run_id === run);
  assert.equal(found.length, 1);
  const id = found[0]?.id ?? 0;
  const backup = (await ok(api.GET("/api/backups/{id}", of(id)))).data;
  assert.deepEqual(backup, found[0]);
  const whole = await download(id, {});
  assert.equal(createHash("sha256").update(whole).digest("hex"), backup.sha256);
  const inside = { params: { path: { id }, query: { path: "pictures" } } };
  const entries = (await ok(api.GET("/api/backups/{id}/entries", inside))).data;
  assert.deepEqual(entries.map(({ path, type }) => [path, type]), [["pictures/cat.txt", "file"]]);
  assert.equal((await download(id, { entry: "pictures/cat.txt" })).toString(), "meow");
  const missing = { params: { path: { id }, query: { entry: "pictures/dog.txt" } } };
  await refused(api.GET("/api/backups/{id}/download", missing), 404);
  return id;
}

async function restore(id: number, server: number) {
  const verification = (await ok(api.POST("/api/backups/{id}/verify", of(id)), 202)).data;
  await succeeded(verification.id);
  assert.equal((await ok(api.GET("/api/backups/{id}", of(id)))).data.verification.status, "verified");
  const body: Schemas["RestoreBody"] = { remote_server_id: server, path: stage.target, entries: ["index.html"] };
  const run = (await ok(api.POST("/api/backups/{id}/restores", { ...of(id), body }), 202)).data;
  await succeeded(run.id);
  assert.deepEqual(await readdir(stage.target), ["index.html"]);
  assert.equal(await readFile(`${stage.target}/index.html`, "utf8"), "<h1>Hello</h1>");
  const filter = { backup_id: id, kind: "restore" } as const;
  assert.ok(await isListed(run.id, (query) => api.GET("/api/runs", { params: { query: { ...query, ...filter } } })));
  await ok(api.DELETE("/api/backups/{id}", of(id)));
  assert.ok((await ok(api.GET("/api/backups/{id}", of(id)))).data.deleted_at);
}

async function repository(task: number) {
  await refused(api.GET("/api/backup-tasks/{id}/repository", of(task)), 404);
  await refused(api.POST("/api/backup-tasks/{id}/repository/prune", of(task)), 409);
  const body: Schemas["TaskBodyUpdate"] = { format: "repository", encryption_password: "correct horse" };
  await ok(api.PATCH("/api/backup-tasks/{id}", { ...of(task), body }));
  await succeeded(await queued(api.POST("/api/backup-tasks/{id}/run", of(task))));
  const found = (await ok(api.GET("/api/backup-tasks/{id}/repository", of(task)))).data;
  assert.equal(found.backups, 1);
  assert.equal(found.error, null);
  const check = (await ok(api.POST("/api/backup-tasks/{id}/repository/check", of(task)), 202)).data;
  await succeeded(check.id);
  const prune = (await ok(api.POST("/api/backup-tasks/{id}/repository/prune", of(task)), 202)).data;
  assert.deepEqual([check.repository_id, prune.repository_id], [found.id, found.id]);
  await succeeded(prune.id);
}

async function cleanUp(needed: Needed, tasks: readonly number[]) {
  await refused(api.DELETE("/api/backup-destinations/{id}", of(needed.backup_destination_id)), 409);
  for (const id of tasks) {
    const params = { path: { id }, query: { delete_backups: true } };
    await ok(api.DELETE("/api/backup-tasks/{id}", { params }));
  }
  await ok(api.DELETE("/api/remote-servers/{id}", of(needed.remote_server_id)));
  await ok(api.DELETE("/api/notification-streams/{id}", of(needed.stream)));
  await ok(api.DELETE("/api/tags/{id}", of(needed.tag)));
  const events = (await ok(api.GET("/api/audit-events", { params: { query: { per_page: 100 } } }))).data;
  const actions = new Set(events.map((event) => event.action));
  assert.ok(actions.has("tag.deleted") && actions.has("backup_task.updated"), [...actions].join(" "));
}

/** Every operation of the document, as the notes name it. */
async function documented(): Promise<Map<string, string>> {
  interface Document {
    paths: Record<string, Record<string, { operationId: keyof operations }>>;
  }
  const document = await ok(nobody.GET("/api/openapi.json"));
  const { paths } = document as unknown as Document;
  const named = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { operationId }]) => [`${method} ${path}`, operationId] as const),
  );
  return new Map(named);
}

await account();
const tag = await tags();
const stream = await streams();
await settings();
const server = await servers();
await hostKeys();
const needed = { remote_server_id: server, backup_destination_id: await destinations(), stream, tag };
const [task, endless] = await tasks(needed);
await retention();
const run = await runAndFollow(task);
await logs(task, run);
await notices(stream);
await cancel(endless);
await trigger(task);
await restore(await browse(task, run), server);
await repository(task);
await cleanUp(needed, [task, endless]);
const missing = [...(await documented())].filter(([name]) => !driven.has(name)).map(([, operation]) => operation);
assert.deepEqual(missing, [], "these operations were not driven");
console.log(`The TypeScript client drove all ${driven.size} operations.`);
