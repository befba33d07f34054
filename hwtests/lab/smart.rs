//! SMART data of the drives: queries with the shipped unit's privileges, warnings that a controller
//! announces, a disk that predicts its failure, and a broken smartctl.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lab::context::{BAD, Context, Evidence, Expected, INFO, SUSPECT};
use crate::lab::drives::{self, Bus, Drive};

/// Where the unit may write, so that the program can record its calls.
const DIRECTORY: &str = "/var/lib/diskvitals/lab";
const CONFIG: &str = "/etc/diskvitals/diskvitals.toml";
/// An event, one run of smartctl and an evaluation, under emulation on a busy machine; the interval
/// of a healthy drive is ten minutes.
const AT_ONCE: Duration = Duration::from_secs(90);

fn shown_drive(context: &mut Context, id: &str) -> Option<Value> {
    context.guest.ask(&format!("drive {id}")).ok()
}

fn answered(context: &mut Context, id: &str) -> Value {
    context.until(&format!("{id} has reported SMART data"), |context| {
        shown_drive(context, id).filter(|drive| drive["smart"]["state"] == "STATE_ANSWERED")
    })
}

/// The unit's privileges suffice for every kind of drive that reports SMART data.
pub fn under_the_shipped_unit(context: &mut Context) {
    let disk = answered(context, drives::SATA_PULLED.id);
    assert_eq!(disk["smart"]["passed"], true, "{disk:#}");
    assert!(
        disk["smart"]["attributes"].as_array().is_some_and(|table| table.len() > 3),
        "{disk:#}"
    );
    let nvme = answered(context, drives::NVME_WARNS.id);
    assert_eq!(nvme["smart"]["passed"], true, "{nvme:#}");
    assert!(
        nvme["smart"]["temperatureCelsius"].as_i64().is_some_and(|celsius| celsius > 0),
        "{nvme:#}"
    );
    // A disk without SMART data is no fault. MegaRAID shows its only disk as a logical one, which
    // is not queried.
    for drive in [drives::SAS_MEDIUM, drives::USB_PULLED] {
        let state = context.until(&format!("{} was queried", drive.id), |context| {
            shown_drive(context, drive.id)
                .map(|drive| drive["smart"]["state"].clone())
                .filter(|state| state.is_string() && state != "STATE_WAITING")
        });
        assert!(
            state == "STATE_NOT_APPLICABLE" || state == "STATE_ANSWERED",
            "{}: {state}",
            drive.id
        );
    }
    // A disk that a controller shows, and that smartctl also reaches behind it, is one drive.
    let all = context.guest.ask("drives").unwrap_or_else(|error| panic!("{error}"));
    let same: Vec<&Value> = all["drives"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|drive| drive["serial"] == drives::MEGARAID_MEDIUM.serial)
        .collect();
    assert_eq!(same.len(), 1, "{same:#?}");
    // A query of a disk that an earlier scenario has silenced may still hang.
    context.until("smartctl answers for every drive", |context| {
        let node = context.guest.ask("status").ok()?;
        let mut sources = node["sources"].as_array()?.iter();
        let source = sources.find(|source| source["name"] == "smart")?;
        (source["state"] == "STATE_ACTIVE").then_some(())
    });
}

/// Set while it runs: the controller announces it, and no query interval has to pass.
pub fn critical_warnings(context: &mut Context) {
    let drive = drives::NVME_WARNS;
    answered(context, drive.id);
    let volume = context.mounted(&drive.link(), "ext4", "/mnt/warns");
    for (bits, reason, severity) in
        [(2, "Overheating", SUSPECT), (1, "SpareLow", BAD), (4, "SmartFailing", BAD)]
    {
        let began = Instant::now();
        context.guest.critical_warning(&drive, bits);
        let finding = context
            .until(&format!("{reason} after critical_warning {bits:#x}"), |context| {
                context.active(drive.id, reason)
            });
        let took = began.elapsed();
        println!("    critical_warning {bits:#x} became {reason} in {took:.1?}");
        assert!(took < AT_ONCE, "{reason} came with the interval, not with the event: {took:?}");
        assert_eq!(
            finding["severity"], severity,
            "heat is no failure, the others are: {finding:#}"
        );
        if reason == "SmartFailing" {
            context.expect(&Expected {
                subject: drive.id,
                reason,
                severity,
                evidence: Evidence::Says("Critical Warning: 0x04"),
            });
            context.expect(&Expected {
                subject: &volume,
                reason: "DriveFailing",
                severity: BAD,
                evidence: Evidence::Says(""),
            });
        } else {
            context.never_raised(drive.id, &["SmartFailing"]);
        }
        // Recovery is not announced: a suspect drive is queried often.
        context.guest.critical_warning(&drive, 0);
        context.expect_cleared(drive.id, reason);
    }
    context.unmount("/mnt/warns");
}

