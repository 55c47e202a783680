//! Divides files into chunks at positions that their content determines, so that equal parts of different versions
//! become equal chunks. Chunks are those of restic for the same polynomial: a Rabin fingerprint of the last 64 bytes.

mod polynomial;
mod scan;

pub use polynomial::Polynomial;
pub use scan::Tables;

pub const MIN_CHUNK_BYTES: usize = 512 * 1024;
pub const MAX_CHUNK_BYTES: usize = 8 * 1024 * 1024;

/// Divides one file after the other into chunks.
pub struct Chunker<'a> {
    tables: &'a Tables,
    /// The current chunk, as far as it has been read.
    chunk: Vec<u8>,
    /// The shortest length at which the chunk may end and that has not been looked at.
    next: usize,
}

impl<'a> Chunker<'a> {
    pub fn new(tables: &'a Tables) -> Self {
        Self { tables, chunk: Vec::new(), next: MIN_CHUNK_BYTES }
    }

    /// Takes the next bytes of the file, and passes each chunk that is complete to `on_chunk`, which returns a buffer
    /// for a later one.
    pub fn push<E>(
        &mut self,
        mut bytes: &[u8],
        mut on_chunk: impl FnMut(Vec<u8>) -> Result<Vec<u8>, E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            let most = MAX_CHUNK_BYTES - self.chunk.len();
            let (now, later) = bytes.split_at(bytes.len().min(most));
            self.chunk.extend_from_slice(now);
            bytes = later;
            while let Some(end) = self.find_end() {
                // The rest is shorter than what was pushed, as a piece is mostly shorter than the shortest chunk.
                let rest = self.chunk.split_off(end);
                let mut next = on_chunk(std::mem::take(&mut self.chunk))?;
                next.clear();
                next.extend_from_slice(&rest);
                self.chunk = next;
                self.next = MIN_CHUNK_BYTES;
            }
        }
        Ok(())
    }

    /// Ends the file. Returns its last chunk; an empty file has none.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        self.next = MIN_CHUNK_BYTES;
        (!self.chunk.is_empty()).then(|| std::mem::take(&mut self.chunk))
    }

    /// Where the current chunk ends, if that has been read.
    fn find_end(&mut self) -> Option<usize> {
        let length = self.chunk.len();
        if length < self.next {
            return None;
        }
        let found = self.tables.first_cut(&self.chunk, self.next);
        self.next = length + 1;
        found.or((length == MAX_CHUNK_BYTES).then_some(length))
    }
}

#[cfg(test)]
mod tests;
