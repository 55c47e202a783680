# What the pages say, in English. Every language is a file like this one with the same names in it.

## Around every page
nav-skip = Skip to the content
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
theme-system = Colours as the system wishes
theme-light = Light colours
theme-dark = Dark colours
script-copied = Copied
script-close = Close
script-lost = The connection to Holdfast is lost. It is tried again; what you see may be old.
form-secret-again = Type it again; secrets are not sent back to the page.
overview-partly = { $good } backed up, { $rest ->
    [one] 1 paused or not run yet.
   *[other] { $rest } paused or not run yet.
}
overview-last-proven = Last proven
proof-damaged = Damaged or missing
said-choose-first = Choose files or folders first.
stream-pushover-stays = Empty keeps it as it is.
stream-pushover-remove = Use the token of this installation
problem-too-large = This form is too long
problem-too-large-text = What was sent is longer than any form of Holdfast's. Nothing was changed.
unit-days-away = { $n ->
    [one] 1 day
   *[other] { $n } days
}
script-signed-out = You are signed out. What you see may be old.
script-looking = Looking …

## What was just done
said-saved = Saved.
said-server-moved = Saved. This is another machine, so its database password was removed and its host key is pinned again at the next connection. Enter the password again if it is needed there.
said-server-password-removed = Saved. Another account or machine would read the database password, so it was removed. Enter it again if it is needed there.
said-server-key-forgotten = Saved. This is another machine: its host key is pinned at the next connection.
said-deleted = Deleted.
said-server-added = The server is added and being checked.
said-key-accepted = The new host key is trusted. The server is being checked.
said-destination-added = The destination is added and being checked.
said-stream-added = The stream is added. A test message is on its way.
said-test-sent = A test message is on its way.
said-retried = It will be tried again.
said-task-created = The task is created. Run it now to have a first backup.
said-cancelled = The run will stop.
said-paused = The task is paused. It will not run until you resume it.
said-resumed = The task goes on with its next slot.
said-retention-released = Hold released. Old backups will be removed with the next successful run.
said-bulk-done = Done for all that you chose.
said-bulk-some = Done, but not for all: some are running or paused already.
said-bulk-none = Choose tasks first.
said-revoked = Revoked.
said-password-changed = Password changed. Other sessions have ended; linked accounts, API tokens and trigger URLs that you did not keep no longer work.
said-two-factor-on = Two-factor sign-in is on.
said-two-factor-off = Two-factor sign-in is off.
said-account-deleted = The account is deleted.
said-reset-sent = If there is an account with this address, a link is on its way to it.
said-identity-linked = The account is linked.
said-identity-unlinked = The account is not linked any more.

## Problems
problem-forged = This form is not valid any more
problem-forged-text = The form was not sent from Holdfast's own page, or was open for too long. Go back, reload the page and try again. Nothing was changed.
problem-too-many = Too many tries
problem-forbidden = Not allowed
problem-missing = Not found
problem-conflict = Not possible now
problem-invalid = Something is missing
problem-unavailable = Holdfast is busy
problem-unavailable-text = The service is busy, or its database or the destination is away. Try again in a moment.
problem-destination-away = The destination does not answer
problem-internal = Something went wrong
problem-internal-text = This is a fault of Holdfast's own. It has been logged.
problem-back = Go back
problem-start = Go to the overview

