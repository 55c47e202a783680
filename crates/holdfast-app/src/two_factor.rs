//! Two-factor authentication: a TOTP secret for an authenticator app, and recovery codes in case it is lost.

use holdfast_core::audit::AuditAction;
use holdfast_core::input::{Errors, Field};
use holdfast_core::refusal::Rule;
use holdfast_core::{Secret, limits, random};
use holdfast_store::Tx;
use holdfast_store::users::{self, UserRow};
use totp_rs::{Algorithm, Builder, Totp};

use crate::refusal::Conflict;
use crate::{App, AppError, Caller, Origin, Result};

/// How many recovery codes a user gets; each works once.
const RECOVERY_CODES: usize = 10;
/// 80 bits each: they cannot be guessed, not even with a copy of the database.
const RECOVERY_CODE_LETTERS: usize = 16;
/// The longest TOTP secret that is accepted. Ours have 32 letters; those of other programs up to twice that.
const SECRET_LETTERS: usize = 64;
/// Without letters that look alike.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// What the user enters into an authenticator app.
pub struct Proposal {
    /// To type in manually.
    pub secret: Secret,
    /// To scan.
    pub url: Secret,
}

/// A new secret. It takes effect only after its owner has proved that their authenticator app has it.
pub fn propose(email: &str) -> Result<Proposal> {
    let secret = Secret::new(totp_rs::Secret::from(random::bytes::<20>().to_vec()).to_base32());
    address(email, secret)
}

/// A proposal with an existing secret, for a form that is shown again.
pub fn address(email: &str, secret: Secret) -> Result<Proposal> {
    let url = totp(&secret, email)?.to_url().map_err(|error| AppError::Internal(error.to_string()))?;
    Ok(Proposal { secret, url: Secret::new(url) })
}

/// Turns two-factor authentication on if the code matches the secret. Returns the recovery codes, which are shown once.
pub async fn confirm(app: &App, caller: &Caller, secret: &Secret, code: &str) -> Result<Vec<Secret>> {
    let mut tx = app.store.begin().await?;
    let user = users::find(&mut tx, caller.user).await?.ok_or(AppError::Unauthenticated)?;
    if user.totp_sealed.is_some() {
        return Err(AppError::Conflict(Conflict::TwoFactorOn));
    }
    let step = totp(secret, &user.email)?.check(code.trim(), seconds(app));
    let Some(step) = step else {
        return Err(AppError::Invalid(Errors::one("code", Rule::Code)));
    };
    users::update_totp(&mut tx, &user, Some(secret), app.now()).await?;
    users::use_totp_step(&mut tx, user.user_id(), i64::try_from(step).unwrap_or(i64::MAX)).await?;
    app.audit(&mut tx, caller, AuditAction::UserOtpEnabled, "").await?;
    let codes = write_codes(&mut tx, &user).await?;
    tx.commit().await?;
    Ok(codes)
}

/// Turns two-factor authentication on at once and returns the `otpauth://` URL for an authenticator app; for the
/// command line.
pub async fn enable(app: &App, origin: &Origin, user: &UserRow) -> Result<Secret> {
    let Proposal { secret, url } = propose(&user.email)?;
    let mut tx = app.store.begin().await?;
    users::update_totp(&mut tx, user, Some(&secret), app.now()).await?;
    users::replace_recovery_codes(&mut tx, user.user_id(), &[]).await?;
    app.audit_as(&mut tx, Some(user.user_id()), origin, AuditAction::UserOtpEnabled, "").await?;
    tx.commit().await?;
    Ok(url)
}

pub async fn disable(app: &App, origin: &Origin, user: &UserRow) -> Result<()> {
    let mut tx = app.store.begin().await?;
    users::update_totp(&mut tx, user, None, app.now()).await?;
    users::replace_recovery_codes(&mut tx, user.user_id(), &[]).await?;
    app.audit_as(&mut tx, Some(user.user_id()), origin, AuditAction::UserOtpDisabled, "").await?;
    Ok(tx.commit().await?)
}

/// New recovery codes; the previous ones stop working.
pub async fn renew_codes(app: &App, caller: &Caller) -> Result<Vec<Secret>> {
    let mut tx = app.store.begin().await?;
    let user = users::find(&mut tx, caller.user).await?.ok_or(AppError::Unauthenticated)?;
    if user.totp_sealed.is_none() {
        return Err(AppError::Conflict(Conflict::TwoFactorOff));
    }
    let codes = write_codes(&mut tx, &user).await?;
    app.audit(&mut tx, caller, AuditAction::UserRecoveryCodesRenewed, "").await?;
    tx.commit().await?;
    Ok(codes)
}

