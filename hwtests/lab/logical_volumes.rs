//! Steps on logical volumes, run by the process that the daemon starts for them. They run in the
//! guest because the kernel of the test machine may have no device-mapper.

use serde_json::{Value, json};

use crate::lab::context::Context;
use crate::lab::drives;

const GROUP: &str = "labvol";
const NAME: &str = "pvc-1";
/// In place of the kubelet's folder.
const STEPS: &str = "/mnt/steps";

/// One step in the form that the daemon uses: a line in, a greeting and a line out.
fn run(context: &mut Context, directory: &str, step: &Value) -> Value {
    let answer = context.sh(&format!(
        "printf '%s\\n' '{step}' | /usr/local/sbin/diskvitalsd step {directory} / | tail -n 1"
    ));
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{step}: {answer}: {error}"))
}

fn expect_done(context: &mut Context, directory: &str, step: &Value) -> Value {
    let answer = run(context, directory, step);
    assert!(answer["Ok"].is_object(), "{step}: {answer}");
    answer["Ok"].clone()
}

/// The step succeeds, and its repetition succeeds as well.
fn twice(context: &mut Context, step: &Value) -> Value {
    let first = expect_done(context, "lvm", step);
    assert_eq!(expect_done(context, "lvm", step), first, "{step}");
    first
}

fn refused(context: &mut Context, directory: &str, step: &Value) -> String {
    let answer = run(context, directory, step);
    answer["Err"]["kind"].as_str().unwrap_or_else(|| panic!("{step}: {answer}")).to_owned()
}

fn content(context: &mut Context, node: &str) -> String {
    expect_done(context, "tools", &json!({"step": "probe_content", "device": node}))["content"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// A volume of a group: blanked, deactivated and tagged, mounted, grown, held, wiped, removed.
pub fn steps_on_logical_volumes(context: &mut Context) {
    let (a, b) = (drives::CHECKED_A.link(), drives::CHECKED_B.link());
    context.try_sh(&format!(
        "umount {STEPS}/plugins/kubernetes.io/csi/pv/a/globalmount; vgremove -q -f {GROUP}; vgremove -q -f labck; wipefs -q -a {a} {b}"
    ));
    // The content of the extents before the first volume uses them.
    context
        .sh(&format!("yes diskvitals-old-bytes | head -c 150M > {a}; sync; wipefs -q -a {a} {b}"));
    context.sh(&format!("pvcreate -q -y -ff {a} {b} && vgcreate -q {GROUP} {a} {b}"));

    let room =
        expect_done(context, "lvm", &json!({"step": "volume_group_capacity", "group": GROUP}));
    assert_eq!(
        (room["total"].clone(), room["unit"].clone()),
        (room["available"].clone(), json!(4 << 20)),
        "{room}"
    );
    let make = |size: u64| json!({"step": "create_logical_volume", "group": GROUP, "name": NAME, "size": size, "tags": ["diskvitals.volume"]});
    assert_eq!(refused(context, "lvm", &make(1 << 40)), "no-space");
    twice(context, &make(64 << 20));
    assert_eq!(refused(context, "lvm", &make(128 << 20)), "already-exists");
    let list = json!({"step": "list_logical_volumes", "group": GROUP, "tag": "diskvitals.volume"});
    let volume = twice(context, &list)["volumes"][0].clone();
    assert_eq!(
        volume,
        json!({"name": NAME, "size": 64 << 20, "tags": ["diskvitals.volume"], "device": null, "open": false, "unfinished": false})
    );
    context.sh("vgchange -q -aay");
    assert_eq!(
        expect_done(context, "lvm", &list)["volumes"][0]["device"],
        Value::Null,
        "not activated by booting"
    );

    let activate = json!({"step": "activate_logical_volume", "group": GROUP, "name": NAME});
    let device = twice(context, &activate);
    let node = device["node"].as_str().expect("a node").to_owned();
    assert_eq!(content(context, &node), "blank", "though its extents were written to before");
    expect_done(
        context,
        "tools",
        &json!({"step": "format", "device": node, "fs_type": "ext4", "options": [], "proof": {"proof": "new"}}),
    );
    assert_eq!(content(context, &node), "filesystem");
    // Mounts are made only at a path that the kubelet's record gives to the volume.
    let folder = format!("{STEPS}/plugins/kubernetes.io/csi/pv/a");
    let record = json!({"driverName": "lab.csi", "volumeHandle": "h"});
    context.sh(&format!("mkdir -p {folder} && printf '%s' '{record}' >{folder}/vol_data.json"));
    let place = format!("{folder}/globalmount");
    let directory = json!({"root": STEPS, "path": place});
    let owner = json!({"driver": "lab.csi", "handle": "h", "role": "stage", "block": false});
    let target = json!({"place": directory, "owner": owner});
    expect_done(
        context,
        "host",
        &json!({"step": "mount", "device": node, "target": target, "fs_type": "ext4", "options": [], "read_only": false}),
    );
    context.sh(&format!("yes diskvitals-secret | head -c 8M > {place}/secret; sync"));

    let remove =
        json!({"step": "remove_logical_volume", "group": GROUP, "name": NAME, "wipe": "zero"});
    let deactivate = json!({"step": "deactivate_logical_volume", "group": GROUP, "name": NAME});
    for step in [&remove, &deactivate] {
        assert_eq!(refused(context, "lvm", step), "in-use", "mounted");
    }
    twice(
        context,
        &json!({"step": "grow_logical_volume", "group": GROUP, "name": NAME, "size": 128 << 20}),
    );
    let grow =
        json!({"step": "grow_filesystem", "device": node, "at": directory, "fs_type": "ext4"});
    expect_done(context, "host", &grow);
    let blocks: u64 = context
        .sh(&format!("stat -f -c '%b %S' {place} | awk '{{print $1 * $2}}'"))
        .parse()
        .expect("a size");
    assert!(blocks > 100 << 20, "{blocks}");
    twice(
        context,
        &json!({"step": "tag_logical_volume", "group": GROUP, "name": NAME, "add": ["diskvitals.x=1"], "remove": ["none"]}),
    );
    assert_eq!(
        expect_done(context, "lvm", &list)["volumes"][0]["tags"],
        json!(["diskvitals.volume", "diskvitals.x=1"])
    );
    expect_done(context, "host", &json!({"step": "unmount", "target": directory, "lazy": false}));

    // Its extents are the first of the first drive.
    let secrets = format!("head -c 200M {a} | LC_ALL=C grep -c -a -F diskvitals-secret || true");
    assert_ne!(context.sh(&secrets), "0", "the secret must be detectable");
    twice(context, &deactivate);
    twice(context, &remove);
    context.sh("sync; echo 3 > /proc/sys/vm/drop_caches");
    assert_eq!(context.sh(&secrets), "0", "what was in the volume is still on the drives");
    assert_eq!(expect_done(context, "lvm", &list)["volumes"], json!([]));
    context.sh(&format!("vgremove -q -f {GROUP} && pvremove -q -y {a} {b} && rm -r {STEPS}"));
}
