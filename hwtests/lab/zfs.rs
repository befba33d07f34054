//! ZFS: a member that is lost, cannot be read or has wrong data, a spare, a pool that is full or
//! suspended, export and import, and a volume of blocks.

use serde_json::Value;

use crate::lab::context::{BAD, Context, Evidence, Expected, SUSPECT};
use crate::lab::drives::{self, Drive};
use crate::lab::faults::Error;
use crate::lab::restart::sigkill;
use crate::lab::zfs_pools;

/// Found on the volume, by what the tool or the kernel says of its pool.
fn expect(context: &mut Context, subject: &str, reason: &str, severity: &str, says: &str) {
    let evidence = Evidence::Says(says);
    context.expect(&Expected { subject, reason, severity, evidence });
}

fn ask(context: &mut Context, question: &str) -> Value {
    context.guest.ask(question).unwrap_or_else(|error| panic!("{error}"))
}

/// A mirror with a file of 40 MiB, and the id of its volume.
fn mirror(context: &mut Context, pool: &str, members: [&Drive; 2]) -> String {
    zfs_pools::begin(context, &members.map(|drive| *drive));
    let links = members.map(Drive::link).join(" ");
    zfs_pools::create(context, pool, &format!("mirror {links}"));
    zfs_pools::write(context, &format!("/{pool}/a"), 40);
    let volume = zfs_pools::volume_at(context, &format!("/{pool}"));
    let found = ask(context, &format!("volume {volume}"));
    assert_eq!(found["health"], "HEALTH_GOOD", "{found:#}");
    let below = found["driveIds"].to_string();
    assert!(members.iter().all(|drive| below.contains(drive.id)), "its drives: {below}");
    volume
}

/// Asks anew until the finding's evidence says so: `zpool` is not run more often than each 30 s.
fn refreshed(context: &mut Context, subject: &str, reason: &str, says: &str) {
    context.until(&format!("{reason} of {subject} says {says}"), |context| {
        ask(context, "refresh");
        let finding = context.active(subject, reason)?;
        finding["evidence"].to_string().contains(says).then_some(())
    });
}

pub fn member_pulled(context: &mut Context) {
    let (a, b) = (drives::ZFS_PULLED_A, drives::ZFS_PULLED_B);
    let volume = mirror(context, "pulled", [&a, &b]);
    context.guest.unplug(&b);
    zfs_pools::write(context, "/pulled/b", 4);
    expect(context, &volume, "PoolDegraded", SUSPECT, "DEGRADED");
    expect(context, b.id, "DriveMissing", BAD, "");
    context.never_had_finding(&a);
    let found = ask(context, &format!("volume {volume}"));
    assert_eq!(found["health"], "HEALTH_SUSPECT", "it works on one member: {found:#}");

    zfs_pools::plug_again(context, &b);
    context.sh(&format!(
        "zpool online pulled {} && zpool wait -t resilver pulled",
        zfs_pools::part(&b)
    ));
    context.expect_cleared(b.id, "DriveMissing");
    ask(context, "refresh");
    context.expect_cleared(&volume, "PoolDegraded");
    zfs_pools::destroy(context, "pulled");
}

/// All reads of one member fail: ZFS stops using it, and the drive itself says why.
pub fn member_unreadable(context: &mut Context) {
    let (a, b) = (drives::ZFS_UNREADABLE_A, drives::ZFS_UNREADABLE_B);
    let volume = mirror(context, "unread", [&a, &b]);
    context.guest.fail_reads(&a, Error::Medium, &[]);
    context.try_sh("zpool scrub -w unread");
    context.record(&["zio pool=unread vdev="]);
    context.expect(&Expected {
        subject: a.id,
        reason: "MediaErrors",
        severity: BAD,
        evidence: Evidence::Record(&["critical medium error, dev ", "Sense", "FAILED Result"]),
    });
    expect(context, &volume, "PoolDegraded", SUSPECT, "DEGRADED");
    context.never_raised(&volume, &["PoolFaulted", "PoolSuspended"]);
    context.never_had_finding(&b);
    context.guest.heal(&a);
    context.sh("zpool clear unread && zpool wait -t resilver unread");
    ask(context, "refresh");
    context.expect_cleared(&volume, "PoolDegraded");
    zfs_pools::destroy(context, "unread");
}

