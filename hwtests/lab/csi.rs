//! Volumes of a pool of logical volumes, served by the unprivileged shim and by the daemon under
//! the shipped unit: the findings of the drive below appear on the volume.

use std::process::Command;

use serde_json::{Value, json};

use crate::lab::context::Context;
use crate::lab::drives;
use crate::lab::faults::Error;

const GROUP: &str = "labcsi";
const SOCKET: &str = "/run/lab-csi/csi.sock";
const CONFIG: &str = "/etc/diskvitals/diskvitals.toml";
const IMAGES: &str = "/srv/images";
const KUBELET: &str = "/var/lib/kubelet";
/// As in the documentation.
const UID: u32 = 65_532;

fn ask(context: &mut Context, arguments: &str) -> Value {
    let answer = context.sh(&format!("/lab/lab-client csi-client {SOCKET} {arguments}"));
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{arguments}: {answer}: {error}"))
}

fn expect_ok(context: &mut Context, arguments: &str) -> Value {
    let answer = ask(context, arguments);
    assert!(answer.get("ok").is_some(), "{arguments}: {answer:#}");
    answer["ok"].clone()
}

/// The volume's entries, each with its reason and message; `None` while the call fails.
fn health(context: &mut Context, handle: &str) -> Option<Vec<Value>> {
    ask(context, &format!("health {handle}"))["ok"].as_array().cloned()
}

