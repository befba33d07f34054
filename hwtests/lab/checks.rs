//! Filesystem checks under the shipped unit: of a disk, and of snapshots of logical volumes (only
//! the guest has device-mapper), and a daemon that is killed while its snapshot exists or a
//! filesystem is frozen.

use std::time::Duration;

use serde_json::Value;

use crate::lab::context::Context;
use crate::lab::drives;

/// LVM and the checkers read a lot and start many processes, under software emulation on a busy
/// machine.
const SLOWLY: Duration = Duration::from_secs(240);

/// The policy for these scenarios; set once. The budget is for an emulated CPU.
fn allow(context: &mut Context) {
    context.sh(
        "grep -q '^.checks.$' /etc/diskvitals/diskvitals.toml || { printf '[checks]\\nfreeze = \"on-demand\"\\nsnapshot = \"on-demand\"\\nbudget = \"60s\"\\n' \
         >> /etc/diskvitals/diskvitals.toml && systemctl reload diskvitalsd; }",
    );
}

/// The check, after its end.
fn check(context: &mut Context, arguments: &str) -> Value {
    // Its exit status is the verdict's.
    let output = context.try_sh(&format!("/usr/local/bin/diskvitals check {arguments} -o json"));
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| {
        panic!("check {arguments}: {error}: {}{}", output.stdout, output.stderr)
    })
}

