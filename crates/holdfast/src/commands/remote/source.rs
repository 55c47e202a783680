//! The bytes of a download. If the connection is lost, it continues with the first byte that is missing.

use std::time::Duration;

use bytes::Bytes;
use holdfast_client::{Client, ClientError};
use holdfast_core::random;
use reqwest::{Response, StatusCode, header};
use sha2::{Digest as _, Sha256};

use crate::failure::Failure;

/// How often a download is continued without getting any further: long enough for a service to restart.
const MOST_ATTEMPTS: u32 = 6;
/// The wait before the first attempt; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(250);

pub struct Source<'a> {
    client: &'a Client,
    path: &'a str,
    response: Response,
    /// The `ETag`, which is the hash of all bytes, if a part of them can be requested.
    version: Option<String>,
    pub total: Option<u64>,
    pub done: u64,
    hash: Sha256,
    is_continued: bool,
    attempts: u32,
}

impl<'a> Source<'a> {
    pub async fn open(client: &'a Client, path: &'a str) -> Result<Self, Failure> {
        let response = client.download(path).await?;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let has_parts = header(header::ACCEPT_RANGES) == Some("bytes");
        let version = header(header::ETAG).filter(|_| has_parts).map(str::to_owned);
        let total = response.content_length();
        let (hash, is_continued) = (Sha256::new(), false);
        Ok(Self { client, path, response, version, total, done: 0, hash, is_continued, attempts: 0 })
    }

    /// The next bytes; `None` after the last ones.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let problem = match self.response.chunk().await {
                Ok(Some(piece)) => {
                    self.done += piece.len() as u64;
                    self.hash.update(&piece);
                    self.attempts = 0;
                    return Ok(Some(piece));
                }
                Ok(None) if self.total.is_none_or(|total| total == self.done) => return self.end(),
                Ok(None) => "the download ended before it was complete".to_owned(),
                Err(error) => format!("the download failed: {error}"),
            };
            self.go_on(problem).await?;
        }
    }

    /// The service checks what it sends from the beginning to the end, but not a part of that.
    fn end(&mut self) -> Result<Option<Bytes>, Failure> {
        let hash = random::hex(&self.hash.finalize_reset());
        let is_whole = self.version.as_deref().is_none_or(|version| version.trim_matches('"') == hash);
        if self.is_continued && !is_whole {
            return Err(Failure::other("the downloaded bytes are not those that were backed up; download it again"));
        }
        Ok(None)
    }

    async fn go_on(&mut self, problem: String) -> Result<(), Failure> {
        let lost = || Failure::unreachable(problem.clone());
        let version = self.version.clone().ok_or_else(lost)?;
        loop {
            if self.attempts == MOST_ATTEMPTS {
                return Err(lost());
            }
            tokio::time::sleep(FIRST_WAIT * 2_u32.pow(self.attempts)).await;
            self.attempts += 1;
            match self.client.download_rest(self.path, self.done, &version).await {
                Ok(response) if response.status() == StatusCode::PARTIAL_CONTENT => {
                    (self.response, self.is_continued) = (response, true);
                    return Ok(());
                }
                Ok(_) => return Err(lost()),
                Err(ClientError::Unreachable { .. } | ClientError::Broken { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
