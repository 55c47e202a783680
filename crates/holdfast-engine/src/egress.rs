//! Which addresses the installation may connect to, and an HTTP client that is restricted to them.

use std::error::Error as StdError;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::failure::FailureCode;
use holdfast_core::network::Network;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::error::EngineError;

/// The setting that allows networks; refusals mention it so that an operator knows where to look.
pub const SETTING: &str = "HOLDFAST_EGRESS_ALLOW";

/// Which addresses may be connected to.
#[derive(Debug, Clone, Default)]
pub struct Egress {
    /// Whether loopback, private, shared and other non-public networks are allowed; link-local addresses stay
    /// forbidden.
    pub allow_private: bool,
    /// Networks allowed individually, which is the only way to allow link-local and metadata addresses.
    pub allowed: Vec<Network>,
}

/// A refused address; identified in error chains by its type.
#[derive(Debug, Clone)]
pub struct Refused {
    pub host: String,
    pub address: IpAddr,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connecting to {}", short(&self.host))?;
        if self.host.trim_matches(['[', ']']) != self.address.to_string() {
            write!(f, " ({})", self.address)?;
        }
        write!(f, " is not allowed; {SETTING} can open that network")
    }
}

impl StdError for Refused {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Public,
    Private,
    /// Reaches services of the machine's own provider (metadata, credentials): never allowed by a general switch.
    LinkLocal,
}

impl Egress {
    /// Whether this address may be connected to.
    pub fn permits(&self, address: IpAddr) -> bool {
        let inner = unwrap(address);
        if self.allowed.iter().any(|network| network.contains(inner) || network.contains(address)) {
            return true;
        }
        match class(inner) {
            Class::Public => true,
            Class::Private => self.allow_private,
            Class::LinkLocal => false,
        }
    }

    pub(crate) fn check(&self, host: &str, address: IpAddr) -> Result<(), Refused> {
        if self.permits(address) { Ok(()) } else { Err(Refused { host: host.to_owned(), address }) }
    }

    /// Checks a URL's host if it is a literal address, for which the HTTP client does not ask the resolver.
    pub fn check_url(&self, url: &Url) -> Result<(), Refused> {
        match url.host() {
            Some(Host::Ipv4(ip)) => self.check(&ip.to_string(), IpAddr::V4(ip)),
            Some(Host::Ipv6(ip)) => self.check(&ip.to_string(), IpAddr::V6(ip)),
            _ => Ok(()),
        }
    }
}

/// The IPv4 address embedded in an IPv6 address, if packets to the latter end up at the former.
fn unwrap(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let o = v6.octets();
    let s = v6.segments();
    let v4 = |i: usize| IpAddr::V4(Ipv4Addr::new(o[i], o[i + 1], o[i + 2], o[i + 3]));
    if v6.to_ipv4_mapped().is_some() {
        return v4(12);
    }
    // IPv4-compatible (deprecated) ::a.b.c.d, but not :: and ::1.
    if s[..6] == [0; 6] && (s[6] != 0 || s[7] > 1) {
        return v4(12);
    }
    // NAT64's well-known prefix. The local-use prefix can embed the address at other positions; it is not global and
    // remains classified as private.
    if s[0] == 0x64 && s[1] == 0xff9b && s[2..6] == [0; 4] {
        return v4(12);
    }
    // 6to4.
    if s[0] == 0x2002 {
        return v4(2);
    }
    address
}

fn class(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(ip) => class_v4(ip),
        IpAddr::V6(ip) => class_v6(ip),
    }
}

/// Metadata services of cloud providers outside of the link-local network: Azure's wire server, which looks like a
/// public address, and those of Alibaba and Oracle.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)];
/// The same over IPv6: Amazon's and Google's.
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

fn class_v4(ip: Ipv4Addr) -> Class {
    let [a, b, c, _] = ip.octets();
    if ip.is_link_local() || METADATA_V4.contains(&ip) {
        return Class::LinkLocal;
    }
    let private = a == 0
        || ip.is_loopback()
        || ip.is_private()
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && (c == 0 || c == 2))
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19))
        || (a == 198 && b == 51 && c == 100)
        || (a == 203 && b == 0 && c == 113)
        || a >= 224;
    if private { Class::Private } else { Class::Public }
}

