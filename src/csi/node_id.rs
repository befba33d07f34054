//! The node id if --node-id is not given: the host name.

use std::ffi::OsString;

#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeIdError {
    #[error("asking for the host's name; give --node-id")]
    HostName(#[source] nix::errno::Errno),
    #[error("the host's name {0:?} is not text; give --node-id")]
    HostNameForm(OsString),
}

/// `given` is the value of --node-id.
pub(crate) fn node_id(given: Option<&str>) -> Result<String, NodeIdError> {
    match given {
        Some(id) => Ok(id.to_owned()),
        None => nix::unistd::gethostname()
            .map_err(NodeIdError::HostName)?
            .into_string()
            .map_err(NodeIdError::HostNameForm),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_node_id_is_the_host_name_and_never_empty() {
        assert_eq!(node_id(Some("worker-1")).expect("given"), "worker-1");
        let host = nix::unistd::gethostname().expect("a name").into_string().expect("text");
        assert_eq!(node_id(None).expect("a name"), host);
        assert!(!host.is_empty());
    }
}