## Lists and forms
list-search = Search
list-show = Show
list-show-all = Show all
list-state = State
list-any = any
list-never = never
list-nothing = Nothing was found.
list-when = When
list-actions = Actions
list-all = Choose all
list-choose = Choose { $name }
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
form-type-name = Type “{ $name }” to confirm
form-copy = Copy
form-more = More
form-secret-stays = It is set. Leave this empty to keep it.

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
health-new = Has not run yet
health-good = Backed up
health-warned = Backed up, with warnings
health-overdue = Overdue
health-failed = Failed
run-queued = Waiting
run-running = Running
run-successful = Successful
run-warned = Successful, with warnings
run-failed = Failed
run-cancelled = Cancelled
kind-backup = Backup
kind-check-server = Check of a server
kind-check-destination = Check of a destination
kind-test-stream = Test message
kind-restore = Restore
kind-verify = Verification
kind-probe = Look at a server
trigger-schedule = the schedule
trigger-manual = somebody
trigger-webhook = the trigger URL
trigger-catch-up = the schedule, late
proof-unverified = Not proven yet
proof-verified = Proven
proof-corrupt = Damaged
proof-missing = Missing
connectivity-unknown = Not checked yet
connectivity-online = Online
connectivity-offline = Offline
reach-unknown = Not checked yet
reach-reachable = Reachable
reach-unreachable = Unreachable
notice-pending = On its way
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
content-symlink = link
content-hardlink = further name
content-other = special file
deleted-retention = Deleted: newer backups took its place.
deleted-user = Deleted by you.
deleted-task-deleted = Deleted together with its task.
failure-auth = Install your public SSH key on the server for this user; the server's page shows the command.
failure-entry-missing = Check the path of the entry.
failure-engine-unclear = Choose the database engine on the task.
day-nothing = nothing ran
day-good = all successful
day-mixed = some failed
day-bad = all failed

## Overview
overview-safe = Everything is backed up.
overview-nothing = Nothing is backed up yet.
overview-not-yet = The first backup has not run yet.
overview-wanting = { $n ->
    [one] 1 task needs you.
   *[other] { $n } tasks need you.
}
overview-wanting-other = { $n ->
    [one] 1 thing needs you.
   *[other] { $n } things need you.
}
overview-proven = Backups of { $proven } of { $tasks } tasks were read back and can be restored.
overview-unproven = No backup was read back yet, so none is proven.
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
overview-steps = From nothing to a first proven backup
overview-calendar = Last 30 days
overview-stored = Stored
overview-durations = Average duration of a run
overview-tasks = Tasks by state
overview-no-tasks = There is no task yet.
overview-figures = These figures as a table
overview-day = Day
overview-average = Average duration
overview-growth = { $percent } %
overview-upcoming = Next runs
step-server = Add a server and let Holdfast in.
step-server-do = Add a server
step-destination = Say where backups go.
step-destination-do = Add a destination
step-task = Make a task.
step-task-do = Add a task
step-run = Run it.
step-run-do = Go to the task
step-prove = Have the backup read back, so that it is proven.
step-prove-do = Go to the backups
step-done = (done)

## Servers
servers-empty-title = No server yet
servers-empty = A server is a machine that Holdfast reaches over SSH to copy from. Nothing is installed on it; it only has to know your key.
server-add = Add a server
server-add-and-check = Add and check
server-edit = Edit the server
server-host = Host
server-host-hint = A name or an IP address.
server-port = Port
server-user = SSH user
server-user-hint = It must be able to read what is backed up.
server-database = Database login
server-database-user = Database user
server-database-password = Database password
server-database-hint = For database tasks. It is kept sealed, and travels to the server's own tools over SSH. Another host, port, user or jump host removes it.
server-database-remove = Remove the database password
server-way = Way to the server
server-jump = Through this server
server-no-jump = directly
server-address = Address
server-seen = Last contact
server-check = Check now
server-checking = Being checked
server-facts = Details
server-key = Host key
server-key-changed = The server shows another host key than before. If you know why, as after a new installation, accept it. If not, somebody may be in between. Nothing is copied from there until then.
server-key-known = Key so far
server-key-offered = Key now
server-key-accept = Trust the new key
server-latency = Round trip
server-no-tools = What the server offers is known after a check.
server-tasks = Tasks of this server
server-browse = Look into its folders
server-delete-means = The server goes from Holdfast. Nothing is changed on the server itself. Tasks that use it must go first.
key-title = SSH key
key-install = Run this on the server, as the user that backups run as. It lets Holdfast in with your key.
key-fingerprint = Fingerprint

