//! What a scenario works with: the guest with the daemon in it, a deadline, waiting, and the
//! diagnostics of a failure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lab::agent::Output;
use crate::lab::drives::Drive;
use crate::lab::guest::Guest;
use crate::lab::kernel_log;

mod assertions;

pub use assertions::{BAD, Evidence, Expected, INFO, SUSPECT};

/// How long a finding may take: a probe's interval, a scan of sysfs, and software emulation, on a
/// busy machine.
const SOON: Duration = Duration::from_secs(150);
/// A scenario's limit is for an idle machine; on a busy one it is multiplied. It ends what hangs
/// and asserts nothing about speed.
const BUSY: u32 = 4;

/// After the daemon's start, with all the drives.
pub const FIRST_SNAPSHOT: Duration = Duration::from_secs(240);

pub struct Context {
    pub guest: Guest,
    /// Ids of the drives that scenarios have broken since the boot; all others must have no
    /// finding.
    broken: BTreeSet<String>,
    deadline: Instant,
    /// Lines of the kernel log at the scenario's start.
    mark: usize,
}

impl Context {
    pub fn new(guest: Guest) -> Context {
        let now = Instant::now();
        Context { guest, broken: BTreeSet::new(), deadline: now + FIRST_SNAPSHOT, mark: 0 }
    }

    /// A scenario starts: `breaks` are its drives, which must be healthy now.
    pub fn begin(&mut self, limit: Duration, breaks: &[Drive]) {
        self.deadline = Instant::now() + limit * BUSY;
        self.mark = self.guest.kernel_log.count();
        self.others_are_good();
        self.broken.extend(breaks.iter().map(|drive| drive.id.to_owned()));
    }

    /// A drive that QEMU does not emulate.
    pub fn breaks(&mut self, id: &str) {
        self.broken.insert(id.to_owned());
    }

    /// Adds these drives, empty, and awaits that they are known.
    pub fn add(&mut self, drives: &[Drive]) {
        for drive in drives {
            self.guest.add(drive);
        }
        for drive in drives {
            self.until(&format!("{} is known", drive.id), |context| {
                let answer = context.guest.ask("drives").ok()?;
                let mut shown = answer["drives"].as_array()?.iter();
                shown.find(|one| one["id"] == drive.id)?["health"].eq("HEALTH_GOOD").then_some(())
            });
        }
    }

    // --- the guest

    pub fn try_sh(&mut self, command: &str) -> Output {
        let left =
            self.deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        let began = Instant::now();
        let output =
            self.guest.agent.shell(command, left).unwrap_or_else(|error| panic!("{error}"));
        step(began, command);
        output
    }

    pub fn sh(&mut self, command: &str) -> String {
        let output = self.try_sh(command);
        output.expect_ok(command).trim().to_owned()
    }

    /// The daemon's probe has the mount open for a moment, also just after its start.
    pub fn unmount(&mut self, at: &str) {
        self.until(&format!("{at} is unmounted"), |context| {
            (context.try_sh(&format!("umount {at}")).status == 0).then_some(())
        });
    }

    /// The drive's present kernel name, once its link exists.
    pub fn kernel_name(&mut self, drive: &Drive) -> String {
        let link = drive.link();
        self.until(&format!("{link} is there"), |context| {
            let output =
                context.try_sh(&format!("test -e {link} && basename $(readlink -f {link})"));
            (output.status == 0).then(|| output.stdout.trim().to_owned())
        })
    }

    /// Makes a filesystem on `device` and mounts it; returns the volume's id.
    pub fn mounted(&mut self, device: &str, fs_type: &str, at: &str) -> String {
        self.mounted_with(device, fs_type, at, "defaults")
    }

    pub fn mounted_with(&mut self, device: &str, fs_type: &str, at: &str, options: &str) -> String {
        let force = if fs_type == "ext4" { "-F" } else { "-f" };
        self.sh(&format!("mkfs.{fs_type} -q {force} {device} >&2"));
        self.mount(device, at, options)
    }

