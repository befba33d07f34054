//! Rotating drives that do nothing: they are left alone, so that they can stop turning.
//!
//! In: the kernel's I/O counters, the times of our last readings. Out: which drives are not queried
//! and which mounts are not probed. `source::smart::plan` decides for how long.
//!
//! Not asking is the only safe way: which commands restart a drive's own idle timer is the vendor's
//! choice. The kernel does not count the commands of smartctl (except with
//! `queue/iostats_passthrough`, since Linux 6.13), so that our own queries are no I/O here. The
//! counters are those of this boot, as read by this process; a device that takes over the number of
//! another has another count.

use jiff::Timestamp;

use crate::drive::{DriveFacts, DriveKind};
use crate::facts::probes::ProbedMount;
use crate::facts::smart::{SmartFacts, SmartOutcome};
use crate::facts::{Facts, Urgency};
use diskvitals_finding::ids::DriveId;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::path::HostPath;

/// Whether the drive has platters that may stop. Hypervisors call their disks rotating.
pub(super) fn can_stop_turning(drive: &DriveFacts) -> bool {
    drive.rotational == Some(true)
        && !matches!(drive.kind, DriveKind::Virtual | DriveKind::Remote)
        && drive.location.raid_controller.is_none()
}

impl Facts {
    /// Whether the kernel counts the drive's I/O, and has counted none since then.
    fn has_no_io_since(&self, drive: &DriveFacts, since: Timestamp) -> bool {
        let is_idle = |name: &str, dev| {
            self.device(name).is_some_and(|device| device.iostats)
                && self.disk_io.has_none_since(dev, since)
        };
        let mut devices = drive.devices.iter();
        !drive.devices.is_empty() && devices.all(|device| is_idle(&device.name, device.dev))
    }

    /// Marks the drives that have done nothing since they were queried.
    pub(super) fn update_idle_drives(&mut self, now: Timestamp) -> Urgency {
        let is_idle = |id: &DriveId, smart: &SmartFacts| {
            let known = self.drives.get(id).filter(|known| known.missing_since.is_none());
            let known = known.filter(|known| can_stop_turning(&known.facts));
            let tests = smart.history.last.as_ref().map(|(_, report)| &report.self_tests);
            let is_testing = tests.is_some_and(|tests| tests.running.is_some());
            match (known, &smart.outcome) {
                (Some(known), Some((at, SmartOutcome::Report | SmartOutcome::Standby { .. }))) => {
                    !is_testing && self.has_no_io_since(&known.facts, *at)
                }
                _ => false,
            }
        };
        let drives = self.smart.iter();
        let drives = drives.map(|(id, smart)| (id.clone(), smart.idle, is_idle(id, smart)));
        let drives: Vec<(DriveId, bool, bool)> =
            drives.filter(|(_, before, idle)| *before || *idle).collect();
        let mut change = Urgency::Nothing;
        for (id, before, idle) in drives {
            // Until now, if it is in use now.
            self.smart.note_left_alone(&id, now);
            if let Some(smart) = self.smart_of_known(&id).filter(|_| before != idle) {
                smart.idle = idle;
                change = Urgency::Coalesce;
            }
        }
        change
    }

