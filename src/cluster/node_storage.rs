//! `NodeStorage` (`nst`): the storage health of one node, written by the reporter of that node. The
//! object has the Node's name.
//!
//! It holds deviations only: drives that are not good, volumes that are not healthy, mounts without
//! a pod. No value in it changes by itself (temperatures, usage, counters), because each write
//! costs the API server as much as a change. Lists have one writer and are replaced as a whole
//! (`atomic`). A list that was cut says so in `truncated`: what is absent from a cut list, or from
//! an object without a status, is unknown.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};

use diskvitals_finding::reason::Reason;

/// Limits of the lists, in entries.
pub const MAX_DRIVE_IDS: usize = 512;
pub const MAX_MODELS: usize = 16;
pub const MAX_DRIVES: usize = 32;
pub const MAX_VOLUMES: usize = 64;
pub const MAX_STALE: usize = 32;
/// Of one volume.
pub const MAX_VOLUME_CONDITIONS: usize = 8;
/// Volumes, and drives, that one challenge asks about; findings of its answer.
pub const MAX_CHALLENGED: usize = 16;
pub const MAX_MISSING: usize = 8;
/// Longest nonce, and longest name of a drive or volume in a challenge, in bytes.
#[cfg(feature = "fleet")]
pub(crate) const MAX_NONCE_LEN: usize = 128;
#[cfg(feature = "fleet")]
pub(crate) const MAX_CHALLENGED_NAME_LEN: usize = 512;
/// Drivers whose storage cannot be reached, those that are, and the longest name of one.
pub const MAX_UNREACHABLE_DRIVERS: usize = 8;
pub const MAX_REACHED_DRIVERS: usize = 16;
pub const MAX_DRIVER_NAME_LEN: usize = 63;
/// Pods of a quarantine, and the longest uid of one, in bytes.
pub const MAX_QUARANTINED: usize = 64;
/// What is left of them, in entries, and the PersistentVolumes of one.
pub const MAX_REMAINING: usize = 32;
pub const MAX_REMAINING_VOLUMES: usize = 8;
#[cfg(feature = "fleet")]
pub(crate) const MAX_POD_UID_LEN: usize = 64;
/// Longest id of a quarantine, and of a boot, in bytes.
#[cfg(feature = "fleet")]
pub(crate) const MAX_QUARANTINE_ID_LEN: usize = 128;
/// Longest message of a volume's condition, in bytes.
pub const MAX_MESSAGE_LEN: usize = 256;
/// Of a condition: it may name many pods.
pub const MAX_CLEAN_MESSAGE_LEN: usize = 1024;
/// Longest status as JSON, in bytes. Entries are dropped beyond it, the least severe first.
pub const MAX_STATUS_LEN: usize = 32 * 1024;

/// Condition: the daemon answers, and what the status says is what it says now.
pub const DAEMON_REACHABLE: &str = "DaemonReachable";
/// Its reason after `--withdraw`.
pub const WITHDRAWN: &str = "Withdrawn";
/// Condition: no mount of a deleted pod is left on the node. While the node is in quarantine, its
/// reason is a `CleanReason`.
pub const ATTACHMENTS_CLEAN: &str = "AttachmentsClean";

