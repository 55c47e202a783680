//! Users: names, passwords, and what is derived from them.

use crate::input::Errors;
use crate::refusal::Rule;
use crate::{Secret, limits, network, rules};

string_enum! {
    /// What a one-time link is for.
    LinkPurpose {
        /// Claims the account that was created on the first start.
        SetUp = "set-up",
        /// Claims an account that an administrator created.
        Invitation = "invitation",
        /// Sets a new password.
        Reset = "reset",
    }
}

/// The first and the last word of a name; the last is empty when there is only one.
pub fn first_and_last_name(name: &str) -> (&str, &str) {
    let mut words = name.split_whitespace();
    (words.next().unwrap_or(""), words.next_back().unwrap_or(""))
}

/// The URL of the picture that Gravatar keeps for this email address. Holdfast never fetches it.
pub fn avatar_url(email: &str) -> String {
    let hash = crate::random::hex(&crate::random::digest(&normal_email(email)));
    format!("https://www.gravatar.com/avatar/{hash}?d=mp")
}

/// The form in which email addresses are compared: trimmed, in lower case.
pub fn normal_email(email: &str) -> String {
    email.trim().to_lowercase()
}

/// A checked account, before it has an id.
#[derive(Debug, Clone)]
pub struct UserDraft {
    pub name: String,
    pub email: String,
    pub timezone: String,
    pub is_admin: bool,
}

impl UserDraft {
    pub fn check(name: &str, email: &str, timezone: &str, is_admin: bool) -> Result<Self, Errors> {
        let mut errors = Errors::default();
        let name = rules::label(&mut errors, "name", name, limits::TEXT_CHARS);
        let email = normal_email(email);
        if !network::is_email(&email) {
            errors.add("email", Rule::Email);
        }
        if crate::clock::zone(timezone).is_none() {
            errors.add("timezone", Rule::Timezone);
        }
        match name {
            Some(name) if errors.is_empty() => Ok(Self { name, email, timezone: timezone.to_owned(), is_admin }),
            _ => Err(errors),
        }
    }
}

/// What hashing a password costs: 19 MiB and two passes, the least that OWASP recommends for argon2id.
pub const HASH_MEMORY_KIB: u32 = 19 * 1024;
pub const HASH_PASSES: u32 = 2;
pub const HASH_LANES: u32 = 1;

/// Whether this is the hash of a password as we write it. A hash says itself how much work checking a password against it
/// takes, so one from elsewhere could demand any amount.
pub fn is_password_hash(text: &str) -> bool {
    let head = format!("$argon2id$v=19$m={HASH_MEMORY_KIB},t={HASH_PASSES},p={HASH_LANES}$");
    let is_base64 = |part: &str| {
        (16..=86).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
    };
    let parts = text.strip_prefix(&head).and_then(|rest| rest.split_once('$'));
    parts.is_some_and(|(salt, hash)| is_base64(salt) && is_base64(hash))
}

pub fn check_password(password: &Secret) -> Result<(), Errors> {
    let chars = password.reveal().chars().count();
    if chars < limits::PASSWORD_MIN_CHARS {
        return Err(Errors::one("password", Rule::MinChars { min: limits::PASSWORD_MIN_CHARS }));
    }
    if chars > limits::SECRET_CHARS {
        let mut errors = Errors::default();
        errors.add("password", Rule::MaxChars { max: limits::SECRET_CHARS });
        return Err(errors);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_into_first_and_last_word() {
        assert_eq!(first_and_last_name("Ada King Lovelace"), ("Ada", "Lovelace"));
        assert_eq!(first_and_last_name("Plato"), ("Plato", ""));
    }

    #[test]
    fn the_avatar_does_not_depend_on_the_spelling_of_the_address() {
        assert_eq!(avatar_url("Ada@Example.org"), avatar_url(" ada@example.org"));
    }

    #[test]
    fn a_password_hash_cannot_demand_more_work_than_ours() {
        let hash =
            |cost: &str| format!("$argon2id$v=19${cost}$c29tZSByYW5kb20gc2FsdA$/gYqzZJgiqTgyPFSLfyP1Ew+qs4P7YFqzkRJH7");
        assert!(is_password_hash(&hash("m=19456,t=2,p=1")));
        let costs = ["m=4194304,t=2,p=1", "m=19456,t=4000000,p=1", "m=19456,t=2,p=16", "m=19456,t=2,p=1,keyid=a", ""];
        for cost in costs {
            assert!(!is_password_hash(&hash(cost)), "{cost}");
        }
        let short = "$argon2id$v=19$m=19456,t=2,p=1$$";
        for other in ["", "x", "$2b$12$abc", short, "$argon2d$v=19$m=19456,t=2,p=1$c29tZSByYW5kb20gc2FsdA$abc"] {
            assert!(!is_password_hash(other), "{other}");
        }
    }

    #[test]
    fn accounts_are_checked() {
        assert!(UserDraft::check("Ada", "ada@example.org", "Europe/Berlin", false).is_ok());
        let errors = UserDraft::check(" ", "ada", "Mars/Olympus", false).unwrap_err();
        assert!(errors.has("name") && errors.has("email") && errors.has("timezone"));
    }
}
