//! The shim's command line: text in, checked values out.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Parser;

use crate::logging::LogFormat;

/// sun_path has 108 bytes, one of them the closing zero (unix(7)).
const MAX_PATH: usize = 107;
/// CSI, GetPluginInfoResponse.name.
const MAX_NAME: usize = 63;

/// The CSI shim: lets Kubernetes know what diskvitalsd knows of this node's volumes.
///
/// This version serves CSI's Identity service, and nothing else: the driver's name and version, and whether diskvitalsd has been reached. The node and
/// controller services follow in a later version.
///
/// Probe says ready=false until diskvitalsd has answered once on its agent socket, and ready=true from then on, whatever becomes of diskvitalsd.
///
/// Signals: TERM and INT stop it, in 5 s at most.
///
/// Exit status: 0 stopped, 1 failed, 2 wrong usage.
#[derive(Clone, Debug, Parser)]
#[command(name = "diskvitals-csi", version, max_term_width = 100)]
pub struct Options {
    /// Where to serve CSI: unix:///PATH. A socket that nobody listens on any more is replaced
    #[arg(long, env = "CSI_ENDPOINT", value_name = "ENDPOINT")]
    pub endpoint: Endpoint,

    /// The socket of diskvitalsd for this program (its --agent-socket)
    #[arg(long, value_name = "PATH", default_value = "/run/diskvitals/csi/agent.sock")]
    pub agent: PathBuf,

    /// The name of the CSI driver
    #[arg(long, value_name = "NAME", default_value = "csi.diskvitals.io", value_parser = driver_name)]
    pub driver_name: String,

    /// How to log, on standard error or to journald
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

/// The path of a unix socket that can be bound, as far as that can be seen from the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(PathBuf);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("only unix sockets are served: write unix:///PATH")]
    Scheme,
    #[error("the path must be absolute: write unix:///PATH, with three slashes")]
    Relative,
    #[error("the path names no file")]
    NotAFile,
    #[error("the path has {0} bytes, at most {MAX_PATH} are possible for a unix socket")]
    TooLong(usize),
}

impl Endpoint {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let path = Path::new(text.strip_prefix("unix://").ok_or(EndpointError::Scheme)?);
        if !path.is_absolute() {
            return Err(EndpointError::Relative);
        }
        let length = path.as_os_str().as_bytes().len();
        if length > MAX_PATH {
            return Err(EndpointError::TooLong(length));
        }
        if path.file_name().is_none() || text.ends_with('/') {
            return Err(EndpointError::NotAFile);
        }
        Ok(Endpoint(path.to_owned()))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

fn driver_name(text: &str) -> Result<String, String> {
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    if bytes.len() > MAX_NAME {
        return Err(format!("a driver's name has at most {MAX_NAME} characters, this one {}", text.chars().count()));
    }
    let inside = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(byte));
    if !inside || !end(bytes.first()) || !end(bytes.last()) {
        return Err("a driver's name is made of ASCII letters, digits, `-`, `.` and `_`, and begins and ends with a letter or digit".into());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_endpoint_is_an_absolute_path_of_a_unix_socket() {
        let parse = str::parse::<Endpoint>;
        assert_eq!(parse("unix:///csi/csi.sock").expect("right").path(), Path::new("/csi/csi.sock"));
        for text in ["tcp://127.0.0.1:1", "/csi/csi.sock", "", "UNIX:///csi.sock", "unix:/csi.sock"] {
            assert_eq!(parse(text), Err(EndpointError::Scheme), "{text}");
        }
        assert_eq!(parse("unix://csi.sock"), Err(EndpointError::Relative));
        assert_eq!(parse("unix://"), Err(EndpointError::Relative));
        for text in ["unix:///", "unix:///csi/", "unix:///csi/.."] {
            assert_eq!(parse(text), Err(EndpointError::NotAFile), "{text}");
        }
        assert!(parse(&format!("unix:///{}", "a".repeat(106))).is_ok());
        assert_eq!(parse(&format!("unix:///{}", "a".repeat(107))), Err(EndpointError::TooLong(108)));
    }

    #[test]
    fn a_drivers_name_is_short_and_plain() {
        for name in ["csi.diskvitals.io", "a", "A-1_b.c", &"a".repeat(63)] {
            assert_eq!(driver_name(name), Ok(name.to_owned()));
        }
        for name in ["", "-a", "a-", ".a", "a_", "a b", "a/b", "ä", &"a".repeat(64)] {
            assert!(driver_name(name).is_err(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn an_endpoint_reads_as_it_was_written(text in "(unix://)?/?\\PC*") {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string(), text);
            }
        }

        #[test]
        fn no_text_breaks_the_check_of_a_name(text in "\\PC*") {
            prop_assert!(driver_name(&text).is_err() || text.is_ascii());
        }
    }
}
