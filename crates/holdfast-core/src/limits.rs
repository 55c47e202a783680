//! Limits on what users may send, with the reason for each. Limits that an operator may want to change are settings
//! instead.

/// Text fields without their own limit, in characters; fixed by the API.
pub const TEXT_CHARS: usize = 255;
/// The description of a tag.
pub const DESCRIPTION_CHARS: usize = 1000;
/// URLs: Teams workflow hooks alone reach 400 characters; 2048 is what proxies and browsers agree on.
pub const URL_CHARS: usize = 2048;
/// A path on a server: Linux's PATH_MAX.
pub const PATH_CHARS: usize = 4096;
/// Credentials: room for long passphrases, but nobody can make us hash or seal megabytes.
pub const SECRET_CHARS: usize = 1024;
/// The list of excluded tables: a thousand names of ten letters.
pub const EXCLUDED_TABLES_CHARS: usize = 10_000;
/// Exclude patterns are passed on the command line of a single remote process.
pub const EXCLUDED_PATHS: usize = 100;
pub const EXCLUDED_PATH_CHARS: usize = 1000;
/// Streams or tags on one task; each stream means a message per run.
pub const ATTACHED: usize = 50;
pub const MAX_BACKUPS: i64 = 1000;
pub const DEFAULT_MAX_BACKUPS: i64 = 5;
pub const APPENDED_FILENAME_CHARS: usize = 100;
/// The minimum of NIST SP 800-63B; shorter passwords are easily guessed.
pub const PASSWORD_MIN_CHARS: usize = 8;
pub const PER_PAGE_DEFAULT: i64 = 15;
pub const PER_PAGE_MAX: i64 = 100;
/// Pages are numbered with 32 bits so that an offset cannot overflow.
pub const PAGE_MAX: i64 = u32::MAX as i64;
pub const UPCOMING_DEFAULT: i64 = 20;
pub const UPCOMING_MAX: i64 = 100;
/// The output shown for one run; longer output is reduced to its beginning and end.
pub const OUTPUT_BYTES: usize = 256 * 1024;
/// One line of output; longer lines are truncated.
pub const LINE_CHARS: usize = 4096;
/// Entries selected for one restore; beyond that, people restore a folder or everything.
pub const RESTORE_ENTRIES: usize = 1000;
