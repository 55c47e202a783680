//! Profiles: services that a user often talks to, in a file of their own.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::call::Result;
use crate::error::ClientError;
use crate::yaml;

/// Where a service is, and how to sign in to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    pub url: Option<String>,
    pub token_file: Option<PathBuf>,
    pub ca_file: Option<PathBuf>,
}

/// Reads a profile. Paths in the file are relative to its folder.
pub fn read(file: &Path, name: &str) -> Result<Profile> {
    let of_file = |what: String| ClientError::Settings(format!("{}: {what}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| of_file(error.to_string()))?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut profiles = parse(&text, folder).map_err(of_file)?;
    let known: Vec<String> = profiles.keys().cloned().collect();
    let unknown = || of_file(format!("there is no profile {name:?}; it has {}", known.join(", ")));
    profiles.remove(name).ok_or_else(unknown)
}

fn parse(text: &str, folder: &Path) -> Result<BTreeMap<String, Profile>, String> {
    let document = yaml::parse(text)?;
    let outer = document.as_object().ok_or("this must have `profiles`")?;
    if let Some(other) = outer.keys().find(|name| *name != "profiles") {
        return Err(format!("{other} is unknown; allowed is profiles"));
    }
    let profiles = outer.get("profiles").and_then(Value::as_object).ok_or("profiles must have a name for each")?;
    profiles.iter().map(|(name, fields)| Ok((name.clone(), profile(name, fields, folder)?))).collect()
}

fn profile(name: &str, fields: &Value, folder: &Path) -> Result<Profile, String> {
    let fields = fields.as_object().ok_or_else(|| format!("profile {name:?} must have fields"))?;
    let mut profile = Profile::default();
    for (field, value) in fields {
        let odd = |what: &str| format!("profile {name:?}: {field} {what}");
        let text = || value.as_str().ok_or_else(|| odd("must be text"));
        match field.as_str() {
            "url" => profile.url = Some(text()?.to_owned()),
            "token_file" => profile.token_file = Some(folder.join(text()?)),
            "ca_file" => profile.ca_file = Some(folder.join(text()?)),
            "token" => return Err(odd("would be readable here; put it into a file, and name that as token_file")),
            _ => return Err(odd("is unknown; allowed are url, token_file, ca_file")),
        }
    }
    Ok(profile)
}

/// Reads the token of a profile, unless others can read it, too.
pub fn read_token(file: &Path) -> Result<String> {
    let of_file = |what: String| ClientError::Settings(format!("{}: {what}", file.display()));
    let metadata = std::fs::metadata(file).map_err(|error| of_file(error.to_string()))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(of_file(format!("others can read this token; run chmod 600 {}", file.display())));
    }
    std::fs::read_to_string(file).map(|text| text.trim().to_owned()).map_err(|error| of_file(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_name_a_service_and_a_token_file() {
        let text =
            "profiles:\n  home: {url: 'https://home.example.org', token_file: home.token}\n  work: {ca_file: /ca}\n";
        let profiles = parse(text, Path::new("/config")).unwrap();
        assert_eq!(profiles["home"].url.as_deref(), Some("https://home.example.org"));
        assert_eq!(profiles["home"].token_file.as_deref(), Some(Path::new("/config/home.token")));
        assert_eq!(profiles["work"].ca_file.as_deref(), Some(Path::new("/ca")));
        for (text, expected) in [
            ("profile: {}", "profile is unknown"),
            ("profiles: []", "must have a name for each"),
            ("profiles: {a: {token: hf_x}}", "profile \"a\": token would be readable here"),
            ("profiles: {a: {urls: x}}", "urls is unknown"),
            ("profiles: {a: {url: 5}}", "url must be text"),
        ] {
            let told = parse(text, Path::new("")).unwrap_err();
            assert!(told.contains(expected), "{text}: {told}");
        }
    }
}
