//! Refusals of clients, counted for metrics: by server and cause, never by caller.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    ConnectRate,
    Connections,
    ControlFrames,
    Resets,
    Memory,
    Watches,
    Confirmations,
}

impl Refusal {
    const ALL: [Refusal; 7] = [
        Refusal::ConnectRate,
        Refusal::Connections,
        Refusal::ControlFrames,
        Refusal::Resets,
        Refusal::Memory,
        Refusal::Watches,
        Refusal::Confirmations,
    ];

    fn label(self) -> &'static str {
        match self {
            Refusal::ConnectRate => "connect_rate",
            Refusal::Connections => "connections",
            Refusal::ControlFrames => "control_frames",
            Refusal::Resets => "resets",
            Refusal::Memory => "memory",
            Refusal::Watches => "watches",
            Refusal::Confirmations => "confirmations",
        }
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::ConnectRate => "too many are opened",
            Refusal::Connections => "too many are open",
            Refusal::ControlFrames => "too many HTTP/2 control frames",
            Refusal::Resets => "too many resets of HTTP/2 streams",
            Refusal::Memory => {
                "the calls of this uid hold too much memory; read their answers first"
            }
            Refusal::Watches => "too many watches are open; close some of them",
            Refusal::Confirmations => "too many of these requests wait for new readings",
        })
    }
}

/// Of one server, since the daemon's start.
#[derive(Clone, Debug, Default)]
pub struct RefusalCounts(Arc<[AtomicU64; Refusal::ALL.len()]>);

impl RefusalCounts {
    pub fn count(&self, refusal: Refusal) {
        self.0[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn by_cause(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::ALL.map(|of| (of.label(), self.0[of as usize].load(Ordering::Relaxed))).into_iter()
    }
}

/// Of the daemon's two sockets.
#[derive(Clone, Debug, Default)]
pub struct SocketRefusals {
    pub main: RefusalCounts,
    pub agent: RefusalCounts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_count_of_its_own() {
        let counts = RefusalCounts::default();
        for (number, refusal) in Refusal::ALL.into_iter().enumerate() {
            (0..=number).for_each(|_| counts.count(refusal));
        }
        let found: Vec<u64> = counts.by_cause().map(|(_, count)| count).collect();
        assert_eq!(found, [1, 2, 3, 4, 5, 6, 7]);
    }
}