fn expect(check: &Value, verdict: &str, mode: &str) {
    assert!(check["verdict"] == format!("VERDICT_{verdict}"), "not {verdict}: {check:#}");
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
fn load(context: &mut Context, at: &str) {
    context.sh(&format!(
        "systemd-run -q --unit=lab-load /bin/sh -c 'n=0; while :; do n=$((n+1)); d={at}/load$((n%20)); mkdir -p $d; echo $n > $d/a$n; \
         mv $d/a$n $d/b$n; rm -f $d/b$((n-100)); done'"
    ));
}

fn is_back(context: &mut Context) {
    context.until_within(SLOWLY, "the daemon is back", |context| {
        context.guest.ask("status").ok().filter(|node| node["settled"] == true)
    });
}

fn is_known(context: &mut Context, mount: &str) {
    context.until_within(SLOWLY, "the mount is known", |context| {
        context.guest.ask(&format!("volume {mount}")).ok()
    });
}

/// Writers continue: within two seconds on a real CPU; otherwise in less than the budget, after
/// which a freezer thaws by itself.
fn is_writable(context: &mut Context, at: &str) {
    let within = if context.guest.accelerator == "kvm" { 2 } else { 30 };
    context.sh(&format!("timeout {within} sh -c 'echo x > {at}/w; sync -f {at}'"));
}

fn unload(context: &mut Context) {
    context.sh("systemctl stop lab-load.service");
}

fn no_snapshot_is_left(context: &mut Context) {
    context.until_within(SLOWLY, "no snapshot is left", |context| {
        let names = context.sh("lvs --noheadings -o lv_name,lv_tags labck");
        (!names.contains("diskvitals-check")).then_some(())
    });
}

/// Created again: a scenario that failed has left its own.
fn group(context: &mut Context) {
    let (a, b) = (drives::CHECKED_A.link(), drives::CHECKED_B.link());
    context.try_sh("systemctl stop lab-load.service; umount /mnt/ck-xfs /mnt/ck-ext4; vgs labck && vgremove -q -f labck");
    context.sh(&format!("pvcreate -q -y -ff {a} {b} && vgcreate -q labck {a} {b}"));
}

fn ungroup(context: &mut Context) {
    let (a, b) = (drives::CHECKED_A.link(), drives::CHECKED_B.link());
    context.sh(&format!("vgremove -q -f labck && pvremove -q -y {a} {b}"));
}

/// XFS on a linear volume: clean under load; damaged with valid checksums; the daemon killed while
/// the snapshot exists.
pub fn a_classic_snapshot(context: &mut Context) {
    allow(context);
    group(context);
    context.sh("lvcreate -q -y -L 300M -n xfs labck");
    context.mounted("/dev/labck/xfs", "xfs", "/mnt/ck-xfs");
    context.sh("seq 1 200 | while read n; do echo $n > /mnt/ck-xfs/f$n; done; sync");
    load(context, "/mnt/ck-xfs");
    let clean = check(context, "/mnt/ck-xfs --snapshot");
    expect(&clean, "CLEAN", "snapshot");
    no_snapshot_is_left(context);

    // During the check: as soon as a snapshot exists.
    context.sh("/usr/local/bin/diskvitals check /mnt/ck-xfs --snapshot --no-wait >/dev/null; n=0; \
         until ls /dev/mapper | grep -q diskvitals--check || [ $n -gt 3000 ]; do sleep 0.05; n=$((n+1)); done; \
         systemctl kill --kill-whom=main -s KILL diskvitalsd; lvs --noheadings -o lv_name labck | grep -q diskvitals-check");
    is_back(context);
    no_snapshot_is_left(context);
    unload(context);
    // The origin is not left suspended.
    is_writable(context, "/mnt/ck-xfs");

    let inode = context.sh("stat -c %i /mnt/ck-xfs/f7");
    context.unmount("/mnt/ck-xfs");
    context.sh(&format!("xfs_db -x -c 'inode {inode}' -c 'write -d core.nblocks 77' /dev/labck/xfs && mount /dev/labck/xfs /mnt/ck-xfs"));
    is_known(context, "/mnt/ck-xfs");
    let damaged = check(context, "/mnt/ck-xfs --snapshot");
    expect(&damaged, "CORRUPTED", "snapshot");
    no_snapshot_is_left(context);
    context.unmount("/mnt/ck-xfs");
    ungroup(context);
}

/// ext4 on a thin volume: clean under load, and damaged.
pub fn a_thin_snapshot(context: &mut Context) {
    allow(context);
    group(context);
    context.sh("lvcreate -q -y --type thin-pool -L 200M -n pool labck && lvcreate -q -y -T labck/pool -V 250M -n ext4");
    context.mounted("/dev/labck/ext4", "ext4", "/mnt/ck-ext4");
    context.sh("seq 1 200 | while read n; do echo $n > /mnt/ck-ext4/f$n; done; sync");
    load(context, "/mnt/ck-ext4");
    let clean = check(context, "/mnt/ck-ext4 --snapshot");
    expect(&clean, "CLEAN", "snapshot");
    unload(context);
    no_snapshot_is_left(context);
    context.unmount("/mnt/ck-ext4");
    context.sh("debugfs -w -R 'clri /f7' /dev/labck/ext4 && mount /dev/labck/ext4 /mnt/ck-ext4");
    is_known(context, "/mnt/ck-ext4");
    let damaged = check(context, "/mnt/ck-ext4 --snapshot");
    expect(&damaged, "CORRUPTED", "snapshot");
    no_snapshot_is_left(context);
    context.unmount("/mnt/ck-ext4");
    ungroup(context);
}

/// The privileges of the unit suffice for a live run and for an unmounted disk.
pub fn under_the_shipped_unit(context: &mut Context) {
    allow(context);
    let device = drives::CHECKED_DISK.link();
    context.mounted(&device, "ext4", "/mnt/ck");
    context.sh("seq 1 50 | while read n; do echo $n > /mnt/ck/f$n; done; sync");
    let live = check(context, "/mnt/ck");
    expect(&live, "CLEAN", "live");
    context.unmount("/mnt/ck");
    context.sh(&format!("debugfs -w -R 'clri /f7' {device}"));
    let unmounted = check(context, &format!("$(readlink -f {device})"));
    expect(&unmounted, "CORRUPTED", "unmounted");
}

/// The guest has cgroups v2 alone, as systemd mounts them. A run's group is beside the unit's, has each
/// bound, holds back what wants more, and is removed with the run.
pub fn a_control_group_bounds_each_run(context: &mut Context) {
    allow(context);
    let device = drives::CHECKED_A.link();
    context.mounted(&device, "ext4", "/mnt/ckb");
    context.unmount("/mnt/ckb");
    let node = context.sh(&format!("readlink -f {device}"));
    // The kernel's share of processors is there where a unit of the slice has one.
    context.sh("test \"$(stat -fc %T /sys/fs/cgroup)\" = cgroup2fs; systemd-run -q --unit=lab-share -p CPUWeight=90 sleep infinity");
    context.sh(
        "sed -i 's/^budget = .*/&\\nmemory_bytes = \"128MiB\"/' /etc/diskvitals/diskvitals.toml",
    );
    let run_by = |context: &mut Context, body: &str, during: &str| {
        context.sh(&format!(
            "cat > /usr/local/sbin/odd-e2fsck <<'END'\n#!/bin/sh\n{body}\nEND\nchmod 755 /usr/local/sbin/odd-e2fsck"
        ));
        tools(context, "e2fsck = \"/usr/local/sbin/odd-e2fsck\"");
        let command = format!(
            "/usr/local/bin/diskvitals check {node} -o json > /run/checked 2>&1 & ( {during} ); wait"
        );
        let seen = context.sh(&command);
        context.until_within(SLOWLY, "no group is left", |context| {
            let left = context.try_sh("ls -d /sys/fs/cgroup/system.slice/diskvitals-check-*");
            (left.status != 0).then_some(())
        });
        (seen, context.sh("cat /run/checked"))
    };
    let (bounds, ended) = run_by(
        context,
        "until [ -e /etc/lab-go ]; do sleep 0.2; done; exec /usr/sbin/e2fsck \"$@\"",
        "cd /sys/fs/cgroup/system.slice; n=0; until grep -q . diskvitals-check-*/cgroup.procs || [ $n -gt 600 ]; do sleep 0.1; n=$((n+1)); done; \
         cd diskvitals-check-*; for file in memory.max memory.swap.max memory.oom.group pids.max cpu.weight io.max; do echo $file $(cat $file); done; touch /etc/lab-go",
    );
    let disk = context.sh(&format!("cat /sys/class/block/$(basename {node})/dev"));
    assert_eq!(
        bounds.lines().collect::<Vec<_>>(),
        [
            // 128 MiB, an eighth and 64 MiB.
            "memory.max 218103808",
            "memory.swap.max 0",
            "memory.oom.group 1",
            "pids.max 128",
            "cpu.weight 10",
            // 32 times 20 MB.
            &format!("io.max {disk} rbps=640000000 wbps=max riops=max wiops=max"),
        ]
    );
    assert!(ended.contains("VERDICT_CLEAN"), "{ended}");

    let (_, ended) = run_by(
        context,
        "exec perl -e '$SIG{TERM} = $SIG{HUP} = \"IGNORE\"; for (1 .. 3000) { my $pid = fork(); last unless defined $pid; \
         if ($pid == 0) { sleep 1000 while 1 } } exec \"/usr/sbin/e2fsck\", @ARGV' \"$@\"",
        "true",
    );
    assert!(ended.contains("wanted more than the 128 processes and threads"), "{ended}");
    let (_, ended) = run_by(
        context,
        "exec perl -e 'for (1 .. 6) { my $pid = fork(); if ($pid == 0) { my $all = \"x\" x (50 << 20); sleep 1000 while 1 } } \
         sleep 60; exec \"/usr/sbin/e2fsck\", @ARGV' \"$@\"",
        "true",
    );
    assert!(ended.contains("the processes of a run may use 208 MiB together"), "{ended}");
    context.sh("! pgrep -x perl; systemctl stop lab-share");
    tools(context, "");
    context.sh(&format!("sed -i '/^memory_bytes/d' /etc/diskvitals/diskvitals.toml; systemctl reload diskvitalsd; wipefs -q -a {device}"));
}

/// And for frozen runs. However the daemon ends while writers are held, they continue.
pub fn frozen_under_the_shipped_unit(context: &mut Context) {
    allow(context);
    let device = drives::CHECKED_FROZEN.link();
    context.mounted(&device, "ext4", "/mnt/ckf");
    context.sh("seq 1 50 | while read n; do echo $n > /mnt/ckf/f$n; done; sync");
    context.unmount("/mnt/ckf");
    context.sh(&format!("debugfs -w -R 'clri /f7' {device}; mount {device} /mnt/ckf"));
    is_known(context, "/mnt/ckf");
    let frozen = check(context, "/mnt/ckf --freeze");
    expect(&frozen, "CORRUPTED", "frozen");
    is_writable(context, "/mnt/ckf");

    // Frozen for long enough to be observed: under emulation, the shell takes longer to look than a
    // checker to run. A live run does not wait. pgrep makes calls that the jail refuses.
    context.sh("printf '#!/bin/sh\\nwhile grep -qsx diskvitals-frz /proc/[0-9]*/comm; do sleep 0.3; done\\nexec /usr/sbin/e2fsck \"$@\"\\n' \
         > /usr/local/sbin/held-e2fsck; chmod 755 /usr/local/sbin/held-e2fsck");
    tools(context, "e2fsck = \"/usr/local/sbin/held-e2fsck\"");
    // The freezer thaws when its pipe is closed.
    freeze_and_kill(context, "");
    is_writable(context, "/mnt/ckf");
    is_back(context);
    // Killed with its freezer: the unit's ExecStopPost thaws, before the next daemon starts.
    freeze_and_kill(context, "pkill -9 -x diskvitals-frz;");
    is_writable(context, "/mnt/ckf");
    is_back(context);
    context.sh("journalctl -u diskvitalsd --no-pager | grep 'was left frozen by a freezer that was killed, and is thawed'");
    tools(context, "");
    context.unmount("/mnt/ckf");
}

/// `also`: a command just before the daemon is killed, while the filesystem is frozen and the
/// daemon stopped, so that it cannot thaw.
fn freeze_and_kill(context: &mut Context, also: &str) {
    context.sh(&format!(
        "/usr/local/bin/diskvitals check /mnt/ckf --freeze --no-wait > /dev/null; n=0; \
         until grep -qs frozen /run/diskvitals/freeze/*.json || [ $n -gt 600 ]; do sleep 0.05; n=$((n+1)); done; \
         pid=$(systemctl show -P MainPID diskvitalsd); \
         if grep -qs frozen /run/diskvitals/freeze/*.json; then kill -STOP $pid; {also} kill -9 $pid; else /usr/local/bin/diskvitals checks; false; fi"
    ));
}

/// The checkers to use; none: those of the system.
fn tools(context: &mut Context, given: &str) {
    context.sh(&format!(
        "sed -i '/^.checks.tools.$/,$d' /etc/diskvitals/diskvitals.toml; \
         [ -z '{given}' ] || printf '[checks.tools]\n%s\n' '{given}' >> /etc/diskvitals/diskvitals.toml; systemctl reload diskvitalsd"
    ));
}

/// When the daemon, its helpers and lvm die together, the writers to the origin of a snapshot
/// continue.
pub fn killed_in_the_middle_of_snapshots(context: &mut Context) {
    allow(context);
    group(context);
    context.sh("lvcreate -q -y -L 100M -n ext4 labck");
    context.mounted("/dev/labck/ext4", "ext4", "/mnt/ck-ext4");
    // The unit's whole control group, early and late: lvm is not in it and completes.
    for later in ["0", "0.7"] {
        context.sh(&format!(
            "/usr/local/bin/diskvitals check /mnt/ck-ext4 --snapshot --no-wait > /dev/null; n=0; \
             until ls /run/diskvitals/freeze | grep -q lvm || [ $n -gt 600 ]; do sleep 0.05; n=$((n+1)); done; ls /run/diskvitals/freeze | grep lvm; \
             sleep {later}; systemctl kill --kill-whom=all -s KILL diskvitalsd"
        ));
        is_writable(context, "/mnt/ck-ext4");
        is_back(context);
        no_snapshot_is_left(context);
        no_note_is_left(context);
    }
    // A command that stays between its suspend and its resume.
    context.sh(
        "printf '#!/bin/sh\n[ \"$1\" != lvcreate ] || { dmsetup suspend labck-ext4; while :; do sleep 1; done; }\nexec /usr/sbin/lvm \"$@\"\n' \
         > /usr/local/sbin/held-lvm; chmod 755 /usr/local/sbin/held-lvm",
    );
    tools(context, "lvm = \"/usr/local/sbin/held-lvm\"");
    // lvm is killed alone: the daemon resumes.
    suspend_and_kill(context, "");
    is_writable(context, "/mnt/ck-ext4");
    no_note_is_left(context);
    // lvm is killed with the daemon: the unit's ExecStopPost resumes.
    suspend_and_kill(
        context,
        "systemctl kill --kill-whom=main -s STOP diskvitalsd; kill -9 $lvm; systemctl kill --kill-whom=all -s KILL diskvitalsd;",
    );
    is_writable(context, "/mnt/ck-ext4");
    is_back(context);
    let lines = context
        .sh("journalctl -u diskvitalsd --no-pager | grep -c 'labck-ext4 was left suspended by an lvm that was killed, and is resumed'");
    assert_eq!(lines, "2", "each of the two is logged once");
    tools(context, "");
    no_note_is_left(context);
    no_snapshot_is_left(context);
    context.unmount("/mnt/ck-ext4");
    ungroup(context);
}

/// `also`: what is killed before lvm.
fn suspend_and_kill(context: &mut Context, also: &str) {
    // The previous check continues as a live check.
    context.until_within(SLOWLY, "no check goes on", |context| {
        let checks = context.guest.ask("checks").ok()?;
        let mut all = checks["checks"].as_array().into_iter().flatten();
        all.all(|check| check["state"] == "STATE_ENDED").then_some(())
    });
    context.sh(&format!(
        "/usr/local/bin/diskvitals check /mnt/ck-ext4 --snapshot --no-wait > /dev/null; n=0; dm=$(basename $(readlink -f /dev/labck/ext4)); \
         until [ $(cat /sys/block/$dm/dm/suspended) = 1 ] || [ $n -gt 600 ]; do sleep 0.05; n=$((n+1)); done; \
         lvm=$(basename /run/diskvitals/freeze/*.lvm .lvm); {also} kill -9 $lvm 2>/dev/null; [ $n -le 600 ]"
    ));
}

fn no_note_is_left(context: &mut Context) {
    context.until_within(SLOWLY, "no note is left", |context| {
        context.sh("ls /run/diskvitals/freeze").is_empty().then_some(())
    });
}