fn health_with(context: &mut Context, handle: &str, reason: &str) -> Value {
    context.until(&format!("the volume health shows {reason}"), |context| {
        health(context, handle)?.into_iter().find(|entry| entry["reason"] == reason)
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a copy of this program for the guest, whose memory is small"
)]
pub(super) fn copy_client(context: &Context) {
    let own = std::env::current_exe().expect("this program");
    let copy = context.guest.share().join("lab-client");
    let status =
        Command::new("/usr/bin/strip").arg("-o").arg(&copy).arg(&own).status().expect("strip");
    assert!(status.success(), "strip: {status}");
}

pub fn a_pool_of_logical_volumes(context: &mut Context) {
    let drive = drives::NVME_POOL;
    let staged = |digit: &str| {
        let hash = digit.repeat(64);
        format!("{KUBELET}/plugins/kubernetes.io/csi/csi.diskvitals.io/{hash}/globalmount")
    };
    let beside = staged("a");
    let (staging, target) = (
        staged("b"),
        format!(
            "{KUBELET}/pods/11111111-2222-3333-4444-555555555555/volumes/kubernetes.io~csi/data/mount"
        ),
    );
    copy_client(context);
    context.sh(&format!("pvcreate -q -y -ff {0} && vgcreate -q {GROUP} {0}", drive.link()));
    // A disk for images, as an administrator sets it up.
    context.sh(&format!("lvcreate -q -y -n images -L 80M {GROUP} && mkfs.ext4 -q /dev/{GROUP}/images && mkdir -p {IMAGES}"));
    context.sh(&format!("mount /dev/{GROUP}/images {IMAGES} && mkdir {IMAGES}/pool"));
    // The kubelet creates these directories.
    context.sh(&format!(
        "cp {CONFIG} {CONFIG}.before; mkdir -p {staging} {beside} $(dirname {target})"
    ));
    context.sh(&format!(
        "printf '[csi]\\nallow_uids = [{UID}]\\n[pool]\\ndirectory = \"{IMAGES}/pool\"\\nvolume_group = \"{GROUP}\"\\n' >> {CONFIG} && systemctl restart diskvitalsd"
    ));
    // Not root, no capability, a read-only root filesystem.
    context.sh(&format!(
        "install -d -m 0700 -o {UID} -g {UID} /run/lab-csi && systemd-run -q --unit=lab-csi -p ProtectSystem=strict -p ReadWritePaths=/run/lab-csi \
         -p PrivateDevices=yes setpriv --reuid {UID} --regid {UID} --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs \
         /usr/local/bin/diskvitals-csi --endpoint unix://{SOCKET} --node-id guest"
    ));
    context.until("the shim has its socket, or has ended", |context| {
        let state = context.try_sh(&format!("test -S {SOCKET} || systemctl is-failed lab-csi"));
        (state.status == 0).then_some(())
    });
    context.sh(&format!("test -S {SOCKET} || {{ journalctl -u lab-csi -o cat; exit 1; }}"));

    let made = context.until("a volume of the group is made", |context| {
        ask(context, &format!("create pvc-lab lvm {}", 64 << 20)).get("ok").cloned()
    });
    let handle = made["handle"].as_str().expect("a handle").to_owned();
    expect_ok(context, &format!("stage {handle} {staging}"));
    expect_ok(context, &format!("publish {handle} {staging} {target}"));
    // Run from a process that the daemon did not start: the mount is in the host's own namespace.
    assert_eq!(context.sh(&format!("nsenter -t 1 -m findmnt -n -o FSTYPE {target}")), "ext4");
    context.sh(&format!("echo kept > {target}/file && sync"));
    let healthy = context.until("its health is known", |context| health(context, &handle));
    assert_eq!(healthy, Vec::<Value>::new());

    // An image on the system's disk, in a directory of the daemon's state.
    let image = expect_ok(context, &format!("create pvc-image loop {}", 32 << 20))["handle"]
        .as_str()
        .expect("a handle")
        .to_owned();
    expect_ok(context, &format!("stage {image} {beside}"));
    assert_eq!(context.sh(&format!("nsenter -t 1 -m findmnt -n -o FSTYPE {beside}")), "ext4");
    expect_ok(context, &format!("unstage {image} {beside}"));
    expect_ok(context, &format!("delete {image}"));
    assert_eq!(context.sh("losetup --noheadings --list"), "");

    // The drive's own report.
    context.guest.critical_warning(&drive, 4);
    let entry = health_with(context, &handle, "DriveFailing");
    assert!(
        entry["message"].as_str().is_some_and(|message| message.contains(drive.serial)),
        "{entry:#}"
    );
    let node = expect_ok(context, "storage");
    assert!(
        node.as_array().is_some_and(|entries| entries
            .iter()
            .any(|entry| entry["status"] == "STORAGE_DEGRADED")),
        "{node:#}"
    );
    context.guest.critical_warning(&drive, 0);
    context.until("the volume is healthy again", |context| {
        health(context, &handle).filter(Vec::is_empty)
    });

    // The shim reconnects to the daemon, and the volume is unchanged.
    context.sh("systemctl restart diskvitalsd");
    context.until("its health is known after a restart", |context| {
        health(context, &handle).filter(Vec::is_empty)
    });
    assert_eq!(context.sh(&format!("cat {target}/file")), "kept");
    assert_eq!(
        expect_ok(context, &format!("expand {handle} {target} {}", 96 << 20)),
        json!(96 << 20)
    );
    let bytes: u64 = context
        .sh(&format!("stat -f -c '%b %S' {target} | awk '{{print $1 * $2}}'"))
        .parse()
        .expect("a size");
    assert!(bytes > 80 << 20, "{bytes}");

    // A sector of it cannot be read.
    let device = context.sh(&format!("findmnt -n -o SOURCE {target}"));
    let table = context.sh(&format!("dmsetup table {device} | head -n 1"));
    let start: u64 = table
        .split_whitespace()
        .last()
        .and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("{table}"));
    context.guest.fail_reads(&drive, Error::Io, &[start + 100_000]);
    assert!(!context.read_sector(&device, 100_000), "the sector can be read");
    let entry = health_with(context, &handle, "IoErrors");
    assert_eq!(entry["status"], "DEGRADED", "{entry:#}");
    context.guest.heal(&drive);

    expect_ok(context, &format!("unpublish {handle} {target}"));
    expect_ok(context, &format!("unstage {handle} {staging}"));
    expect_ok(context, &format!("delete {handle}"));
    assert_eq!(context.sh(&format!("lvs --noheadings -o lv_name {GROUP}")), "images");
    context.sh(&format!(
        "systemctl stop lab-csi; mv {CONFIG}.before {CONFIG} && systemctl restart diskvitalsd"
    ));
    context.unmount(IMAGES);
    context.sh(&format!("rmdir {IMAGES}"));
    context.sh(&format!("vgremove -q -f {GROUP} && pvremove -q -y {}", drive.link()));
}
