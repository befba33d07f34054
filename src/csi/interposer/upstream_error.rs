//! Errors of a call to the upstream driver below the level of gRPC, and the caller's result for
//! each.
//!
//! In: errors of hyper. Out: if the upstream reset a stream, the caller's stream is reset for the
//! same reason; every other error is UNAVAILABLE, which the caller would also get without the
//! interposer.

use std::error::Error;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// There is no listener, or the connection attempt failed.
    #[error("connecting to the upstream driver at {}", path.display())]
    Connect {
        path: PathBuf,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The connection ended during the call.
    #[error("the upstream driver at {} broke the connection off", path.display())]
    Disconnected {
        path: PathBuf,
        #[source]
        source: hyper::Error,
    },
    /// The upstream or the caller ended this call.
    #[error("the call was reset")]
    Reset(#[source] hyper::Error),
}

impl UpstreamError {
    pub(crate) fn from_call(path: PathBuf, source: hyper::Error) -> UpstreamError {
        if is_reset(&source) {
            UpstreamError::Reset(source)
        } else {
            UpstreamError::Disconnected { path, source }
        }
    }
}

/// Whether the error is RST_STREAM, in contrast to the end of the whole connection.
pub(crate) fn is_reset(error: &hyper::Error) -> bool {
    let error: &(dyn Error + 'static) = error;
    std::iter::successors(Some(error), |cause| (**cause).source())
        .find_map(|cause| cause.downcast_ref::<h2::Error>())
        .is_some_and(h2::Error::is_reset)
}
