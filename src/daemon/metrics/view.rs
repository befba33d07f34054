//! Metric families of a snapshot. Pure; times are the snapshot's.
//!
//! In: a snapshot, facts that do not change while the daemon runs, and counts of refused clients. Out: OpenMetrics text. An
//! unknown state has its own series and no value: outdated figures are left out, never repeated.
//! Labels are bounded in length and number: ids, names from tables in this module, and names that a
//! drive or the kubelet's records report, cut to a maximum length.

mod drives;
mod findings;
mod models;
mod node;
mod smart;
mod volumes;
mod zfs;

#[cfg(test)]
pub(in crate::metrics) mod tests;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use diskvitals_exposition::families::Families;
use diskvitals_finding::Health;
use diskvitals_host::clock;
use diskvitals_model::snapshot::Snapshot;
use diskvitals_quota::refusals::SocketRefusals;

/// Facts that do not change while the daemon runs.
#[derive(Clone, Debug)]
pub struct Node {
    pub name: String,
    /// The kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// The daemon's version.
    pub version: String,
    pub started: Timestamp,
}

#[derive(Debug)]
struct SnapshotCollector {
    node: Arc<Node>,
    snapshot: Arc<Snapshot>,
    refusals: SocketRefusals,
}

impl Collector for SnapshotCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut families = Families::new(encoder);
        node::encode(&mut families, self)?;
        drives::encode(&mut families, &self.snapshot)?;
        smart::encode(&mut families, &self.snapshot)?;
        volumes::encode(&mut families, &self.snapshot)?;
        findings::encode(&mut families, &self.snapshot)?;
        models::encode(&mut families, &self.snapshot)?;
        zfs::encode(&mut families, &self.snapshot)
    }
}

/// All families, as OpenMetrics 1.0 text. Fails only if writing to memory fails.
pub fn render(
    node: &Arc<Node>,
    snapshot: &Arc<Snapshot>,
    refusals: &SocketRefusals,
) -> Result<String, fmt::Error> {
    // One registry per scrape, so that a series ends with its subject.
    let mut registry = Registry::default();
    registry.register_collector(Box::new(SnapshotCollector {
        node: node.clone(),
        snapshot: snapshot.clone(),
        refusals: refusals.clone(),
    }));
    let mut text = String::with_capacity(64 * 1024);
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

fn known(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

/// Since the epoch.
fn second(time: Timestamp) -> i64 {
    clock::wall(time).as_second()
}

const HEALTH_STATES: [&str; 4] = ["good", "suspect", "bad", "unknown"];

fn health(health: Health) -> &'static str {
    match health {
        Health::Good => "good",
        Health::Suspect => "suspect",
        Health::Bad => "bad",
        Health::Unknown => "unknown",
    }
}
