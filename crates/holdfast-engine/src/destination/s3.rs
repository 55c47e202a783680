//! S3 and compatible stores, on object_store's client over our own guarded transport.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt as _;
use holdfast_core::Secret;
use holdfast_core::failure::FailureCode;
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsAuthorizer, AwsCredential};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig};
use reqwest::{Method, StatusCode};
use url::{Host, Url};

use super::{Accepted, BlobStore, ListedObject, PartBody, PartLayout, PartLimits, SpooledPart, Stat};
use crate::egress::{self, Egress, Limits};
use crate::error::EngineError;
use crate::remote::{LEAST_BYTES_A_SECOND, Pace, stalled};

/// How much of an error response is read; real ones stay below 1 KiB.
const ERROR_BODY: usize = 64 * 1024;
/// The size limit of other XML responses. A listing page (1000 keys of up to 1 KiB each, escaped) stays below this.
const XML_BODY: usize = 16 * 1024 * 1024;
/// The number of keys on one page of a listing in S3.
const PAGE_KEYS: usize = 1000;
/// Stores may send pages that are not full, or even empty. A listing with more than ten times as many pages as
/// necessary is considered endless.
const SHORT_PAGES: usize = 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub struct S3Config {
    /// `http(s)://host[:port]` without the bucket; `None` means Amazon's own for `region`.
    pub endpoint: Option<String>,
    pub bucket: String,
    pub region: String,
    /// `endpoint/bucket/key` instead of `bucket.endpoint/key`.
    pub path_style: bool,
    pub access_key: Secret,
    pub secret_key: Secret,
    /// Trusted in addition to the system's certificates.
    pub ca_pem: Option<Vec<u8>>,
    pub egress: Egress,
    /// The time limit for a whole request, which also determines the slowest link that can still transfer a part.
    pub timeout: Duration,
    /// How long a response may be silent, and the time over which its minimum transfer rate is measured.
    pub stall: Duration,
    pub parts: PartLimits,
}

/// One bucket.
pub struct S3 {
    store: AmazonS3,
    /// For requests that object_store cannot make, since it requires bodies to be in memory.
    client: reqwest::Client,
    egress: Arc<Egress>,
    /// Includes the bucket if that is part of the host name.
    endpoint: Url,
    /// The path prefix of keys if the bucket is not part of the host name.
    bucket: Option<String>,
    region: String,
    credential: AwsCredential,
    timeout: Duration,
    stall: Duration,
    parts: PartLimits,
}

impl S3 {
    pub fn new(config: S3Config) -> Result<Self, EngineError> {
        let plain = |s: &str, extra: &[u8]| {
            !s.is_empty() && s.len() <= 63 && s.bytes().all(|b| b.is_ascii_alphanumeric() || extra.contains(&b))
        };
        if !plain(&config.bucket, b".-_") || config.bucket.starts_with(['.', '-']) || config.bucket.ends_with('.') {
            return Err(EngineError::new(FailureCode::DestinationFailed, "the bucket name is not valid"));
        }
        if !plain(&config.region, b"-_") {
            return Err(EngineError::new(FailureCode::DestinationFailed, "the region is not valid"));
        }
        let endpoint = endpoint(&config)?;
        let egress = Arc::new(config.egress);
        let limits = Limits { connect: CONNECT_TIMEOUT.min(config.timeout), total: config.timeout };
        let client = egress::client(&endpoint, &egress, config.ca_pem.as_deref(), limits)?;
        let transport =
            HttpClient::new(Transport { client: client.clone(), egress: egress.clone(), stall: config.stall });
        let (bucket, region) = (config.path_style.then(|| config.bucket.clone()), config.region.clone());
        let credential = AwsCredential {
            key_id: config.access_key.reveal().to_owned(),
            secret_key: config.secret_key.reveal().to_owned(),
            token: None,
        };
        let store = AmazonS3Builder::new()
            .with_endpoint(endpoint.as_str().trim_end_matches('/'))
            .with_virtual_hosted_style_request(!config.path_style)
            .with_bucket_name(config.bucket)
            .with_region(config.region)
            .with_access_key_id(config.access_key.reveal())
            .with_secret_access_key(config.secret_key.reveal())
            .with_allow_http(true)
            // Bulk deletion is missing in some stores and needs Content-MD5 in others.
            .with_disable_bulk_delete(true)
            .with_retry(RetryConfig { max_retries: 0, retry_timeout: Duration::ZERO, ..RetryConfig::default() })
            .with_http_connector(Prepared(transport))
            .build()
            .map_err(error)?;
        let S3Config { timeout, stall, parts, .. } = config;
        Ok(Self { store, client, egress, endpoint, bucket, region, credential, timeout, stall, parts })
    }