## Destinations
destinations-empty-title = No destination yet
destinations-empty = A destination is where backups go: a folder on this machine, or a bucket at S3 or something like it.
destination-add = Add a destination
destination-add-and-check = Add and check
destination-edit = Edit the destination
destination-kind = Kind
destination-kind-hint = A disk of this machine is lost with it. Keep at least one copy elsewhere.
destination-local = Disk of this machine
destination-custom = S3-compatible
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
destination-keeps-versions = This bucket keeps versions. Backups that are deleted stay there as older versions and take up space until a lifecycle rule of the bucket removes them.
destination-check-means = A check writes a small object, reads it back, lists it and deletes it.
destination-catalogue = Catalogue written
destination-catalogue-behind = The catalogue could not be written and is tried again later.
destination-catalogue-means = Every destination carries a sealed list of all you have. With it and the master key, the destination alone brings everything back.
destination-tasks = Tasks that store here
destination-delete-means = The destination goes from Holdfast. It must hold no backups, and no task may use it.

## Notifications
streams-empty-title = Nobody is told yet
streams-empty = A stream tells people how backups went: by e-mail, Discord, Slack, Teams or Pushover. Add one, then choose it on your tasks.
stream-intro = After it is added, a test message goes out.
stream-add = Add a stream
stream-add-and-test = Add and send a test
stream-edit = Edit the stream
stream-kind = Kind
stream-value = Address
stream-value-hint = An e-mail address, the URL of a webhook, or a Pushover user key.
stream-pushover-token = Pushover application token
stream-pushover-hint = Empty uses that of this installation.
stream-when = Tells of
stream-on-failure = Failures, and what else needs somebody
stream-on-success = Successes
stream-tells-all = everything
stream-tells-success = successes
stream-tells-failure = failures
stream-tells-nothing = nothing
stream-last = Last message
stream-works = Got through
stream-fails = Did not get through
stream-untested = Nothing sent yet
stream-test = Send a test
stream-test-named = Send a test over { $name }
stream-delete-means = Tasks that use it will tell nobody over it any more. Messages on their way over it are dropped.
notices-title = Messages
notices-all = All messages
notices-settings = Quiet hours and weekly summary
notices-undelivered = Messages that could not be delivered
notices-empty = There is no such message.
notices-what = Message
notices-answer = What the channel answered
notices-retry = Try again
notices-retry-named = Try “{ $name }” again

## Tags
tags-empty = Tags are words to sort tasks by, such as “production” or “customers”.
tag-add = Add a tag
tag-edit = Edit the tag
tag-has-colour = It has a colour
tag-colour = Colour