/// What the cluster asks of the node. Its reporter cannot change it.
#[allow(clippy::duplicated_attributes, reason = "columns of one type are no duplicates")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(kube::CustomResource, schemars::JsonSchema))]
#[cfg_attr(
    feature = "fleet",
    kube(
        group = "diskvitals.io",
        version = "v1alpha1",
        kind = "NodeStorage",
        plural = "nodestorages",
        shortname = "nst",
        category = "diskvitals",
        status = "NodeStorageStatus",
        printcolumn(
            name = "Health",
            type_ = "string",
            json_path = ".status.health",
            description = "Worst health of the node's drives and volumes"
        ),
        printcolumn(name = "Drives", type_ = "integer", json_path = ".status.counts.drives"),
        printcolumn(name = "Bad", type_ = "integer", json_path = ".status.counts.bad"),
        printcolumn(name = "Suspect", type_ = "integer", json_path = ".status.counts.suspect"),
        printcolumn(name = "Affected", type_ = "integer", json_path = ".status.counts.affected"),
        printcolumn(name = "Stale", type_ = "integer", json_path = ".status.counts.stale"),
        printcolumn(
            name = "Clean",
            type_ = "string",
            json_path = ".status.conditions[?(@.type==\"AttachmentsClean\")].status",
            description = "Whether no mount of a deleted pod is left"
        ),
        printcolumn(
            name = "Quarantine",
            type_ = "date",
            json_path = ".spec.quarantine.since",
            description = "Since when the node is in quarantine"
        ),
        printcolumn(name = "Reported", type_ = "date", json_path = ".status.reportedAt"),
        printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
        printcolumn(
            name = "Clean reason",
            type_ = "string",
            priority = 1,
            json_path = ".status.conditions[?(@.type==\"AttachmentsClean\")].reason"
        ),
        printcolumn(
            name = "Held by",
            type_ = "string",
            priority = 1,
            json_path = ".status.remaining[*].message",
            description = "What is left of the pods of the quarantine, and which process holds it"
        ),
        selectable = ".status.health"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodeStorageSpec {
    /// A question that the node's reporter answers once for each nonce, in `status.challenge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<Challenge>,
    /// The node was away while pods of it could be started elsewhere. Its reporter says in
    /// `AttachmentsClean` whether anything of them is left on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    /// A pod of the node is being evicted, because the node does not reach the pod's storage. The
    /// cluster's controller writes it before it asks for the eviction, and removes it when the pod
    /// is replaced. The node does not answer it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction: Option<PodEviction>,
}

/// The one pod of the cluster that is being evicted from storage that its node does not reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PodEviction {
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_DRIVER_NAME_LEN)))]
    pub driver: String,
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = 63)))]
    pub namespace: String,
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = 253)))]
    pub pod: String,
    #[serde(rename = "podUID")]
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = MAX_POD_UID_LEN)))]
    pub pod_uid: String,
    /// uid of the pod's controller, which replaces it.
    #[serde(rename = "ownerUID")]
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = MAX_POD_UID_LEN)))]
    pub owner_uid: String,
    /// When it was written, by the API server's clock. A replacement is younger.
    pub since: Time,
}

/// The pods that a node had when it was lost, and whose volumes another node can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Quarantine {
    /// Anything that was not used before. The node repeats it in `status.observedQuarantine`.
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = MAX_QUARANTINE_ID_LEN)))]
    pub id: String,
    /// When the node was lost, by the clock of the controller. It is not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// uids of the pods.
    #[serde(default, rename = "podUIDs", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_QUARANTINED), inner(length(min = 1, max = MAX_POD_UID_LEN), regex(pattern = r"^[0-9A-Za-z-]+$"))))]
    pub pod_uids: Vec<String>,
    /// There were more pods than the list holds: in that boot the node is never clean.
    #[serde(default, skip_serializing_if = "is_false")]
    pub truncated: bool,
    /// Boot id of the node when it was lost (`status.nodeInfo.bootID` of the Node). In another boot
    /// a truncated list is no obstacle: nothing of the pods is left.
    #[serde(default, rename = "bootID", skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_QUARANTINE_ID_LEN)))]
    pub boot_id: String,
}

/// Reason of the condition `AttachmentsClean` of a node in quarantine. All but `ProvenClean` come
/// with the status False.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CleanReason {
    /// Nothing of the listed pods is mounted, published or held.
    ProvenClean,
    /// diskvitalsd or the reporter does not answer.
    NoAnswer,
    /// diskvitalsd has just started.
    NotSettled,
    /// The list of pods was cut in this boot.
    Truncated,
    /// The mount table, the kubelet's directory or /proc could not be read.
    Unreadable,
    /// A mount of one of the pods does not respond.
    Hung,
    /// The kubelet still has, or has again, one of the pods.
    InUse,
    /// A process uses a mount of one of the pods, or runs in one of its containers.
    Held,
    /// Another driver's mount of one of the pods.
    Foreign,
    /// A mount could not be removed.
    Failed,
    /// A mount of our own driver is left, and the node's configuration forbids its removal.
    OrdersOff,
    /// A removal is under way.
    Cleaning,
    /// Something is mounted for no pod, which no list names.
    StaleAttachments,
}

