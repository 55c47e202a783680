//! A server for tests: answers requests with the result of a function, correctly or not.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_util::sync::CancellationToken;

use super::Client;

pub(crate) const OPEN: u8 = 3;
pub(crate) const CLOSE: u8 = 4;
pub(crate) const READ: u8 = 5;
pub(crate) const WRITE: u8 = 6;
pub(crate) const LSTAT: u8 = 7;
pub(crate) const FSTAT: u8 = 8;
pub(crate) const OPENDIR: u8 = 11;
pub(crate) const READDIR: u8 = 12;
pub(crate) const STAT: u8 = 17;

pub(crate) const EOF: u32 = 1;
pub(crate) const NO_SUCH_FILE: u32 = 2;
pub(crate) const PERMISSION_DENIED: u32 = 3;

pub(crate) const FOLDER_MODE: u32 = 0o040_755;
pub(crate) const FILE_MODE: u32 = 0o100_644;

/// A request as the server sees it.
pub(crate) struct Asked {
    pub kind: u8,
    pub id: u32,
    /// The bytes after the id.
    pub body: Vec<u8>,
}

impl Asked {
    /// The string at the start of the body: a path or a handle.
    pub fn text(&self) -> &[u8] {
        let length = u32::from_be_bytes(*self.body.first_chunk::<4>().unwrap()) as usize;
        &self.body[4..4 + length]
    }

    /// The bytes after that string.
    pub fn rest(&self) -> &[u8] {
        &self.body[4 + self.text().len()..]
    }

    /// Offset and length of a read request.
    pub fn range(&self) -> (usize, usize) {
        let rest = self.rest();
        let offset = u64::from_be_bytes(rest[..8].try_into().unwrap());
        let length = u32::from_be_bytes(rest[8..12].try_into().unwrap());
        (usize::try_from(offset).unwrap(), length as usize)
    }
}

pub(crate) fn string(text: &[u8]) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes(), text].concat()
}

/// A packet with its length.
pub(crate) fn packet(kind: u8, id: u32, body: &[u8]) -> Vec<u8> {
    string(&[&[kind][..], &id.to_be_bytes(), body].concat())
}

pub(crate) fn status(id: u32, code: u32) -> Vec<u8> {
    packet(101, id, &[&code.to_be_bytes()[..], &string(b"said the server"), &string(b"")].concat())
}

pub(crate) fn handle(id: u32, handle: &[u8]) -> Vec<u8> {
    packet(102, id, &string(handle))
}

pub(crate) fn data(id: u32, data: &[u8]) -> Vec<u8> {
    packet(103, id, &string(data))
}

/// Size, owner, mode and times.
fn attributes_of(mode: u32, size: u64) -> Vec<u8> {
    let (owner, times) = ([0; 8], [0; 8]);
    [&15_u32.to_be_bytes()[..], &size.to_be_bytes(), &owner, &mode.to_be_bytes(), &times].concat()
}

/// Attributes from a server that reports neither owner nor times.
pub(crate) fn few_attributes(id: u32, mode: u32, size: u64) -> Vec<u8> {
    packet(105, id, &[&5_u32.to_be_bytes()[..], &size.to_be_bytes(), &mode.to_be_bytes()].concat())
}

pub(crate) fn attributes(id: u32, mode: u32, size: u64) -> Vec<u8> {
    packet(105, id, &attributes_of(mode, size))
}

pub(crate) fn names(id: u32, names: &[&[u8]]) -> Vec<u8> {
    let mut body = u32::try_from(names.len()).unwrap().to_be_bytes().to_vec();
    for name in names {
        body.extend([string(name), string(b"-"), attributes_of(FILE_MODE, 1)].concat());
    }
    packet(104, id, &body)
}

/// The version packet of a correct server, without extensions.
pub(crate) fn version() -> Vec<u8> {
    vec![0, 0, 0, 5, 2, 0, 0, 0, 3]
}

/// The next request; `None` when the client is gone.
pub(crate) async fn next_request(stream: &mut DuplexStream) -> Option<Asked> {
    let length = stream.read_u32().await.ok()? as usize;
    let mut packet = vec![0; length];
    stream.read_exact(&mut packet).await.ok()?;
    Some(Asked {
        kind: packet[0],
        id: u32::from_be_bytes(packet[1..5].try_into().unwrap()),
        body: packet[5..].to_vec(),
    })
}

/// A client after the version exchange, and the server's end of the stream.
pub(crate) async fn greeted(reply_limit: Duration, cancel: &CancellationToken) -> (Client, DuplexStream) {
    let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
    theirs.write_all(&version()).await.unwrap();
    let client = Client::start(ours, reply_limit, cancel.clone()).await.unwrap();
    let mut init = [0; 9];
    theirs.read_exact(&mut init).await.unwrap();
    assert_eq!(init, [0, 0, 0, 5, 1, 0, 0, 0, 3]);
    (client, theirs)
}

/// A client of a server that sends the result of `answer` for each request, until the client is gone.
pub(crate) async fn serve(
    reply_limit: Duration,
    cancel: &CancellationToken,
    mut answer: impl FnMut(&Asked) -> Vec<u8> + Send + 'static,
) -> Client {
    let (client, mut stream) = greeted(reply_limit, cancel).await;
    tokio::spawn(async move {
        while let Some(asked) = next_request(&mut stream).await {
            if stream.write_all(&answer(&asked)).await.is_err() {
                break;
            }
        }
    });
    client
}
