//! Filesystem checks under the shipped unit: of a disk, of snapshots of logical volumes
//! (device-mapper is only here), and a daemon that is killed while a snapshot of its making exists,
//! or a filesystem is frozen.

use std::time::Duration;

use serde_json::Value;

use crate::lab::bench::Bench;
use crate::lab::drives;

/// LVM and the checkers read much and start much, under software emulation on a busy machine.
const SLOWLY: Duration = Duration::from_secs(240);

/// What the policy allows, for these scenarios; once. The budget is for an emulated CPU.
fn allow(bench: &mut Bench) {
    bench.sh(
        "grep -q '^.checks.$' /etc/diskvitals/diskvitals.toml || { printf '[checks]\\nfreeze = \"on-demand\"\\nsnapshot = \"on-demand\"\\nbudget = \"60s\"\\n' \
         >> /etc/diskvitals/diskvitals.toml && systemctl reload diskvitalsd; }",
    );
}

/// The check, at its end.
fn check(bench: &mut Bench, arguments: &str) -> Value {
    // Its exit status is the verdict's.
    let output = bench.try_sh(&format!(
        "/usr/local/bin/diskvitals check {arguments} -o json"
    ));
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "check {arguments}: {error}: {}{}",
            output.stdout, output.stderr
        )
    })
}

