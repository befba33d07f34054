//! Hardware faults that QEMU injects while the guest runs. Each is undone explicitly, so that a
//! scenario decides when a drive works again.

use serde_json::json;

use crate::lab::drives::{Bus, Drive};
use crate::lab::guest::Guest;

/// What QEMU's `blkdebug` answers.
#[derive(Clone, Copy, Debug)]
pub enum Error {
    /// EIO: Aborted Command of SCSI, ABRT of ATA, Unrecovered Read Error (sct 2, sc 81h) of NVMe.
    Io = 5,
    /// ENODATA: what QEMU's SCSI disks call MEDIUM ERROR, unrecovered read error.
    Medium = 61,
}

impl Guest {
    /// From now on reads of these 512-byte sectors fail; all reads when there are none. Replaces an
    /// earlier fault.
    pub fn fail_reads(&mut self, drive: &Drive, error: Error, sectors: &[u64]) {
        let rule = json!({ "event": "none", "once": false, "immediately": false, "errno": error as i32, "iotype": "read" });
        let mut rules = Vec::new();
        for sector in sectors {
            let mut rule = rule.clone();
            rule["sector"] = json!(sector);
            rules.push(rule);
        }
        if rules.is_empty() {
            rules.push(rule);
        }
        self.heal(drive);
        let node = fault_node(drive);
        self.qmp.run("blockdev-add", json!({ "driver": "blkdebug", "node-name": node, "image": drive.file_node(), "inject-error": rules }));
        self.stand_on(drive, &node);
    }

    /// Its reads and writes succeed again.
    pub fn heal(&mut self, drive: &Drive) {
        self.stand_on(drive, &drive.file_node());
        // There may have been none.
        let _ = self.qmp.try_run("blockdev-del", json!({ "node-name": fault_node(drive) }));
    }

    fn stand_on(&mut self, drive: &Drive, below: &str) {
        self.qmp.run(
            "blockdev-reopen",
            json!({ "options": [{ "driver": "raw", "node-name": drive.node, "file": below }] }),
        );
    }

    /// Delays each request so long that the kernel aborts it. 0 removes the delay.
    pub fn throttle(&mut self, drive: &Drive, bytes_per_second: u64) {
        let none = json!({ "bps_rd": 0, "bps_wr": 0, "iops": 0, "iops_rd": 0, "iops_wr": 0 });
        let mut arguments = json!({ "id": drive.device_id(), "bps": bytes_per_second });
        if let (Some(arguments), Some(none)) = (arguments.as_object_mut(), none.as_object()) {
            arguments.extend(none.clone());
        }
        self.qmp.run("block_set_io_throttle", arguments);
    }

    /// An NVMe controller's critical_warning (NVM Express Base 2.0, figure 207). New bits are
    /// announced if the host has enabled that.
    pub fn critical_warning(&mut self, drive: &Drive, bits: u8) {
        let path = format!("/machine/peripheral/{}", drive.device_id());
        self.qmp.run(
            "qom-set",
            json!({ "path": path, "property": "smart_critical_warning", "value": bits }),
        );
    }

    pub fn unplug(&mut self, drive: &Drive) {
        self.qmp.unplug(&drive.device_id());
    }

    pub fn plug(&mut self, drive: &Drive, at: Bus) {
        self.qmp.run("device_add", drive.properties(at));
    }

    /// Where no SCSI disk was.
    pub fn free_scsi_target(&mut self) -> Bus {
        let target = self.free_scsi_target;
        self.free_scsi_target += 1;
        Bus::Scsi(target)
    }
}

fn fault_node(drive: &Drive) -> String {
    format!("fault-{}", drive.node)
}
