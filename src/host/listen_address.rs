//! The address of the metrics endpoint: `127.0.0.1:9961`, `[::1]:9961`, or
//! `unix:/run/diskvitals/metrics.sock`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error(
        "`{0}` is no address: write 127.0.0.1:9961, [::1]:9961, a pod's own address, or unix:/PATH"
    )]
    NotAnAddress(String),
    #[error(
        "`{0}` means every address of the node, and serial numbers must not be open to a network: name one (127.0.0.1, the pod's own)"
    )]
    Wildcard(String),
    #[error("`{0}`: the socket's path must be absolute")]
    RelativePath(String),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() {
                Ok(Address::Unix(path))
            } else {
                Err(AddressError::RelativePath(text.to_owned()))
            };
        }
        let address =
            socket_address(text).ok_or_else(|| AddressError::NotAnAddress(text.to_owned()))?;
        let ip = address.ip().to_canonical();
        if ip.is_unspecified() {
            Err(AddressError::Wildcard(text.to_owned()))
        } else {
            Ok(Address::Tcp(address))
        }
    }
}

/// The brackets of RFC 3986 around an IPv6 address are optional: the port follows the last colon.
/// In a pod's arguments, `$(POD_IP)` may be IPv4 or IPv6.
fn socket_address(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| {
        let (host, port) = text.rsplit_once(':')?;
        Some(SocketAddr::new(IpAddr::V6(host.parse().ok()?), port.parse().ok()?))
    })
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_they_are_written() {
        for text in ["127.0.0.1:9961", "[::1]:0", "10.2.3.4:80", "unix:/run/x y.sock"] {
            assert_eq!(
                text.parse::<Address>().map(|address| address.to_string()).as_deref(),
                Ok(text)
            );
        }
    }

    #[test]
    fn an_ipv6_address_needs_no_brackets() {
        assert_eq!(
            "fd00::1:9961".parse::<Address>().map(|address| address.to_string()).as_deref(),
            Ok("[fd00::1]:9961")
        );
        assert_eq!(":::9961".parse::<Address>(), Err(AddressError::Wildcard(":::9961".into())));
        for text in ["fd00::1", "::1", "fd00::1:99610", "10.0.0.1:1:2"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn wildcard_and_malformed_addresses_are_refused() {
        for text in ["0.0.0.0:9961", "[::]:9961", "[::ffff:0.0.0.0]:9961"] {
            assert_eq!(text.parse::<Address>(), Err(AddressError::Wildcard(text.to_owned())));
        }
        for text in ["", "9961", ":9961", "localhost:9961", "/run/x.sock", "127.0.0.1"] {
            assert_eq!(text.parse::<Address>(), Err(AddressError::NotAnAddress(text.to_owned())));
        }
        assert_eq!(
            "unix:run/x".parse::<Address>(),
            Err(AddressError::RelativePath("unix:run/x".to_owned()))
        );
    }
}
