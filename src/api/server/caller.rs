//! The caller of an RPC: its uid, as the kernel gave it for the connection (SO_PEERCRED, unix(7)),
//! and the operations that the uid may use.

use tonic::transport::server::UdsConnectInfo;
use tonic::{Extensions, Request, Status};

use crate::api::status::denied;

/// None: the kernel gave no credentials.
pub(crate) fn peer_uid(connection: &UdsConnectInfo) -> Option<u32> {
    connection.peer_cred.map(|cred| cred.uid())
}

pub(crate) fn caller_uid(extensions: &Extensions) -> Option<u32> {
    extensions.get::<UdsConnectInfo>().and_then(peer_uid)
}

/// The agent's socket is for uid 0 and for the uids of the configuration.
pub(crate) fn may_call_agent(uid: Option<u32>, allowed: &[u32]) -> bool {
    uid.is_some_and(|uid| uid == 0 || allowed.contains(&uid))
}

/// Only uid 0 may make changes. `what` completes the refusal: "uid 1000 may not …".
pub(crate) fn authorize_change<T>(request: &Request<T>, what: &str) -> Result<u32, Status> {
    require_root(caller_uid(request.extensions()), what)
}

fn require_root(uid: Option<u32>, what: &str) -> Result<u32, Status> {
    match uid {
        Some(0) => Ok(0),
        other => Err(denied(what, other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_socket_is_for_root_and_the_configured_uids() {
        assert!(may_call_agent(Some(0), &[]));
        assert!(may_call_agent(Some(65532), &[65532]));
        assert!(!may_call_agent(Some(1000), &[65532]));
        assert!(!may_call_agent(None, &[0]));
    }

    #[test]
    fn changing_is_for_root_and_the_refusal_names_the_uid() {
        assert_eq!(require_root(Some(0), "acknowledge findings").unwrap(), 0);
        let refused = require_root(Some(1000), "acknowledge findings").unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (
                tonic::Code::PermissionDenied,
                "uid 1000 may not acknowledge findings"
            )
        );
        assert_eq!(
            require_root(None, "x").unwrap_err().code(),
            tonic::Code::PermissionDenied
        );
    }
}
