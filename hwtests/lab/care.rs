//! Checks and scrubs by a schedule, under the shipped unit: an md array and a ZFS pool, whose drives are
//! on one controller.

use std::time::Duration;

use serde_json::Value;

use crate::lab::context::Context;
use crate::lab::drives;
use crate::lab::zfs_pools;

const CONFIG: &str = "/etc/diskvitals/diskvitals.toml";

/// Due two minutes from now, whatever Debian's cron jobs do: the schedule names both.
pub fn an_array_and_a_pool(context: &mut Context) {
    let (a, b) = (drives::RAID_LEG_A, drives::RAID_LEG_B);
    let (c, d) = (drives::ZFS_PULLED_A, drives::ZFS_PULLED_B);
    zfs_pools::begin(context, &[c, d]);
    zfs_pools::create(context, "cared", &format!("mirror {} {}", c.link(), d.link()));
    zfs_pools::write(context, "/cared/a", 40);
    context.sh(&format!(
        "mdadm --create /dev/md0 --run --level=1 --raid-devices=2 --metadata=1.2 --size=64M {} {} && mdadm --wait /dev/md0 || true",
        a.link(),
        b.link()
    ));
    context.until("both are known", |context| {
        task(context, "md0")?;
        task(context, "cared").map(drop)
    });
    context.sh(&format!(
        "printf '[[schedule]]\\ntasks = [\"md-check\", \"zpool-scrub\"]\\narrays = [\"md0\", \"cared\"]\\ncalendar = \"daily %s\"\\njitter = \"0s\"\\n' $(date -d '2 minutes' +%H:%M) >> {CONFIG}; systemctl reload diskvitalsd"
    ));
    for name in ["md0", "cared"] {
        context.until_within(Duration::from_secs(400), &format!("{name} was read"), |context| {
            // `zpool status` is not run more often than each 30 s.
            context.try_sh("/usr/local/bin/diskvitals refresh");
            task(context, name)?["ended"].as_str().map(str::to_owned)
        });
    }
    let action = context.sh("cat /sys/block/md0/md/last_sync_action");
    assert_eq!(action.trim(), "check");
    let status = context.sh("zpool status cared");
    assert!(status.contains("scrub repaired 0B"), "{status}");

    context.sh(&format!("sed -i '/^..schedule..$/,$d' {CONFIG}; systemctl reload diskvitalsd"));
    zfs_pools::destroy(context, "cared");
    context.sh("mdadm --stop /dev/md0");
}

fn task(context: &mut Context, name: &str) -> Option<Value> {
    let answer = context.guest.ask("care").ok()?;
    answer["scrubs"].as_array()?.iter().find(|task| task["name"] == name).cloned()
}
