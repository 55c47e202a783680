# The texts of the web interface in English. Every language has a file like this one with the same keys.

## Frame of every page
nav-skip = Skip to content
nav-menu = Menu
nav-main = Main
nav-overview = Overview
nav-tasks = Tasks
nav-backups = Backups
nav-servers = Servers
nav-destinations = Destinations
nav-notifications = Notifications
nav-search = Search
nav-running = { $n } running
nav-undelivered = { $n } undelivered
nav-person = Account of { $name }
nav-account = Account
nav-tags = Tags
nav-audit = Audit log
nav-administration = Administration
nav-api = API
nav-sign-out = Sign out
theme-system = Match system theme
theme-light = Light theme
theme-dark = Dark theme
script-copied = Copied
script-close = Close
script-lost = The connection to Holdfast was lost. Trying to reconnect; this page may be out of date.
form-secret-again = Enter it again; secrets are never sent back to the page.
overview-partly = { $good } backed up, { $rest ->
    [one] 1 paused or not run yet.
   *[other] { $rest } paused or not run yet.
}
overview-last-proven = Last verified
proof-damaged = Damaged or missing
said-choose-first = Select files or folders first.
problem-too-large = This form is too large
problem-too-large-text = The form contains more data than Holdfast accepts. Nothing was changed.
unit-days-away = { $n ->
    [one] 1 day
   *[other] { $n } days
}
script-signed-out = You are signed out. This page may be out of date.
script-looking = Loading …

## Confirmations
said-saved = Saved.
said-server-moved = Saved. This is a different machine, so its database password was removed, and its host key will be pinned at the next connection. Enter the password again if it is needed there.
said-server-password-removed = Saved. The database password was removed because a different account or machine would receive it. Enter it again if it is needed there.
said-server-key-forgotten = Saved. This is a different machine, so its host key will be pinned at the next connection.
said-deleted = Deleted.
said-account-suspended = Account suspended.
said-made-administrator = This account is an administrator now.
said-made-ordinary = The administrator rights were removed.
said-account-transferred = Everything was transferred to this account.
said-person-deleted = Account deleted. Its backups stay at their destinations.
said-server-added = Server added. It is being checked.
said-key-accepted = The new host key is now trusted. The server is being checked.
said-destination-added = Destination added. It is being checked.
said-inventory-asked = Looking for missing backups.
said-stream-added = Stream added. A test message is being sent.
said-test-sent = A test message is being sent.
said-retried = Holdfast will try again.
said-task-created = Task created. Run it now to get a first backup.
said-cancelled = The run is being cancelled.
said-paused = Task paused. It will not run until you resume it.
said-resumed = Task resumed. It will run at its next scheduled time.
said-retention-released = Hold released. Old backups will be removed with the next successful run.
said-bulk-done = Done for all selected tasks.
said-bulk-some = Done for some of the tasks. Others are already running or paused.
said-bulk-none = Select tasks first.
said-revoked = Revoked.
said-password-changed = Password changed. Other sessions have ended; linked accounts, API tokens and trigger URLs that you did not keep no longer work.
said-two-factor-on = Two-factor sign-in is on.
said-two-factor-off = Two-factor sign-in is off.
said-account-deleted = Account deleted.
said-reset-sent = If there is an account with this address, a link has been sent to it.
said-identity-linked = Account linked.
said-identity-unlinked = Account unlinked.

## Problems
problem-forged = This form has expired
problem-forged-text = The form was not sent from a Holdfast page, or it was open for too long. Go back, reload the page and try again. Nothing was changed.
problem-too-many = Too many attempts
problem-forbidden = Not allowed
problem-missing = Not found
problem-conflict = Not possible right now
problem-invalid = Some values are missing or wrong
problem-unavailable = Holdfast is not available
problem-unavailable-text = The service is busy, or its database or the destination is not available. Try again in a moment.
problem-disk-full-text = Nothing can be stored, because the disk of Holdfast's database is full. Its operator has to free space.
problem-read-only-text = Nothing can be stored, because Holdfast's database is read-only. Its operator has to make it writable again.
problem-damaged-text = Holdfast's database is damaged. Its operator has to repair or restore it; `holdfast doctor` tells more.
problem-unreadable-text = Holdfast's database cannot be read or written. Its operator has to look into its disk.
problem-no-key-text = Holdfast's master key is missing or cannot be used, so no secret can be read or stored. Its operator has to put it back; `holdfast doctor` says where.
problem-destination-away = The destination does not respond
problem-internal = Something went wrong
problem-internal-text = This is a bug in Holdfast. It has been logged.
problem-back = Go back
problem-start = Go to overview

## Lists and forms
list-search = Search
list-show = Show
list-show-all = Show all
list-state = State
list-any = any
list-never = never
list-nothing = Nothing found.
list-when = When
list-actions = Actions
list-all = Select all
list-choose = Select { $name }
list-pages = Pages
list-earlier = Previous
list-later = Next
list-range = { $range } of { $total }
form-name = Name
form-description = Description
form-save = Save
form-cancel = Cancel
form-edit = Edit
form-edit-named = Edit { $name }
form-delete = Delete
form-delete-named = Delete { $name }
form-delete-title = Delete { $name }?
form-type-address = Type the address { $email } to confirm
form-type-name = Type “{ $name }” to confirm
form-copy = Copy
form-more = More
form-secret-stays = A value is set. Leave this empty to keep it.

## Numbers and times
number-decimal = .
number-thousands = ,
unit-milliseconds = { $n } ms
unit-seconds = { $n } s
unit-minutes = { $n } min
unit-hours = { $n } h
unit-days = { $n ->
    [one] 1 day
   *[other] { $n } days
}
unit-exact-bytes = { $n } bytes
time-now = just now
time-ago = { $duration } ago
time-in = in { $duration }
time-exact = { $at } ({ $zone })
time-date-and-time = { $date }, { $time }
time-day-and-month = { $day } { $month }
time-dated = { $weekday }, { $day }
time-with-year = { $date } { $year }
month-1 = January
month-2 = February
month-3 = March
month-4 = April
month-5 = May
month-6 = June
month-7 = July
month-8 = August
month-9 = September
month-10 = October
month-11 = November
month-12 = December
weekday-0 = Sunday
weekday-1 = Monday
weekday-2 = Tuesday
weekday-3 = Wednesday
weekday-4 = Thursday
weekday-5 = Friday
weekday-6 = Saturday