pub async fn count_codes(app: &App, caller: &Caller) -> Result<i64> {
    Ok(users::count_recovery_codes(&mut app.store.read().await?, caller.user).await?)
}

async fn write_codes(tx: &mut Tx, user: &UserRow) -> Result<Vec<Secret>> {
    let codes: Vec<Secret> = std::iter::repeat_with(recovery_code).take(RECOVERY_CODES).collect();
    let digests: Vec<[u8; 32]> = codes.iter().map(|code| digest(code.reveal())).collect();
    users::replace_recovery_codes(tx, user.user_id(), &digests).await?;
    Ok(codes)
}

fn recovery_code() -> Secret {
    let letters: String = random::bytes::<RECOVERY_CODE_LETTERS>()
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 32)]))
        .collect();
    let parts: Vec<&str> = (0..RECOVERY_CODE_LETTERS).step_by(4).map(|at| &letters[at..at + 4]).collect();
    Secret::new(parts.join("-"))
}

/// The digest of a recovery code, regardless of case and separators.
fn digest(code: &str) -> [u8; 32] {
    let letters: String = code.chars().filter(char::is_ascii_alphanumeric).collect();
    random::digest(&letters.to_ascii_lowercase())
}

/// If two-factor authentication is on, a code is required, and each code works once.
pub(crate) async fn check(app: &App, tx: &mut Tx, user: &UserRow, otp: &Field<String>) -> Result<()> {
    let Some(sealed) = &user.totp_sealed else { return Ok(()) };
    let secret = tx.open(user.totp_place(), sealed).await?;
    let code = match otp {
        Field::Value(code) if code.len() <= limits::TEXT_CHARS => code.trim(),
        Field::Value(_) => "",
        Field::WrongType => return Err(AppError::Invalid(Errors::one("otp", Rule::Text))),
        Field::Absent | Field::Null => {
            return Err(AppError::Invalid(Errors::one("otp", Rule::Required)));
        }
    };
    let step = totp(&secret, &user.email)?.check(code, seconds(app));
    let fresh = match step {
        Some(step) => users::use_totp_step(tx, user.user_id(), i64::try_from(step).unwrap_or(i64::MAX)).await?,
        None => users::take_recovery_code(tx, user.user_id(), &digest(code)).await?,
    };
    if fresh { Ok(()) } else { Err(AppError::Invalid(Errors::one("otp", Rule::Code))) }
}

fn seconds(app: &App) -> u64 {
    u64::try_from(app.now().as_second()).unwrap_or(0)
}

/// The secret may come from a submitted form, so it can be anything.
fn totp(secret: &Secret, email: &str) -> Result<Totp> {
    let out_of_date = || AppError::Invalid(Errors::one("code", Rule::FormExpired));
    if secret.reveal().len() > SECRET_LETTERS {
        return Err(out_of_date());
    }
    let secret = totp_rs::Secret::try_from_base32(secret.reveal()).map_err(|_| out_of_date())?;
    Builder::new()
        .with_algorithm(Algorithm::SHA1)
        .with_digits(6)
        .with_skew(1)
        .with_step_duration(30)
        .with_secret(secret)
        .with_account_name(email)
        .with_issuer(Some("Holdfast"))
        .build()
        .map_err(|_| out_of_date())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6238's test vector for SHA-1 at 59 seconds, truncated to six digits.
    #[test]
    fn one_time_codes_follow_the_rfc() {
        let secret = totp_rs::Secret::from(b"12345678901234567890".to_vec());
        let totp = totp(&Secret::new(secret.to_base32()), "a@example.org").unwrap();
        assert_eq!(totp.check("287082", 59), Some(1));
        assert_eq!(totp.check("287082", 59 + 120), None);
    }

    #[test]
    fn an_invalid_secret_is_refused() {
        for bad in ["", "A", "AAAAAAAA", "not base32 \0", "ÄÄÄÄ", &"A".repeat(1000)] {
            let made = address("a@example.org", Secret::new(bad));
            assert!(matches!(made, Err(AppError::Invalid(_))), "{bad:?}");
        }
    }

    #[test]
    fn recovery_codes_are_read_however_they_are_typed() {
        let code = recovery_code();
        assert_eq!(code.reveal().len(), RECOVERY_CODE_LETTERS + 3);
        assert_eq!(digest(code.reveal()), digest(&code.reveal().replace('-', " ").to_uppercase()));
        assert_ne!(code.reveal(), recovery_code().reveal());
    }
}