    /// Sends a part from its file, signed in the same way as object_store signs the others.
    async fn put_spooled(
        &self,
        key: &str,
        upload_id: &str,
        index: usize,
        part: Arc<SpooledPart>,
    ) -> Result<String, EngineError> {
        let size = PartBody::File(part.clone()).size_bytes();
        let mut url = self.endpoint.clone();
        url.set_path(&encoded(&format!("{}/{}", self.bucket.as_deref().unwrap_or_default(), path(key)?)));
        url.query_pairs_mut().append_pair("partNumber", &(index + 1).to_string()).append_pair("uploadId", upload_id);
        self.egress.check_url(&url).map_err(|e| EngineError::new(FailureCode::ForbiddenAddress, e.to_string()))?;
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = Method::PUT;
        *request.uri_mut() = url.as_str().parse().map_err(EngineError::internal)?;
        let signer = AwsAuthorizer::new(&self.credential, "s3", &self.region);
        signer.try_authorize(&mut request, Some(part.sha256())).map_err(error)?;
        let timeout = self.timeout.max(Duration::from_secs(size / SLOWEST_PART_BYTES_PER_SEC));
        let (head, _) = request.into_parts();
        let sent = self
            .client
            .put(url)
            .headers(head.headers)
            .header(reqwest::header::CONTENT_LENGTH, size)
            .timeout(timeout)
            .body(reqwest::Body::wrap_stream(part.stream()))
            .send()
            .await;
        let mut answer =
            sent.map_err(|e| egress::classify(&e).unwrap_or_else(|| EngineError::internal("the request failed")))?;
        let (status, tag) = (answer.status(), answer.headers().get(reqwest::header::ETAG).cloned());
        if !status.is_success() {
            let mut body = Vec::new();
            // A broken body does not matter: the status is known already.
            while let Ok(Some(chunk)) = answer.chunk().await {
                body.extend_from_slice(&chunk);
                if body.len() > ERROR_BODY {
                    break;
                }
            }
            return Err(Answer { status, code: code(&body) }.classify());
        }
        let tag = tag.as_ref().and_then(|tag| tag.to_str().ok());
        let missing = || EngineError::new(FailureCode::DestinationFailed, "the store returned no ETag for a part");
        tag.map(str::to_owned).ok_or_else(missing)
    }
}

/// Percent-encodes a path as required for signatures: every byte except letters, digits and `-._~/`.
fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len() + 1);
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The base URL, with the bucket in the host name when it belongs there.
fn endpoint(config: &S3Config) -> Result<Url, EngineError> {
    let bad = |message: &str| EngineError::new(FailureCode::DestinationFailed, message);
    let text = match &config.endpoint {
        Some(text) => text.trim().to_owned(),
        None => format!("https://s3.{}.amazonaws.com", config.region),
    };
    let mut url = Url::parse(&text).map_err(|_| bad("the endpoint is not a valid address"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("the endpoint must start with http:// or https://"));
    }
    let extras =
        url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() || url.password().is_some();
    if extras || url.path() != "/" {
        return Err(bad("the endpoint must be a host with an optional port, without a path"));
    }
    if !config.path_style {
        let host = match url.host() {
            Some(Host::Domain(name)) => format!("{}.{name}", config.bucket),
            _ => return Err(bad("an endpoint given as an IP address needs path style")),
        };
        url.set_host(Some(&host)).map_err(|_| bad("the bucket name cannot be part of a host name; use path style"))?;
    }
    Ok(url)
}

/// The path of `key`, byte for byte: `Path::from` would percent-encode some characters into the key itself.
fn path(key: &str) -> Result<Path, EngineError> {
    let path = Path::parse(key).ok().filter(|p| !key.is_empty() && key.len() <= 1024 && p.as_ref() == key);
    path.ok_or_else(|| {
        let message = "the object key is empty, too long, or has empty, '.' or '..' segments or control characters";
        EngineError::new(FailureCode::DestinationFailed, message)
    })
}

/// The number of small parts that are sent concurrently.
const PARALLEL_PARTS: u64 = 3;
/// A part from a file may take as long as it takes at this rate, if that is longer than the limit for other requests.
const SLOWEST_PART_BYTES_PER_SEC: u64 = 256 * 1024;