## States
health-running = Running
health-paused = Paused
health-new = Not run yet
health-good = Backed up
health-warned = Backed up, with warnings
health-overdue = Overdue
health-failed = Failed
run-queued = Queued
run-running = Running
run-successful = Successful
run-warned = Successful, with warnings
run-failed = Failed
run-cancelled = Cancelled
kind-backup = Backup
kind-check-server = Server check
kind-inventory = Search for missing backups
kind-prune = Prune repository
kind-check-repository = Check repository
kind-check-destination = Destination check
kind-test-stream = Test message
kind-restore = Restore
kind-verify = Verification
kind-probe = Server lookup
trigger-schedule = schedule
trigger-manual = manual
trigger-webhook = trigger URL
trigger-catch-up = schedule (late)
proof-unverified = Not verified yet
proof-verified = Verified
proof-corrupt = Damaged
proof-missing = Missing
connectivity-unknown = Not checked yet
connectivity-online = Online
connectivity-offline = Offline
reach-unknown = Not checked yet
reach-reachable = Reachable
reach-unreachable = Unreachable
notice-pending = Pending
notice-delivered = Delivered
notice-undelivered = Undelivered
notice-superseded = Superseded
content-files = Files
content-postgresql = PostgreSQL database
content-postgresql-all = All databases of a PostgreSQL server
content-postgresql-server = All databases of a PostgreSQL server
content-mysql = MySQL database
content-mysql-all = All databases of a MySQL server
content-mysql-server = All databases of a MySQL server
content-sqlite = SQLite database
content-symlink = link
content-hardlink = hard link
content-other = special file
deleted-retention = Deleted because newer backups replaced it.
deleted-user = Deleted by you.
deleted-task-deleted = Deleted together with its task.
failure-auth = Install your public SSH key for this user on the server; the server's page shows the command.
failure-entry-missing = Check the path of the entry.
failure-engine-unclear = Choose the database engine in the task.
failure-target-not-empty = Choose an empty database or another path, or select “Overwrite existing data”.
failure-roles-missing = Create these roles on the server, or select “Do not restore owners”.
day-nothing = nothing ran
day-good = all successful
day-mixed = some failed
day-bad = all failed

## Overview
overview-safe = Everything is backed up.
overview-nothing = Nothing is backed up yet.
overview-not-yet = The first backup has not run yet.
overview-wanting = { $n ->
    [one] 1 task needs attention.
   *[other] { $n } tasks need attention.
}
overview-wanting-other = { $n ->
    [one] 1 issue needs attention.
   *[other] { $n } issues need attention.
}
overview-proven = Backups of { $proven } of { $tasks } tasks have been read back and verified.
overview-unproven = No backup has been verified yet.
overview-next = next:
overview-damaged = { $n ->
    [one] 1 stored backup is damaged or missing.
   *[other] { $n } stored backups are damaged or missing.
}
overview-offline = { $n ->
    [one] 1 server is offline.
   *[other] { $n } servers are offline.
}
overview-unreachable = { $n ->
    [one] 1 destination cannot be reached.
   *[other] { $n } destinations cannot be reached.
}
overview-undelivered = { $n ->
    [one] 1 message could not be delivered.
   *[other] { $n } messages could not be delivered.
}
overview-steps = Steps to your first verified backup
overview-calendar = Last 30 days
overview-stored = Stored data
overview-durations = Average run duration
overview-tasks = Tasks by state
overview-no-tasks = There are no tasks yet.
overview-figures = Show as a table
overview-day = Day
overview-average = Average duration
overview-growth = { $percent } %
overview-upcoming = Next runs
step-server = Add a server and give Holdfast access to it.
step-server-do = Add a server
step-destination = Choose where backups are stored.
step-destination-do = Add a destination
step-task = Create a task.
step-task-do = Add a task
step-run = Run it.
step-run-do = Go to the task
step-prove = Verify the backup by reading it back.
step-prove-do = Go to the backups
step-done = (done)

## Servers
servers-empty-title = No servers yet
servers-empty = A server is a machine that Holdfast copies from over SSH. Nothing is installed on it; it only needs your public key.
server-add = Add a server
server-add-and-check = Add and check
server-edit = Edit server
server-host = Host
server-host-hint = Host name or IP address.
server-port = Port
server-user = SSH user
server-user-hint = This user must be able to read everything that you back up.
server-database = Database login
server-database-user = Database user
server-database-password = Database password
server-database-hint = For database tasks. The password is encrypted at rest and sent over SSH to the tools on the server. It is removed when you change the host, port, user or jump server.
server-database-remove = Remove the database password
server-way = Connection
server-jump = Jump server
server-no-jump = none
server-address = Address
server-seen = Last contact
server-check = Check now
server-checking = Checking
server-facts = Details
server-key = Host key
server-key-changed = The server presents a different host key than before. If you know why, for example after a reinstallation, accept the new key. If you do not, somebody may be intercepting the connection. Nothing is copied from this server until you accept the key.
server-key-known = Trusted key
server-key-offered = New key
server-key-accept = Trust the new key
server-latency = Round trip
server-no-tools = Run a check to see which tools the server has.
server-tasks = Tasks of this server
server-browse = Browse folders
server-delete-means = The server is removed from Holdfast. Nothing changes on the server itself. Tasks that use it must be deleted first.
key-title = SSH key
key-install = Run this on the server as the user that backups run as. It gives Holdfast access with your key.
key-fingerprint = Fingerprint

