//! Encryption with a password in the age format, so that `age -d` can open our files.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use age::secrecy::SecretString;
use age::stream::{StreamReader, StreamWriter};
use age::{DecryptError, Decryptor, Encryptor, scrypt};
use holdfast_core::Secret;
use holdfast_core::failure::FailureCode;
use tokio_util::sync::CancellationToken;

use crate::error::{EngineError, Result, carried};

/// scrypt's cost as a power of two. Deriving a key takes 128 × 8 × 2^15 bytes = 32 MiB for a tenth of a second; the
/// format's usual 2^18 would take 256 MiB, too much for a run that must stay small.
const WORK_FACTOR: u8 = 15;
/// The maximum accepted for a file that was written with `age` by somebody else.
const MAX_WORK_FACTOR: u8 = 18;

/// The longest header that is read. Ours has one recipient, the password, and takes about 170 bytes. The library
/// accepts headers of any length, and parses them from the start again for every byte it reads.
const HEADER_BYTES: usize = 4096;

/// Who wrote the header, which determines how much work deriving its key may take.
#[derive(Clone, Copy)]
pub(crate) enum WrittenBy<'a> {
    /// A file that is opened manually.
    Anybody,
    /// A recorded backup: no version of Holdfast has used a higher work factor. No key is derived once this token is
    /// cancelled.
    Us(&'a CancellationToken),
}

impl WrittenBy<'_> {
    fn most_work(self) -> u8 {
        match self {
            Self::Anybody => MAX_WORK_FACTOR,
            Self::Us(_) => WORK_FACTOR,
        }
    }

    fn is_stopped(self) -> bool {
        matches!(self, Self::Us(stop) if stop.is_cancelled())
    }
}

/// Ensures that keys are derived one at a time in the whole process, because of the memory that each takes.
#[derive(Clone, Default)]
pub(crate) struct KeyDerivation(Arc<Mutex<()>>);

impl KeyDerivation {
    pub(crate) fn take<T>(&self, derive: impl FnOnce() -> T) -> T {
        let _turn = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        derive()
    }

    /// Writes the header; everything written afterwards is encrypted.
    pub(crate) fn seal<W: Write>(&self, output: W, password: &Secret) -> io::Result<StreamWriter<W>> {
        let mut recipient = scrypt::Recipient::new(SecretString::from(password.reveal().to_owned()));
        recipient.set_work_factor(WORK_FACTOR);
        let recipients = std::iter::once(&recipient as &dyn age::Recipient);
        let encryptor = Encryptor::with_recipients(recipients).map_err(io::Error::other)?;
        self.take(|| encryptor.wrap_output(output))
    }

    /// Reads the header; everything read afterwards is authenticated, or an error.
    pub(crate) fn open<R: Read>(
        &self,
        input: R,
        password: &Secret,
        written: WrittenBy<'_>,
    ) -> Result<StreamReader<BoundedHeader<R>>> {
        let mut identity = scrypt::Identity::new(SecretString::from(password.reveal().to_owned()));
        identity.set_max_work_factor(written.most_work());
        let left = Arc::new(AtomicUsize::new(HEADER_BYTES));
        let opened = Decryptor::new(BoundedHeader { input, left: left.clone() }).and_then(|decryptor| {
            left.store(usize::MAX, Ordering::Relaxed);
            self.take(|| {
                if written.is_stopped() {
                    return Err(DecryptError::Io(EngineError::cancelled().into()));
                }
                decryptor.decrypt(std::iter::once(&identity as &dyn age::Identity))
            })
        });
        opened.map_err(|error| match error {
            DecryptError::DecryptionFailed | DecryptError::NoMatchingKeys | DecryptError::KeyDecryptionFailed => {
                EngineError::new(FailureCode::WrongPassword, "The password does not open this backup.")
            }
            DecryptError::Io(error) => {
                carried(&error).unwrap_or_else(|| EngineError::corrupt(format!("The header cannot be read: {error}")))
            }
            DecryptError::ExcessiveWork { .. } => {
                EngineError::corrupt("The encryption header asks for more work than any Holdfast backup.")
            }
            error => EngineError::corrupt(format!("The encryption header is damaged: {error}")),
        })
    }
}

/// Fails on a header that is too long; what follows the header is read without a limit.
pub(crate) struct BoundedHeader<R> {
    input: R,
    left: Arc<AtomicUsize>,
}

impl<R: Read> Read for BoundedHeader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.load(Ordering::Relaxed);
        if left == usize::MAX {
            return self.input.read(buffer);
        }
        if left == 0 {
            return Err(EngineError::corrupt("The encryption header is longer than that of any backup.").into());
        }
        let most = buffer.len().min(left);
        let read = self.input.read(&mut buffer[..most])?;
        self.left.store(left - read, Ordering::Relaxed);
        Ok(read)
    }
}

impl<R: Seek> Seek for BoundedHeader<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.input.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(work_factor: u8, password: &Secret) -> Vec<u8> {
        let mut recipient = scrypt::Recipient::new(SecretString::from(password.reveal().to_owned()));
        recipient.set_work_factor(work_factor);
        let encryptor = Encryptor::with_recipients(std::iter::once(&recipient as &dyn age::Recipient)).unwrap();
        let mut writer = encryptor.wrap_output(Vec::new()).unwrap();
        writer.write_all(b"text").unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn a_header_without_end_is_damage() {
        let (key_derivation, password) = (KeyDerivation::default(), Secret::new("password".to_owned()));
        let mut bytes = sealed(10, &password);
        let end = bytes.windows(4).position(|four| four == b"\n---").unwrap();
        bytes.splice(end..end, b"\n-> x\n".repeat(1_000_000));
        let error = key_derivation.open(&bytes[..], &password, WrittenBy::Anybody).err().unwrap();
        assert_eq!(error.code, FailureCode::Corrupt);
        assert!(error.message.contains("longer than"), "{}", error.message);
    }

    #[test]
    fn a_stored_backup_asks_for_no_more_work_than_ours_do() {
        let (key_derivation, password, stop) =
            (KeyDerivation::default(), Secret::new("password".to_owned()), CancellationToken::new());
        let code = |bytes: &[u8], written| key_derivation.open(bytes, &password, written).err().map(|error| error.code);
        let (ours, hard) = (sealed(WORK_FACTOR, &password), sealed(WORK_FACTOR + 1, &password));
        assert_eq!(code(&ours, WrittenBy::Us(&stop)), None);
        assert_eq!(code(&hard, WrittenBy::Anybody), None);
        assert_eq!(code(&hard, WrittenBy::Us(&stop)), Some(FailureCode::Corrupt));
        stop.cancel();
        assert_eq!(code(&ours, WrittenBy::Us(&stop)), Some(FailureCode::Cancelled));
    }
}
