use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use holdfast_core::Secret;
use holdfast_core::failure::FailureCode;
use holdfast_engine::destination::{
    Accepted, BlobStore, ListedObject, Local, Metered, PartBody, PartLayout, PartLimits, RetryPolicy, Retrying, S3,
    S3Config, Stat, Throttle, Throttled,
};
use holdfast_engine::{Egress, EngineError, Progress, Result};
use holdfast_testkit::{Fault, S3Server};
use reqwest::Method;

use crate::conformance::conforms;

fn s3(endpoint: &str, bucket: &str, path_style: bool) -> S3 {
    s3_with(endpoint, bucket, path_style, Duration::from_secs(60))
}

fn s3_with(endpoint: &str, bucket: &str, path_style: bool, stall: Duration) -> S3 {
    S3::new(S3Config {
        endpoint: Some(endpoint.to_owned()),
        bucket: bucket.to_owned(),
        region: "us-east-1".to_owned(),
        path_style,
        access_key: Secret::new(S3Server::ACCESS_KEY),
        secret_key: Secret::new(S3Server::SECRET_KEY),
        ca_pem: None,
        egress: Egress { allow_private: true, allowed: Vec::new() },
        timeout: Duration::from_secs(60),
        stall,
        parts: PartLimits::default(),
    })
    .unwrap()
}

async fn local(folder: &Path) -> Local {
    Local::open(folder, None).await.unwrap().0
}

/// A store that fails.
struct Faulty<S> {
    inner: S,
    fails: Fails,
    calls: Arc<AtomicUsize>,
}

enum Fails {
    /// Every other call fails with a transient error.
    InPassing,
    Always(FailureCode),
}

impl<S> Faulty<S> {
    fn new(inner: S) -> Self {
        Self { inner, fails: Fails::InPassing, calls: Arc::default() }
    }

    fn stumble(&self) -> Result<()> {
        let is_even = self.calls.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        match self.fails {
            Fails::InPassing if is_even => Err(EngineError::new(FailureCode::DestinationUnavailable, "in passing")),
            Fails::InPassing => Ok(()),
            Fails::Always(code) => Err(EngineError::new(code, "always")),
        }
    }
}