impl CleanReason {
    pub const ALL: [CleanReason; 13] = [
        CleanReason::ProvenClean,
        CleanReason::NoAnswer,
        CleanReason::NotSettled,
        CleanReason::Truncated,
        CleanReason::Unreadable,
        CleanReason::Hung,
        CleanReason::InUse,
        CleanReason::Held,
        CleanReason::Foreign,
        CleanReason::Failed,
        CleanReason::OrdersOff,
        CleanReason::Cleaning,
        CleanReason::StaleAttachments,
    ];

    pub fn name(self) -> &'static str {
        match self {
            CleanReason::ProvenClean => "ProvenClean",
            CleanReason::NoAnswer => "NoAnswer",
            CleanReason::NotSettled => "NotSettled",
            CleanReason::Truncated => "Truncated",
            CleanReason::Unreadable => "Unreadable",
            CleanReason::InUse => "InUse",
            CleanReason::Hung => "Hung",
            CleanReason::Held => "Held",
            CleanReason::Foreign => "Foreign",
            CleanReason::Failed => "Failed",
            CleanReason::OrdersOff => "OrdersOff",
            CleanReason::Cleaning => "Cleaning",
            CleanReason::StaleAttachments => "StaleAttachments",
        }
    }

    /// What a person can do.
    pub fn advice(self) -> &'static str {
        match self {
            CleanReason::ProvenClean => "nothing is to be done",
            CleanReason::NoAnswer => "find out why diskvitalsd on the node does not answer",
            CleanReason::NotSettled | CleanReason::Cleaning => "wait",
            CleanReason::Truncated => "restart the node",
            CleanReason::Unreadable => "make it readable, or restart the node",
            CleanReason::InUse => "wait for the kubelet, or restart the node",
            CleanReason::Hung => "restore its storage, or restart the node",
            CleanReason::Held => "end the process, or restart the node",
            CleanReason::Foreign => {
                "wait for the kubelet and the driver to unmount it, or restart the node"
            }
            CleanReason::Failed => "read the log of diskvitalsd, or restart the node",
            CleanReason::OrdersOff => {
                "run `diskvitals cleanup` for it on the node, allow orders ([cleanup] orders), or restart the node"
            }
            CleanReason::StaleAttachments => {
                "run `diskvitals volumes --stale` and `diskvitals cleanup` on the node, or restart the node"
            }
        }
    }
}

/// Asks for evidence of this moment: the node's daemon reads again and says what is wrong now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Challenge {
    /// Anything that was not used before. A new one is a new question.
    #[cfg_attr(feature = "fleet", schemars(length(min = 1, max = MAX_NONCE_LEN)))]
    pub nonce: String,
    /// When it was asked, by the clock of the one who asks. It is not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Names of the volumes in question. Without volumes and drives, all findings are meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_CHALLENGED), inner(length(min = 1, max = MAX_CHALLENGED_NAME_LEN))))]
    pub persistent_volumes: Vec<String>,
    /// Ids of the drives in question.
    #[serde(default, rename = "driveIDs", skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_CHALLENGED), inner(length(min = 1, max = MAX_CHALLENGED_NAME_LEN))))]
    pub drive_ids: Vec<String>,
}