/// One member returns other data than was written: the pool repairs it, and counts whose it was.
pub fn checksum_errors(context: &mut Context) {
    let (a, b) = (drives::ZFS_CHECKSUM_A, drives::ZFS_CHECKSUM_B);
    let volume = mirror(context, "rotten", [&a, &b]);
    // Behind the labels at its begin, which have 4 MiB; no record of the kernel is about it.
    context.sh(&format!(
        "dd if=/dev/urandom of={} bs=1M seek=8 count=200 conv=notrunc,fsync oflag=direct status=none",
        zfs_pools::part(&b)
    ));
    zfs_pools::scrub(context, "rotten");
    refreshed(context, b.id, "PoolErrors", "-part1 ONLINE 0 0 ");
    expect(context, b.id, "PoolErrors", SUSPECT, "-part1 ONLINE 0 0 ");
    sigkill(context);
    expect(context, b.id, "PoolErrors", SUSPECT, "-part1 ONLINE 0 0 ");
    context.never_had_finding(&a);
    let data = ["PoolDataErrors", "PoolFaulted", "PoolSuspended"];
    context.never_raised(&volume, &data);

    context.sh("zpool clear rotten && zpool wait -t resilver rotten");
    zfs_pools::scrub(context, "rotten");
    // It stays for `quiet_after`, a day; a clean scrub counts nothing more.
    refreshed(context, b.id, "PoolErrors", "-part1 ONLINE 0 0 0");
    context.never_raised(&volume, &data);
    zfs_pools::destroy(context, "rotten");
}

/// A spare in the place of a lost member: all data has its copies, and the pool is not whole before
/// the member is back.
pub fn spare(context: &mut Context) {
    let (a, b, c) = (drives::ZFS_SPARED_A, drives::ZFS_SPARED_B, drives::ZFS_SPARE);
    zfs_pools::begin(context, &[a, b, c]);
    let links = format!("mirror {} {} spare {}", a.link(), b.link(), c.link());
    zfs_pools::create(context, "helped", &links);
    zfs_pools::write(context, "/helped/a", 40);
    let volume = zfs_pools::volume_at(context, "/helped");
    context.guest.unplug(&b);
    zfs_pools::write(context, "/helped/b", 4);
    expect(context, &volume, "PoolDegraded", SUSPECT, "DEGRADED");
    context.sh(&format!(
        "zpool replace helped {} {} && zpool wait -t resilver helped",
        zfs_pools::part(&b),
        c.link()
    ));
    refreshed(context, &volume, "PoolDegraded", "wwn-0x5000c5000000004b");
    context.never_had_finding(&c);

    zfs_pools::plug_again(context, &b);
    context.sh(&format!(
        "zpool online helped {} && zpool wait -t resilver helped",
        zfs_pools::part(&b)
    ));
    // Without zed nobody gives the spare back; if the kernel did, there is nothing to detach.
    context.try_sh(&format!("zpool detach helped {}", zfs_pools::part(&c)));
    context.until("the spare is free again", |context| {
        ask(context, "refresh");
        context.active(&volume, "PoolDegraded").is_none().then_some(())
    });
    context.expect_cleared(&volume, "PoolDegraded");
    context.never_had_finding(&a);
    zfs_pools::destroy(context, "helped");
}

pub fn full(context: &mut Context) {
    let (a, b) = (drives::ZFS_FULL_A, drives::ZFS_FULL_B);
    let volume = mirror(context, "full", [&a, &b]);
    let filled = context.try_sh("dd if=/dev/urandom of=/full/b bs=1M status=none; zpool sync");
    assert!(filled.stderr.contains("No space left"), "{filled:?}");
    expect(context, &volume, "PoolFull", BAD, "");
    context.never_raised(&volume, &["PoolDegraded", "PoolErrors", "OutOfSpace"]);
    context.sh("rm /full/b && zpool sync");
    context.expect_cleared(&volume, "PoolFull");
    context.never_had_finding(&a);
    context.never_had_finding(&b);
    zfs_pools::destroy(context, "full");
}