#[async_trait]
impl<S: BlobStore> BlobStore for Faulty<S> {
    fn part_layout(&self, expected_bytes: u64) -> PartLayout {
        self.inner.part_layout(expected_bytes)
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Accepted> {
        self.stumble()?;
        self.inner.put(key, body).await
    }

    async fn begin(&self, key: &str) -> Result<String> {
        self.stumble()?;
        self.inner.begin(key).await
    }

    async fn put_part(&self, key: &str, upload_id: &str, index: usize, body: PartBody) -> Result<String> {
        self.stumble()?;
        self.inner.put_part(key, upload_id, index, body).await
    }

    async fn complete(&self, key: &str, upload_id: &str, parts: Vec<String>) -> Result<Accepted> {
        self.stumble()?;
        self.inner.complete(key, upload_id, parts).await
    }

    async fn abort(&self, key: &str, upload_id: Option<&str>) -> Result<()> {
        self.stumble()?;
        self.inner.abort(key, upload_id).await
    }

    async fn stat(&self, key: &str) -> Result<Option<Stat>> {
        self.stumble()?;
        self.inner.stat(key).await
    }

    async fn read(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        self.stumble()?;
        self.inner.read(key, range).await
    }

    async fn remove(&self, key: &str) -> Result<()> {
        self.stumble()?;
        self.inner.remove(key).await
    }

    async fn list_objects(&self, prefix: &str, limit: usize) -> Result<Vec<ListedObject>> {
        self.stumble()?;
        self.inner.list_objects(prefix, limit).await
    }
}

fn patient() -> RetryPolicy {
    let millis = Duration::from_millis;
    RetryPolicy { first_wait: millis(1), longest_wait: millis(5), give_up_after: Duration::from_secs(5) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_conforms() {
    let folder = tempfile::tempdir().unwrap();
    conforms(&local(folder.path()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_conforms_in_both_styles() {
    let server = S3Server::start(&["bucket"]).await.unwrap();
    conforms(&s3(&server.endpoint(), "bucket", true)).await;
    conforms(&s3(&server.host_endpoint(), "bucket", false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decorators_conform_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = local(folder.path()).await;
    conforms(&Retrying::new(store.clone(), patient())).await;
    conforms(&Retrying::new(Faulty::new(store.clone()), patient())).await;
    let progress = Arc::new(Progress::default());
    conforms(&Metered::new(Arc::new(store.clone()), progress.clone())).await;
    assert!(progress.counts().bytes_stored > 20_000_000);
    conforms(&Throttled::new(Arc::new(store), Throttle::new(u64::MAX / 2))).await;
    let server = S3Server::start(&["bucket"]).await.unwrap();
    conforms(&Retrying::new(Faulty::new(s3(&server.endpoint(), "bucket", true)), patient())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn persistent_failures_are_given_up_and_refusals_are_not_retried() {
    for (code, tries) in [(FailureCode::DestinationUnavailable, 5..100), (FailureCode::DestinationDenied, 1..2)] {
        let folder = tempfile::tempdir().unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let broken = Faulty { inner: local(folder.path()).await, fails: Fails::Always(code), calls: count.clone() };
        let retrying = Retrying::new(broken, RetryPolicy { give_up_after: Duration::from_millis(200), ..patient() });
        assert_eq!(retrying.stat("x").await.unwrap_err().code, code);
        assert!(tries.contains(&count.load(Ordering::SeqCst)), "{code:?}");
    }
}

async fn stalls<T: std::fmt::Debug>(what: &str, work: impl Future<Output = Result<T>>) {
    let done = tokio::time::timeout(Duration::from_secs(20), work).await;
    assert_eq!(done.unwrap_or_else(|_| panic!("{what} goes on")).unwrap_err().code, FailureCode::Stalled, "{what}");
}

/// Each byte arrives well before the stall timeout, but the throughput is close to zero.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_is_silent_or_sends_byte_by_byte_has_stalled() {
    let server = S3Server::start(&["bucket"]).await.unwrap();
    let store = Retrying::new(s3_with(&server.endpoint(), "bucket", true, Duration::from_secs(1)), patient());
    store.put("object", Bytes::from(vec![7; 100_000])).await.unwrap();
    server.set_hook(|method, _, _| (method == Method::GET).then_some(Fault::Drip));
    stalls("a read", store.read("object", 0..100_000)).await;
    stalls("a listing", store.list("o", 10)).await;
    server.set_hook(|_, _, _| Some(Fault::ApplyThenHang));
    stalls("a silent read", store.read("object", 0..100_000)).await;
    stalls("a silent look", store.stat("object")).await;
    stalls("a silent upload", store.put("other", Bytes::from_static(b"small"))).await;
    server.clear_hook();
    assert_eq!(store.read("object", 0..100_000).await.unwrap().len(), 100_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_do_not_lead_out_of_a_folder() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = local(folder.path()).await;
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("way-out")).unwrap();
    assert!(store.read("way-out/secret", 0..6).await.is_err());
    assert!(store.put("way-out/new", Bytes::from_static(b"x")).await.is_err());
    assert!(store.remove("way-out/secret").await.is_err());
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

/// Another implementation of S3, where it is installed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moto_conforms() {
    let Ok(endpoint) = std::env::var("TEST_MOTO_URL") else {
        eprintln!("skipped: `cargo xtask test` starts moto and runs this");
        return;
    };
    let made = reqwest::Client::new().put(format!("{endpoint}/bucket")).send().await.unwrap();
    assert!(made.status().is_success());
    conforms(&s3(&endpoint, "bucket", true)).await;
}

/// Responds to every request with a page of a listing that claims to have another page.
async fn endless_listing(keys: &'static str) -> (String, Arc<AtomicUsize>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let pages = Arc::new(AtomicUsize::new(0));
    let count = pages.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                let mut buffer = [0; 4096];
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut buffer).await {
                        Ok(read @ 1..) => request.extend_from_slice(&buffer[..read]),
                        _ => return,
                    }
                }
                let number = count.fetch_add(1, Ordering::SeqCst);
                let page = format!(
                    "<ListBucketResult>{keys}<IsTruncated>true</IsTruncated>\
                     <NextContinuationToken>{number}</NextContinuationToken></ListBucketResult>"
                );
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/xml\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{page}",
                    page.len()
                );
                stream.write_all(answer.as_bytes()).await.ok();
            });
        }
    });
    (endpoint, pages)
}

#[tokio::test]
async fn a_listing_without_an_end_is_given_up() {
    let (endpoint, pages) = endless_listing("").await;
    let error = s3(&endpoint, "bucket", true).list("prefix", 10).await.unwrap_err();
    assert_eq!(error.code, FailureCode::DestinationFailed, "{error}");
    assert!(error.message.contains("does not end"), "{error}");
    assert!(pages.load(Ordering::SeqCst) <= 20);
    let one = "<Contents><Key>prefix-a</Key><LastModified>2025-01-01T00:00:00.000Z</LastModified><ETag>\"x\"</ETag><Size>1</Size></Contents>";
    let (endpoint, pages) = endless_listing(one).await;
    let found = s3(&endpoint, "bucket", true).list("prefix", 10).await.unwrap();
    assert_eq!((found.len(), pages.load(Ordering::SeqCst)), (10, 10), "what was asked for, and no page more");
}
