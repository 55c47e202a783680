//! The commands of `psql` that `pg_dumpall` writes, each in the exact form it has there.

use super::statement::encoding;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command<'a> {
    /// Connects to this database; nothing else about the connection changes.
    Connect(String),
    Encoding(&'static str),
    Restrict(&'a [u8]),
    Unrestrict(&'a [u8]),
}

/// Reads one whole line, without its line break.
pub(super) fn parse(line: &[u8]) -> Result<Command<'_>, String> {
    const TOKEN_BYTES: usize = 128;
    let token = |token: &[u8]| (1..=TOKEN_BYTES).contains(&token.len()) && token.iter().all(u8::is_ascii_alphanumeric);
    let word_end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let (word, rest) = (&line[..word_end], line.get(word_end + 1..).unwrap_or_default());
    let command = match word {
        b"\\connect" => database(rest).map(Command::Connect),
        b"\\encoding" => encoding(rest).map(Command::Encoding),
        b"\\restrict" if token(rest) => Some(Command::Restrict(rest)),
        b"\\unrestrict" if token(rest) => Some(Command::Unrestrict(rest)),
        _ => None,
    };
    command.ok_or_else(|| {
        // Only the first word, and not much of it: what follows may be anything.
        let shown: String = word.iter().take(24).map(|byte| byte.escape_ascii().to_string()).collect();
        format!("a command that psql would run ({shown})")
    })
}

/// The name in what `pg_dumpall` writes after `\connect`: the name itself, or a connection string with nothing but the
/// name.
fn database(words: &[u8]) -> Option<String> {
    let is_simple = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    let quoted = words.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let simple = quoted.unwrap_or(words);
    if !simple.is_empty() && simple.iter().all(is_simple) {
        return Some(String::from_utf8_lossy(simple).into_owned());
    }
    let words = words.strip_prefix(b"-reuse-previous=on \"dbname='")?.strip_suffix(b"'\"")?;
    let mut name = Vec::new();
    let mut bytes = words.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => name.push(*bytes.next().filter(|next| matches!(next, b'\\' | b'\''))?),
            b'"' => name.push(*bytes.next().filter(|next| **next == b'"')?),
            b'\'' => return None,
            byte if byte.is_ascii_control() => return None,
            byte => name.push(*byte),
        }
    }
    String::from_utf8(name).ok().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_names_a_database_and_nothing_else() {
        let names = [
            (r"\connect template1", "template1"),
            (r#"\connect "Upper.x""#, "Upper.x"),
            (r#"\connect -reuse-previous=on "dbname='my-app'""#, "my-app"),
            (r#"\connect -reuse-previous=on "dbname='Wei""rd'""#, "Wei\"rd"),
            (r#"\connect -reuse-previous=on "dbname='a\'b\\'""#, r"a'b\"),
            (r#"\connect -reuse-previous=on "dbname='host=evil port=1'""#, "host=evil port=1"),
        ];
        for (line, name) in names {
            assert_eq!(parse(line.as_bytes()), Ok(Command::Connect(name.to_owned())), "{line}");
        }
    }

    #[test]
    fn other_commands_and_forms_are_refused() {
        let lines = [
            r"\connect",
            r"\connect ",
            r"\connect  a",
            r"\connect a ",
            "\\connect\ta",
            "\\connect a\tb\tevil.example",
            r"\connect a b",
            r"\connect -",
            r"\connect a;",
            r"\connect :HOST",
            r"\connect `id`",
            r"\connect 'a'",
            r#"\connect "a=b""#,
            r#"\connect "a" b"#,
            r#"\connect "a""b""#,
            r#"\connect "postgres://evil/x""#,
            r#"\connect "dbname='a' host='evil'""#,
            r#"\connect -reuse-previous=off "dbname='a-b'""#,
            r#"\connect -reuse-previous=on "dbname='a' host='evil'""#,
            r#"\connect -reuse-previous=on "dbname='a\' host='evil'""#,
            r#"\connect -reuse-previous=on "dbname='a' host=evil user='b'""#,
            r#"\connect -reuse-previous=on "dbname='a'" "evil.example'""#,
            r#"\connect -reuse-previous=on "host='evil'""#,
            r#"\connect -reuse-previous=on "dbname=''""#,
            r#"\connect -reuse-previous=on 'dbname=a'"#,
            "\\connect -reuse-previous=on \"dbname='a\rb'\"",
            r"\encoding",
            r"\encoding SJIS",
            r"\encoding utf8",
            r"\encoding UTF8 \! id",
            r"\restrict",
            r"\restrict a b",
            r"\restrict a-b",
            r"\! id",
            r"\o |id",
            r"\i /etc/passwd",
            r"\copy t from program 'id'",
            r"\set x y",
            r"\g |id",
            r"\.",
            r"\\",
            r"\",
        ];
        for line in lines {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
