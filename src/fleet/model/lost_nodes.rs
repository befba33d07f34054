//! Which lost nodes still have a condition that says that their storage is healthy.
//!
//! In: the view, the API server's time. Out: names with uid and the time of the last report, for a
//! conditional write.

use std::time::Duration;

use jiff::Timestamp;

use crate::model::View;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostNode {
    pub name: String,
    pub uid: String,
    pub last_report: Timestamp,
}

/// A node that is not ready may have a reporter that works: one that writes is believed. A condition
/// that is False says what is broken, and stays.
pub(crate) fn lost_nodes(view: &View, silent_after: Duration, server: Timestamp) -> Vec<LostNode> {
    let is_silent = |written: &Timestamp| {
        let silence = Duration::try_from(server.duration_since(*written));
        silence.is_ok_and(|silence| silence >= silent_after)
    };
    let nodes = view.nodes.iter();
    nodes
        .filter_map(|(name, node)| {
            let last_report = node.healthy_report.filter(is_silent)?;
            Some(LostNode { name: name.clone(), uid: node.uid.clone(), last_report })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Node;

    const SILENT: Duration = Duration::from_secs(600);

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    /// Whether the condition of the only node is to be ended.
    fn is_lost(healthy_report: Option<i64>, now: i64) -> bool {
        let node = Node { healthy_report: healthy_report.map(time), ..Node::default() };
        let view = View { nodes: [("a".to_owned(), node)].into(), ..View::default() };
        !lost_nodes(&view, SILENT, time(now)).is_empty()
    }

    #[test]
    fn a_lost_node_is_written_once_and_a_reporter_that_writes_again_is_left_alone() {
        // The last report, and time passes.
        assert!(!is_lost(Some(0), 599) && is_lost(Some(0), 600));
        // Our own write stands there: the condition is Unknown.
        assert!(!is_lost(None, 610));
        // The reporter is back before the kubelet, and writes in its interval.
        for now in (1000..5000).step_by(10) {
            let heartbeat = now - now % 300;
            assert!(!is_lost(Some(heartbeat), now), "{now}");
        }
        // The reporter is lost again.
        assert!(is_lost(Some(4800), 5400));
    }

    #[test]
    fn a_report_of_a_later_time_than_now_is_no_old_one() {
        assert!(!is_lost(Some(100_000), 600));
    }
}
