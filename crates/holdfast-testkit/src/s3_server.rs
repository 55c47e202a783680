//! An S3 server on loopback for tests: s3s-fs over a temporary folder, with faults on demand.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::SimpleAuth;
use s3s::host::{S3Host, VirtualHost};
use s3s::path::S3Path;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpResponse, S3Result, s3_error};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::identity::Identity;

/// What goes wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request is read but not carried out; the response has this status and S3 error code.
    Status(u16, &'static str),
    /// Status 200 with an error in the body, as CompleteMultipartUpload may respond.
    ErrorIn200(&'static str),
    /// The connection closes without a response, and the request is not carried out.
    Reset,
    /// The request is carried out, but there is never a response.
    ApplyThenHang,
    /// The request is carried out, then the connection closes without a response.
    ApplyThenReset,
    /// The request is carried out, and the response is sent byte by byte, at 50 bytes a second.
    Drip,
    /// The ETag of the response is not a digest of the content, as with some kinds of encryption.
    ForeignTag,
    /// The response has a version id, as with a versioned bucket.
    Version(&'static str),
}

/// Called with the method, the (encoded) path and the query of every request before it is served.
pub type Hook = dyn Fn(&http::Method, &str, &str) -> Option<Fault> + Send + Sync;

pub struct S3Server {
    address: SocketAddr,
    root: TempDir,
    certificate: Option<Vec<u8>>,
    hook: Arc<Mutex<Option<Arc<Hook>>>>,
    task: JoinHandle<()>,
}

impl S3Server {
    pub const ACCESS_KEY: &str = "test-access";
    pub const SECRET_KEY: &str = "test-secret";

    /// Starts a server with these buckets; must be called inside a tokio runtime.
    pub async fn start(buckets: &[&str]) -> io::Result<Self> {
        Self::serve(buckets, None).await
    }

    /// The same over TLS, with a self-signed certificate.
    pub async fn start_tls(buckets: &[&str]) -> io::Result<Self> {
        Self::serve(buckets, Some(Identity::of_buckets(buckets)?)).await
    }

    async fn serve(buckets: &[&str], identity: Option<Identity>) -> io::Result<Self> {
        let root = tempfile::tempdir()?;
        for bucket in buckets {
            std::fs::create_dir(root.path().join(bucket))?;
        }
        let fs = s3s_fs::FileSystem::new(root.path()).map_err(|e| io::Error::other(format!("{e:?}")))?;
        let mut builder = S3ServiceBuilder::new(fs);
        builder.set_auth(SimpleAuth::from_single(Self::ACCESS_KEY, Self::SECRET_KEY));
        builder.set_host(LocalhostHost);
        builder.set_access(BucketsExist(root.path().to_owned()));
        let service = builder.build();

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let hook: Arc<Mutex<Option<Arc<Hook>>>> = Arc::default();
        let tls = identity.as_ref().map(Identity::acceptor).transpose()?;
        let task = tokio::spawn(accept(listener, tls, service, hook.clone()));
        Ok(Self { address, root, certificate: identity.map(|identity| identity.certificate), hook, task })
    }

    /// The certificate that a client must trust.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.certificate.as_deref()
    }

    fn scheme(&self) -> &'static str {
        if self.certificate.is_some() { "https" } else { "http" }
    }

    /// The endpoint for path-style requests.
    pub fn endpoint(&self) -> String {
        format!("{}://{}", self.scheme(), self.address)
    }

    /// The endpoint for virtual-hosted-style requests: buckets are `<bucket>.localhost`.
    pub fn host_endpoint(&self) -> String {
        format!("{}://localhost:{}", self.scheme(), self.address.port())
    }

    /// The folder that contains the bucket folders, and the dot files of s3s-fs for uploads.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn set_hook(&self, hook: impl Fn(&http::Method, &str, &str) -> Option<Fault> + Send + Sync + 'static) {
        *self.hook.lock().unwrap_or_else(|e| e.into_inner()) = Some(Arc::new(hook));
    }

    pub fn clear_hook(&self) {
        *self.hook.lock().unwrap_or_else(|e| e.into_inner()) = None;
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

async fn wire(socket: TcpStream, tls: Option<TlsAcceptor>) -> io::Result<Box<dyn Wire>> {
    Ok(match tls {
        Some(tls) => Box::new(tls.accept(socket).await?),
        None => Box::new(socket),
    })
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    service: S3Service,
    hook: Arc<Mutex<Option<Arc<Hook>>>>,
) {
    // Dropped with this task, which also closes the connections.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            continue;
        };
        let (tls, service, hook) = (tls.clone(), service.clone(), hook.clone());
        connections.spawn(async move {
            // The client reports it if it does not trust the certificate.
            let Ok(wire) = wire(socket, tls).await else { return };
            let serve = service_fn(move |request| {
                let hook = hook.lock().unwrap_or_else(|e| e.into_inner()).clone();
                answer(service.clone(), hook, request)
            });
            let http = auto::Builder::new(TokioExecutor::new()).http1_only();
            let _ = http.serve_connection(TokioIo::new(wire), serve).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    service: S3Service,
    hook: Option<Arc<Hook>>,
    request: http::Request<Incoming>,
) -> Result<HttpResponse, io::Error> {
    let uri = request.uri();
    let fault = hook.and_then(|hook| hook(request.method(), uri.path(), uri.query().unwrap_or("")));
    match fault {
        None => apply(&service, request).await,
        Some(Fault::Status(status, code)) => {
            // If the body stayed unread, the client would see a reset instead of the response.
            let _ = request.into_body().collect().await;
            error_xml(status, code)
        }
        Some(Fault::ErrorIn200(code)) => {
            let _ = request.into_body().collect().await;
            error_xml(200, code)
        }
        Some(Fault::Reset) => Err(io::ErrorKind::ConnectionReset.into()),
        Some(Fault::ApplyThenHang) => {
            apply(&service, request).await?;
            std::future::pending().await
        }
        Some(Fault::ApplyThenReset) => {
            apply(&service, request).await?;
            Err(io::ErrorKind::ConnectionReset.into())
        }
        Some(Fault::Drip) => dripping(apply(&service, request).await?).await,
        Some(Fault::ForeignTag) => {
            let mut answer = apply(&service, request).await?;
            let tag = http::HeaderValue::from_static("\"0123456789abcdef0123456789abcdef-1\"");
            answer.headers_mut().insert(http::header::ETAG, tag);
            Ok(answer)
        }
        Some(Fault::Version(version)) => {
            let mut answer = apply(&service, request).await?;
            answer.headers_mut().insert("x-amz-version-id", http::HeaderValue::from_static(version));
            Ok(answer)
        }
    }
}

/// The same response, with its body sent one byte at a time.
async fn dripping(answer: HttpResponse) -> Result<HttpResponse, io::Error> {
    const BETWEEN_BYTES: Duration = Duration::from_millis(20);
    let (head, body) = answer.into_parts();
    let bytes = BodyExt::collect(body).await.map_err(io::Error::other)?.to_bytes();
    let frames = StreamExt::then(futures_util::stream::iter(bytes), |byte| async move {
        tokio::time::sleep(BETWEEN_BYTES).await;
        Ok::<_, io::Error>(hyper::body::Frame::data(Bytes::from(vec![byte])))
    });
    Ok(http::Response::from_parts(head, Body::http_body_unsync(StreamBody::new(frames))))
}

async fn apply(service: &S3Service, request: http::Request<Incoming>) -> Result<HttpResponse, io::Error> {
    service.call(request.map(Body::from)).await.map_err(|e| io::Error::other(format!("{e:?}")))
}

fn error_xml(status: u16, code: &str) -> Result<HttpResponse, io::Error> {
    let xml = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>injected</Message></Error>");
    http::Response::builder()
        .status(status)
        .header("content-type", "application/xml")
        .body(Body::from(Bytes::from(xml)))
        .map_err(io::Error::other)
}

/// `<bucket>.localhost` is virtual-hosted style, every other host is path style.
struct LocalhostHost;

impl S3Host for LocalhostHost {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let name = host.split_once(':').map_or(host, |(name, _)| name);
        let virtual_host = VirtualHost::new(host);
        Ok(match name.strip_suffix(".localhost") {
            Some(bucket) => virtual_host.with_bucket(bucket),
            None => virtual_host,
        })
    }
}

/// Responds as real stores do where s3s-fs does not: s3s-fs creates missing buckets on upload, reports `NoSuchKey` on
/// download from a missing bucket, and `AccessDenied` instead of `NoSuchUpload`.
struct BucketsExist(PathBuf);

#[async_trait::async_trait]
impl S3Access for BucketsExist {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        if cx.credentials().is_none() {
            return Err(s3_error!(AccessDenied));
        }
        let bucket = match cx.s3_path() {
            S3Path::Root => return Ok(()),
            S3Path::Bucket { bucket } | S3Path::Object { bucket, .. } => bucket,
        };
        if cx.s3_op().name() != "CreateBucket" && !self.0.join(&**bucket).is_dir() {
            return Err(s3_error!(NoSuchBucket));
        }
        let query = cx.uri().query().unwrap_or("");
        let upload = query.split('&').find_map(|pair| pair.strip_prefix("uploadId="));
        if upload.is_some_and(|id| !self.0.join(format!(".upload-{id}.json")).is_file()) {
            return Err(s3_error!(NoSuchUpload));
        }
        Ok(())
    }
}