/// Cloudflare's R2 requires all parts except the last to have the same size.
fn wants_equal_parts(endpoint: &Url) -> bool {
    let host = endpoint.host_str().unwrap_or_default();
    host == "r2.cloudflarestorage.com" || host.ends_with(".r2.cloudflarestorage.com")
}

#[async_trait]
impl BlobStore for S3 {
    fn part_layout(&self, expected_bytes: u64) -> PartLayout {
        let parts = self.parts.plan(expected_bytes, wants_equal_parts(&self.endpoint));
        let parallel = (PARALLEL_PARTS * self.parts.least_bytes / parts.first_bytes).max(1);
        PartLayout { parts, parallel: usize::try_from(parallel).unwrap_or(1), has_etags: true }
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Accepted, EngineError> {
        self.store.put(&path(key)?, PutPayload::from_bytes(body)).await.map_err(error)?;
        Ok(Accepted::Unconfirmed)
    }

    async fn begin(&self, key: &str) -> Result<String, EngineError> {
        self.store.create_multipart(&path(key)?).await.map_err(error)
    }

    async fn put_part(&self, key: &str, upload_id: &str, index: usize, body: PartBody) -> Result<String, EngineError> {
        if index >= self.parts.max_parts {
            return Err(EngineError::new(
                FailureCode::DestinationFailed,
                format!("an upload can have no more than {} parts", self.parts.max_parts),
            ));
        }
        let body = match body {
            PartBody::Memory(chunks) => PutPayload::from_iter(chunks),
            PartBody::File(part) => return self.put_spooled(key, upload_id, index, part).await,
        };
        let part = self.store.put_part(&path(key)?, &upload_id.to_owned(), index, body).await.map_err(error)?;
        Ok(part.content_id)
    }

    async fn complete(&self, key: &str, upload_id: &str, parts: Vec<String>) -> Result<Accepted, EngineError> {
        if parts.is_empty() {
            return Err(EngineError::new(FailureCode::DestinationFailed, "an upload needs at least one part"));
        }
        let parts = parts.into_iter().map(|content_id| PartId { content_id }).collect();
        self.store.complete_multipart(&path(key)?, &upload_id.to_owned(), parts).await.map_err(error)?;
        Ok(Accepted::Unconfirmed)
    }

    async fn abort(&self, key: &str, upload_id: Option<&str>) -> Result<(), EngineError> {
        let Some(upload_id) = upload_id else { return Ok(()) };
        absent_is_fine(self.store.abort_multipart(&path(key)?, &upload_id.to_owned()).await.map_err(error))
    }

    async fn stat(&self, key: &str) -> Result<Option<Stat>, EngineError> {
        match self.store.head(&path(key)?).await.map_err(error) {
            Ok(meta) => {
                // If versioning was never enabled, or is suspended, objects have no version or one called "null".
                let is_versioned = meta.version.is_some_and(|version| version != "null");
                Ok(Some(Stat { size: meta.size, etag: meta.e_tag, is_versioned }))
            }
            Err(e) if e.code == FailureCode::Missing => Ok(None),
            Err(e) => Err(e),
        }
    }

    async fn read(&self, key: &str, range: Range<u64>) -> Result<Bytes, EngineError> {
        let path = path(key)?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let wanted = usize::try_from(range.end - range.start)
            .map_err(|_| EngineError::new(FailureCode::DestinationFailed, "the range is too large"))?;
        let options = GetOptions::new().with_range(Some(GetRange::Bounded(range)));
        let mut chunks = self.store.get_opts(&path, options).await.map_err(error)?.into_stream();
        let (mut body, mut pace) = (BytesMut::new(), Pace::new(self.stall));
        while let Some(chunk) = pace.receive(chunks.try_next()).await?.map_err(error)? {
            if body.len() + chunk.len() > wanted {
                return Err(EngineError::new(
                    FailureCode::DestinationFailed,
                    "the store sent more bytes than asked for",
                ));
            }
            if body.is_empty() && chunk.len() == wanted {
                return Ok(chunk);
            }
            body.reserve(wanted - body.len());
            body.extend_from_slice(&chunk);
        }
        if body.len() < wanted {
            let message =
                format!("the store sent {} of {wanted} bytes: the object is shorter than expected", body.len());
            return Err(EngineError::new(FailureCode::DestinationFailed, message));
        }
        Ok(body.freeze())
    }

    async fn remove(&self, key: &str) -> Result<(), EngineError> {
        absent_is_fine(self.store.delete(&path(key)?).await.map_err(error))
    }

    async fn list_objects(&self, prefix: &str, limit: usize) -> Result<Vec<ListedObject>, EngineError> {
        let mut found = Vec::new();
        let mut page_token = None;
        let mut pages = 0;
        while found.len() < limit {
            pages += 1;
            if pages > SHORT_PAGES * (1 + limit.div_ceil(PAGE_KEYS)) {
                return Err(EngineError::new(FailureCode::DestinationFailed, "the store's listing does not end"));
            }
            let max_keys = Some((limit - found.len()).min(PAGE_KEYS));
            let options = PaginatedListOptions { max_keys, page_token, ..Default::default() };
            let prefix = Some(prefix).filter(|p| !p.is_empty());
            let page = self.store.list_paginated(prefix, options).await.map_err(error)?;
            let room = limit - found.len();
            let objects = page.result.objects.into_iter().take(room);
            found.extend(objects.map(|o| ListedObject { key: o.location.to_string(), size: Some(o.size) }));
            page_token = page.page_token;
            if page_token.is_none() {
                break;
            }
        }
        Ok(found)
    }
}

fn absent_is_fine(result: Result<(), EngineError>) -> Result<(), EngineError> {
    match result {
        Err(e) if e.code == FailureCode::Missing => Ok(()),
        other => other,
    }
}

/// An error response, reduced to what may be shown.
#[derive(Debug, Clone)]
struct Answer {
    status: StatusCode,
    code: Option<String>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.code {
            Some(code) => write!(f, "{} {code}", self.status.as_u16()),
            None => write!(f, "{}", self.status.as_u16()),
        }
    }
}