/// What the node's daemon says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStorageStatus {
    /// uid of the Node object that this was reported for. Another uid under the same name is
    /// another node.
    #[serde(rename = "nodeUID", skip_serializing_if = "String::is_empty")]
    pub node_uid: String,
    /// /etc/machine-id of the host.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// Boot id of the kernel (random(4)).
    #[serde(rename = "bootID", skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub daemon_version: String,
    /// When the reporter last wrote, by the node's clock. It is refreshed every 30 minutes without a
    /// change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<Time>,
    /// Worst over drives and volumes; acknowledged findings and drives under maintenance do not
    /// count.
    pub health: Health,
    pub counts: Counts,
    /// Ids of all drives of the node, sorted.
    #[serde(rename = "driveIDs")]
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_DRIVE_IDS)))]
    pub drive_ids: Vec<String>,
    /// All drives by model and firmware.
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_MODELS)))]
    pub models: Vec<ModelCount>,
    /// Drives that are not good, worst first. A sleeping drive without evidence is not listed.
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_DRIVES)))]
    pub drives: Vec<DriveEntry>,
    /// Volumes that are not healthy, worst first.
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_VOLUMES)))]
    pub volumes: Vec<VolumeEntry>,
    /// Mounts of pods that no longer exist.
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_STALE)))]
    pub stale: Vec<StaleEntry>,
    /// CSI drivers with volumes on the node whose storage cannot be reached from it, or of which
    /// that is not known. Absent: not known of any driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_UNREACHABLE_DRIVERS)))]
    pub unreachable_drivers: Option<Vec<UnreachableDriver>>,
    /// CSI drivers of which a volume answers on the node. A driver in neither list has no volume
    /// here: nothing is known of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_REACHED_DRIVERS), inner(length(max = MAX_DRIVER_NAME_LEN))))]
    pub reached_drivers: Vec<String>,
    pub truncated: Truncated,
    /// `DaemonReachable`, `AttachmentsClean`.
    #[cfg_attr(feature = "fleet", schemars(length(max = 8)))]
    pub conditions: Vec<Condition>,
    /// The answer to the last challenge; absent without a challenge. It may be older than the
    /// challenge: compare the nonce.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub challenge: Option<ChallengeAnswer>,
    /// The id of the quarantine that `AttachmentsClean` is about. Without it the condition says
    /// nothing about a quarantine.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_QUARANTINE_ID_LEN)))]
    pub observed_quarantine: String,
    /// What is left of the pods of the quarantine, in the order of its reasons. While the node does not
    /// answer, what it last said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_REMAINING)))]
    pub remaining: Vec<RemainingEntry>,
}

/// What one run of the node's daemon found after a challenge. It is from one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ChallengeAnswer {
    /// Of the challenge.
    pub nonce: String,
    /// When it was answered, by the node's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    #[serde(rename = "bootID")]
    pub boot_id: String,
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// The start of the daemon that answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon_started: Option<Time>,
    /// The daemon's first readings are complete.
    pub settled: bool,
    /// A scan of the hardware that began after the challenge has succeeded.
    pub inventory: bool,
    /// The kernel log is read as intended. Where it has lost records: the error counters, and what
    /// the drives in question answer, were read after the challenge.
    pub kernel_log: bool,
    /// What could not be read in time, or is not known on this node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_MISSING)))]
    pub missing: Vec<String>,
    /// Adverse findings about the volumes in question and the drives and devices below them, worst
    /// first.
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_CHALLENGED)))]
    pub findings: Vec<AnsweredFinding>,
    /// There are more findings.
    #[serde(skip_serializing_if = "is_false")]
    pub truncated: bool,
}

/// A finding that holds when the challenge is answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AnsweredFinding {
    pub id: String,
    /// As in docs/findings.md.
    pub reason: String,
    /// What it means for the data.
    pub status: VolumeStatus,
    /// The drive of the finding, or the only one below its volume.
    #[serde(rename = "driveID", skip_serializing_if = "String::is_empty")]
    pub drive_id: String,
    /// Of a volume's finding.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub handle: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub persistent_volume: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    #[serde(skip_serializing_if = "is_false")]
    pub acknowledged: bool,
    /// The kinds of sources that see it in this boot and still see it, each once.
    #[cfg_attr(feature = "fleet", schemars(length(max = 16)))]
    pub witnesses: Vec<Witness>,
    /// The kernel log lost records in this time, and those of the failure may be among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records_lost: Option<TimeSpan>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TimeSpan {
    pub since: Time,
    pub until: Time,
}

