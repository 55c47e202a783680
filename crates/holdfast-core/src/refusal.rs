//! Refusals as data: each has a code and arguments, which every front end turns into text in its own language.

use std::fmt;

/// What every refusal provides to a front end.
pub trait Refusal {
    /// The code of the refusal, the same in every language.
    fn code(&self) -> &'static str;

    /// The values to insert into the text, by name.
    fn arguments(&self) -> Vec<(&'static str, Argument)>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    Number(i64),
    Text(String),
}

impl From<i64> for Argument {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for Argument {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<String> for Argument {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// A number of things. The English text includes the noun; other languages get only the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub number: i64,
    /// In the singular; its plural ends with an `s`.
    pub noun: &'static str,
}

impl fmt::Display for Count {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, noun } = self;
        write!(formatter, "{number} {noun}{}", if *number == 1 { "" } else { "s" })
    }
}

impl From<Count> for Argument {
    fn from(count: Count) -> Self {
        Self::Number(count.number)
    }
}

/// A closed list of refusals, each with its arguments, code and English text. With `of (…)` the text also names the
/// field in one of three forms: as written, in words, and without its id suffix.
#[macro_export]
macro_rules! refusals {
    ($(#[$meta:meta])* $visible:vis enum $name:ident $(of ($written:ident, $spoken:ident, $chosen:ident))? {
        $($(#[$about:meta])* $variant:ident $({ $($argument:ident: $type:ty),* })? = $code:literal, $english:literal;)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        $visible enum $name {
            $($(#[$about])* $variant $({ $($argument: $type),* })?),*
        }

        impl $name {
            pub const CODES: &[&str] = &[$($code),*];
        }

        impl $crate::refusal::Refusal for $name {
            fn code(&self) -> &'static str {
                match self {
                    $(Self::$variant $({ $($argument: _),* })? => $code),*
                }
            }

            fn arguments(&self) -> Vec<(&'static str, $crate::refusal::Argument)> {
                match self {
                    $(Self::$variant $({ $($argument),* })? => {
                        vec![$($((stringify!($argument), $argument.to_owned().into())),*)?]
                    })*
                }
            }
        }

        $crate::refusals!(@english $name $(($written, $spoken, $chosen))? {
            $($variant $({ $($argument),* })? = $english;)*
        });
    };
    (@english $name:ident ($written:ident, $spoken:ident, $chosen:ident) {
        $($variant:ident $({ $($argument:ident),* })? = $english:literal;)*
    }) => {
        impl $name {
            /// What is wrong with the field, in the words of the API document.
            pub fn english(&self, $written: &str) -> String {
                let $spoken = $written.replace('_', " ");
                let $chosen = $spoken.strip_suffix(" ids").or($spoken.strip_suffix(" id")).unwrap_or(&$spoken);
                match self {
                    $(Self::$variant $({ $($argument),* })? => format!($english)),*
                }
            }
        }
    };
    (@english $name:ident {
        $($variant:ident $({ $($argument:ident),* })? = $english:literal;)*
    }) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$variant $({ $($argument),* })? => write!(formatter, $english)),*
                }
            }
        }
    };
}