impl StdError for Answer {}

impl Answer {
    fn classify(&self) -> EngineError {
        let (kind, text) = self.meaning();
        EngineError::new(kind, format!("{text} ({self})"))
    }

    /// The error code takes precedence if there is one, since stores differ in the status they send with it.
    fn meaning(&self) -> (FailureCode, &'static str) {
        const BUSY: (FailureCode, &str) = (FailureCode::DestinationUnavailable, "the store is busy or failing");
        const DENIED: (FailureCode, &str) = (FailureCode::DestinationDenied, "the store denies access");
        match self.code.as_deref().unwrap_or("") {
            "NoSuchBucket" => return (FailureCode::BucketMissing, "the bucket does not exist"),
            "NoSuchKey" => return (FailureCode::Missing, "the object does not exist"),
            "NoSuchUpload" => return (FailureCode::Missing, "the multipart upload does not exist"),
            "RequestTimeTooSkewed" | "RequestExpired" | "RequestInTheFuture" => {
                return (FailureCode::ClockSkew, "this machine's clock and the store's differ too much");
            }
            "InvalidAccessKeyId" => return (FailureCode::DestinationDenied, "the store does not know the access key"),
            "SignatureDoesNotMatch" => return (FailureCode::DestinationDenied, "the secret key is wrong"),
            "AccessDenied" | "AccountProblem" | "AllAccessDisabled" | "ExpiredToken" | "InvalidToken"
            | "InvalidSecurity" | "NotSignedUp" | "UnauthorizedAccess" => return DENIED,
            "QuotaExceeded"
            | "StorageQuotaExceeded"
            | "StorageFull"
            | "InsufficientStorage"
            | "XMinioStorageFull"
            | "XMinioAdminBucketQuotaExceeded"
            | "InsufficientCapacity" => {
                return (FailureCode::DestinationFull, "the store is full or over quota");
            }
            "SlowDown"
            | "SlowDownRead"
            | "SlowDownWrite"
            | "InternalError"
            | "ServiceUnavailable"
            | "RequestTimeout"
            | "Throttling"
            | "ThrottlingException"
            | "TooManyRequests"
            | "RequestLimitExceeded"
            | "Busy"
            | "OperationAborted" => return BUSY,
            "NotImplemented" => return (FailureCode::DestinationFailed, "the store does not support this request"),
            "AuthorizationHeaderMalformed"
            | "PermanentRedirect"
            | "TemporaryRedirect"
            | "IllegalLocationConstraintException" => {
                return (FailureCode::DestinationFailed, "the region or the endpoint does not fit the bucket");
            }
            _ => {}
        }
        match self.status.as_u16() {
            401 | 403 => DENIED,
            404 => (FailureCode::Missing, "the store found nothing there"),
            408 | 429 => BUSY,
            507 => (FailureCode::DestinationFull, "the store is full or over quota"),
            501 => (FailureCode::DestinationFailed, "the store does not support this request"),
            500.. => BUSY,
            300..=399 => (
                FailureCode::DestinationFailed,
                "the endpoint redirects, which is not followed; check region and endpoint",
            ),
            _ => (FailureCode::DestinationFailed, "the store rejects the request"),
        }
    }
}