## Tasks
tasks-empty-title = No task yet
tasks-empty = A task says what is copied, from where to where, and when.
tasks-empty-no-ground = A task copies from a server to a destination. Add one of each first.
tasks-count = Tasks: { $n }
tasks-chosen = With those that are chosen:
task-add = Add a task
task-create = Create the task
task-edit = Edit the task
task-copy = Copy this task
task-copy-of = { $name } (copy)
task-copy-secrets = The password and the heartbeat URL are not copied. Set them here if the new task needs them.
task-needs-server = There is no server yet. Add one first.
task-needs-destination = There is no destination yet. Add one first.
task-what = What
task-when = When
task-where = Where to
task-server = Server
task-destination = Destination
task-tag = Tag
task-kind = Kind
task-files = Files
task-database = Database
task-path = Folder or file
task-path-hint = The whole path on the server.
task-browse = Browse …
task-excluded = Exclude
task-excluded-hint = One a line: a name such as *.log anywhere, or a path such as cache/tmp below the folder.
task-one-file-system = Stay on one file system
task-one-file-system-hint = Leaves out what is mounted below the folder, such as network drives. The log names what was left out.
task-database-name = Database
task-database-hint = Empty copies all databases of the server.
task-engine = Engine
task-engine-any = found on the server
task-excluded-tables = Exclude tables
task-excluded-tables-hint = With commas between.
task-one-database = database { $name }
task-all-databases = all databases
task-frequency = How often
frequency-hourly = every hour
frequency-daily = every day
frequency-weekly = every week
frequency-monthly = every month
frequency-custom = by a cron expression
task-time = Time (UTC)
task-time-hint = Schedules are in UTC, so that no run is doubled or skipped when clocks change. Below it stands in your own time. Every hour only the minute counts.
task-weekday = Weekday
task-weekday-hint = For “every week”.
task-day = Day of the month
task-day-hint = For “every month”; 1 to 28, which every month has.
task-cron = Cron expression (UTC)
task-cron-hint = For “by a cron expression”: minute, hour, day, month, weekday.
schedule-hourly = Every hour at minute { $minute }
schedule-daily = Every day at { $time } UTC
schedule-weekly = Every { $weekday } at { $time } UTC
schedule-monthly = On day { $day } of every month at { $time } UTC
schedule-cron = cron { $cron }
schedule-local = { $time } your time
schedule-local-weekday = { $weekday } { $time } your time
probe-back = Back to the form
schedule-next = Next runs:
schedule-preview = Show the next runs
task-keep = Backups to keep
task-keep-hint = The newest so many stay; 0 keeps all.
task-keeps = the newest { $n }
task-keeps-all = all
task-password = Password for encryption
task-password-hint = Empty stores without encryption. Keep the password elsewhere too: without it nobody opens the backups once Holdfast is gone.
task-password-remove = Store without encryption from now on
task-streams = Who is told
task-store-path = Folder at the destination
task-store-hint = A folder below the destination's root.
task-appended = Added to the file name
task-appended-hint = Letters, digits, dot, dash and underscore.
task-heartbeat = Heartbeat URL
task-heartbeat-hint = Asked when a run starts, succeeds or fails, for a service that watches from outside. It is kept sealed.
task-heartbeat-set = set
task-heartbeat-remove = Remove the heartbeat URL
task-dry-run = How much is that?
task-run = Run now
task-pause = Pause
task-resume = Resume
task-last-success = Last backup
task-proven = Last proven
task-next = Next run
task-no-next = none while it is paused
task-last-days = Last 30 days
task-sizes = Size over time
task-overdue = A backup has been due since
task-held = Removal of old backups is on hold: { $reason }
task-release = Remove old backups again
task-release-title = Release the hold on old backups?
task-release-look = Open the newest backup
task-release-means = Look at the newest backup first, and at the source itself. If you release the hold, the newest backup counts as normal, and old backups will be removed with the next successful run, down to the number that the task keeps.
sign-empty = The newest backup is empty.
sign-smaller = The newest backup is much smaller than a normal one.
sign-fewer = The newest backup has far fewer entries than a normal one.
sign-lacking = The newest backup lacks databases that earlier ones had.
sign-half-restored = A restore into the source ended early or was under way, so the newest backup may hold half of what was restored.
sign-incompressible = The content of the newest backup can hardly be compressed any more, as after an attack by ransomware.
task-backups = Stored backups
task-no-backups = There is no backup of this task yet.
task-history = History
task-no-runs = It has not run yet.
task-settings = Settings
task-source = Source
task-schedule = Schedule
task-retention = Keeps
task-encryption = Encryption
task-encrypted = encrypted
task-not-encrypted = not encrypted
task-delete-means = The task goes with its history. Its stored backups stay and can be restored, unless you choose otherwise.
task-delete-backups = { $n ->
    [one] Also delete its stored backup
   *[other] Also delete its { $n } stored backups
}
task-delete-backups-hint = What is deleted cannot be brought back.
task-trigger = Trigger URL
trigger-intro = Whoever knows this URL can start the task, for example a build server before a release. It can do nothing else.
trigger-once = Copy it now; it is shown this once.
trigger-make = Make a new trigger URL
trigger-voids = The one before stops working. So does this one when you change your password, unless you keep your tokens and trigger URLs then.