## Destinations
destinations-empty-title = No destinations yet
destinations-empty = A destination is where backups are stored: a folder on this machine, a folder on an SFTP server, or a bucket in S3 or a compatible service.
destination-add = Add a destination
destination-add-and-check = Add and check
destination-edit = Edit destination
destination-kind = Type
destination-place = Location
destination-kind-hint = If this machine fails, its disk is lost with it. Keep at least one copy somewhere else.
destination-type-local = Disk of this machine
destination-type-s3 = Amazon S3
destination-type-custom_s3 = S3-compatible
destination-type-sftp = SFTP
field-sftp_host = Host
field-sftp_host-example = nas.example.org
field-sftp_port = Port
field-sftp_username = User
field-sftp_password = Password
field-sftp_password-hint = Leave this empty to sign in with your SSH key, which is shown on your account page.
field-sftp_password-stays = A password is set. Leave this empty to keep it. If you change the host, port, user or host key, enter it again.
field-sftp_password-remove = Remove the password and sign in with your SSH key
field-sftp_path = Folder
field-sftp_path-hint = Use a folder that holds nothing else. It is created if it does not exist. A path without a slash at its start is relative to the user’s home folder.
field-sftp_path-example = /backups/holdfast
field-sftp_host_key_fingerprint = Host key fingerprint
field-sftp_host_key_fingerprint-hint = Leave this empty to trust the key that the server presents first.
field-sftp_host_key_fingerprint-example = SHA256:…
field-s3_bucket_name = Bucket
field-s3_region = Region
field-s3_region-example = us-east-1
field-s3_access_key = Access key
field-s3_access_key-stays = A key is set. Leave this empty to keep it. If you change the service, bucket or region, enter both keys again.
field-s3_secret_key = Secret key
field-s3_secret_key-stays = A key is set. Leave this empty to keep it. If you change the service, bucket or region, enter both keys again.
field-custom_s3_endpoint = Service URL
field-custom_s3_endpoint-example = https://s3.example.org
field-path_style_endpoint = Put the bucket in the path instead of the host name
field-path_style_endpoint-hint = Most services other than Amazon S3 expect this.
destination-checked = Checked
destination-keeps-versions = This bucket keeps versions. Deleted backups remain as older versions and use space until a lifecycle rule of the bucket removes them.
destination-inventory = Look for missing backups
destination-looking = Looking for missing backups
destination-looked = Last looked for missing backups
destination-all-there = nothing is missing
destination-damaged = { $n ->
    [one] 1 backup is missing or damaged
   *[other] { $n } backups are missing or damaged
}
destination-inventory-means = “Look for missing backups” compares the list of backups with what is stored here. This also happens regularly.
destination-check-means = A check writes a small file, reads it back, lists it and deletes it.
destination-catalogue = Catalogue written
destination-catalogue-behind = The catalogue could not be written. Holdfast will try again later.
destination-catalogue-means = Every destination holds an encrypted catalogue of all your settings and backups. With the master key, you can rebuild everything from a single destination.
destination-tasks = Tasks that use this destination
destination-delete-means = The destination is removed from Holdfast. It must not hold backups, and no task may use it.

## Notifications
streams-empty-title = No notifications yet
streams-empty = A stream sends the results of backups by email, Discord, Slack, Teams or Pushover. Add one, then select it in your tasks.
stream-intro = Holdfast sends a test message when you add a stream.
stream-add = Add a stream
stream-add-and-test = Add and send test
stream-edit = Edit stream
stream-kind = Type
stream-value = Address
stream-value-hint = An email address, a webhook URL or a Pushover user key.
field-pushover_token = Pushover application token
field-pushover_token-hint = Leave this empty to use the token of this installation.
field-pushover_token-stays = Leave this empty to keep it.
field-pushover_token-remove = Use the token of this installation
stream-when = Notify about
field-notifications-on_failure = Failures and other problems
field-notifications-on_success = Successes
stream-tells-all = everything
stream-tells-success = successes
stream-tells-failure = failures
stream-tells-nothing = nothing
stream-last = Last message
stream-works = Delivered
stream-fails = Not delivered
stream-untested = Nothing sent yet
stream-test = Send test
stream-test-named = Send a test message to { $name }
stream-delete-means = Tasks that use this stream will no longer notify anybody through it. Messages that are still being sent are dropped.
notices-title = Messages
notices-all = All messages
notices-settings = Quiet hours and weekly summary
notices-undelivered = Messages that could not be delivered
notices-next = Next attempt:
notices-empty = No messages.
notices-what = Message
incidents-title = What is wrong now
incident-server = Backups of { $name } fail
incident-servers = Backups of several servers fail
incident-destination = Backups to { $name } fail
incident-no-worker = Backups were missed, because no worker was running
incident-lost-worker = Backups were interrupted, because a worker stopped responding
incident-since = Since
incident-goes-on = It is not over: it ends when all of these tasks have succeeded, are paused, or fail for another reason.
incident-recovered = has succeeded since
incident-paused = paused
incident-fails = not successful since
incident-more = { $n ->
    [one] and one more task
   *[other] and { $n } more tasks
}
notices-answer = Response
notices-retry = Retry
notices-retry-named = Retry “{ $name }”

## Tags
tags-empty = Use tags such as “production” or “customers” to organize tasks.
tag-add = Add a tag
tag-edit = Edit tag
tag-has-colour = Use a colour
tag-colour = Colour