/// Converts an error of the client to one of the engine.
#[expect(clippy::needless_pass_by_value, reason = "the signature that map_err needs")]
fn error(error: object_store::Error) -> EngineError {
    let mut next: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(e) = next {
        if let Some(answer) = e.downcast_ref::<Answer>() {
            return answer.classify();
        }
        if let Some(ours) = e.downcast_ref::<EngineError>() {
            return ours.clone();
        }
        next = e.source();
    }
    egress::classify(&error).unwrap_or_else(|| {
        EngineError::new(FailureCode::DestinationFailed, "the answer is not one that an S3 store would send")
    })
}

/// Provides a transport that was created earlier, since its creation can fail with errors of its own.
#[derive(Debug)]
struct Prepared(HttpClient);

impl HttpConnector for Prepared {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(self.0.clone())
    }
}

/// The transport below object_store: checks literal addresses and turns error responses into [`Answer`].
///
/// This is done here because object_store's own error types are private and print the whole response.
#[derive(Debug)]
struct Transport {
    client: reqwest::Client,
    egress: Arc<Egress>,
    stall: Duration,
}

#[async_trait]
impl HttpService for Transport {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // `Unknown` is the one kind that object_store never retries.
        let fail = |e: Answer| HttpError::new(HttpErrorKind::Unknown, e);
        let url = Url::parse(&request.uri().to_string()).map_err(|e| HttpError::new(HttpErrorKind::Unknown, e))?;
        self.egress.check_url(&url).map_err(|e| HttpError::new(HttpErrorKind::Unknown, e))?;
        let post = request.method() == Method::POST;
        let complete = post && url.query_pairs().any(|(k, _)| k == "uploadId");
        let listing = request.method() == Method::GET && url.query_pairs().any(|(k, _)| k == "list-type");

        let (parts, body) = self.answer(request).await?.into_parts();
        let status = parts.status;
        if !status.is_success() {
            // A broken body does not matter: the status is known already.
            let body = bounded(body, ERROR_BODY, Pace::new(self.stall)).await.unwrap_or_default();
            return Err(fail(Answer { status, code: code(&body) }));
        }
        if !post && !listing {
            return Ok(HttpResponse::from_parts(parts, body));
        }
        // object_store would read these without a limit. Stores occasionally send whitespace while they join the parts.
        let pace = if complete { Pace::patient(self.stall) } else { Pace::new(self.stall) };
        let mut body = bounded(body, XML_BODY, pace).await?;
        if complete {
            let text = String::from_utf8_lossy(&body);
            // Completion may fail after the status 200 was sent.
            if text.contains("<Error>") || text.contains("<Error ") {
                return Err(fail(Answer { status, code: code(&body) }));
            }
            // object_store mistakes a key such as "SlowDown" in this response for an error: pass on only the ETag.
            if let Some(etag) = between(&text, "<ETag>", "</ETag>") {
                let xml = format!("<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>");
                body = xml.into_bytes();
            }
        }
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(body)))
    }
}

impl Transport {
    /// Waits for the head of the response. It must begin within the stall time plus the time that the request body may
    /// take.
    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let body = request.body().content_length() as u64;
        let limit = self.stall + Duration::from_secs(body / LEAST_BYTES_A_SECOND);
        let answered = tokio::time::timeout(limit, self.client.call(request)).await;
        answered.map_err(|_| HttpError::new(HttpErrorKind::Unknown, stalled(limit)))?
    }
}

/// Reads the body; fails if it exceeds `limit` or stalls.
async fn bounded(body: HttpResponseBody, limit: usize, mut pace: Pace) -> Result<Vec<u8>, HttpError> {
    let (mut chunks, mut all) = (body.bytes_stream(), Vec::new());
    let slow = |error: EngineError| HttpError::new(HttpErrorKind::Unknown, error);
    while let Some(chunk) = pace.receive(chunks.try_next()).await.map_err(slow)?? {
        if all.len() + chunk.len() > limit {
            return Err(HttpError::new(HttpErrorKind::Decode, TooLong));
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}

#[derive(Debug, thiserror::Error)]
#[error("the answer is too long")]
struct TooLong;

fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(open)?;
    Some(rest.split_once(close)?.0)
}

/// The S3 error code in a response, if it looks like one.
fn code(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let code = between(&text, "<Code>", "</Code>")?.trim();
    let sane =
        !code.is_empty() && code.len() <= 64 && code.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b));
    sane.then(|| code.to_owned())
}