/// All members gone: what asks the pool waits for ever, and nothing of ours asks.
pub fn suspended(context: &mut Context) {
    let (a, b) = (drives::ZFS_SUSPENDED_A, drives::ZFS_SUSPENDED_B);
    let volume = mirror(context, "gone", [&a, &b]);
    context.guest.unplug(&a);
    context.guest.unplug(&b);
    context.sh("(dd if=/dev/urandom of=/gone/b bs=1M count=4 conv=fsync >/dev/null 2>&1 &)");
    context.record(&["has encountered an uncorrectable I/O failure and has been suspended"]);
    assert_eq!(zfs_pools::state(context, "gone"), "SUSPENDED");
    expect(context, &volume, "PoolSuspended", BAD, "SUSPENDED");
    // Two rounds of every source later: no process of ours waits for the pool, and none was started.
    context.pass(std::time::Duration::from_secs(45));
    assert_eq!(
        context.sh("pgrep -x zpool; pgrep -x zfs; for p in $(pgrep -f diskvitals); do grep -q '^State:.D' /proc/$p/status && cat /proc/$p/cmdline; done; true"),
        "",
        "a process that waits for the suspended pool"
    );
    let answered = ask(context, "status");
    assert_eq!(answered["settled"], true, "{answered:#}");

    zfs_pools::plug_again(context, &a);
    zfs_pools::plug_again(context, &b);
    context.sh("zpool clear gone && zpool wait -t resilver gone");
    context.expect_cleared(&volume, "PoolSuspended");
    zfs_pools::scrub(context, "gone");
    zfs_pools::destroy(context, "gone");
}

pub fn exported(context: &mut Context) {
    let (a, b) = (drives::ZFS_EXPORTED_A, drives::ZFS_EXPORTED_B);
    let volume = mirror(context, "moved", [&a, &b]);
    context.until("it is exported", |context| {
        context.try_sh("zpool export moved").status.eq(&0).then_some(())
    });
    ask(context, "refresh");
    let reasons = ["PoolDegraded", "PoolFaulted", "PoolSuspended", "PoolErrors"];
    context.never_raised(&volume, &reasons);
    context.sh("zpool import moved");
    assert_eq!(zfs_pools::volume_at(context, "/moved"), volume);
    context.never_raised(&volume, &reasons);
    context.never_had_finding(&a);
    context.never_had_finding(&b);
    zfs_pools::destroy(context, "moved");
}

/// ext4 on blocks of a pool: the pool's drives are below it, and it is no drive itself.
pub fn volume_of_blocks(context: &mut Context) {
    const AT: &str = "/mnt/zvol";
    let (a, b) = (drives::ZFS_ZVOL_A, drives::ZFS_ZVOL_B);
    mirror(context, "blocks", [&a, &b]);
    context.sh("zfs create -V 64M blocks/vm-1 && udevadm settle");
    let volume = context.mounted("/dev/zvol/blocks/vm-1", "ext4", AT);
    let found = ask(context, &format!("volume {volume}"));
    let below = found["driveIds"].to_string();
    assert!(below.contains(a.id) && below.contains(b.id), "{found:#}");
    let shown = ask(context, "drives");
    let none = shown["drives"].as_array().is_some_and(|all| {
        all.iter().all(|one| !one["name"].as_str().is_some_and(|name| name.starts_with("zd")))
    });
    assert!(none, "{shown:#}");
    context.guest.unplug(&b);
    context.sh(&format!(
        "dd if=/dev/urandom of={AT}/b bs=1M count=4 conv=fsync status=none && zpool sync"
    ));
    expect(context, &volume, "PoolDegraded", SUSPECT, "DEGRADED");
    zfs_pools::plug_again(context, &b);
    context.sh(&format!(
        "zpool online blocks {} && zpool wait -t resilver blocks",
        zfs_pools::part(&b)
    ));
    ask(context, "refresh");
    context.expect_cleared(&volume, "PoolDegraded");
    context.unmount(AT);
    zfs_pools::destroy(context, "blocks");
}