## Tasks
tasks-empty-title = No tasks yet
tasks-empty = A task defines what is copied, where it is stored, and when.
tasks-empty-no-ground = A task copies from a server to a destination. Add one of each first.
tasks-count = Tasks: { $n }
tasks-chosen = With selected tasks:
task-add = Add a task
task-create = Create task
task-edit = Edit task
task-copy = Duplicate
task-copy-of = { $name } (copy)
task-copy-secrets = The encryption password and the heartbeat URL are not copied. Set them here if the new task needs them.
task-needs-server = There are no servers yet. Add one first.
task-needs-destination = There are no destinations yet. Add one first.
task-what = What
task-when = When
task-where = Where
task-server = Server
task-destination = Destination
task-tag = Tag
task-kind = Type
task-files = Files
task-database = Database
task-path = Folder or file
task-path-hint = The absolute path on the server.
task-browse = Browse …
task-excluded = Exclude
task-excluded-hint = One pattern per line: a name such as *.log matches anywhere, a path such as cache/tmp matches below the folder.
task-one-file-system = Stay on one file system
task-one-file-system-hint = Skips file systems that are mounted below the folder, such as network drives. The log lists what was skipped.
task-database-name = Database
task-database-hint = Leave this empty to copy all databases of the server.
task-engine = Engine
task-engine-any = detect automatically
task-excluded-tables = Exclude tables
task-excluded-tables-hint = Separate names with commas.
task-one-database = database { $name }
task-all-databases = all databases
task-frequency = Frequency
frequency-hourly = every hour
frequency-daily = every day
frequency-weekly = every week
frequency-monthly = every month
frequency-custom = cron expression
task-time = Time
task-time-hint = In UTC, unless you choose a time zone. The preview shows your local time. For hourly tasks, only the minute is used.
task-weekday = Weekday
task-weekday-hint = For weekly tasks.
task-day = Day of the month
task-day-hint = For monthly tasks: 1 to 28.
task-cron = Cron expression
task-cron-hint = Minute, hour, day, month, weekday.
task-zone = Time zone
task-zone-hint = Leave this empty for UTC. When clocks change, a skipped time runs right after the change, and a repeated time runs only once.
task-spread = Spread in minutes
task-window-start = Window begins
task-window-end = Window ends
task-window-hint = Scheduled runs and retries start only between these two times, in the time zone above; leave both empty for any time. Runs that become due outside of it wait until it opens, and then run once. Manual runs start at once, and a run in progress continues when the window closes.
task-spread-hint = 0 to run exactly on time. Otherwise runs are shifted by up to this many minutes in either direction, always by the same time, so that tasks with the same time do not start together.
schedule-hourly = Every hour at minute { $minute }
schedule-daily = Every day at { $time }
schedule-weekly = Every { $weekday } at { $time }
schedule-monthly = On day { $day } of every month at { $time }
schedule-cron = cron { $cron }
schedule-cron-zone = cron { $cron } in { $zone }
schedule-local = { $time } your time
schedule-window = only between { $start } and { $end }
schedule-spread = ± { $minutes } min
schedule-local-weekday = { $weekday } { $time } your time
probe-back = Back to the form
schedule-next = Next runs:
schedule-preview = Preview next runs
task-keep = Backups to keep
task-keep-hint = How many recent backups to keep; 0 keeps all.
task-keeps = the { $n } most recent
task-keeps-all = all
task-format = Format
task-format-hint = An archive is one complete file for each run, best for small data and databases. A repository is incremental: it stores only what has changed, best for large folders. It needs a password, and restic can open it, too.
task-format-archive = Archive (everything each time)
task-format-repository = Repository (changes only)
task-format-is-archive = archive
task-format-is-repository = repository

## Repositories
repository-title = Repository
repository-stored = Stored
repository-holds = Size of all backups
repository-holds-value = { $bytes } in { $backups ->
    [one] one backup
   *[other] { $backups } backups
}
repository-saved = Saved
repository-garbage = Left by removed backups
repository-garbage-value = at most { $bytes }
repository-pruned = Last pruned
repository-checked = Last checked completely
repository-newest-run = Last run
repository-folder = Folder
repository-prune = Prune
repository-check = Check repository
repository-means = Deleting a backup does not free its space at once; pruning does. Holdfast prunes and checks the repository by itself.
repository-trouble = The last check or prune failed. { $reason }
task-password = Encryption password
task-password-hint = Leave this empty to store archives unencrypted; a repository needs a password. Keep a copy of the password somewhere else: without it, nobody can open the backups if Holdfast is lost.
task-password-remove = Store new backups unencrypted
task-streams = Notifications
task-store-path = Folder at the destination
task-store-hint = A folder below the root of the destination. If it contains a restic repository, a task with this format continues that.
task-appended = File name prefix
task-appended-hint = Letters, digits, dots, hyphens and underscores.
task-heartbeat = Heartbeat URL
task-heartbeat-hint = Holdfast requests this URL when a run starts, succeeds or fails, so that an external service can watch the task. It is encrypted at rest.
task-heartbeat-set = set
task-heartbeat-remove = Remove the heartbeat URL
task-dry-run = Estimate size
task-run = Run now
task-pause = Pause
task-resume = Resume
task-last-success = Last backup
task-proven = Last verified
task-next = Next run
task-no-next = none while paused
task-last-days = Last 30 days
task-sizes = Size over time
task-overdue = A backup is overdue. It was due
task-held = Removal of old backups is on hold: { $reason }
task-release = Resume removal of old backups
task-release-title = Release the hold on old backups?
task-release-look = Open the newest backup
task-release-means = Check the newest backup and the source first. If you release the hold, the newest backup counts as normal, and the next successful run removes old backups down to the number that the task keeps.
sign-empty = The newest backup is empty.
sign-smaller = The newest backup is much smaller than a normal one.
sign-fewer = The newest backup has far fewer entries than a normal one.
sign-lacking = The newest backup is missing databases that earlier ones had.
sign-half-restored = A restore into the source was running or ended early, so the newest backup may contain partly restored data.
sign-incompressible = The newest backup can hardly be compressed any more, which can be a sign of ransomware.
task-backups = Stored backups
task-no-backups = This task has no backups yet.
task-history = History
task-no-runs = This task has not run yet.
task-settings = Settings
task-source = Source
task-schedule = Schedule
task-retention = Keeps
task-encryption = Encryption
task-encrypted = encrypted
task-not-encrypted = not encrypted
task-delete-means = The task and its history are deleted. Its backups are kept and can still be restored, unless you choose to delete them.
task-delete-backups = { $n ->
    [one] Also delete its stored backup
   *[other] Also delete its { $n } stored backups
}
task-delete-backups-hint = Deleted backups cannot be recovered.
task-trigger = Trigger URL
trigger-intro = Anybody who knows this URL can start the task, for example a build server before a release. The URL allows nothing else.
trigger-once = Copy it now. It will not be shown again.
trigger-make = Create a new trigger URL
trigger-voids = The previous URL stops working. The new one stops working if you change your password, unless you choose to keep your tokens and trigger URLs.

## Browsing a server
probe-folder = Folder { $path }
probe-choose = Select { $name }
probe-choose-this = Select
probe-databases = Databases
probe-all-databases = All databases
probe-empty = The folder is empty.
probe-cut = The folder contains more than is shown here. Enter the path in the form instead.
probe-no-databases = This login cannot see any databases.
probe-not-yet = No worker has responded yet.
probe-again = Try again
probe-size = Entries: { $entries } · { $size }
probe-size-means = Before compression. Excluded paths are not counted, but excluded tables are. Nothing was copied.

