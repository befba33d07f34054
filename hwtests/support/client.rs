//! Requests to the daemon, as any client sends them. A refused request ends the test.

use std::path::{Path, PathBuf};
use std::time::Duration;

use diskvitals_wire::admin_client::AdminClient;
use diskvitals_wire::checks_client::ChecksClient;
use diskvitals_wire::inventory_client::InventoryClient;
use diskvitals_wire::watch_event::{Change, Item};
use diskvitals_wire::*;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use super::{SOON, eventually};

#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
}

/// Large enough for every answer with 1,000 volumes.
const MAX_ANSWER: usize = 64 << 20;

impl Client {
    /// Connects with the first request, and again after a restart of the daemon.
    pub fn new(socket: &Path) -> Client {
        let socket: PathBuf = socket.to_owned();
        let channel = Endpoint::from_static("http://localhost")
            .timeout(Duration::from_secs(10))
            .connect_with_connector_lazy(tower::service_fn(move |_| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(TokioIo::new) }
            }));
        Client { channel }
    }

    pub fn inventory(&self) -> InventoryClient<Channel> {
        InventoryClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER)
    }

    pub fn checks(&self) -> ChecksClient<Channel> {
        ChecksClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER)
    }

    pub fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(self.channel.clone())
    }

    pub async fn try_node(&self) -> Result<Node, Status> {
        self.inventory().get_node(GetNodeRequest {}).await.map(tonic::Response::into_inner)
    }

    pub async fn node(&self) -> Node {
        self.try_node().await.expect("GetNode")
    }

    pub async fn try_volume(&self, id: &str) -> Result<Volume, Status> {
        let request = GetVolumeRequest { id: id.to_owned(), ..Default::default() };
        self.inventory().get_volume(request).await.map(tonic::Response::into_inner)
    }

    /// By id.
    pub async fn volume(&self, id: &str) -> Volume {
        self.try_volume(id).await.unwrap_or_else(|status| panic!("GetVolume {id}: {status}"))
    }

    /// A volume that was mounted a moment ago: the daemon may not have read the mount table since.
    async fn mounted_volume(&self, id: &str, deadline: Instant) -> Volume {
        loop {
            match self.try_volume(id).await {
                Err(status) if status.code() == Code::NotFound && Instant::now() < deadline => {
                    super::pause(Duration::from_millis(5)).await;
                }
                answer => {
                    return answer.unwrap_or_else(|status| panic!("GetVolume {id}: {status}"));
                }
            }
        }
    }

    pub async fn volume_of(&self, driver: &str, handle: &str) -> Volume {
        let request = GetVolumeRequest {
            driver: driver.to_owned(),
            handle: handle.to_owned(),
            ..Default::default()
        };
        self.inventory()
            .get_volume(request)
            .await
            .unwrap_or_else(|status| panic!("GetVolume {driver} {handle}: {status}"))
            .into_inner()
    }

    /// All of them, page by page.
    pub async fn volumes(&self) -> Vec<Volume> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let page = self
                .inventory()
                .list_volumes(ListVolumesRequest { page_size: 0, page_token })
                .await
                .expect("ListVolumes")
                .into_inner();
            all.extend(page.volumes);
            if page.next_page_token.is_empty() {
                return all;
            }
            page_token = page.next_page_token;
        }
    }

    pub async fn drives(&self) -> Vec<Drive> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let page = self
                .inventory()
                .list_drives(ListDrivesRequest { page_size: 0, page_token })
                .await
                .expect("ListDrives")
                .into_inner();
            all.extend(page.drives);
            if page.next_page_token.is_empty() {
                return all;
            }
            page_token = page.next_page_token;
        }
    }

    pub async fn drive(&self, id: &str) -> Option<Drive> {
        match self.inventory().get_drive(GetDriveRequest { id: id.to_owned() }).await {
            Ok(drive) => Some(drive.into_inner()),
            Err(status) if status.code() == Code::NotFound => None,
            Err(status) => panic!("GetDrive {id}: {status}"),
        }
    }

    /// The present drive with that kernel name, as soon as there is one.
    pub async fn drive_named(&self, name: &str) -> Drive {
        eventually(&format!("a drive named {name}"), SOON, async || {
            self.drives()
                .await
                .into_iter()
                .find(|drive| drive.name == name && drive.presence() == Presence::Present)
        })
        .await
    }

    pub async fn findings(&self, include_cleared: bool) -> Vec<Finding> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListFindingsRequest { page_size: 0, page_token, include_cleared };
            let page =
                self.inventory().list_findings(request).await.expect("ListFindings").into_inner();
            all.extend(page.findings);
            if page.next_page_token.is_empty() {
                return all;
            }
            page_token = page.next_page_token;
        }
    }

    /// The active finding of that subject and reason.
    pub async fn finding(&self, subject: &str, reason: &str) -> Option<Finding> {
        let mut found: Vec<_> = self
            .findings(false)
            .await
            .into_iter()
            .filter(|finding| is_about(finding, subject, reason))
            .collect();
        assert!(found.len() < 2, "two active findings of one subject and reason: {found:#?}");
        found.pop()
    }

    /// Waits for the finding.
    pub async fn raised(&self, subject: &str, reason: &str, within: Duration) -> Finding {
        let deadline = Instant::now() + within;
        loop {
            let findings = self.findings(false).await;
            if let Some(finding) =
                findings.iter().find(|finding| is_about(finding, subject, reason))
            {
                return finding.clone();
            }
            if Instant::now() >= deadline {
                panic!(
                    "no {reason} of {subject} within {within:?}; there are: {}",
                    titles(&findings)
                );
            }
            super::pause(Duration::from_millis(20)).await;
        }
    }

    /// Waits for the finding with evidence from the mount table: the kernel log may be first.
    pub async fn read_only(&self, subject: &str) -> Finding {
        let says_so = |record: &Evidence| {
            record.source.contains("mountinfo") && record.text.contains("emergency_ro")
        };
        eventually("it is read-only, by the mount table as well", SOON, async || {
            self.finding(subject, "ReadOnly")
                .await
                .filter(|finding| finding.evidence.iter().any(says_so))
        })
        .await
    }

    /// Waits until it is no longer active, and returns it from the history.
    pub async fn cleared(&self, id: &str, within: Duration) -> Finding {
        let deadline = Instant::now() + within;
        loop {
            let findings = self.findings(true).await;
            if let Some(finding) =
                findings.iter().find(|finding| finding.id == id && finding.cleared.is_some())
            {
                return finding.clone();
            }
            if Instant::now() >= deadline {
                panic!(
                    "{id} has not cleared within {within:?}: {:#?}",
                    findings.iter().find(|finding| finding.id == id)
                );
            }
            super::pause(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the volume has been measured (raw block has no usage) and has no finding.
    pub async fn normal(&self, id: &str) -> Volume {
        let deadline = Instant::now() + SOON;
        loop {
            let volume = self.mounted_volume(id, deadline).await;
            let condition = volume.condition.clone().unwrap_or_default();
            if !condition.abnormal
                && volume.health() == Health::Good
                && volume.operational_status() == OperationalStatus::Operative
                && volume.findings.is_empty()
                && (volume.block || volume.usage.is_some_and(|usage| usage.stale_since.is_none()))
            {
                return volume;
            }
            assert!(Instant::now() < deadline, "not back to normal within {SOON:?}: {volume:#?}");
            super::pause(Duration::from_millis(20)).await;
        }
    }

    /// Waits until each of these volumes has been probed again.
    pub async fn probed_anew(&self, ids: &[&str]) {
        let deadline = Instant::now() + SOON;
        let mut before = Vec::new();
        for id in ids {
            before.push((id, self.mounted_volume(id, deadline).await.last_probe));
        }
        for (id, before) in before {
            while self.mounted_volume(id, deadline).await.last_probe == before {
                assert!(Instant::now() < deadline, "{id} has not been probed within {SOON:?}");
                super::pause(Duration::from_millis(5)).await;
            }
        }
    }

    pub async fn acknowledge(&self, finding: &str, note: &str) -> Result<Finding, Status> {
        let request = AcknowledgeFindingRequest {
            finding_id: finding.to_owned(),
            note: note.to_owned(),
            ..Default::default()
        };
        self.admin().acknowledge_finding(request).await.map(tonic::Response::into_inner)
    }

    pub async fn unacknowledge(&self, finding: &str) -> Result<Finding, Status> {
        self.admin()
            .unacknowledge_finding(UnacknowledgeFindingRequest { finding_id: finding.to_owned() })
            .await
            .map(tonic::Response::into_inner)
    }

    /// Requests a new reading from the sources. Empty: all of them.
    pub async fn refresh(&self, query: &str) {
        self.admin()
            .refresh(RefreshRequest { query: query.to_owned() })
            .await
            .unwrap_or_else(|status| panic!("Refresh {query}: {status}"));
    }

    /// A stream that has sent the initial state: only changes follow.
    pub async fn watch(&self) -> Watcher {
        // Without the time-out of a unary call: it stays open.
        let stream = self
            .inventory()
            .watch(WatchRequest { resume_revision: 0 })
            .await
            .expect("Watch")
            .into_inner();
        let mut watcher = Watcher { stream };
        loop {
            let event = watcher.next(SOON).await;
            if event.change() == Change::SnapshotEnd {
                return watcher;
            }
        }
    }
}

pub struct Watcher {
    stream: Streaming<WatchEvent>,
}

impl Watcher {
    pub async fn next(&mut self, within: Duration) -> WatchEvent {
        let event = timeout(within, self.stream.message())
            .await
            .unwrap_or_else(|_| panic!("no event within {within:?}"));
        event.expect("Watch continues").expect("Watch does not end")
    }

    /// The first volume event for which `wanted` holds.
    pub async fn volume(
        &mut self,
        within: Duration,
        what: &str,
        wanted: impl Fn(&Volume, Change) -> bool,
    ) -> Volume {
        self.find(within, what, |item, change| match item {
            Item::Volume(volume) if wanted(&volume, change) => Some(volume),
            _ => None,
        })
        .await
    }

    pub async fn drive(
        &mut self,
        within: Duration,
        what: &str,
        wanted: impl Fn(&Drive, Change) -> bool,
    ) -> Drive {
        self.find(within, what, |item, change| match item {
            Item::Drive(drive) if wanted(&drive, change) => Some(drive),
            _ => None,
        })
        .await
    }

    async fn find<T>(
        &mut self,
        within: Duration,
        what: &str,
        wanted: impl Fn(Item, Change) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(event) = timeout(left, self.stream.message()).await else {
                panic!("not on Watch within {within:?}: {what}")
            };
            let event = event.expect("Watch continues").expect("Watch does not end");
            let change = event.change();
            if let Some(found) = event.item.and_then(|item| wanted(item, change)) {
                return found;
            }
        }
    }
}

pub fn is_about(finding: &Finding, subject: &str, reason: &str) -> bool {
    finding.reason == reason && finding.subject.as_ref().is_some_and(|about| about.id == subject)
}

fn titles(findings: &[Finding]) -> String {
    let subject = |finding: &Finding| {
        finding.subject.as_ref().map(|subject| subject.id.clone()).unwrap_or_default()
    };
    findings
        .iter()
        .map(|finding| format!("\n  {} {}: {}", subject(finding), finding.reason, finding.message))
        .collect()
}

/// Compares reason, subject and meaning at once; the message and the clearing rule must not be
/// empty.
#[track_caller]
pub fn assert_finding(finding: &Finding, severity: Severity, status: FindingStatus) {
    assert_eq!((finding.severity(), finding.status()), (severity, status), "{finding:#?}");
    assert!(!finding.message.is_empty() && !finding.clears_when.is_empty(), "{finding:#?}");
    assert!(
        finding.since.is_some() && finding.cleared.is_none() && finding.count >= 1,
        "{finding:#?}"
    );
    assert!(!finding.evidence.is_empty(), "without evidence: {finding:#?}");
}

/// Some record of the evidence is from `source` and contains `text`.
#[track_caller]
pub fn assert_evidence(finding: &Finding, source: &str, text: &str) {
    assert!(
        finding
            .evidence
            .iter()
            .any(|record| record.source.contains(source) && record.text.contains(text)),
        "no evidence from `{source}` that contains `{text}`: {finding:#?}"
    );
}