/// The kernel's own SCSI disk reports an informational exception (SPC-6, Informational Exceptions
/// Control mode page). It can only report a test: 5D/FF, "(FALSE)" (drivers/scsi/scsi_debug.c,
/// resp_ie_l_pg). The same answer with the code of a true prediction is a failure.
pub fn a_disk_that_predicts_its_failure(context: &mut Context) {
    context.sh("test -d /sys/bus/pseudo/drivers/scsi_debug || modprobe scsi_debug dev_size_mb=64 num_tgts=1 max_luns=1; udevadm settle");
    let (id, name) = context.until("its disk is a drive", |context| {
        let all = context.guest.ask("drives").ok()?;
        let mine = |drive: &&Value| {
            drive["id"].as_str().is_some_and(|id| id.starts_with("naa.333333"))
                && drive["presence"] == "PRESENCE_PRESENT"
        };
        let drive = all["drives"].as_array()?.iter().find(mine)?.clone();
        Some((drive["id"].as_str()?.to_owned(), drive["name"].as_str()?.to_owned()))
    });
    context.breaks(&id);
    answered(context, &id);
    // DEXCPT off, TEST on, MRIE 6: reported on request.
    context.sh(&format!("sg_wr_mode -p 1c -c 1c,0a,0c,06,0,0,0,0,0,0,0,1 /dev/{name}"));
    refresh(context, &id);
    context.expect(&Expected {
        subject: &id,
        reason: "SmartFailing",
        severity: INFO,
        evidence: Evidence::Says("asc=5d"),
    });

    in_its_place(context);
    context.sh(&format!("smartctl -j -x /dev/{name} | sed 's/\"ascq\": 255/\"ascq\": 16/; s/ (FALSE)//' > {DIRECTORY}/dev/{name}.json; echo 8 > {DIRECTORY}/dev/{name}.exit"));
    refresh(context, &id);
    context.expect(&Expected {
        subject: &id,
        reason: "SmartFailing",
        severity: BAD,
        evidence: Evidence::Says("asc=5d"),
    });
    smartctl_again(context);
    context.sh(&format!("sg_wr_mode -p 1c -c 1c,0a,08,06,0,0,0,0,0,0,0,1 /dev/{name}"));
    refresh(context, &id);
    context.expect_cleared(&id, "SmartFailing");
}

fn refresh(context: &mut Context, id: &str) {
    context.guest.ask(&format!("refresh {id}")).unwrap_or_else(|error| panic!("{error}"));
}

/// Replaces smartctl: a program that misbehaves as configured for some drives and calls smartctl
/// for the others.
fn in_its_place(context: &mut Context) {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/smartctl");
    std::fs::copy(script, context.guest.share().join("smartctl")).expect("copied");
    context.sh(&format!(
        "mkdir -p {DIRECTORY}/dev && cp /lab/smartctl {DIRECTORY}/ && chmod 755 {DIRECTORY}/smartctl && echo /usr/sbin/smartctl > {DIRECTORY}/real && : > {DIRECTORY}/calls"
    ));
    context.sh(&format!("sed -i 's,^command = .*,command = \"{DIRECTORY}/smartctl\",' {CONFIG} && systemctl reload diskvitalsd"));
}

/// A query that still runs may write into the directory while it is removed.
fn smartctl_again(context: &mut Context) {
    context.sh(&format!(
        "sed -i 's,^command = .*,command = \"/usr/sbin/smartctl\",' {CONFIG} && systemctl reload diskvitalsd && \
         until rm -rf {DIRECTORY}; do sleep 0.1; done"
    ));
}