/// A kind of source that sees a failure independently of the others.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
pub enum Witness {
    /// A record of the kernel, of this boot.
    KernelLog,
    /// The newest scan of sysfs and udev's database.
    Inventory,
    /// A call on the mount that fails or hangs.
    Probe,
    /// The drive's own report, of this boot.
    Smart,
    /// Error counters that changed in this boot.
    Counter,
    /// A filesystem check of this boot.
    Check,
    /// The present mount table.
    MountTable,
    /// The present state of an array, pool or multipath device.
    Layer,
    /// A value of a newer version.
    #[default]
    #[serde(other)]
    Other,
}

impl NodeStorageStatus {
    /// The health, and never better than a listed drive that counts: a person may have written the
    /// object.
    pub fn worst_health(&self) -> Health {
        let counted = self.drives.iter().filter(|drive| {
            !drive.acknowledged
                && !drive.maintenance
                && matches!(drive.health, Health::Suspect | Health::Bad)
        });
        counted
            .map(|drive| drive.health)
            .chain([self.health])
            .max_by_key(|health| health.severity())
            .unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
pub enum Health {
    Good,
    Suspect,
    Bad,
    /// No evidence, or a value of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Health {
    /// Ascending: good, unknown, suspect, bad.
    pub fn severity(self) -> u8 {
        match self {
            Health::Good => 0,
            Health::Unknown => 1,
            Health::Suspect => 2,
            Health::Bad => 3,
        }
    }
}

/// Numbers of drives and volumes. They are complete even where the lists are cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    pub drives: u32,
    pub bad: u32,
    pub suspect: u32,
    pub missing: u32,
    pub volumes: u32,
    /// Volumes that are not healthy.
    pub affected: u32,
    /// Mounts without a pod.
    pub stale: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ModelCount {
    pub model: String,
    pub firmware: String,
    /// `NVMe`, `ATA`, `SCSI` or another kind, as `diskvitals drives` prints it.
    pub kind: String,
    pub count: u32,
}

/// A drive that is not good.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DriveEntry {
    pub id: String,
    /// Kernel name at the time of the report.
    pub name: String,
    pub model: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub firmware: String,
    pub serial: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub enclosure: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub slot: String,
    pub health: Health,
    /// Reason of the worst finding (docs/findings.md); of a drive of unknown health why it is
    /// unknown.
    pub reason: String,
    /// Since when the worst finding holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// A person has acknowledged the worst finding.
    #[serde(skip_serializing_if = "is_false")]
    pub acknowledged: bool,
    /// The drive is under maintenance: its findings are shown and do not count.
    #[serde(skip_serializing_if = "is_false")]
    pub maintenance: bool,
    /// When the maintenance ends; absent if it is by the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance_until: Option<Time>,
}

/// A volume that is not healthy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeEntry {
    /// Name of the CSI driver; empty: no CSI volume.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// Volume handle of a CSI volume, mount point of another one.
    pub handle: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub persistent_volume: String,
    pub health: Health,
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_VOLUME_CONDITIONS)))]
    pub health_conditions: Vec<VolumeCondition>,
    /// Ids of the drives below the volume.
    #[serde(rename = "driveIDs")]
    pub drive_ids: Vec<String>,
    /// Redundancy below the volume still holds its data although a drive or array below it has a
    /// problem. False where that is not known.
    pub redundant: bool,
    /// Since when the worst condition holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

impl VolumeEntry {
    /// Whether the next failure below it may lose its data.
    pub fn has_last_copy(&self) -> bool {
        let mut conditions = self.health_conditions.iter();
        conditions.any(|condition| condition.reason.parse().is_ok_and(Reason::leads))
    }
}

/// As in `PodStatus.volumeHealth` of Kubernetes 1.37.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeCondition {
    pub status: VolumeStatus,
    pub reason: String,
    /// At most 256 bytes; shorter where the object would be too long. A new message alone is not
    /// written.
    pub message: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