## Runs
runs-title = Runs
runs-backups = Backups
runs-restores = Restores and verifications
runs-live = In progress
run-number = Number
run-kind = Kind
run-trigger = Started by
run-started = Started
run-ended = Ended
run-took = Duration
run-read = Read
run-stored = Stored
run-files = Files
run-warnings = Warnings
run-rate = Speed
run-per-second = { $size }/s
run-left = Time left
run-of = { $done } of about { $total }
run-waits = { $kind }: queued
run-goes = { $kind }: in progress
run-output = Log
run-no-output = The log is empty.
run-cancel = Cancel
run-stopping = Cancelling.
run-delete = Delete log

## Backups and restores
backups-empty = No backups.
backup-title = Backup { $id }
backup-task = Task
backup-made = Created
backup-size = Size
backup-plain = Before compression
backup-added = Added to the repository
backup-snapshot = Snapshot
backup-is-archive = archive
backup-entries = Entries
backup-proof = Verification
backup-proven = verified
backup-checked = checked
backup-encrypted = encrypted
backup-suspicious = suspicious
backup-content = Content
backup-key = Object
backup-verify = Verify now
backup-verifying = Verifying
backup-download = Download
backup-download-named = Download { $name }
backup-take = Download
backup-files = Files
backup-search = Search this backup
backup-search-do = Search
backup-search-end = Back to the folders
backup-search-cut = There are more results than shown. Refine your search.
backup-folder-empty = The folder is empty.
backup-crumbs = Folders above
backup-modified = Modified
backup-delete-means = The backup is deleted permanently and cannot be recovered.
restore-title = Restore
restore-all = Restore …
restore-chosen = Restore selected …
restore-everything = Everything in the backup will be restored. To restore less, select files on the page of the backup.
restore-whole = The whole backup will be restored.
restore-some = { $n ->
    [one] 1 selected entry and everything in it
   *[other] { $n } selected entries and everything in them
}
restore-all-entries = { $n ->
    [one] everything: 1 entry
   *[other] everything: { $n } entries
}
restore-server = To server
restore-path = To folder
restore-path-hint = The absolute path. The folder is created if it does not exist. If you are not sure, choose a new folder.
restore-file = To file
restore-file-hint = The absolute path of the database file, including its name.
restore-database = Into database
restore-database-hint = The database is created if it does not exist.
restore-one-database = Only this database
restore-one-database-hint = Leave this empty to restore all databases of the server with users and privileges.
restore-overwrite = Overwrite existing data
restore-overwrite-files = Otherwise existing files are kept.
restore-overwrite-database = Otherwise the database must be empty.
restore-overwrite-file = Otherwise the file must not exist yet.
restore-overwrite-all = Required to restore all databases of a server.
restore-no-owner = Do not restore owners
restore-no-owner-files = Restored files belong to the SSH user.
restore-no-owner-database = Restored objects belong to the database user, and no privileges are granted.
restore-numeric-owner = Numeric owners
restore-numeric-owner-hint = Use user and group ids instead of names, for example for container volumes.
restore-devices = Restore device nodes
restore-devices-hint = Requires root on the server. Otherwise device nodes are skipped and listed in the log.
restore-dry-run = Dry run
restore-dry-run-hint = Only report what would be written, kept and skipped.
restore-means-dry-run = Nothing is written. The log of the run shows what a restore would do.
restore-review = Review
restore-summary = What will happen
restore-from = From
restore-what = What
restore-size = Size
restore-to = To
restore-means-replace = Files with the same name are replaced. Other files in the folder are kept.
restore-means-keep = Nothing is replaced. Existing files are kept and listed in the log.
restore-means-database-replace = The contents of the database are replaced by the backup.
restore-means-database-empty = The database must be empty. If it is not, nothing is changed.
restore-means-file-new = The file must not exist yet. If it does, nothing is changed.
restore-do = Restore now

## Signing in
sign-in-title = Sign in
sign-in-do = Sign in
sign-in-with = Sign in with { $name }
sign-in-email = Email
sign-in-email-given = You can change it later.
sign-in-password = Password
sign-in-password-hint = At least 8 characters.
sign-in-otp-hint = From your authenticator app, or one of your recovery codes.
sign-in-forgotten = Forgot your password?
set-up-title = Welcome to Holdfast
set-up-intro = Create the administrator account. This link works once.
set-up-do = Create account
invited-title = Welcome to Holdfast
invited-intro = An account was created for you. Enter your name and choose a password. This link works once.
reset-title = Set a new password
reset-intro = The new password signs you out everywhere, unlinks GitHub and OpenID Connect accounts, revokes all API tokens and removes all trigger URLs, unless you keep them. Two-factor sign-in does not change.
reset-do = Set password
register-title = Create an account
register-intro = Your data is private to your account.
forgotten-title = Forgot your password?
forgotten-intro = Enter your email address. Holdfast sends you a link to set a new password.
forgotten-no-mail = This installation cannot send email. Its administrator can give you a link or set a new password with “holdfast user reset-password”.
forgotten-do = Send link