## Looking at a server
probe-folder = Folder { $path }
probe-choose = Choose { $name }
probe-choose-this = Choose
probe-databases = Databases
probe-all-databases = All databases
probe-empty = The folder is empty.
probe-cut = There is more than is shown here. Type the path by hand.
probe-no-databases = There is no database that this login can see.
probe-not-yet = No worker has answered yet.
probe-again = Look again
probe-size = Entries: { $entries } · { $size }
probe-size-means = Before compression. Paths that are left out are not counted; tables that are left out are. Nothing was copied.

## Runs
runs-title = Runs
runs-backups = Backups
runs-restores = Restores and verifications
runs-live = Under way
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
run-left = About left
run-of = { $done } of about { $total }
run-waits = { $kind }: waiting for its turn
run-goes = { $kind }: under way
run-output = Log
run-no-output = Nothing was written.
run-cancel = Cancel
run-stopping = It is stopping.
run-delete = Delete this log

## Backups and restores
backups-empty = There is no such backup.
backup-title = Backup { $id }
backup-task = Task
backup-made = Made
backup-size = Size
backup-plain = Before compression
backup-entries = Entries
backup-proof = Proof
backup-proven = read back
backup-encrypted = encrypted
backup-suspicious = suspicious
backup-content = Content
backup-key = Object
backup-verify = Verify now
backup-verifying = Being read back
backup-download = Download
backup-download-named = Download { $name }
backup-take = Download
backup-files = Files
backup-search = Search this backup
backup-search-do = Search
backup-search-end = Back to the folders
backup-search-cut = More was found than is shown. Search for something more precise.
backup-folder-empty = The folder is empty.
backup-crumbs = Folders above
backup-modified = Changed
backup-delete-means = The stored backup goes for good. It cannot be brought back.
restore-title = Restore
restore-all = Restore …
restore-chosen = Restore what is chosen …
restore-everything = Everything in the backup will be restored. To restore less, choose files on the backup's page.
restore-some = { $n ->
    [one] 1 chosen entry, with everything in it
   *[other] { $n } chosen entries, with everything in them
}
restore-all-entries = everything: { $n } entries
restore-server = To server
restore-path = To folder
restore-path-hint = The whole path. It is made when it is missing. Choose a new folder if you are not sure.
restore-database = Into database
restore-database-hint = It is made when it is missing.
restore-one-database = Only this database
restore-one-database-hint = Leave it empty to restore all databases of the server, with users and privileges.
restore-overwrite = Replace what is there
restore-overwrite-files = Otherwise files that exist stay as they are.
restore-overwrite-database = Otherwise the database must be empty.
restore-overwrite-all = Needed to put back all databases of a server.
restore-no-owner = Leave out owners
restore-no-owner-files = Restored files belong to the SSH user.
restore-no-owner-database = Restored objects belong to the database user, and no privileges are granted.
restore-numeric-owner = Owners by number
restore-numeric-owner-hint = Use user and group numbers instead of names, as for container volumes.
restore-devices = Restore device nodes
restore-devices-hint = Needs root on the server. Otherwise device nodes are skipped and named in the log.
restore-dry-run = Dry run
restore-dry-run-hint = Only report what would be written, kept and skipped.
restore-means-dry-run = Nothing is written. The log of the run says what a restore would do.
restore-review = Review
restore-summary = This will happen
restore-from = From
restore-what = What
restore-size = How much
restore-to = To
restore-means-replace = Files of the same name are replaced. Other files in the folder stay.
restore-means-keep = Nothing is replaced: files that exist stay as they are, and the log names them.
restore-means-database-replace = What is in the database is replaced by what is in the backup.
restore-means-database-empty = The database must be empty; if it is not, nothing is changed.
restore-do = Restore now

