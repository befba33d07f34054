//! A rotating drive that nobody uses: the daemon sends it no command, so that it can stop turning.
//! QEMU's disks never stop: the kernel's trace of SCSI commands stands for a drive's idle timer,
//! which any command may restart.

use std::time::{Duration, Instant};

use crate::lab::context::Context;
use crate::lab::drives;

const CONFIG: &str = "/etc/diskvitals/diskvitals.toml";
const TRACE: &str = "/sys/kernel/tracing/instances/rest";
/// Drives that are in use are queried so often meanwhile.
const INTERVAL: &str = "10s";
/// The timer of the drive, as `hdparm -S 12` sets it.
const STANDBY_TIMER: Duration = Duration::from_secs(60);
/// After the timer has run out, it must stay asleep.
const WATCHED: Duration = Duration::from_secs(180);

pub fn a_drive_that_does_nothing_is_left_alone(context: &mut Context) {
    let drive = drives::SATA_RESTS;
    let name = context.kernel_name(&drive);
    context.sh(&format!("mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 /dev/{name}"));
    context.mount(&format!("/dev/{name}"), "/mnt/rests", "noatime");
    let usual = context.sh(&format!("grep '^idle_interval' {CONFIG}"));
    let often = format!("interval = \"{INTERVAL}\"");
    configure(context, usual.trim(), &often);
    let shown = |context: &mut Context| context.guest.ask(&format!("drive {}", drive.id)).ok();
    context.until("it is idle", |context| {
        shown(context).filter(|drive| drive["smart"]["idle"] == true)
    });
    let address = context.sh(&format!("basename $(readlink -f /sys/block/{name}/device)"));
    let parts: Vec<&str> = address.trim().split(':').collect();
    let [host, channel, id, lun] = parts[..] else { panic!("{address}") };
    let filter = format!("host_no == {host} && channel == {channel} && id == {id} && lun == {lun}");
    context.sh(&format!(
        "mkdir {TRACE} && echo '{filter}' > {TRACE}/events/scsi/scsi_dispatch_cmd_start/filter && \
         echo 1 > {TRACE}/events/scsi/scsi_dispatch_cmd_start/enable"
    ));
    let commands =
        |context: &mut Context| context.sh(&format!("grep -v '^#' {TRACE}/trace || true"));
    let asked = |context: &mut Context| {
        shown(context)
            .map(|drive| drive["smart"]["asked"].clone())
            .filter(|asked| asked.is_string())
    };
    let before = asked(context);
    let begun = Instant::now();
    while begun.elapsed() < WATCHED {
        context.pass(STANDBY_TIMER / 2);
        let sent = commands(context);
        assert!(sent.is_empty(), "after {:.0?} its timer began again:\n{sent}", begun.elapsed());
    }
    assert_eq!(asked(context), before);
    let drive = shown(context).expect("shown");
    assert_eq!((&drive["health"], &drive["smart"]["idle"]), (&"HEALTH_GOOD".into(), &true.into()));
    // The trace works, and a drive that is in use is queried.
    context.sh(&format!("dd if=/dev/{name} of=/dev/null bs=4k count=1 iflag=direct status=none"));
    assert!(!commands(context).is_empty(), "a read is no command");
    context.until("it is queried again", |context| {
        asked(context).filter(|at| Some(at) != before.as_ref())
    });
    context.unmount("/mnt/rests");
    context.sh(&format!("rmdir {TRACE}"));
    configure(context, &often, usual.trim());
}

/// Replaces a line of the configuration.
fn configure(context: &mut Context, line: &str, by: &str) {
    context.sh(&format!("sed -i 's,^{line}$,{by},' {CONFIG} && systemctl reload diskvitalsd"));
}
