//! Reads and writes a file with many requests in flight, so that latency does not limit throughput.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use super::packet::{Attributes, Handle, OpenMode, Reply, Request, StatusCode};
use super::{Client, RequestId, SftpError};

/// The size of one read or write: the largest that every server accepts.
const PIECE_BYTES: u32 = 32 * 1024;
/// The number of requests in flight; times the piece size, this is the memory used per file.
const IN_FLIGHT: usize = 128;

/// Reads the content of a file in order, from its start or that of a range up to `end`.
pub struct FileReader {
    handle: Handle,
    /// The size of the next requests, reduced if the server returns less at once.
    piece: u32,
    /// Everything up to here has been requested.
    asked: u64,
    /// Everything up to here has been returned.
    given: u64,
    end: u64,
    in_flight: VecDeque<Piece>,
    /// An `fstat` requested after the last piece, so that it describes the file as it was then.
    last_look: Option<RequestId>,
}

struct Piece {
    id: RequestId,
    offset: u64,
    length: u32,
}

impl FileReader {
    /// Opens a file. Its attributes are requested together with its first pieces, whose number follows from the
    /// `expected` size.
    pub async fn open(client: &mut Client, path: &[u8], expected: u64) -> Result<(Self, Attributes), SftpError> {
        let handle = client.open(path, OpenMode::Read, Attributes::default()).await?;
        let mut reader = Self {
            handle,
            piece: PIECE_BYTES,
            asked: 0,
            given: 0,
            end: expected,
            in_flight: VecDeque::new(),
            last_look: None,
        };
        let look = client.queue(&Request::Fstat(&reader.handle))?;
        reader.ask(client)?;
        match client.attributes(look).await {
            Ok(attributes) => {
                reader.end = attributes.size.unwrap_or(expected);
                Ok((reader, attributes))
            }
            Err(error) => {
                reader.abandon(client);
                // The error that is returned is more useful than one from closing.
                let _unsent = client.close_later(&reader.handle);
                Err(error)
            }
        }
    }

    /// Opens a file to read only the bytes of a range.
    pub async fn open_range(client: &mut Client, path: &[u8], range: Range<u64>) -> Result<Self, SftpError> {
        let handle = client.open(path, OpenMode::Read, Attributes::default()).await?;
        Ok(Self {
            handle,
            piece: PIECE_BYTES,
            asked: range.start,
            given: range.start,
            end: range.end,
            in_flight: VecDeque::new(),
            last_look: None,
        })
    }

    /// The next bytes; `None` at the end of the file, even if that has moved. Never returns bytes beyond the size at
    /// opening.
    pub async fn next(&mut self, client: &mut Client) -> Result<Option<Bytes>, SftpError> {
        if self.given >= self.end {
            return Ok(None);
        }
        self.ask(client)?;
        if self.asked >= self.end && self.last_look.is_none() {
            self.last_look = Some(client.queue(&Request::Fstat(&self.handle))?);
        }
        let Some(piece) = self.in_flight.pop_front() else { return Ok(None) };
        let mut data = match client.reply(piece.id).await? {
            Reply::Data(data) if !data.is_empty() => data,
            Reply::Data(_) | Reply::Status { code: StatusCode::Eof, .. } => {
                self.end = self.given;
                return Ok(None);
            }
            other => return Err(client.refused(other)),
        };
        let length = u32::try_from(data.len()).unwrap_or(piece.length);
        if length < piece.length {
            // Request the rest of the piece next. A server that returns less at once is asked for less from now on.
            self.piece = self.piece.min(length.max(PIECE_BYTES / 8));
            let rest = self.request(client, piece.offset + u64::from(length), piece.length - length)?;
            self.in_flight.push_front(rest);
        }
        data.truncate(usize::try_from(self.end - self.given).unwrap_or(usize::MAX));
        self.given += data.len() as u64;
        Ok(Some(data))
    }

    /// Closes the file and returns its attributes as of when its last piece was read.
    pub async fn finish(mut self, client: &mut Client) -> Result<Attributes, SftpError> {
        self.abandon(client);
        let look = match self.last_look {
            Some(look) => look,
            None => client.queue(&Request::Fstat(&self.handle))?,
        };
        client.close_later(&self.handle)?;
        client.attributes(look).await
    }

    fn abandon(&mut self, client: &mut Client) {
        for piece in self.in_flight.drain(..) {
            client.abandon(piece.id);
        }
    }

    fn ask(&mut self, client: &mut Client) -> Result<(), SftpError> {
        while self.asked < self.end && self.in_flight.len() < IN_FLIGHT {
            let length = u32::try_from(self.end - self.asked).unwrap_or(self.piece).min(self.piece);
            let piece = self.request(client, self.asked, length)?;
            self.in_flight.push_back(piece);
            self.asked += u64::from(length);
        }
        Ok(())
    }

    fn request(&self, client: &mut Client, offset: u64, length: u32) -> Result<Piece, SftpError> {
        let id = client.queue(&Request::Read { handle: &self.handle, offset, length })?;
        Ok(Piece { id, offset, length })
    }
}

/// Writes a file sequentially, with or without holes.
pub struct FileWriter {
    handle: Handle,
    offset: u64,
    in_flight: VecDeque<RequestId>,
}

impl FileWriter {
    pub async fn open(
        client: &mut Client,
        path: &[u8],
        mode: OpenMode,
        attributes: Attributes,
    ) -> Result<Self, SftpError> {
        let handle = client.open(path, mode, attributes).await?;
        Ok(Self { handle, offset: 0, in_flight: VecDeque::new() })
    }

    /// Writes to a file that is already open, starting at `offset`.
    pub fn at(handle: Handle, offset: u64) -> Self {
        Self { handle, offset, in_flight: VecDeque::new() }
    }

    /// Appends data; an error may concern an earlier piece.
    pub async fn write(&mut self, client: &mut Client, data: &[u8]) -> Result<(), SftpError> {
        for piece in data.chunks(PIECE_BYTES as usize) {
            if self.in_flight.len() >= IN_FLIGHT {
                self.confirm(client).await?;
            }
            let request = Request::Write { handle: &self.handle, offset: self.offset, data: piece };
            self.in_flight.push_back(client.queue(&request)?);
            self.offset += piece.len() as u64;
            client.send_now().await?;
        }
        Ok(())
    }

    /// Continues at this offset; the skipped range becomes a hole.
    pub fn skip_to(&mut self, offset: u64) {
        self.offset = self.offset.max(offset);
    }

    /// Waits until the server has confirmed every piece, and returns the handle, which the caller has to close.
    pub async fn finish(mut self, client: &mut Client) -> Result<Handle, SftpError> {
        while !self.in_flight.is_empty() {
            self.confirm(client).await?;
        }
        Ok(self.handle)
    }

    async fn confirm(&mut self, client: &mut Client) -> Result<(), SftpError> {
        match self.in_flight.pop_front() {
            Some(id) => client.status(id).await,
            None => Ok(()),
        }
    }
}