pub enum VolumeStatus {
    Degraded,
    Inaccessible,
    DataLoss,
    /// A value of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A mount of a pod that no longer exists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct StaleEntry {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub handle: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub persistent_volume: String,
    #[serde(rename = "podUID", skip_serializing_if = "String::is_empty")]
    pub pod_uid: String,
    /// Mount point on the host.
    pub path: String,
    /// `Pod`, `Staging` or another role of a mount.
    pub role: String,
    /// When it was attached, or first observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Why it is stale, or why it cannot be removed.
    pub reason: String,
}

/// What is left of one pod of the quarantine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RemainingEntry {
    /// Empty: something that is mounted for no pod of the quarantine.
    #[serde(rename = "podUID", skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_POD_UID_LEN)))]
    pub pod_uid: String,
    /// The pod's namespace and name, if the node knows them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// Those that the node knows. Empty: any volume may be meant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_REMAINING_VOLUMES)))]
    pub persistent_volumes: Vec<String>,
    /// As of `AttachmentsClean`: `Held`, `InUse`, …
    pub reason: String,
    /// Which mount, process or record; at most 256 bytes.
    pub message: String,
}

/// A CSI driver whose storage cannot be reached from the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct UnreachableDriver {
    #[cfg_attr(feature = "fleet", schemars(length(max = MAX_DRIVER_NAME_LEN)))]
    pub driver: String,
    /// Whether it can be reached is not known (`reason`). It proves nothing, in either direction.
    #[serde(skip_serializing_if = "is_false")]
    pub unknown: bool,
    /// Reason of the first volume that does not answer (docs/findings.md); `StorageUnknown`: the node's
    /// daemon does not know.
    pub reason: String,
    /// At most 256 bytes. A new message alone is not written.
    pub message: String,
    /// Since when this is so, by the node's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Volumes of the driver on the node. A new number alone is not written.
    pub volumes: u32,
}

/// Which lists are incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "fleet", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Truncated {
    /// `driveIDs`, `models` or `drives`.
    #[serde(skip_serializing_if = "is_false")]
    pub drives: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub volumes: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub stale: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub unreachable_drivers: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub remaining: bool,
}

// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_not_better_than_its_worst_drive_that_counts() {
        let drive =
            |health, acknowledged| DriveEntry { health, acknowledged, ..DriveEntry::default() };
        let mut status = NodeStorageStatus {
            health: Health::Good,
            drives: vec![drive(Health::Bad, true), drive(Health::Unknown, false)],
            ..NodeStorageStatus::default()
        };
        assert_eq!(status.worst_health(), Health::Good);
        status.drives.push(drive(Health::Suspect, false));
        assert_eq!(status.worst_health(), Health::Suspect);
        status.drives.push(drive(Health::Bad, false));
        assert_eq!(status.worst_health(), Health::Bad);
        status.drives.clear();
        status.health = Health::Unknown;
        assert_eq!(status.worst_health(), Health::Unknown);
    }

    #[test]
    fn reasons_of_the_condition_have_names_of_their_own_and_say_what_to_do() {
        let names: std::collections::BTreeSet<_> =
            CleanReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), CleanReason::ALL.len());
        assert!(CleanReason::ALL.iter().all(|it| !it.advice().is_empty()));
        // Of several that hold, the first is shown.
        assert!(CleanReason::ALL.is_sorted());
    }

    #[test]
    fn what_a_newer_version_wrote_reads_as_unknown_and_what_is_missing_too() {
        let status: NodeStorageStatus = serde_json::from_value(serde_json::json!({
            "health": "Excellent", "someField": {"a": 1},
            "volumes": [{"handle": "v", "healthConditions": [{"status": "Tired", "reason": "A", "message": ""}]}],
            "drives": [{"id": "a"}],
        }))
        .expect("a status");
        assert_eq!(status.health, Health::Unknown);
        assert_eq!(status.drives[0].health, Health::Unknown);
        assert_eq!(status.volumes[0].health_conditions[0].status, VolumeStatus::Unknown);
        assert_eq!(NodeStorageStatus::default().health, Health::Unknown);
    }
}