## Account
account-signed-in = Signed in as { $name }
account-profile = Profile
account-name = Name
account-zone = Time zone
account-zone-hint = Times are shown in this zone. Schedules use UTC unless a task has a time zone of its own.
account-language = Language
account-current-password = Current password
account-email-needs = Only needed to change the email address.
account-messages = Notifications
account-weekly = Send me a weekly summary on Mondays
account-weekly-hint = By email to your own address.
account-quiet-from = Quiet hours from
account-quiet-until = Quiet hours until
account-quiet-hint = Notifications during quiet hours are sent as one message at the end. Leave both empty to be notified immediately.
account-delete = Delete my account
account-delete-means = All your tasks, servers, destinations, streams and logs are deleted. Backups at destinations are kept; anybody who has them and their passwords can open them without Holdfast.
account-delete-type = Type { $email } to confirm
token-title = API tokens
token-empty = No tokens yet. Programs and scripts use tokens to act on your behalf.
token-new = Your new token
token-once = Copy it now. It will not be shown again; Holdfast only stores a hash of it.
token-create-title = Create a token
token-create = Create token
token-name-hint = What it is for.
token-scopes = Permissions
token-last-used = Last used
token-expires = Expires
token-in-days = in { $n } days
token-never = never
token-revoke = Revoke
token-revoke-named = Revoke { $name }
scope-everything = everything
scope-manage-tags = manage tags
scope-view-backup-destinations = view destinations
scope-create-backup-destinations = add destinations
scope-update-backup-destinations = change destinations
scope-delete-backup-destinations = delete destinations
scope-view-remote-servers = view servers
scope-create-remote-servers = add servers
scope-update-remote-servers = change servers
scope-delete-remote-servers = delete servers
scope-view-notification-streams = view streams
scope-create-notification-streams = add streams
scope-update-notification-streams = change streams
scope-delete-notification-streams = delete streams
scope-view-backup-tasks = view tasks, logs and backups, and download the contents of backups
scope-create-backup-tasks = add tasks
scope-update-backup-tasks = change tasks
scope-delete-backup-tasks = delete tasks, logs and backups
scope-run-backup-tasks = run tasks, verify backups and restore them, including over existing data
security-title = Security
security-open = Password, two-factor and sessions
security-password = Password
security-new-password = New password
security-password-change = Change password
security-password-means = A new password signs you out everywhere else, unlinks GitHub and OpenID Connect accounts, revokes all API tokens and removes all trigger URLs, unless you keep them.
security-keep-tokens = Keep my API tokens and trigger URLs
security-keep-identities = Keep linked accounts
security-sessions = Active sessions
security-device = Device
security-address = Address
security-seen = Last active
security-this-one = this session
security-revoke = Sign out
security-revoke-named = Sign out { $name }
two-factor-title = Two-factor sign-in
two-factor-is-on = Two-factor sign-in is on.
two-factor-is-off = Two-factor sign-in is off.
two-factor-means = With two-factor sign-in, a stolen password is not enough to sign in.
two-factor-enable = Turn on two-factor sign-in
two-factor-disable = Turn off
two-factor-renew = Create new recovery codes
two-factor-codes-left = { $n ->
    [one] 1 recovery code is left.
   *[other] { $n } recovery codes are left.
}
two-factor-scan = Scan this code with an authenticator app.
two-factor-type = Or enter this key:
two-factor-code = One-time code
two-factor-confirm = Confirm and turn on
two-factor-codes = Recovery codes
two-factor-codes-means = Keep these codes somewhere safe, apart from your authenticator. Each code works once. They will not be shown again.
two-factor-kept = I have saved them
identity-title = Other ways to sign in
identity-link = Link { $name }
identity-leave = You will be sent to { $name } to sign in. Afterwards, that account can sign in here without your password or second factor.
identity-go = Continue to { $name }
identity-unlink = Unlink
identity-unlink-named = Unlink { $name }

## Audit log
person-suspend = Suspend
person-suspend-named = Suspend { $name }
person-resume = Resume account
person-resume-named = Resume the account of { $name }
person-suspended = Suspended
person-suspended-means = Nobody can sign in to this account, and none of its tasks run. Backups and settings stay.
person-open-named = Show everything of { $name }
person-shown = The first { $shown } of { $total } are shown.
person-runs = Newest runs
person-cancel-named = Cancel the run of { $name }
person-pause-named = Pause { $name }
person-resume-task-named = Resume { $name }
person-transfer = Transfer everything
person-transfer-means = Tasks, servers, destinations, backups, logs, streams and tags will belong to the other account. The person keeps the account itself, its API tokens and its audit log.
person-transfer-to = Email address of the other account
person-transfer-next = Continue
registration-open-title = Open registration?
registration-open-means = Anybody who can reach this page can then create an account, add servers and destinations, and start backups on this machine.
act-suspend-title = Suspend { $name }?
act-suspend-means = Nobody can sign in to this account, its API tokens stop working, its runs are cancelled, and its tasks do not run until you resume it. Backups and settings stay.
act-suspend-do = Suspend
act-make-administrator-title = Make { $name } an administrator?
act-make-administrator-means = Administrators see what every account has, can pause its tasks, and can suspend, transfer and delete accounts. Their servers, destinations and streams may be in private networks.
act-make-administrator-do = Make an administrator
act-make-ordinary-title = Remove the administrator rights of { $name }?
act-make-ordinary-means = This account will no longer see other accounts, and no longer reach destinations and webhooks in private networks.
act-make-ordinary-own = You will no longer see other accounts, and no longer reach destinations and webhooks in private networks. Only another administrator can give you the rights back.
act-make-ordinary-do = Remove administrator rights
act-transfer-title = Transfer everything of { $name } to { $to }?
act-transfer-means = Tasks, servers, destinations, backups, logs, streams and tags will belong to the other account. This cannot be undone: afterwards, nobody can tell what belonged to which account.
act-transfer-do = Transfer everything
act-transfer-triggers = { $n ->
    [one] 1 trigger URL goes with its task and still works for whoever knows it.
   *[other] { $n } trigger URLs go with their tasks and still work for whoever knows them.
}
act-transfer-networks = { $name } is not an administrator, so destinations and webhooks in private networks will be refused.
act-transfer-labels = Both accounts use these names; the new owner will have two of each: { $labels }
act-delete-title = Delete the account { $name }?
act-delete-means = Its tasks, servers, destinations, streams and logs are deleted. Backups at destinations stay; anybody who has them and their passwords can open them without Holdfast.
act-delete-do = Delete account
act-delete-stays = { $n ->
    [one] 1 backup stays at the destination “{ $label }”
   *[other] { $n } backups stay at the destination “{ $label }”
}
act-logs = Logs
person-recorded = What you do here is in the audit log of this person, with your name.
audit-intro = Who did what, and from where.
audit-others = What you did to other accounts is in the log of all accounts.
audit-own = Show only mine
audit-all = Show all accounts
audit-action = Action
audit-detail = Details
audit-actor = Via
audit-user = Account
audit-older = Older
action-user-signed-in = Signed in
action-user-signed-out = Signed out
action-sign-in-refused = Sign-in refused
action-sign-in-link-created = Sign-in link created
action-user-created = Account created
action-user-claimed = Account claimed
action-user-invited = Account invited
action-user-deleted = Account deleted
action-user-profile-updated = Profile changed
action-user-notification-settings-updated = Notification settings changed
action-user-email-changed = Email address changed
action-user-password-changed = Password changed
action-user-password-reset = Password reset
action-user-otp-enabled = Two-factor sign-in turned on
action-user-otp-disabled = Two-factor sign-in turned off
action-user-recovery-codes-renewed = Recovery codes renewed
action-user-made-administrator = Made an administrator
action-user-made-ordinary = Administrator rights removed
action-user-suspended = Account suspended
action-user-resumed = Account resumed
action-user-transferred = Everything of the account transferred
action-session-revoked = Session revoked
action-identity-linked = External account linked
action-identity-unlinked = External account unlinked
action-token-created = API token created
action-token-revoked = API token revoked
action-scope-denied = API token used beyond its scopes
action-ssh-key-created = SSH key created
action-registration-changed = Registration changed
action-backup-task-created = Task created
action-backup-task-updated = Task changed
action-backup-task-paused = Task paused
action-backup-task-resumed = Task resumed
action-backup-task-run-requested = Run started by hand
action-backup-task-deleted = Task deleted
action-backup-task-cancelled = Run cancelled
action-backup-task-next-run-corrected = Next run corrected after a clock error
action-backup-task-paused-after-losses = Task paused after losing its workers
action-backup-task-retention-released = Hold on old backups released
action-backup-task-triggered = Task triggered
action-backup-task-trigger-rotated = Trigger URL created
action-backup-task-encryption-password-set = Encryption password set
action-backup-task-log-deleted = Log deleted
action-backup-downloaded = Backup downloaded
action-backup-verification-requested = Verification started
action-backup-deleted = Backup deleted
action-backup-restore-requested = Restore started
action-backup-found-damaged = Backup found damaged
action-run-cancelled = Run cancelled
action-repository-prune-requested = Pruning of a repository requested
action-repository-check-requested = Check of a repository requested
action-remote-server-created = Server created
action-remote-server-updated = Server changed
action-remote-server-deleted = Server deleted
action-remote-server-moved = Server moved to another address or account
action-remote-server-credentials-set = Database password set
action-remote-server-host-key-accepted = Host key accepted
action-backup-destination-created = Destination created
action-backup-destination-updated = Destination changed
action-backup-destination-inventory-requested = Inventory of a destination started
action-backup-destination-deleted = Destination deleted
action-backup-destination-moved = Destination moved to another place or account
action-backup-destination-credentials-set = Keys of a destination set
action-notification-stream-created = Stream created
action-notification-stream-updated = Stream changed
action-notification-stream-deleted = Stream deleted
action-notification-stream-credentials-set = Address of a stream set
action-tag-created = Tag created
action-tag-updated = Tag changed
action-tag-deleted = Tag deleted
action-secrets-compared = Many secrets compared with the stored ones
action-installation-exported = Installation exported
action-installation-imported = Installation imported
action-master-key-rotated = Master key replaced
action-maintenance-begun = Maintenance begun
action-maintenance-ended = Maintenance ended
action-worker-drained = Worker told to start no runs
action-worker-resumed = Worker told to start runs again