/// `nvme6` of `nvme6n1`.
fn controller(context: &mut Context, drive: &Drive) -> String {
    let name = context.kernel_name(drive);
    name.rsplit_once('n').map_or(name.clone(), |(controller, _)| controller.to_owned())
}

pub fn a_broken_smartctl(context: &mut Context) {
    let odd = [
        (drives::NVME_HANGS, "hang"),
        (drives::NVME_FLOODS, "flood"),
        (drives::NVME_HALF, "half"),
        (drives::NVME_DIES, "signal SEGV"),
    ];
    let restarts = context.sh("systemctl show -P NRestarts diskvitalsd");
    for (drive, _) in &odd {
        answered(context, drive.id);
    }
    in_its_place(context);
    for (drive, what) in &odd {
        let device = controller(context, drive);
        context.sh(&format!("smartctl -j -x /dev/{device} > {DIRECTORY}/dev/{device}.json; echo '{what}' > {DIRECTORY}/dev/{device}.does"));
        refresh(context, drive.id);
    }
    // By now one query hangs, until its time-out.
    let before = answered(context, drives::NVME_WARNS.id)["smart"]["answered"].clone();
    refresh(context, drives::NVME_WARNS.id);
    context.until("another drive answers meanwhile", |context| {
        shown_drive(context, drives::NVME_WARNS.id)
            .filter(|drive| drive["smart"]["answered"] != before)
    });
    for (drive, what) in &odd {
        context.until(&format!("of what does `{what}` nothing is known"), |context| {
            let drive = shown_drive(context, drive.id)?;
            let stuck = drive["findings"]
                .as_array()?
                .iter()
                .any(|finding| finding["reason"] == "ProbeTimeout");
            (drive["health"] == "HEALTH_UNKNOWN" || stuck).then_some(())
        });
        context.never_raised(
            drive.id,
            &["SmartFailing", "SmartUnavailable", "MediaErrors", "IoErrors", "DriveMissing"],
        );
    }
    let status = context.sh("cat /proc/$(systemctl show -P MainPID diskvitalsd)/status");
    let peak: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse().ok())
        .expect("a number");
    assert!(peak < 64 << 10, "the daemon has grown to {peak} KiB");
    assert_eq!(
        context.sh("systemctl show -P NRestarts diskvitalsd"),
        restarts,
        "the daemon has been restarted"
    );

    smartctl_again(context);
    for (drive, what) in &odd {
        refresh(context, drive.id);
        context.until(&format!("after `{what}` the drive is GOOD"), |context| {
            shown_drive(context, drive.id).filter(|drive| drive["health"] == "HEALTH_GOOD")
        });
    }
}

/// The drive is removed while smartctl queries it.
pub fn unplugged_during_a_query(context: &mut Context) {
    let drive = drives::NVME_TORN;
    answered(context, drive.id);
    in_its_place(context);
    let device = controller(context, &drive);
    context.sh(&format!("echo 5 > {DIRECTORY}/dev/{device}.sleep"));
    refresh(context, drive.id);
    context.until("the query runs", |context| {
        (context.try_sh(&format!("grep '^begin.*/dev/{device}$' {DIRECTORY}/calls")).status == 0)
            .then_some(())
    });
    context.guest.unplug(&drive);
    context.until("the drive is missing", |context| context.active(drive.id, "DriveMissing"));
    context.sh(&format!("rm {DIRECTORY}/dev/{device}.sleep"));
    context.guest.plug(&drive, Bus::Nvme(5));
    context.expect_cleared(drive.id, "DriveMissing");
    smartctl_again(context);
    context.until("the drive is GOOD", |context| {
        shown_drive(context, drive.id).filter(|drive| drive["health"] == "HEALTH_GOOD")
    });
    answered(context, drive.id);
    context.never_raised(
        drive.id,
        &[
            "SmartFailing",
            "SmartUnavailable",
            "ProbeTimeout",
            "SmartAttributeFailing",
            "SpareLow",
            "DriveReadOnly",
        ],
    );
}