fn class_v6(ip: Ipv6Addr) -> Class {
    let s = ip.segments();
    // fec0::/10, the old site-local range, is not treated as link-local: it is not routed either, but harmless by
    // comparison.
    if (s[0] & 0xffc0) == 0xfe80 || METADATA_V6.contains(&ip) {
        return Class::LinkLocal;
    }
    // Global unicast is only 2000::/3, without Teredo, documentation and benchmarking.
    let global = (s[0] & 0xe000) == 0x2000
        && !(s[0] == 0x2001 && s[1] < 0x200)
        && !(s[0] == 0x2001 && s[1] == 0xdb8)
        && !(s[0] == 0x3fff && s[1] < 0x1000);
    if global { Class::Public } else { Class::Private }
}

/// Resolves names and returns only addresses that were checked, so that the connection goes to one of those.
#[derive(Debug, Clone)]
pub struct GuardedResolver {
    egress: Arc<Egress>,
    names: Names,
}

/// Where the addresses of names come from.
#[derive(Debug, Clone)]
enum Names {
    System,
    /// A fixed sequence of answers, for tests of names whose addresses change.
    #[cfg(test)]
    Given(Arc<std::sync::Mutex<Vec<Vec<SocketAddr>>>>),
}

impl Names {
    async fn find(&self, host: &str) -> std::io::Result<Vec<SocketAddr>> {
        match self {
            Self::System => Ok(tokio::net::lookup_host((host, 0)).await?.collect()),
            #[cfg(test)]
            Self::Given(answers) => Ok(answers.lock().expect("a list of answers").remove(0)),
        }
    }
}

impl GuardedResolver {
    pub fn new(egress: Arc<Egress>) -> Self {
        Self { egress, names: Names::System }
    }