## Signing in
sign-in-title = Sign in
sign-in-do = Sign in
sign-in-with = Sign in with { $name }
sign-in-email = E-mail
sign-in-email-given = You can change it later.
sign-in-password = Password
sign-in-password-hint = At least 8 characters.
sign-in-otp-hint = From your authenticator, or one of your recovery codes.
sign-in-forgotten = Forgot your password?
set-up-title = Welcome. This is your account.
set-up-intro = You are the administrator of this Holdfast. Say who you are and choose a password; this link then stops working.
set-up-do = Create my account
invited-title = Welcome to Holdfast
invited-intro = Somebody made an account for you. Say who you are and choose a password; this link then stops working.
reset-title = A new password
reset-intro = Choose a new password. It signs you out everywhere, unlinks GitHub and OpenID Connect accounts, revokes all API tokens and removes all trigger URLs, unless you keep them. Two-factor sign-in stays as it is.
reset-do = Set the password
register-title = Create an account
register-intro = Everything in it is yours alone.
forgotten-title = Forgot your password?
forgotten-intro = Say your e-mail address, and a link to set a new password is sent there.
forgotten-no-mail = This Holdfast sends no mail. Whoever runs it can give you a link, or set a new password with “holdfast user reset-password”.
forgotten-do = Send the link

## Account
account-signed-in = Signed in as { $name }
account-profile = Profile
account-name = Name
account-zone = Time zone
account-zone-hint = Times are shown in it. Schedules are in UTC.
account-language = Language
account-current-password = Current password
account-email-needs = Only needed for another e-mail address.
account-messages = Messages
account-weekly = Send me a summary of the week on Mondays
account-weekly-hint = By e-mail, to your own address.
account-quiet-from = Quiet from
account-quiet-until = Quiet until
account-quiet-hint = What happens in between is told at its end, as one message. Leave both empty to hear at once.
account-delete = Delete my account
account-delete-means = Everything in it goes: tasks, servers, destinations, streams and logs. What is stored at destinations stays there, and can be opened without Holdfast by whoever has it and its passwords.
account-delete-type = Type { $email } to confirm
token-title = API tokens
token-empty = No token yet. Programs and scripts use one to do things in your name.
token-new = Your new token
token-once = Copy it now. It is shown this once; Holdfast keeps only a fingerprint of it.
token-create-title = Create a token
token-create = Create the token
token-name-hint = What it is for.
token-scopes = What it may do
token-last-used = Last used
token-expires = Expires
token-in-days = in { $n } days
token-never = never
token-revoke = Revoke
token-revoke-named = Revoke { $name }
scope-everything = everything
scope-manage-tags = manage tags
scope-view-backup-destinations = see destinations
scope-create-backup-destinations = add destinations
scope-update-backup-destinations = change destinations
scope-delete-backup-destinations = delete destinations
scope-view-remote-servers = see servers
scope-create-remote-servers = add servers
scope-update-remote-servers = change servers
scope-delete-remote-servers = delete servers
scope-view-notification-streams = see streams
scope-create-notification-streams = add streams
scope-update-notification-streams = change streams
scope-delete-notification-streams = delete streams
scope-view-backup-tasks = see tasks, logs and backups, and download what is in backups
scope-create-backup-tasks = add tasks
scope-update-backup-tasks = change tasks
scope-delete-backup-tasks = delete tasks, logs and backups
scope-run-backup-tasks = run, verify, and restore, also over what is there
security-title = Security
security-open = Password, two-factor and sessions
security-password = Password
security-new-password = New password
security-password-change = Change the password
security-password-means = A new password signs you out everywhere else, unlinks GitHub and OpenID Connect accounts, revokes all API tokens and removes all trigger URLs, unless you keep them.
security-keep-tokens = Keep my API tokens and trigger URLs
security-keep-identities = Keep linked accounts
security-sessions = Where you are signed in
security-device = Device
security-address = Address
security-seen = Last seen
security-this-one = this one
security-revoke = Sign out
security-revoke-named = Sign out { $name }
two-factor-title = Two-factor sign-in
two-factor-is-on = Two-factor sign-in is on.
two-factor-is-off = Two-factor sign-in is off.
two-factor-means = With it, a stolen password alone opens nothing.
two-factor-enable = Turn on two-factor sign-in
two-factor-disable = Turn it off
two-factor-renew = New recovery codes
two-factor-codes-left = { $n ->
    [one] 1 recovery code is left.
   *[other] { $n } recovery codes are left.
}
two-factor-scan = Scan this with an authenticator app.
two-factor-type = Or type this into it:
two-factor-code = One-time code
two-factor-confirm = Confirm and turn on
two-factor-codes = Recovery codes
two-factor-codes-means = Keep these where you find them without your authenticator. Each signs you in once. They are shown this once.
two-factor-kept = I have kept them
identity-title = Other ways to sign in
identity-link = Link { $name }
identity-leave = You go to { $name } now, and come back when you have signed in there. From then on that account opens this one, without your password and your second factor.
identity-go = Go to { $name }
identity-unlink = Unlink
identity-unlink-named = Unlink { $name }