fn expect(check: &Value, verdict: &str, mode: &str) {
    assert!(
        check["verdict"] == format!("VERDICT_{verdict}"),
        "not {verdict}: {check:#}"
    );
    let modes: Vec<&str> = check["runs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|run| run["mode"].as_str())
        .collect();
    assert!(
        modes.iter().any(|one| one.to_lowercase().ends_with(mode)),
        "no {mode} run in {modes:?}: {check:#}"
    );
}

/// Creates, renames and deletes files until it is stopped.
fn load(bench: &mut Bench, at: &str) {
    bench.sh(&format!(
        "systemd-run -q --unit=lab-load /bin/sh -c 'n=0; while :; do n=$((n+1)); d={at}/load$((n%20)); mkdir -p $d; echo $n > $d/a$n; \
         mv $d/a$n $d/b$n; rm -f $d/b$((n-100)); done'"
    ));
}

fn is_back(bench: &mut Bench) {
    bench.until_within(SLOWLY, "the daemon is back", |bench| {
        bench
            .guest
            .ask("status")
            .ok()
            .filter(|node| node["settled"] == true)
    });
}

/// A probe may have it open in this moment.
fn unmount(bench: &mut Bench, at: &str) {
    bench.until_within(SLOWLY, &format!("{at} is unmounted"), |bench| {
        (bench.try_sh(&format!("umount {at}")).status == 0).then_some(())
    });
}

fn is_known(bench: &mut Bench, mount: &str) {
    bench.until_within(SLOWLY, "the mount is known", |bench| {
        bench.guest.ask(&format!("volume {mount}")).ok()
    });
}

/// Writers go on: within two seconds, where the CPU is a real one; else in less than the budget,
/// after which a freezer thaws by itself.
fn is_writable(bench: &mut Bench, at: &str) {
    let within = if bench.guest.accelerator == "kvm" {
        2
    } else {
        30
    };
    bench.sh(&format!(
        "timeout {within} sh -c 'echo x > {at}/w; sync -f {at}'"
    ));
}

fn unload(bench: &mut Bench) {
    bench.sh("systemctl stop lab-load.service");
}

fn no_snapshot_is_left(bench: &mut Bench) {
    bench.until_within(SLOWLY, "no snapshot is left", |bench| {
        let names = bench.sh("lvs --noheadings -o lv_name,lv_tags labck");
        (!names.contains("diskvitals-check")).then_some(())
    });
}

/// Anew: a scenario that failed has left its own.
fn group(bench: &mut Bench) {
    let (a, b) = (drives::CHECKED_A.link(), drives::CHECKED_B.link());
    bench.try_sh("systemctl stop lab-load.service; umount /mnt/ck-xfs /mnt/ck-ext4; vgs labck && vgremove -q -f labck");
    bench.sh(&format!(
        "pvcreate -q -y -ff {a} {b} && vgcreate -q labck {a} {b}"
    ));
}

fn ungroup(bench: &mut Bench) {
    let (a, b) = (drives::CHECKED_A.link(), drives::CHECKED_B.link());
    bench.sh(&format!("vgremove -q -f labck && pvremove -q -y {a} {b}"));
}

/// XFS on a linear volume: clean under load; damaged with valid checksums; the daemon killed while
/// the snapshot exists.
pub fn a_classic_snapshot(bench: &mut Bench) {
    allow(bench);
    group(bench);
    bench.sh("lvcreate -q -y -L 300M -n xfs labck");
    bench.mounted("/dev/labck/xfs", "xfs", "/mnt/ck-xfs");
    bench.sh("seq 1 200 | while read n; do echo $n > /mnt/ck-xfs/f$n; done; sync");
    load(bench, "/mnt/ck-xfs");
    let clean = check(bench, "/mnt/ck-xfs --snapshot");
    expect(&clean, "CLEAN", "snapshot");
    no_snapshot_is_left(bench);

    // In the middle: as soon as there is one.
    bench.sh("/usr/local/bin/diskvitals check /mnt/ck-xfs --snapshot --no-wait >/dev/null; n=0; \
         until ls /dev/mapper | grep -q diskvitals--check || [ $n -gt 3000 ]; do sleep 0.05; n=$((n+1)); done; \
         systemctl kill --kill-whom=main -s KILL diskvitalsd; lvs --noheadings -o lv_name labck | grep -q diskvitals-check");
    is_back(bench);
    no_snapshot_is_left(bench);
    unload(bench);
    // The origin was never left suspended.
    is_writable(bench, "/mnt/ck-xfs");

    let inode = bench.sh("stat -c %i /mnt/ck-xfs/f7");
    unmount(bench, "/mnt/ck-xfs");
    bench.sh(&format!("xfs_db -x -c 'inode {inode}' -c 'write -d core.nblocks 77' /dev/labck/xfs && mount /dev/labck/xfs /mnt/ck-xfs"));
    is_known(bench, "/mnt/ck-xfs");
    let damaged = check(bench, "/mnt/ck-xfs --snapshot");
    expect(&damaged, "CORRUPTED", "snapshot");
    no_snapshot_is_left(bench);
    unmount(bench, "/mnt/ck-xfs");
    ungroup(bench);
}

/// ext4 on a thin volume: clean under load, and damaged.
pub fn a_thin_snapshot(bench: &mut Bench) {
    allow(bench);
    group(bench);
    bench.sh("lvcreate -q -y --type thin-pool -L 200M -n pool labck && lvcreate -q -y -T labck/pool -V 250M -n ext4");
    bench.mounted("/dev/labck/ext4", "ext4", "/mnt/ck-ext4");
    bench.sh("seq 1 200 | while read n; do echo $n > /mnt/ck-ext4/f$n; done; sync");
    load(bench, "/mnt/ck-ext4");
    let clean = check(bench, "/mnt/ck-ext4 --snapshot");
    expect(&clean, "CLEAN", "snapshot");
    unload(bench);
    no_snapshot_is_left(bench);
    unmount(bench, "/mnt/ck-ext4");
    bench.sh("debugfs -w -R 'clri /f7' /dev/labck/ext4 && mount /dev/labck/ext4 /mnt/ck-ext4");
    is_known(bench, "/mnt/ck-ext4");
    let damaged = check(bench, "/mnt/ck-ext4 --snapshot");
    expect(&damaged, "CORRUPTED", "snapshot");
    no_snapshot_is_left(bench);
    unmount(bench, "/mnt/ck-ext4");
    ungroup(bench);
}

/// The rights of the unit suffice for a live run and for an unmounted disk.
pub fn under_the_shipped_unit(bench: &mut Bench) {
    allow(bench);
    let device = drives::CHECKED_DISK.link();
    bench.mounted(&device, "ext4", "/mnt/ck");
    bench.sh("seq 1 50 | while read n; do echo $n > /mnt/ck/f$n; done; sync");
    let live = check(bench, "/mnt/ck");
    expect(&live, "CLEAN", "live");
    unmount(bench, "/mnt/ck");
    bench.sh(&format!("debugfs -w -R 'clri /f7' {device}"));
    let unmounted = check(bench, &format!("$(readlink -f {device})"));
    expect(&unmounted, "CORRUPTED", "unmounted");
}

/// And for frozen runs. However the daemon ends while writers are held, they go on.
pub fn frozen_under_the_shipped_unit(bench: &mut Bench) {
    allow(bench);
    let device = drives::CHECKED_FROZEN.link();
    bench.mounted(&device, "ext4", "/mnt/ckf");
    bench.sh("seq 1 50 | while read n; do echo $n > /mnt/ckf/f$n; done; sync");
    unmount(bench, "/mnt/ckf");
    bench.sh(&format!(
        "debugfs -w -R 'clri /f7' {device}; mount {device} /mnt/ckf"
    ));
    is_known(bench, "/mnt/ckf");
    let frozen = check(bench, "/mnt/ckf --freeze");
    expect(&frozen, "CORRUPTED", "frozen");
    is_writable(bench, "/mnt/ckf");

    // Frozen for long enough to be seen: emulated, a shell takes longer to look than a checker to
    // run. A live run does not wait.
    bench.sh("printf '#!/bin/sh\\nwhile pgrep -x diskvitals-frz > /dev/null; do sleep 0.3; done\\nexec /usr/sbin/e2fsck \"$@\"\\n' \
         > /usr/local/sbin/held-e2fsck; chmod 755 /usr/local/sbin/held-e2fsck");
    tools(bench, "e2fsck = \"/usr/local/sbin/held-e2fsck\"");
    // The freezer thaws as it loses its pipe.
    freeze_and_kill(bench, "");
    is_writable(bench, "/mnt/ckf");
    is_back(bench);
    // Killed with its freezer: the unit's ExecStopPost thaws, before the next daemon starts.
    freeze_and_kill(bench, "pkill -9 -x diskvitals-frz;");
    is_writable(bench, "/mnt/ckf");
    is_back(bench);
    bench.sh("journalctl -u diskvitalsd --no-pager | grep 'was left frozen by a freezer that was killed, and is thawed'");
    tools(bench, "");
    unmount(bench, "/mnt/ckf");
}

/// `also`: a command just before the daemon is killed, while the filesystem is frozen, and the
/// daemon stopped so that it does not make it good.
fn freeze_and_kill(bench: &mut Bench, also: &str) {
    bench.sh(&format!(
        "/usr/local/bin/diskvitals check /mnt/ckf --freeze --no-wait > /dev/null; n=0; \
         until grep -qs frozen /run/diskvitals/freeze/*.json || [ $n -gt 600 ]; do sleep 0.05; n=$((n+1)); done; \
         pid=$(systemctl show -P MainPID diskvitalsd); \
         if grep -qs frozen /run/diskvitals/freeze/*.json; then kill -STOP $pid; {also} kill -9 $pid; else /usr/local/bin/diskvitals checks; false; fi"
    ));
}

/// The programs that check; none: those of the system.
fn tools(bench: &mut Bench, given: &str) {
    bench.sh(&format!(
        "sed -i '/^.checks.tools.$/,$d' /etc/diskvitals/diskvitals.toml; \
         [ -z '{given}' ] || printf '[checks.tools]\n%s\n' '{given}' >> /etc/diskvitals/diskvitals.toml; systemctl reload diskvitalsd"
    ));
}

/// Where the daemon, its helpers and lvm die together, whoever writes to the origin of a snapshot
/// goes on.
pub fn killed_in_the_middle_of_snapshots(bench: &mut Bench) {
    allow(bench);
    group(bench);
    bench.sh("lvcreate -q -y -L 100M -n ext4 labck");
    bench.mounted("/dev/labck/ext4", "ext4", "/mnt/ck-ext4");
    // All of the unit's control group, early and late: lvm is not in it, and comes to its end.
    for later in ["0", "0.7"] {
        bench.sh(&format!(
            "/usr/local/bin/diskvitals check /mnt/ck-ext4 --snapshot --no-wait > /dev/null; n=0; \
             until ls /run/diskvitals/freeze | grep -q lvm || [ $n -gt 600 ]; do sleep 0.05; n=$((n+1)); done; ls /run/diskvitals/freeze | grep lvm; \
             sleep {later}; systemctl kill --kill-whom=all -s KILL diskvitalsd"
        ));
        is_writable(bench, "/mnt/ck-ext4");
        is_back(bench);
        no_snapshot_is_left(bench);
        no_note_is_left(bench);
    }
    // One that stays between its suspend and its resume.
    bench.sh(
        "printf '#!/bin/sh\n[ \"$1\" != lvcreate ] || { dmsetup suspend labck-ext4; while :; do sleep 1; done; }\nexec /usr/sbin/lvm \"$@\"\n' \
         > /usr/local/sbin/held-lvm; chmod 755 /usr/local/sbin/held-lvm",
    );
    tools(bench, "lvm = \"/usr/local/sbin/held-lvm\"");
    // Killed alone: the daemon resumes.
    suspend_and_kill(bench, "");
    is_writable(bench, "/mnt/ck-ext4");
    no_note_is_left(bench);
    // Killed with the daemon: the unit's ExecStopPost resumes.
    suspend_and_kill(
        bench,
        "systemctl kill --kill-whom=main -s STOP diskvitalsd; kill -9 $lvm; systemctl kill --kill-whom=all -s KILL diskvitalsd;",
    );
    is_writable(bench, "/mnt/ck-ext4");
    is_back(bench);
    let said = bench
        .sh("journalctl -u diskvitalsd --no-pager | grep -c 'labck-ext4 was left suspended by an lvm that was killed, and is resumed'");
    assert_eq!(said, "2", "each of the two is told once");
    tools(bench, "");
    no_note_is_left(bench);
    no_snapshot_is_left(bench);
    unmount(bench, "/mnt/ck-ext4");
    ungroup(bench);
}

/// `also`: what is killed before lvm itself.
fn suspend_and_kill(bench: &mut Bench, also: &str) {
    // The one before goes on as a live check.
    bench.until_within(SLOWLY, "no check goes on", |bench| {
        let checks = bench.guest.ask("checks").ok()?;
        let mut all = checks["checks"].as_array().into_iter().flatten();
        all.all(|check| check["state"] == "STATE_ENDED")
            .then_some(())
    });
    bench.sh(&format!(
        "/usr/local/bin/diskvitals check /mnt/ck-ext4 --snapshot --no-wait > /dev/null; n=0; dm=$(basename $(readlink -f /dev/labck/ext4)); \
         until [ $(cat /sys/block/$dm/dm/suspended) = 1 ] || [ $n -gt 600 ]; do sleep 0.05; n=$((n+1)); done; \
         lvm=$(basename /run/diskvitals/freeze/*.lvm .lvm); {also} kill -9 $lvm 2>/dev/null; [ $n -le 600 ]"
    ));
}

fn no_note_is_left(bench: &mut Bench) {
    bench.until_within(SLOWLY, "no note is left", |bench| {
        bench
            .sh("ls /run/diskvitals/freeze")
            .is_empty()
            .then_some(())
    });
}
