//! Drives and volumes without their first evidence: each pod with a new volume brings one for a few
//! seconds. What is published does not change for it, until the evidence is overdue. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::report::node_snapshot::{Health, NodeSnapshot};

/// Since when the first evidence about drives and volumes is outstanding.
#[derive(Debug, Default)]
pub(crate) struct PendingSince(BTreeMap<String, Instant>);

impl PendingSince {
    /// The ids whose evidence is overdue.
    pub(crate) fn update(
        &mut self,
        snapshot: Option<&NodeSnapshot>,
        patience: Duration,
    ) -> BTreeSet<String> {
        let pending: BTreeSet<&String> = snapshot.iter().flat_map(|it| it.pending()).collect();
        self.0.retain(|id, _| pending.contains(id));
        let now = Instant::now();
        for id in pending {
            self.0.entry(id.clone()).or_insert(now);
        }
        let is_overdue = |since: &Instant| *since + patience <= now;
        let overdue = self.0.iter().filter(|(_, since)| is_overdue(since));
        overdue.map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn next_overdue(&self, patience: Duration) -> Option<Instant> {
        let times = self.0.values().map(|since| *since + patience);
        times.filter(|due| *due > Instant::now()).min()
    }
}

/// Whether nothing but evidence that is not overdue keeps the node's health from being known.
pub(crate) fn is_awaited(snapshot: &NodeSnapshot, overdue: &BTreeSet<String>) -> bool {
    let mut pending = snapshot.pending().peekable();
    let waits = pending.peek().is_some() && pending.all(|id| !overdue.contains(id));
    let is_unknown = |health: Health, pending: bool| health == Health::Unknown && !pending;
    let mut drives = snapshot.drives.values().filter(|it| !it.maintenance);
    waits
        && snapshot.health == Health::Unknown
        && !drives.any(|it| is_unknown(it.health, it.is_pending))
        && !snapshot.volumes.values().any(|it| is_unknown(it.health, it.is_pending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::transitions::tests::snapshot;

    #[tokio::test(start_paused = true)]
    async fn first_evidence_is_overdue_after_the_grace_period_and_not_while_a_drive_sleeps() {
        let patience = Duration::from_secs(60);
        let mut node = snapshot(&[]);
        node.volumes.get_mut("v1").expect("there").is_pending = true;
        let sleeping = node.drives.get_mut("d1").expect("there");
        (sleeping.is_pending, sleeping.is_asleep) = (true, true);
        let mut pending = PendingSince::default();
        assert!(pending.update(Some(&node), patience).is_empty());
        assert_eq!(pending.next_overdue(patience), Some(Instant::now() + patience));
        tokio::time::advance(patience).await;
        assert_eq!(pending.update(Some(&node), patience), BTreeSet::from(["v1".to_owned()]));
        assert_eq!(pending.next_overdue(patience), None);
        node.volumes.get_mut("v1").expect("there").is_pending = false;
        assert!(pending.update(Some(&node), patience).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_new_and_not_overdue_is_awaited() {
        let new_volume = |health| {
            let mut node = NodeSnapshot { health, ..snapshot(&[]) };
            let volume = node.volumes.get_mut("v1").expect("there");
            (volume.health, volume.is_pending) = (Health::Unknown, true);
            node
        };
        let (node, nothing) = (new_volume(Health::Unknown), BTreeSet::new());
        assert!(is_awaited(&node, &nothing));
        assert!(!is_awaited(&node, &BTreeSet::from(["v1".to_owned()])), "it is overdue");
        assert!(!is_awaited(&new_volume(Health::Bad), &nothing), "the health is known");
        let unseen = NodeSnapshot { health: Health::Unknown, ..snapshot(&[]) };
        assert!(!is_awaited(&unseen, &nothing), "nothing is pending");
        for maintenance in [false, true] {
            let mut node = new_volume(Health::Unknown);
            let drive = node.drives.get_mut("d1").expect("there");
            (drive.health, drive.maintenance) = (Health::Unknown, maintenance);
            assert_eq!(is_awaited(&node, &nothing), maintenance, "a drive that hangs counts");
        }
    }
}