## Audit log
audit-intro = Who did what, and from where.
audit-own = Show my own
audit-all = Show everybody's
audit-action = What
audit-detail = Details
audit-actor = How
audit-user = Account
audit-older = Older
action-user-signed-in = Signed in
action-user-signed-out = Signed out
action-sign-in-refused = Sign-in refused
action-sign-in-link-created = Sign-in link made
action-user-created = Account made
action-user-claimed = Account claimed
action-user-invited = Account invited
action-user-deleted = Account deleted
action-user-email-changed = E-mail address changed
action-user-password-changed = Password changed
action-user-password-reset = Password reset
action-user-otp-enabled = Two-factor sign-in turned on
action-user-otp-disabled = Two-factor sign-in turned off
action-user-recovery-codes-renewed = Recovery codes renewed
action-user-made-administrator = Made an administrator
action-user-made-ordinary = Administrator no more
action-session-revoked = Session ended from afar
action-identity-linked = Account elsewhere linked
action-identity-unlinked = Account elsewhere unlinked
action-token-created = API token created
action-token-revoked = API token revoked
action-scope-denied = API token used beyond its scopes
action-ssh-key-created = SSH key made
action-registration-changed = Registration changed
action-backup-task-deleted = Task deleted
action-backup-task-cancelled = Run cancelled
action-backup-task-next-run-corrected = Next run corrected after a wrong clock
action-backup-task-retention-released = Hold on old backups released
action-backup-task-triggered = Task triggered
action-backup-task-trigger-rotated = Trigger URL made
action-backup-task-encryption-password-set = Password for encryption set
action-backup-task-log-deleted = Log deleted
action-backup-downloaded = Backup downloaded
action-backup-deleted = Backup deleted
action-backup-restore-requested = Restore started
action-backup-found-damaged = Backup found damaged
action-run-cancelled = Run cancelled
action-remote-server-deleted = Server deleted
action-remote-server-moved = Server moved to another address or account
action-remote-server-credentials-set = Database password set
action-remote-server-host-key-accepted = Host key accepted
action-backup-destination-deleted = Destination deleted
action-backup-destination-credentials-set = Keys of a destination set
action-notification-stream-deleted = Stream deleted
action-notification-stream-credentials-set = Address of a stream set
action-tag-deleted = Tag deleted

## Administration
admin-health = Health
admin-version = Version
admin-database = Database
admin-workers = Workers
admin-workers-there = { $n ->
    [one] 1 is there
   *[other] { $n } are there
}
admin-no-workers = none is there; nothing runs
admin-queue = Waiting runs
admin-queue-empty = none
admin-mail = Mail
admin-mail-set = set up
admin-mail-unset = not set up (HOLDFAST_SMTP_URL)
admin-stored = Stored
admin-people = Accounts
admin-administrator = administrator
admin-two-factor = two-factor
admin-password-only = password only
admin-invited = has not come yet
admin-invite = Invite somebody
admin-invite-do = Make an account and a link
admin-link-made = Give this link to its owner; it works once. It is shown this once.
admin-link-sent = The link was sent by mail. Here it is once more; it works once.
admin-make-admin = Make an administrator
admin-make-ordinary = Administrator no more
admin-change-named = Change whether { $name } is an administrator
admin-new-link = New link
admin-new-link-named = New link for { $name }
admin-registration = Registration
admin-registration-open = Whoever reaches this page can make an account.
admin-registration-closed = Only you make accounts.
admin-registration-do = Let people register
admin-registration-close = Close registration
admin-since = Since
admin-worker = Worker
admin-worker-there = There
admin-worker-silent = Silent
admin-leases = Runs under way
admin-no-leases = Nothing is under way.
admin-owner = Account
admin-lease-until = Lease until
search-title = Search for “{ $text }”