    /// Whether the drives below a mount, one of them rotating, have done nothing since a probe found
    /// it good: another probe would read what that one has read.
    pub(super) fn is_at_rest(&self, path: &HostPath, mount: &ProbedMount) -> bool {
        let volume = self.volumes.get(&mount.volume);
        let drives: Option<Vec<&DriveFacts>> = volume.and_then(|volume| {
            let ids = volume.facts.drive_ids.iter();
            ids.map(|id| Some(&self.drives.get(id)?.facts)).collect()
        });
        let probe = self.probes.get(path).filter(|probe| probe.stuck.is_none());
        let (Some(drives), Some(Observation::Ok { at, value })) =
            (drives, probe.map(|probe| &probe.result))
        else {
            return false;
        };
        value.statfs.is_ok()
            && value.readdir.is_ok()
            && drives.iter().any(|drive| can_stop_turning(drive))
            && drives.iter().all(|drive| self.has_no_io_since(drive, *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{TestHost, at, healthy_probe, usage};
    use crate::source_update::SourceUpdate;
    use diskvitals_smart::SmartResponse;
    use diskvitals_smart::report::SmartReport;

    /// A rotating drive `sda` with a mount, whose I/O is counted from second 0 on; it answers at 10.
    fn host() -> TestHost {
        let mut host = TestHost::default()
            .disk("sda", "8:0", "A")
            .uuid("sda", "u")
            .mounted("8:0", "/", "/data", "ext4", "/dev/sda");
        host.inventory.drives[0].rotational = Some(true);
        host.read_all(0);
        host.io("8:0", "sda", 7, 0, 0);
        respond(&mut host, SmartReport::default(), 10);
        host
    }

    fn respond(host: &mut TestHost, report: SmartReport, seconds: i64) {
        let update = SourceUpdate::Smart {
            drive: DriveId::new("A"),
            at: at(seconds),
            response: Box::new(SmartResponse::Report(Box::new(report))),
            duration: std::time::Duration::ZERO,
        };
        host.apply(update, seconds);
    }

    fn is_idle(host: &TestHost) -> bool {
        host.facts.smart_targets(&|_| false)[0].idle
    }

    #[test]
    fn a_rotating_drive_without_io_since_its_answer_is_idle_until_the_next_io() {
        let mut host = host();
        host.io("8:0", "sda", 7, 0, 50);
        assert!(!is_idle(&host), "less than a minute");
        assert_eq!(host.io("8:0", "sda", 7, 0, 70), Urgency::Coalesce, "it is published");
        assert!(is_idle(&host));
        host.io("8:0", "sda", 7, 0, 90_000);
        assert!(is_idle(&host));
        assert_eq!(host.io("8:0", "sda", 8, 0, 90_010), Urgency::Coalesce);
        assert!(!is_idle(&host));
        host.io("8:0", "sda", 8, 0, 99_000);
        assert!(!is_idle(&host), "it has not answered since");
        respond(&mut host, SmartReport::default(), 99_010);
        host.io("8:0", "sda", 8, 0, 99_100);
        assert!(is_idle(&host));
    }

    #[test]
    fn what_is_not_known_to_rest_is_asked() {
        let rests = |change: &dyn Fn(&mut TestHost)| {
            let mut host = host();
            change(&mut host);
            host.scan(20);
            host.io("8:0", "sda", 7, 0, 100);
            is_idle(&host)
        };
        assert!(rests(&|_| {}));
        assert!(!rests(&|host| host.inventory.drives[0].rotational = Some(false)), "an SSD");
        assert!(!rests(&|host| host.inventory.drives[0].rotational = None));
        assert!(!rests(&|host| host.inventory.drives[0].kind = DriveKind::Virtual));
        let uncounted = |host: &mut TestHost| {
            host.inventory.devices.get_mut("sda").unwrap().iostats = false;
        };
        assert!(!rests(&uncounted), "queue/iostats is 0");
        let testing = |host: &mut TestHost| {
            let mut report = SmartReport::default();
            report.self_tests.running = Some(90);
            respond(host, report, 11);
        };
        assert!(!rests(&testing), "a self-test needs no I/O");
        let mut host = host();
        host.io("8:0", "sda", 7, 1, 100);
        assert!(!is_idle(&host), "a request is in flight");
        let unreadable = SourceUpdate::DiskStats(Observation::failed(at(200), "no"));
        let mut host = self::host();
        host.io("8:0", "sda", 7, 0, 100);
        host.apply(unreadable, 200);
        assert!(!is_idle(&host), "the counters cannot be read");
        let mut host = self::host();
        host.apply(SourceUpdate::DiskStats(Observation::ok(at(50), Vec::new())), 50);
        host.io("8:0", "sda", 7, 0, 100);
        assert!(!is_idle(&host), "it was away, and its count began again");
    }

    #[test]
    fn a_mount_is_at_rest_after_a_good_probe_without_io_on_any_of_its_drives() {
        let mut host = host();
        let rests = |host: &TestHost| host.facts.probe_targets()[0].at_rest;
        host.io("8:0", "sda", 7, 0, 100);
        assert!(!rests(&host), "not probed yet");
        host.probe("/data", healthy_probe(usage(100, 50)), 110);
        host.io("8:0", "sda", 7, 0, 200);
        assert!(rests(&host));
        host.io("8:0", "sda", 9, 0, 210);
        assert!(!rests(&host));
        host.probe("/data", crate::fixture::failing_probe(5), 220);
        host.io("8:0", "sda", 9, 0, 300);
        assert!(!rests(&host), "it failed");
    }
}
