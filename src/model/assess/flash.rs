//! The wear of eMMC and UFS, which have no SMART: their own report in sysfs. That of an eMMC is as of the
//! time when the kernel initialized it. What it calls not defined is unknown.

use crate::assess::input::DriveInput;
use crate::assess::text::{SUSPECT, drive_name, evidence, raised, unknown};
use crate::drive::FlashHealth;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Verdict, WitnessKind};
use diskvitals_smart::policy::DriveSmartPolicy;

/// The used share of the designed life. Source: `life_time`, of UFS `life_time_estimation_a` and `_b`. SUSPECT from `wear_suspect_percent`, never
/// BAD. Clears never: wear does not fall.
pub(crate) fn worn_out(input: &DriveInput) -> Option<Verdict> {
    let used = |flash: &FlashHealth| {
        let codes = flash.life_time.map(|code| format!("{code:#04x}")).join(" ");
        Some((flash.used_percent()?, codes))
    };
    judge(
        input,
        Reason::WornOut,
        ["life_time", "life_time_estimation_*"],
        used,
        |percent, terms| {
            let limit = terms.limits.wear_suspect_percent;
            (limit > 0 && percent >= limit)
                .then(|| format!("{percent} % or more of the designed life is used"))
        },
    )
}

/// The reserved blocks. Source: `pre_eol_info`, of UFS `eol_info`. SUSPECT from the drive's own warning, at 80 % of them;
/// never BAD, because what is left at `urgent` differs between models. Clears never.
pub(crate) fn spare_low(input: &DriveInput) -> Option<Verdict> {
    let used = |flash: &FlashHealth| {
        Some((flash.reserve_used_percent()?, format!("{:#04x}", flash.pre_eol_info)))
    };
    judge(input, Reason::SpareLow, ["pre_eol_info", "eol_info"], used, |percent, _| {
        (percent > 0).then(|| format!("{percent} % or more of the reserved blocks are used"))
    })
}

/// `files`: of eMMC and of UFS. `used`: the percentage, and the file's text. `symptom`: None if it is well.
fn judge(
    input: &DriveInput,
    reason: Reason,
    files: [&str; 2],
    used: impl Fn(&FlashHealth) -> Option<(u64, String)>,
    symptom: impl Fn(u64, &DriveSmartPolicy) -> Option<String>,
) -> Option<Verdict> {
    let known = input.known;
    let report = input.context.facts.flash(known)?;
    let (percent, text) = used(&report.health)?;
    let terms = input.smart_policy();
    if terms.ignore_reasons.contains(&reason) {
        return Some(Verdict::Clear);
    }
    let inventory = &input.context.facts.inventory;
    if let Some(why) = inventory.error() {
        return unknown(why);
    }
    if known.missing_since.is_some() {
        return unknown("the drive is missing");
    }
    let Some(symptom) = symptom(percent, &terms) else {
        return Some(Verdict::Clear);
    };
    let (file, as_of) = match report.is_cached {
        true => (files[0], ", as of when the kernel initialized it"),
        false => (files[1], ""),
    };
    let message = format!("{}: {symptom}{as_of}", drive_name(known));
    let file = format!("{}/{file}", report.folder);
    let proof = vec![evidence(WitnessKind::Inventory, file, report.at, text)];
    raised(SUSPECT, message, proof, reason.clears(), None)
}
