//! Encryption with a password: the age format, so that `age -d` opens what we wrote.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

use age::secrecy::SecretString;
use age::stream::{StreamReader, StreamWriter};
use age::{DecryptError, Decryptor, Encryptor, scrypt};
use holdfast_core::Secret;
use holdfast_core::run::FailureCode;

use crate::error::{EngineError, Result, carried};

/// scrypt's cost as a power of two. Deriving a key takes 128 × 8 × 2^15 bytes = 32 MiB for a tenth of a second; the
/// format's usual 2^18 would take 256 MiB and break the promise that a run stays small.
const WORK_FACTOR: u8 = 15;
/// What we are willing to spend on a file that somebody else wrote with `age`.
const MAX_WORK_FACTOR: u8 = 18;

/// Keys are derived one at a time in the whole process, since each takes that memory.
#[derive(Clone, Default)]
pub(crate) struct KeyTurn(Arc<Mutex<()>>);

impl KeyTurn {
    fn take<T>(&self, derive: impl FnOnce() -> T) -> T {
        let _turn = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        derive()
    }

    /// Writes the header; what is written from here on is encrypted.
    pub(crate) fn seal<W: Write>(&self, output: W, password: &Secret) -> io::Result<StreamWriter<W>> {
        let mut recipient = scrypt::Recipient::new(SecretString::from(password.reveal().to_owned()));
        recipient.set_work_factor(WORK_FACTOR);
        let recipients = std::iter::once(&recipient as &dyn age::Recipient);
        let encryptor = Encryptor::with_recipients(recipients).map_err(io::Error::other)?;
        self.take(|| encryptor.wrap_output(output))
    }

    /// Reads the header; what is read from here on is authentic or an error.
    pub(crate) fn open<R: Read>(&self, input: R, password: &Secret) -> Result<StreamReader<R>> {
        let mut identity = scrypt::Identity::new(SecretString::from(password.reveal().to_owned()));
        identity.set_max_work_factor(MAX_WORK_FACTOR);
        let opened = Decryptor::new(input)
            .and_then(|decryptor| self.take(|| decryptor.decrypt(std::iter::once(&identity as &dyn age::Identity))));
        opened.map_err(|error| match error {
            DecryptError::DecryptionFailed | DecryptError::NoMatchingKeys | DecryptError::KeyDecryptionFailed => {
                EngineError::new(FailureCode::WrongPassword, "The password does not open this backup.")
            }
            DecryptError::Io(error) => {
                carried(&error).unwrap_or_else(|| EngineError::corrupt(format!("The header cannot be read: {error}")))
            }
            error => EngineError::corrupt(format!("The encryption's header is damaged: {error}")),
        })
    }
}