## Administration
admin-health = Health
admin-version = Version
admin-database = Database
admin-workers = Workers
admin-workers-drained = No run starts: all workers were told so
admin-workers-there = { $n ->
    [one] 1 running
   *[other] { $n } running
}
admin-no-workers = No workers running, so nothing will run
admin-queue = Queued runs
admin-queue-empty = none
admin-mail = Mail
admin-mail-set = set up
admin-mail-unset = not set up (HOLDFAST_SMTP_URL)
admin-stored = Stored
admin-people = Accounts
admin-administrator = administrator
admin-two-factor = two-factor
admin-password-only = password only
admin-invited = not signed up yet
admin-invite = Invite somebody
admin-invite-do = Create account and link
admin-link-made = Send this link to the new user. It works once and will not be shown again.
admin-link-sent = The link was sent by email. Here is a copy; it works once.
admin-make-admin = Make an administrator
admin-make-ordinary = Remove administrator rights
admin-change-named = Change whether { $name } is an administrator
admin-invitation-link = New invitation link
admin-invitation-link-named = New invitation link for { $name }
admin-reset-link = Link to set a new password
admin-reset-link-named = Link for { $name } to set a new password
admin-registration = Registration
admin-registration-open = Anybody who can reach this page can create an account.
admin-registration-closed = Only administrators can create accounts.
admin-registration-do = Open registration
admin-registration-close = Close registration
admin-since = Since
admin-worker = Worker
admin-worker-draining = starts no further runs
admin-worker-there = Running
admin-worker-silent = Not responding
admin-leases = Runs in progress
admin-no-leases = No runs in progress.
admin-owner = Account
admin-lease-until = Lease until
search-title = Search results for “{ $text }”