    /// Returns all addresses of `host`. A single refused address refuses the name, since a mix suggests DNS rebinding.
    pub async fn lookup(&self, host: &str) -> Result<Vec<SocketAddr>, Box<dyn StdError + Send + Sync>> {
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let found: Vec<SocketAddr> = if name == "localhost" || name.ends_with(".localhost") {
            vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]
        } else {
            self.names.find(host).await?
        };
        for address in &found {
            self.egress.check(host, address.ip())?;
        }
        Ok(found)
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let this = self.clone();
        Box::pin(async move {
            let found = this.lookup(name.as_str()).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Limits of a guarded client.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connect: Duration,
    /// For the whole exchange, from sending the request to the end of the response.
    pub total: Duration,
}

/// A client for `url`'s scheme: no redirects, no proxies from the environment, no retries, guarded addresses.
///
/// Literal addresses in later requests are not checked here: use [`Egress::check_url`] on every URL.
pub fn client(
    url: &Url,
    egress: &Arc<Egress>,
    ca_pem: Option<&[u8]>,
    limits: Limits,
) -> Result<reqwest::Client, EngineError> {
    let https = match url.scheme() {
        "https" => true,
        "http" => false,
        _ => {
            return Err(EngineError::new(
                FailureCode::DestinationFailed,
                "the address must start with http:// or https://",
            ));
        }
    };
    egress.check_url(url).map_err(|e| EngineError::new(FailureCode::ForbiddenAddress, e.to_string()))?;
    let mut builder = reqwest::Client::builder()
        .dns_resolver(GuardedResolver::new(egress.clone()))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .http1_only()
        .https_only(https)
        .connect_timeout(limits.connect)
        .timeout(limits.total)
        .pool_idle_timeout(Duration::from_secs(30));
    if !https {
        // Without this, a machine that has no CA certificates could not even use plain HTTP.
        builder = builder.tls_certs_only([]);
    } else if let Some(pem) = ca_pem {
        let certs = reqwest::Certificate::from_pem_bundle(pem)
            .ok()
            .filter(|c| !c.is_empty())
            .ok_or_else(|| EngineError::new(FailureCode::DestinationFailed, "the CA certificate is not valid PEM"))?;
        builder = builder.tls_certs_merge(certs);
    }
    builder.build().map_err(|e| {
        classify(&e).unwrap_or_else(|| {
            EngineError::new(
                FailureCode::DestinationFailed,
                "the TLS client cannot be set up: no usable CA certificates",
            )
        })
    })
}

/// Classifies a failure below HTTP; `None` when the error chain contains nothing known.
pub fn classify(error: &(dyn StdError + 'static)) -> Option<EngineError> {
    let mut connect = false;
    let mut timeout = false;
    let mut io = None;
    let mut http = false;
    let mut dns = false;
    let mut next = Some(error);
    while let Some(e) = next {
        if let Some(refused) = e.downcast_ref::<Refused>() {
            return Some(EngineError::new(FailureCode::ForbiddenAddress, refused.to_string()));
        }
        if let Some(tls) = e.downcast_ref::<rustls::Error>() {
            return Some(EngineError::new(
                FailureCode::DestinationFailed,
                format!("TLS failed: {}", short(&tls.to_string())),
            ));
        }
        if let Some(e) = e.downcast_ref::<reqwest::Error>() {
            connect |= e.is_connect();
            timeout |= e.is_timeout();
            dns |= e.is_dns();
            http |= e.is_request() || e.is_body() || e.is_decode();
        }
        http |= e.is::<hyper::Error>();
        next = e.source();
        if let Some(e) = e.downcast_ref::<std::io::Error>() {
            io = Some(e.kind());
            // `io::Error::source` skips the error it wraps; look at that one first.
            if let Some(inner) = e.get_ref() {
                next = Some(inner);
            }
        }
    }
    if dns {
        return Some(EngineError::new(FailureCode::DestinationUnavailable, "The host name cannot be resolved."));
    }
    if connect {
        // Users who can have addresses tried must not learn whether a port is closed, filtered or silent.
        tracing::info!(?io, timeout, "cannot connect to an endpoint");
        return Some(EngineError::new(FailureCode::DestinationUnavailable, "cannot connect"));
    }
    if timeout || io == Some(std::io::ErrorKind::TimedOut) {
        return Some(EngineError::new(FailureCode::DestinationUnavailable, "the answer did not arrive in time"));
    }
    if http || io.is_some() {
        return Some(EngineError::new(
            FailureCode::DestinationUnavailable,
            "the connection broke before the answer was complete",
        ));
    }
    None
}

/// Shortens text from elsewhere to what fits into a message.
pub fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(160).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn cloud_metadata_addresses_must_be_allowed_explicitly() {
        let metadata = [
            "168.63.129.16",
            "169.254.169.254",
            "100.100.100.200",
            "192.0.0.192",
            "::ffff:168.63.129.16",
            "64:ff9b::a83f:8110",
            "2002:a83f:8110::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fe80::a9fe:a9fe",
        ];
        for text in metadata {
            let address = text.parse().unwrap();
            for allow_private in [false, true] {
                assert!(!Egress { allow_private, allowed: Vec::new() }.permits(address), "{text}");
            }
            let network = unwrap(address).to_string().parse().unwrap();
            assert!(Egress { allow_private: false, allowed: vec![network] }.permits(address), "{text}");
        }
        assert!(Egress::default().permits("168.63.129.17".parse().unwrap()));
    }

    /// A name whose addresses change is checked each time, and the connection goes to the address that was checked.
    #[tokio::test]
    async fn a_name_is_checked_on_every_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let mut read = 0;
            while !request[..read].ends_with(b"\r\n\r\n") {
                read += socket.read(&mut request[read..]).unwrap();
            }
            socket.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        });
        let egress = Arc::new(Egress { allow_private: false, allowed: vec!["127.0.0.1/32".parse().unwrap()] });
        let inner: SocketAddr = "10.0.0.1:0".parse().unwrap();
        let answers = vec![vec![address], vec![inner], vec![address, inner]];
        let resolver = GuardedResolver { egress, names: Names::Given(Arc::new(std::sync::Mutex::new(answers))) };
        let client = reqwest::Client::builder()
            .dns_resolver(resolver)
            .no_proxy()
            .tls_certs_only([])
            .pool_max_idle_per_host(0)
            .build()
            .unwrap();
        let url = format!("http://changes.example:{}/", address.port());
        assert_eq!(client.get(&url).send().await.unwrap().status(), 204);
        let listener = served.join().unwrap();
        for _ in 0..2 {
            let error = client.get(&url).send().await.unwrap_err();
            assert_eq!(classify(&error).unwrap().code, FailureCode::ForbiddenAddress);
        }
        assert!(listener.accept().is_err(), "no further connection was made");
    }
}