## Refusals: `rule-` of a field, `conflict-` of a state, `missing-` of something that is not there, `refused-` of the rest.
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
rule-url = Enter a URL.
rule-email = Enter an email address.
rule-host = Enter an IP address or a host name.
rule-timezone = Choose a time zone.
rule-time-of-day = Enter a time such as 22:00.
rule-quiet-time = Enter a time such as 22:00.
rule-quiet-hours = Quiet hours must not start and end at the same time.
rule-future = Choose a date in the future.
rule-cron = Enter a cron expression with five fields.
rule-cron-never-due = This cron expression never matches a date.
rule-pushover-key = Enter a Pushover user key.
rule-absolute-path = Enter an absolute path without “..”.
rule-no-repository = The repository format is not available yet.
rule-keys-again = Enter both keys again: the endpoint, region, bucket or path style has changed.
rule-files-only = This only applies to backups of files.
rule-owners-in-dump = This dump of a whole server sets roles, privileges and owners itself; they cannot be left out.
rule-whole-server = This backup holds all databases of a server. Leave the database name empty.
rule-overwrite-server = This backup restores all databases of a server, so you must allow it to overwrite them.
rule-credentials = The email address or the password is wrong.
rule-password = The password is wrong.
rule-code = The code is wrong.
rule-form-expired = This form has expired. Start again.
rule-email-taken = There is already an account with this email address.
rule-own-email = Enter your own email address.
rule-other-name = The name does not match.
conflict-task-running = This task is already running.
conflict-task-busy = This task is running. Cancel the run or wait until it ends.
conflict-task-paused = This task is paused. Resume it first.
conflict-task-not-running = This task is not running.
conflict-task-backup-in-use = Backup { $backup } of this task is being restored or verified. Wait until that ends.
conflict-retention-not-held = The removal of old backups is not on hold for this task.
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
conflict-probe-busy = Holdfast is still looking at a server for you. Try again in a moment.
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
conflict-unreadable = { $message }
conflict-run-ended = This run has already ended.
conflict-run-not-ended = This run has not ended yet. Cancel it or wait until it ends.
conflict-notice-delivered = This notification was not undelivered, so there is nothing to retry.
conflict-two-factor-on = Two-factor sign-in is already on. Turn it off first.
conflict-two-factor-off = Two-factor sign-in is off. Turn it on first.
conflict-only-administrator = This is the only administrator. Make somebody else an administrator first.
conflict-no-administrator = There must be at least one administrator.
conflict-account-busy = Something is running for this account. Cancel it or wait until it ends.
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
conflict-changed = Something that belongs to this has changed in the meantime. Try again.
missing-page = This page does not exist.
missing-link = This link has expired or has already been used.
missing-registration = Registration is closed. Ask the administrator of this service for an invitation.
missing-account = This account does not exist.
missing-account-of-email = There is no account with this email address.
missing-session = This session does not exist.
missing-token = This API token does not exist.
missing-logs = This task has no logs yet.
missing-entry = This backup has no such entry.
refused-not-found = This does not exist.
refused-forbidden = You do not have access to this.
refused-too-many = Too many attempts. Try again in { $seconds } seconds.
refused-destination-away = The destination does not respond as it should. Check it and try again later.
