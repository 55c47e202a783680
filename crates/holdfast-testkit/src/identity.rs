//! Self-signed certificates.

use std::io;
use std::process::Command;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A private key and its self-signed certificate, as PEM.
pub(crate) struct Identity {
    pub key: Vec<u8>,
    pub certificate: Vec<u8>,
}

impl Identity {
    /// A certificate for loopback, and for these buckets as host names.
    pub(crate) fn of_buckets(buckets: &[&str]) -> io::Result<Self> {
        let names: String = buckets.iter().map(|bucket| format!(",DNS:{bucket}.localhost")).collect();
        let folder = tempfile::tempdir()?;
        let (key, certificate) = (folder.path().join("key"), folder.path().join("certificate"));
        let made = Command::new("openssl")
            .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test".split(' '))
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-addext", &format!("subjectAltName=IP:127.0.0.1,DNS:localhost{names}")])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()?;
        if !made.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()));
        }
        Ok(Self { key: std::fs::read(key)?, certificate: std::fs::read(certificate)? })
    }

    pub(crate) fn acceptor(&self) -> io::Result<TlsAcceptor> {
        let certificate = CertificateDer::from_pem_slice(&self.certificate).map_err(io::Error::other)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(io::Error::other)?;
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(vec![certificate], key))
            .map_err(io::Error::other)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
