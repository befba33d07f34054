//! The caller of an RPC: its uid and gid, as the kernel gave them for the connection (SO_PEERCRED,
//! unix(7)), and the operations that it may use.

use std::sync::Arc;

use tonic::{Extensions, Request, Status};

use crate::api::server::quota::{Share, Standing};
use crate::api::status::{denied, exhausted};
use diskvitals_quota::places::{Activity, Holder};
use diskvitals_quota::refusals::{Refusal, RefusalCounts};

/// Who calls, as the kernel says.
///
/// Equal shares: among uids, among the gids of a uid, among the control groups of these, and last among
/// processes. A process chooses how many processes it has, but not its control group (a pod, a unit, a
/// session): forks get no share of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallerId {
    pub uid: Option<u32>,
    /// The first subordinate uid of the user whose subordinate uid it is: as this, all of them count.
    pub subordinate: Option<u32>,
    pub gid: Option<u32>,
    /// None if it is not known, as the process: all such share one part.
    pub control_groups: Option<Arc<str>>,
    /// Its pid and start time.
    pub process: Option<(u32, u64)>,
}

impl CallerId {
    /// The uid whose shares it uses.
    pub(crate) fn counted_uid(&self) -> Option<u32> {
        self.subordinate.or(self.uid)
    }
}

impl Holder for CallerId {
    const LEVELS: usize = 4;

    fn is_with(&self, other: &CallerId, level: usize) -> bool {
        match level {
            0 => self.counted_uid() == other.counted_uid(),
            1 => self.gid == other.gid,
            2 => self.control_groups == other.control_groups,
            _ => self.process == other.process,
        }
    }
}

/// What is known about a connection; each of its calls carries it.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Without a uid, if the kernel gave no credentials.
    pub id: CallerId,
    pub standing: Standing,
    pub activity: Arc<Activity>,
    pub refusals: RefusalCounts,
}

impl Caller {
    pub(crate) fn share(&self) -> Share {
        Share::new(self.standing, &self.id)
    }
}

/// Counts a call that is refused because its caller has as much as it may have.
pub(crate) fn refuse(refusals: Option<&RefusalCounts>, refusal: Refusal) -> Status {
    if let Some(refusals) = refusals {
        refusals.count(refusal);
    }
    exhausted(refusal.to_string())
}

pub(crate) fn caller_uid(extensions: &Extensions) -> Option<u32> {
    extensions.get::<Caller>()?.id.uid
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
pub enum AgentAccess {
    Nothing,
    /// Everything but volumes of this node.
    Read,
    Full,
}

impl AgentCallers {
    pub fn access(&self, uid: Option<u32>, gid: Option<u32>) -> AgentAccess {
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
        match self.access_of(extensions) >= needed {
            true => Ok(()),
            false => Err(denied(what, caller_uid(extensions))),
        }
    }

    /// What the caller of this request may do.
    pub(crate) fn access_of(&self, extensions: &Extensions) -> AgentAccess {
        match extensions.get::<Caller>() {
            Some(caller) => self.access(caller.id.uid, caller.id.gid),
            None => AgentAccess::Nothing,
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
    fn callers_of_whom_nothing_is_known_are_in_one_group() {
        let unknown = CallerId::default();
        assert!((0..CallerId::LEVELS).all(|level| unknown.is_with(&CallerId::default(), level)));
        let known = CallerId {
            uid: Some(1),
            subordinate: None,
            gid: Some(1),
            control_groups: Some("0::/a".into()),
            process: Some((7, 1)),
        };
        let again = CallerId { process: Some((7, 2)), ..known.clone() };
        let same: Vec<bool> =
            (0..CallerId::LEVELS).map(|level| known.is_with(&again, level)).collect();
        assert_eq!(same, [true, true, true, false], "the pid was used again");
        assert!(!(0..CallerId::LEVELS).any(|level| known.is_with(&unknown, level)));
    }

    #[test]
    fn changing_is_for_root_and_the_refusal_names_the_uid() {
        assert_eq!(require_root(Some(0), "acknowledge findings").unwrap(), 0);
        let refused = require_root(Some(1000), "acknowledge findings").unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (tonic::Code::PermissionDenied, "uid 1000 may not acknowledge findings")
        );
        assert_eq!(require_root(None, "x").unwrap_err().code(), tonic::Code::PermissionDenied);
    }
}
