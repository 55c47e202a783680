//! Why a use case is refused although the request itself is valid.

use holdfast_core::refusal::Count;
use holdfast_core::refusals;

refusals! {
    /// The current state of something does not allow it.
    pub enum Conflict {
        TaskRunning = "task-running", "This backup task is already running.";
        TaskBusy = "task-busy", "This backup task is running. Cancel the run or wait for its end first.";
        TaskPaused = "task-paused", "This backup task is paused. Resume it first.";
        TaskNotRunning = "task-not-running", "This backup task is not running; there is nothing to cancel.";
        TaskBackupInUse { backup: i64 } = "task-backup-in-use",
            "Backup {backup} of this task is being restored or verified. Wait for its end first.";
        NoRepository = "no-repository",
            "This backup task has no repository. It gets one with the first backup after its format is repository.";
        RetentionNotHeld = "retention-not-held",
            "The removal of old backups is not on hold for this backup task; there is nothing to release.";
        NoBackupLeft = "no-backup-left", "There is no backup of this task any more.";
        NewerBackup { newest: i64 } = "newer-backup",
            "This task has a newer backup, {newest}. Review that one first.";
        ServerInUse { tasks: Count } = "server-in-use",
            "This remote server is still used by {tasks}. Change or delete them first.";
        ServerRestored = "server-restored",
            "A backup is being restored to this remote server. Wait for its end first.";
        ServerIsJump = "server-is-jump", "Other remote servers are reached through this one. Change them first.";
        OtherHostKey = "other-host-key", "The server has shown another host key since. Look at it again.";
        NoHostKey = "no-host-key", "This remote server has shown no other host key; there is nothing to accept.";
        ProbeBusy = "probe-busy", "Holdfast is still looking at a server for you. Try again in a moment.";
        DestinationInUse { tasks: Count } = "destination-in-use",
            "This backup destination is still used by {tasks}. Change or delete them first.";
        DestinationHolds { backups: Count } = "destination-holds",
            "This backup destination still holds {backups}. Delete them first.";
        DestinationMoves { backups: Count } = "destination-moves",
            "This backup destination still holds {backups}. Create another destination instead.";
        DestinationBusy = "destination-busy",
            "A run is using this backup destination. Cancel it or wait for its end before you change where it is.";
        BackupInUse = "backup-in-use",
            "This backup is being restored or verified. Cancel that or wait for its end first.";
        BackupDeleted = "backup-deleted", "This backup has been deleted.";
        NotFiles = "not-files", "This backup is a dump of a database; it has no files to list.";
        PageTooFar = "page-too-far", "This page is too far into a folder with that many entries or with names that \
            long. Ask for an earlier page or for a folder below it, search for a name, or download or restore the \
            folder.";
        ReadingTooLong = "reading-too-long", "Looking through this backup takes too long. Try again later, restore \
            what you need, or download all of it.";
        /// What the engine reports about a stored backup; `failure` is one of the failure codes of runs.
        Unreadable { failure: String, message: String } = "unreadable", "{message}";
        /// The client asked for its change to be made to a version that is not the current one.
        Outdated = "outdated", "This has changed since you read it. Read it again before you change or delete it.";
        LabelTaken = "label-taken", "Something else of this kind has this label already.";
        RunEnded = "run-ended", "This run has ended; there is nothing to cancel.";
        RunNotEnded = "run-not-ended", "This run has not ended yet. Cancel it or wait for its end first.";
        NoticeDelivered = "notice-delivered", "This notice was already delivered; there is nothing to try again.";
        TwoFactorOn = "two-factor-on", "Two-factor sign-in is on already. Turn it off first.";
        TwoFactorOff = "two-factor-off", "Two-factor sign-in is off; turn it on first.";
        OnlyAdministrator = "only-administrator",
            "This is the only administrator. Make somebody else an administrator first.";
        NoAdministrator = "no-administrator", "At least one account must be an administrator.";
        AccountBusy = "account-busy", "Something is running for this account. Cancel it or wait for its end.";
        AccountSuspended = "account-suspended", "This account is suspended. An administrator can resume it.";
        AccountNotSuspended = "account-not-suspended", "This account is not suspended.";
        SameAccount = "same-account", "Everything already belongs to this account.";
        OwnSuspension = "own-suspension", "You cannot suspend your own account.";
        OwnAccount = "own-account", "Delete your own account on your account page.";
        SignInNotBegun = "sign-in-not-begun",
            "This sign-in was not begun here, or was open for too long. Try again.";
        SignInNotConfirmed = "sign-in-not-confirmed", "The other service did not confirm who you are. Try again.";
        NotLinked = "not-linked",
            "No account here is linked to this one. Sign in with your password, then link it on your account page.";
        LinkedElsewhere = "linked-elsewhere", "This account is linked to somebody else here.";
        NotADocument = "not-a-document", "This file is not an export or catalogue of Holdfast.";
        NewerDocument = "newer-document",
            "This was written by a newer Holdfast; use that version, or a newer one, to read it.";
        DamagedDocument { reason: String } = "damaged-document", "This document is damaged: {reason}";
        AccountExists { email: String } = "account-exists",
            "There is an account for {email} here already. Import into an installation that does not have it.";
        OtherRequest = "other-request",
            "This Idempotency-Key was used for another request. Use a new key for each request.";
        RequestUnfinished = "request-unfinished", "A request with this Idempotency-Key has not ended, or nobody knows \
            how it ended. Check whether it took effect before you send it with another key.";
        TooManyKeys = "too-many-keys",
            "Too many requests with an Idempotency-Key were sent within a day. Send this one without, or later.";
        Taken = "taken", "That value is already taken.";
        Changed = "changed", "Something that belongs to this changed meanwhile. Try again.";
    }
}

refusals! {
    /// Something that is not a resource of its own does not exist.
    pub enum Missing {
        Page = "page", "There is no such page.";
        Link = "link", "This link has expired or was used before.";
        Registration = "registration",
            "Nobody can register here. Ask whoever runs this service for an invitation.";
        Account = "account", "Account not found";
        AccountOfEmail = "account-of-email", "No account has this email address.";
        Session = "session", "Session not found";
        Token = "token", "API token not found";
        Task = "task", "No task of this account has this ID or label.";
        Logs = "logs", "No logs found for this backup task.";
        Repository = "repository", "No repository found for this backup task.";
        Entry = "entry", "There is no such entry in this backup.";
    }
}

/// Tasks that still use something.
pub(crate) fn tasks(number: i64) -> Count {
    Count { number, noun: "backup task" }
}

/// Backups that something still holds.
pub(crate) fn backups(number: i64) -> Count {
    Count { number, noun: "backup" }
}
