//! The wall clock is stepped while a finding exists: nothing clears that is minutes old, its times
//! follow the clock, and the step is shown.

use std::time::Duration;

use crate::lab::context::Context;
use crate::lab::drives;
use crate::lab::faults::Error;

/// Longer than every quiet period.
const DAYS: i64 = 40;
/// More than one assessment of all rules.
const ASSESSED: Duration = Duration::from_secs(15);

pub fn stepped_forward_and_back(context: &mut Context) {
    let drive = drives::SCSI_RESTART;
    let name = context.kernel_name(&drive);
    context.guest.fail_reads(&drive, Error::Medium, &[320_000]);
    assert!(!context.read_sector(&drive.link(), 320_000));
    context.record(&[&format!("critical medium error, dev {name}, sector 320000 ")]);
    context.guest.heal(&drive);
    let since = since(context, drive.id);

    context.sh(&format!("date -s '+{DAYS} days'"));
    shown(context, &format!("{DAYS} d forward"));
    context.pass(ASSESSED);
    assert_moved(context, drive.id, since, DAYS);

    // The step back happens while no daemon runs.
    context.sh(&format!(
        "systemctl stop diskvitalsd; date -s '-{DAYS} days'; systemctl start diskvitalsd"
    ));
    shown(context, &format!("{DAYS} d back"));
    context.pass(ASSESSED);
    assert_moved(context, drive.id, since, 0);

    context.sh(&format!("date -s '-{DAYS} days'"));
    shown(context, &format!("{DAYS} d back"));
    context.pass(ASSESSED);
    assert_moved(context, drive.id, since, -DAYS);
    context.sh(&format!("date -s '+{DAYS} days'"));
    shown(context, &format!("{DAYS} d forward"));
    assert_moved(context, drive.id, since, 0);
}

/// The start of the drive's finding, in seconds.
fn since(context: &mut Context, drive: &str) -> i64 {
    let found =
        context.until("the finding is active", |context| context.active(drive, "MediaErrors"));
    let since = found["since"].as_str().expect("a time").to_owned();
    let seconds = context.sh(&format!("date -d {since} +%s"));
    seconds.trim().parse().expect("seconds")
}

fn assert_moved(context: &mut Context, drive: &str, before: i64, days: i64) {
    let moved = since(context, drive) - before - days * 86_400;
    assert!(moved.abs() <= 2, "since is wrong by {moved} s after a step");
}

fn shown(context: &mut Context, step: &str) {
    context.until(&format!("the status shows a step of {step}"), |context| {
        let node = context.guest.ask("status").ok()?;
        let warnings = node["warnings"].as_array()?;
        let step = format!("stepped by {step}");
        warnings
            .iter()
            .any(|warning| warning.as_str().is_some_and(|text| text.contains(&step)))
            .then_some(())
    });
}
