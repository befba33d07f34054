//! What these tests ask for: targets, terms, tools, and what the kernel says of them.

use std::time::Duration;

use crate::checks::tools::{AvailableTools, CheckerProgram};
use diskvitals_finding::Evidence;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::ids::CheckId;
use diskvitals_finding::path::HostPath;
use diskvitals_fscheck::{
    CheckTarget, CheckTerms, DesiredCheck, Filesystem, FilesystemSignal, Mode, SignalKind,
};
use diskvitals_host::clock::now;

pub fn all_tools() -> AvailableTools {
    let checker = |filesystem: Filesystem| {
        let checker = CheckerProgram {
            path: format!("/sbin/{}", filesystem.checker().0).into(),
            version: "1.0".to_owned(),
            file_identity: (0, 0, 0),
        };
        (filesystem, checker)
    };
    AvailableTools::new(
        [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs].map(checker),
        Some("/sbin/lvm".into()),
    )
}

/// `sdb3`: 8:19.
pub fn target(name: &str, filesystem: Filesystem) -> CheckTarget {
    let (disk, partition) =
        (u32::from(name.as_bytes()[2] - b'a'), u32::from(name.as_bytes()[3] - b'0'));
    let dev = DevNo::new(8, disk * 16 + partition);
    CheckTarget {
        name: format!("/dev/{name}"),
        volume: None,
        filesystem,
        uuid: None,
        device: name.to_owned(),
        dev,
        members: Vec::new(),
        mount: Some(HostPath::new(format!("/mnt/{name}"))),
        mounted_dev: Some(dev),
        mode: Mode::Live,
        drives: Vec::new(),
        logical_volume: None,
    }
}

pub fn terms() -> CheckTerms {
    CheckTerms {
        runs: 1,
        freeze: false,
        snapshot: false,
        force: false,
        budget: Duration::from_secs(5),
        gap: Duration::from_secs(60),
        timeout: Duration::from_secs(600),
        memory: 1 << 30,
        bytes_per_second: Some(20_000_000),
    }
}

/// A check of an ext4 on `name`, which is its id too, but for what follows a slash: `sda1/2`.
pub fn desired(id: &str) -> DesiredCheck {
    let name = id.split('/').next().unwrap_or(id);
    DesiredCheck {
        id: CheckId::known(id),
        target: target(name, Filesystem::Ext4),
        terms: terms(),
        scheduled: false,
        signals: Vec::new(),
        blocked_by: None,
        cancellation: None,
    }
}

pub fn desired_frozen(id: &str) -> DesiredCheck {
    let mut wanted = desired(id);
    wanted.terms.freeze = true;
    wanted
}

pub fn desired_scheduled(id: &str) -> DesiredCheck {
    DesiredCheck { scheduled: true, ..desired(id) }
}

pub fn signal() -> FilesystemSignal {
    let evidence = Evidence {
        source: "kernel log".to_owned(),
        time: now(),
        text: "Metadata CRC error".to_owned(),
        witness: diskvitals_finding::WitnessKind::Other,
        present: false,
    };
    FilesystemSignal { kind: SignalKind::Corrupted, evidence }
}
