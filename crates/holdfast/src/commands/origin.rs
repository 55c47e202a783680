//! The actor of commands, for the audit log.

use holdfast_app::Origin;

/// Who runs this command, as the system knows them.
pub fn origin() -> Origin {
    let uid = rustix::process::getuid().as_raw();
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let actor = match name_of(uid, &accounts) {
        Some(name) => format!("command line (uid {uid}, {name})"),
        None => format!("command line (uid {uid})"),
    };
    Origin { actor, ..Origin::default() }
}

/// The name of an account. Accounts of a directory service are not in the file; their number has to do.
fn name_of(uid: u32, accounts: &str) -> Option<&str> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, number) = (fields.next()?, fields.next()?, fields.next()?);
        (number.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_number() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nbroken\n\nbackup:x:34:34::/:/bin/sh\n";
        assert_eq!(name_of(0, accounts), Some("root"));
        assert_eq!(name_of(34, accounts), Some("backup"));
        assert_eq!(name_of(3, accounts), None);
    }
}
