//! The caller of an RPC: its uid and gid, as the kernel gave them for the connection (SO_PEERCRED,
//! unix(7)), and the operations that it may use.

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

/// The callers of the agent's socket besides uid 0 (`[csi]` in the configuration).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentCallers {
    /// These uids may do everything, as uid 0 may.
    pub allow_uids: Vec<u32>,
    /// These uids may read.
    pub read_uids: Vec<u32>,
    /// Processes with these groups may read, whatever their uid is: also those with uid 0.
    pub read_gids: Vec<u32>,
}

/// What a caller may do on the agent's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AgentAccess {
    Nothing,
    /// Everything but volumes of this node.
    Read,
    Full,
}

impl AgentCallers {
    pub(crate) fn access(&self, uid: Option<u32>, gid: Option<u32>) -> AgentAccess {
        let lists = |list: &[u32], id: Option<u32>| id.is_some_and(|id| list.contains(&id));
        if lists(&self.read_gids, gid) {
            AgentAccess::Read
        } else if uid == Some(0) || lists(&self.allow_uids, uid) {
            AgentAccess::Full
        } else if lists(&self.read_uids, uid) {
            AgentAccess::Read
        } else {
            AgentAccess::Nothing
        }
    }

    /// Refuses callers with less than `needed`. `what` completes the refusal: "uid 1000 may not …".
    pub(crate) fn require(
        &self,
        needed: AgentAccess,
        extensions: &Extensions,
        what: &str,
    ) -> Result<(), Status> {
        let credentials = extensions
            .get::<UdsConnectInfo>()
            .and_then(|connection| connection.peer_cred);
        let (uid, gid) = (
            credentials.map(|cred| cred.uid()),
            credentials.map(|cred| cred.gid()),
        );
        match self.access(uid, gid) >= needed {
            true => Ok(()),
            false => Err(denied(what, uid)),
        }
    }
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
    fn the_agent_socket_is_for_root_and_the_configured_callers() {
        use AgentAccess::{Full, Nothing, Read};
        let callers = AgentCallers {
            allow_uids: vec![65532],
            read_uids: vec![65533],
            read_gids: vec![65533],
        };
        for (uid, gid, access) in [
            (Some(0), Some(0), Full),
            (Some(65532), Some(65532), Full),
            (Some(65533), Some(100), Read),
            // An interposer: root by name, in the readers' group.
            (Some(0), Some(65533), Read),
            (Some(65532), Some(65533), Read),
            (Some(1000), Some(1000), Nothing),
            (None, None, Nothing),
        ] {
            assert_eq!(callers.access(uid, gid), access, "{uid:?} {gid:?}");
        }
        assert_eq!(AgentCallers::default().access(Some(0), Some(0)), Full);
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
