//! Syntax of host names, email addresses and URLs. Where an address leads is checked when connecting to it.

use std::net::{IpAddr, Ipv6Addr};

use crate::characters::is_hidden;
use crate::limits;

/// An IP address or a host name of letters, digits, hyphens, underscores and dots. It cannot be taken for an option or
/// for shell syntax.
pub fn is_host(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok() || is_host_name(text)
}

fn is_host_name(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    !name.is_empty() && name.len() <= 253 && name.split('.').all(is_host_label) && !looks_like_a_bad_ipv4(name)
}

fn is_host_label(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= 63
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// `300.1.1.1` and `1.2.3` are mistyped addresses, not names.
fn looks_like_a_bad_ipv4(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

pub fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !is_hidden(c) && !"<>()[]\\,;:\"@".contains(c);
    text.len() <= 254
        && (1..=64).contains(&local.len())
        && local.chars().all(plain)
        && !local.starts_with('.')
        && !local.ends_with('.')
        && !local.contains("..")
        && is_host_name(domain)
}

/// An absolute http or https URL with a host.
pub fn is_web_url(text: &str) -> bool {
    text.len() <= limits::URL_CHARS
        && !text.chars().any(|c| c.is_control() || c.is_whitespace())
        && url::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// A web URL that identifies a service and nothing else: no user, query or fragment that could leak a secret into
/// responses and logs.
pub fn is_endpoint_url(text: &str) -> bool {
    is_web_url(text)
        && url::Url::parse(text).is_ok_and(|url| {
            url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none()
        })
}

/// The client that rate limits by address count: one IPv4 address, however it was written, or an IPv6 /64 network, the
/// least that a provider gives a customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientKey(IpAddr);

impl ClientKey {
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() & (u128::MAX << 64);
                Self(IpAddr::V6(Ipv6Addr::from_bits(network)))
            }
            address => Self(address),
        }
    }
}

impl std::fmt::Display for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

/// A range of addresses such as `10.0.0.0/8`; a single address is a range of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                own.to_bits().checked_shr(32 - self.prefix) == other.to_bits().checked_shr(32 - self.prefix)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                own.to_bits().checked_shr(128 - self.prefix) == other.to_bits().checked_shr(128 - self.prefix)
            }
            _ => false,
        }
    }
}

impl std::str::FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is neither an IP address nor a network like 10.0.0.0/8");
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.trim().parse().map_err(|_| wrong())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(bits), |prefix| prefix.trim().parse::<u32>().map_err(|_| wrong()))?;
        if prefix > bits {
            return Err(wrong());
        }
        Ok(Self { address, prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_counted_by_ipv4_address_and_by_ipv6_network() {
        let key = |text: &str| ClientKey::of(text.parse().unwrap()).to_string();
        assert_eq!(key("192.0.2.7"), "192.0.2.7");
        assert_eq!(key("::ffff:192.0.2.7"), "192.0.2.7");
        assert_ne!(key("::ffff:192.0.2.7"), key("::ffff:192.0.2.8"));
        assert_eq!(key("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(key("2001:db8:1:2::9"), key("2001:db8:1:2:ffff::1"));
        assert_ne!(key("2001:db8:1:3::9"), key("2001:db8:1:2::9"));
    }

    #[test]
    fn networks_contain_their_addresses() {
        let holds = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().contains(address.parse::<IpAddr>().unwrap())
        };
        assert!(holds("10.0.0.0/8", "10.200.1.1") && !holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("127.0.0.1", "127.0.0.1") && !holds("127.0.0.1", "127.0.0.2"));
        assert!(holds("0.0.0.0/0", "8.8.8.8") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("fd00::/8", "fd12::1") && holds("127.0.0.0/8", "::ffff:127.0.0.1"));
        for bad in ["", "10.0.0.0/33", "x", "10.0.0.0/a"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }

    #[test]
    fn hosts() {
        for good in ["web-1", "db.example.org", "127.0.0.1", "::1", "a_b.internal", "example.org."] {
            assert!(is_host(good), "{good}");
        }
        for bad in ["", "-oProxyCommand=x", "a b", "a;b", "300.1.1.1", "1.2.3", "$(id)", "a..b", "x\n", "user@host"] {
            assert!(!is_host(bad), "{bad}");
        }
    }

    #[test]
    fn emails() {
        for good in ["a@example.org", "first.last+tag@mail.example.org", "root@localhost"] {
            assert!(is_email(good), "{good}");
        }
        for bad in ["", "a", "@b.c", "a@", "a b@c.d", "a@b\r\nBcc: x@y.z", "<a@b.c>", "a@b@c.d", ".a@b.c", "a..b@c.d"] {
            assert!(!is_email(bad), "{bad}");
        }
    }

    #[test]
    fn urls() {
        assert!(is_web_url("https://example.org/hook?token=1"));
        assert!(is_endpoint_url("http://127.0.0.1:9000"));
        for bad in ["ftp://example.org", "https://", "example.org", "javascript:alert(1)", "http://a b/"] {
            assert!(!is_web_url(bad), "{bad}");
        }
        for bad in ["https://user:pw@example.org", "https://example.org/?key=1", "https://example.org/#x"] {
            assert!(!is_endpoint_url(bad), "{bad}");
        }
    }
}