    /// Mounts what was formatted, and awaits that the volume is known.
    pub fn mount(&mut self, device: &str, at: &str, options: &str) -> String {
        // Settled: the volume's id contains the UUID that udev finds.
        let uuid = self.sh(&format!(
            "udevadm settle && mkdir -p {at} && mount -o {options} {device} {at} \
             && blkid -p -o value -s UUID {device}"
        ));
        let id = format!("fs:{uuid}");
        // On a drive that has failed before, the volume may only have a finding about that.
        self.until(
            &format!("the volume {id} is known, and nothing is wrong with itself"),
            |context| {
                let volume = context.guest.ask(&format!("volume {id}")).ok()?;
                let inherited = |finding: &Value| finding["reason"] == "DriveFailing";
                let well = volume["health"] != "HEALTH_UNKNOWN"
                    && volume["findings"].as_array()?.iter().all(inherited);
                well.then_some(())
            },
        );
        id
    }

    /// Reads 4 KiB of the device itself, bypassing all caches, at a 512-byte sector. True when the
    /// read succeeded.
    pub fn read_sector(&mut self, device: &str, sector: u64) -> bool {
        self.try_sh(&format!(
            "dd if={device} of=/dev/null bs=4096 skip={} count=1 iflag=direct",
            sector / 8
        ))
        .status
            == 0
    }

    // --- waiting

    /// Polls until there is an answer: at once when the daemon's watch reports a change, else every
    /// second.
    pub fn until<T>(&mut self, what: &str, condition: impl FnMut(&mut Context) -> Option<T>) -> T {
        self.until_within(SOON, what, condition)
    }

    pub fn until_within<T>(
        &mut self,
        within: Duration,
        what: &str,
        mut condition: impl FnMut(&mut Context) -> Option<T>,
    ) -> T {
        let began = Instant::now();
        let deadline = self.deadline.min(began + within);
        loop {
            let known = self.guest.watch.count();
            if let Some(value) = condition(self) {
                step(began, what);
                return value;
            }
            assert!(
                Instant::now() < deadline,
                "not so within {within:?} and the scenario's time: {what}"
            );
            self.guest.watch.more_than(known, Duration::from_secs(1));
        }
    }

    /// For rules that count time themselves: two attempts must be ten seconds apart to count as
    /// two.
    pub fn pass(&mut self, time: Duration) {
        crate::lab::pause(time);
    }

    /// The kernel's records since the scenario's start.
    pub fn records(&self) -> Vec<String> {
        kernel_log::texts(&self.guest.kernel_log, self.mark)
    }

    /// Waits for a record that contains one of `patterns`: proof that the fault occurred.
    pub fn record(&mut self, patterns: &[&str]) -> String {
        let within = self.deadline.saturating_duration_since(Instant::now());
        let deadline = Instant::now() + within;
        loop {
            let known = self.guest.kernel_log.count();
            if let Some(text) = self
                .records()
                .into_iter()
                .find(|text| patterns.iter().any(|pattern| text.contains(pattern)))
            {
                return text;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the kernel log has no record with any of {patterns:?}");
            self.guest.kernel_log.more_than(known, left);
        }
    }

    /// The lines of /dev/kmsg since the scenario's start, as they came.
    pub fn raw_records(&self) -> String {
        self.guest.kernel_log.since(self.mark).join("\n") + "\n"
    }

    // --- diagnostics

    pub fn diagnostics(&mut self) -> String {
        let records = self.records();
        let mut text = format!(
            "--- the kernel's last {} records since the scenario's start\n",
            records.len().min(150)
        );
        text += &records[records.len().saturating_sub(150)..].join("\n");
        for (what, command) in [
            ("the daemon's journal", "journalctl -u diskvitalsd -n 60 --no-pager -o short-precise"),
            ("findings", "/usr/local/bin/diskvitals findings --all"),
            ("status", "/usr/local/bin/diskvitals status"),
            ("mounts", "grep /mnt/ /proc/1/mountinfo"),
        ] {
            let output = match self.guest.agent.shell(command, Duration::from_secs(60)) {
                Ok(output) => output.stdout + &output.stderr,
                Err(error) => error,
            };
            text += &format!("\n--- {what}\n{output}");
        }
        text
    }
}

/// With DISKVITALS_LAB_STEPS=1 the duration of each step is printed.
fn step(began: Instant, what: &str) {
    if std::env::var_os("DISKVITALS_LAB_STEPS").is_some() {
        println!("    {:6.1?}  {what}", began.elapsed());
    }
}