## Refusals: `rule-` for fields, `conflict-` for states, `missing-` for what does not exist, `refused-` for the rest.
rule-required = This field is required.
rule-format = This value is not valid here.
rule-choice = Choose one of the options.
rule-text = Enter text.
rule-integer = Enter a whole number.
rule-boolean = Choose yes or no.
rule-object = This value is not valid here.
rule-integers = Choose from the list.
rule-texts = Enter one value per line.
rule-at-least = Enter at least { $min }.
rule-between = Enter a number from { $min } to { $max }.
rule-max-chars = Enter at most { $max } characters.
rule-min-chars = Enter at least { $min } characters.
rule-max-items = Choose at most { $max }.
rule-no-items = Choose at least one.
rule-control-characters = Control characters are not allowed.
rule-hidden-characters = Invisible characters, and those that change the direction of text, are not allowed.
rule-url = Enter a URL.
rule-email = Enter an email address.
rule-host = Enter an IP address or a host name.
rule-timezone = Enter a time zone such as Europe/Berlin.
rule-time-of-day = Enter a time such as 22:00.
rule-time = Enter a time such as 2026-01-31T22:00:00Z.
rule-cursor = This page of the list is not available. Begin again.
rule-unknown = There is no such field.
rule-other-type = This does not apply to the chosen type.
rule-quiet-time = Enter a time such as 22:00.
rule-quiet-hours = Quiet hours must not start and end at the same time.
rule-window = The window must not start and end at the same time.
rule-future = Choose a date in the future.
rule-cron = Enter a cron expression with five fields.
rule-cron-never-due = This cron expression never matches a date.
rule-pushover-key = Enter a Pushover user key.
rule-absolute-path = Enter an absolute path without “..”.
rule-repository-password = A repository needs a password.
rule-password-again = Enter the password again: the server, port, user or host key has changed.
rule-keys-again = Enter both keys again: the endpoint, region, bucket or path style has changed.
rule-files-only = This only applies to backups of files.
rule-file-database = A database of this engine is a file, which is copied as a whole; leave this empty.
rule-owners-in-dump = This dump of a whole server sets roles, privileges and owners itself; they cannot be left out.
rule-whole-server = This backup holds all databases of a server. Leave the database name empty.
rule-overwrite-server = This backup restores all databases of a server, so you must allow it to overwrite them.
rule-credentials = The email address or the password is wrong.
rule-suspended = This account is suspended. An administrator can resume it.
rule-password = The password is wrong.
rule-code = The code is wrong.
rule-form-expired = This form has expired. Start again.
rule-email-taken = There is already an account with this email address.
rule-own-email = Enter your own email address.
rule-other-address = The address does not match.
rule-other-name = The name does not match.
conflict-other-request = This Idempotency-Key was used for another request. Use a new key for each request.
conflict-request-unfinished = A request with this Idempotency-Key has not ended, or nobody knows how it ended. Check whether it took effect before you send it with another key.
conflict-too-many-keys = Too many requests with an Idempotency-Key were sent within a day. Send this one without, or later.
conflict-task-running = This task is already running.
conflict-task-busy = This task is running. Cancel the run or wait until it ends.
conflict-task-paused = This task is paused. Resume it first.
conflict-task-not-running = This task is not running.
conflict-task-backup-in-use = Backup { $backup } of this task is being restored or verified. Wait until that ends.
conflict-retention-not-held = The removal of old backups is not on hold for this task.
conflict-no-repository = This task has no repository yet. It gets one with its first backup in the repository format.
conflict-no-backup-left = This task has no backups any more.
conflict-newer-backup = This task has a newer backup: { $newest }. Check that one first.
conflict-server-in-use =
    { $tasks ->
        [one] One task still uses this server. Change or delete it first.
       *[other] { $tasks } tasks still use this server. Change or delete them first.
    }
conflict-server-restored = A backup is being restored to this server. Wait until that ends.
conflict-server-is-jump = Other servers are reached through this one. Change them first.
conflict-other-host-key = The server has presented a different host key since then. Check it again.
conflict-no-host-key = This server has not presented a different host key.
conflict-probe-busy = Another server lookup is still running for you. Try again in a moment.
conflict-destination-in-use =
    { $tasks ->
        [one] One task still uses this destination. Change or delete it first.
       *[other] { $tasks } tasks still use this destination. Change or delete them first.
    }
conflict-destination-holds =
    { $backups ->
        [one] This destination still holds one backup. Delete it first.
       *[other] This destination still holds { $backups } backups. Delete them first.
    }
conflict-destination-busy = A run is using this destination. Cancel it or wait for its end before you change where it is.
conflict-destination-moves =
    { $backups ->
        [one] This destination still holds one backup. Create another destination instead.
       *[other] This destination still holds { $backups } backups. Create another destination instead.
    }
conflict-backup-in-use = This backup is being restored or verified. Cancel that or wait until it ends.
conflict-backup-deleted = This backup has been deleted.
conflict-not-files = This backup is a database dump; it has no files to list.
conflict-page-too-far = This page is too far into a very large folder. Go to an earlier page or a subfolder, search for a name, or download or restore the folder.
conflict-reading-too-long = Searching this backup takes too long. Try again later, restore what you need, or download all of it.
conflict-unreadable = This backup cannot be read: { $message }
conflict-run-ended = This run has already ended.
conflict-run-not-ended = This run has not ended yet. Cancel it or wait until it ends.
conflict-notice-delivered = Only undelivered messages can be retried.
conflict-two-factor-on = Two-factor sign-in is already on. Turn it off first.
conflict-two-factor-off = Two-factor sign-in is off. Turn it on first.
conflict-only-administrator = This is the only administrator. Make somebody else an administrator first.
conflict-no-administrator = There must be at least one administrator.
conflict-account-busy = Something is running for this account. Cancel it or wait until it ends.
conflict-account-suspended = This account is suspended. An administrator can resume it.
conflict-account-not-suspended = This account is not suspended.
conflict-same-account = Everything already belongs to this account.
conflict-own-suspension = You cannot suspend your own account.
conflict-own-account = Delete your own account on your account page.
conflict-sign-in-not-begun = This sign-in did not start here, or it took too long. Try again.
conflict-sign-in-not-confirmed = The other service did not confirm who you are. Try again.
conflict-not-linked = No account here is linked to this one. Sign in with your password, then link it on your account page.
conflict-linked-elsewhere = This account is already linked to somebody else here.
conflict-not-a-document = This is not a Holdfast export.
conflict-newer-document = A newer version of Holdfast wrote this export. Use that version or a newer one to read it.
conflict-damaged-document = This export is damaged: { $reason }
conflict-account-exists = There is already an account for { $email }. Import into an installation that does not have it.
conflict-taken = This value is already taken.
conflict-outdated = This has changed since you opened it. Reload the page before you change or delete it.
conflict-label-taken = Something else of this kind has this label already.
conflict-changed = Something that belongs to this has changed in the meantime. Try again.
missing-page = This page does not exist.
missing-link = This link has expired or has already been used.
missing-registration = Registration is closed. Ask the administrator of this service for an invitation.
missing-account = This account does not exist.
missing-account-of-email = There is no account with this email address.
missing-session = This session does not exist.
missing-task = No task of this account has this ID or label.
missing-token = This API token does not exist.
missing-logs = This task has no logs yet.
missing-repository = This task has no repository yet.
missing-entry = This backup has no such entry.
refused-not-found = This does not exist.
refused-forbidden = You do not have access to this.
refused-too-many = Too many attempts. Try again in { $seconds } seconds.
refused-destination-away = The destination does not respond properly. Check it and try again later.