refusals! {
    /// What can be wrong with a field of a request.
    pub enum Rule of (field, name, chosen) {
        Required = "required", "The {name} field is required.";
        /// The value does not have the format that the field requires.
        Format = "format", "The {name} field format is invalid.";
        /// A word that is not on the list, or an id that does not belong to the user.
        Choice = "choice", "The selected {chosen} is invalid.";
        Text = "text", "The {name} field must be a string.";
        Integer = "integer", "The {name} field must be an integer.";
        Boolean = "boolean", "The {name} field must be true or false.";
        Object = "object", "The {name} field must be an object.";
        Integers = "integers", "The {name} field must be an array of integers.";
        Texts = "texts", "The {name} field must be an array of strings.";
        AtLeast { min: i64 } = "at-least", "The {name} field must be at least {min}.";
        Between { min: i64, max: i64 } = "between", "The {name} field must be between {min} and {max}.";
        MaxChars { max: usize } = "max-chars", "The {name} field must not be greater than {max} characters.";
        MinChars { min: usize } = "min-chars", "The {name} field must be at least {min} characters.";
        MaxItems { max: usize } = "max-items", "The {name} field must not have more than {max} items.";
        NoItems = "no-items", "The {name} field must have at least 1 items.";
        ControlCharacters = "control-characters", "The {name} field must not contain control characters.";
        HiddenCharacters = "hidden-characters",
            "The {name} field must not contain invisible characters or ones that change the direction of text.";
        Url = "url", "The {name} field must be a valid URL.";
        Email = "email", "The {name} field must be a valid email address.";
        Host = "host", "The {name} field must be a valid IP address or host name.";
        Timezone = "timezone", "The {name} field must be a valid timezone.";
        TimeOfDay = "time-of-day", "The {name} field must match the format HH:MM.";
        Time = "time", "The {name} field must be a time such as 2026-01-31T22:00:00Z.";
        /// A cursor that was not taken from a response, or that belongs to another order.
        Cursor = "cursor", "The {name} field must be the cursor of a response to the same request.";
        Unknown = "unknown", "The {name} field is unknown.";
        /// A field of another type of destination, task or stream.
        OtherType = "other-type", "The {name} field does not apply to this type.";
        QuietTime = "quiet-time", "The {field} field must be a time like 22:00.";
        QuietHours = "quiet-hours", "The quiet hours must not end when they begin.";
        Window = "window", "The window must not end when it begins.";
        Future = "future", "The {name} field must be a date after now.";
        Cron = "cron", "The {name} field must be a valid cron expression of five fields.";
        CronNeverDue = "cron-never-due", "The {name} field must name a time that comes.";
        PushoverKey = "pushover-key", "The {name} field must be a valid Pushover user key.";
        AbsolutePath = "absolute-path", "The {name} field must be an absolute path without ...";
        RepositoryPassword = "repository-password", "The {name} field is required when format is repository.";
        /// The stored keys were given for another service or bucket.
        KeysAgain = "keys-again", "The {name} field is required when the endpoint, the region, the bucket or the path \
            style changes: give both keys again together with the change.";
        /// The stored password was given for another server or account.
        PasswordAgain = "password-again", "The {name} field is required when the host, the port, the user or the host \
            key changes: give the password again together with the change.";
        FilesOnly = "files-only", "The {field} field is for backups of files alone.";
        /// A name or excluded tables of a database that is a file.
        FileDatabase = "file-database",
            "The {name} field must be left out: a database of this engine is a file, copied as a whole.";
        OwnersInDump = "owners-in-dump",
            "This dump of a whole server sets roles, rights and owners itself; they cannot be left out.";
        WholeServer = "whole-server", "This backup holds all databases of a server; leave the database name out.";
        OverwriteServer = "overwrite-server",
            "The {name} field must be true: this backup puts back all databases of a server.";
        Credentials = "credentials", "The provided credentials are incorrect.";
        Suspended = "suspended", "This account is suspended. An administrator can resume it.";
        Password = "password", "The password is incorrect.";
        Code = "code", "The {name} field is incorrect.";
        FormExpired = "form-expired", "This form is out of date. Begin again.";
        EmailTaken = "email-taken", "The email has already been taken.";
        OwnEmail = "own-email", "The {name} field must be your own address.";
        /// The name typed to confirm a deletion does not match.
        OtherName = "other-name", "This is not its name.";
        /// As above, for an account, which is confirmed by its address.
        OtherAddress = "other-address", "This is not its address.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_arguments_have_names() {
        let mut codes = Rule::CODES.to_vec();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Rule::CODES.len());
        let rule = Rule::Between { min: 1, max: 9 };
        assert_eq!(
            (rule.code(), rule.english("day_of_month")),
            ("between", "The day of month field must be between 1 and 9.".into())
        );
        assert_eq!(rule.arguments(), [("min", Argument::Number(1)), ("max", Argument::Number(9))]);
        assert_eq!(Rule::Choice.english("tag_ids"), "The selected tag is invalid.");
    }

    #[test]
    fn counts_have_a_singular() {
        let tasks = |number| Count { number, noun: "backup task" }.to_string();
        assert_eq!((tasks(1).as_str(), tasks(2).as_str()), ("1 backup task", "2 backup tasks"));
    }
}
