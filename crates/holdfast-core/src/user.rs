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
        let name = rules::line(&mut errors, "name", name, limits::TEXT_CHARS);
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
    fn accounts_are_checked() {
        assert!(UserDraft::check("Ada", "ada@example.org", "Europe/Berlin", false).is_ok());
        let errors = UserDraft::check(" ", "ada", "Mars/Olympus", false).unwrap_err();
        assert!(errors.has("name") && errors.has("email") && errors.has("timezone"));
    }
}
