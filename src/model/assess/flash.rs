//! The wear of an eMMC, which has no SMART: its own report in sysfs, as of the time when the kernel
//! initialized it. What it calls not defined is unknown.

use crate::assess::input::DriveInput;
use crate::assess::text::{SUSPECT, drive_name, evidence, raised, unknown};
use crate::drive::FlashHealth;
use diskvitals_finding::reason::Reason;
use diskvitals_finding::{Verdict, WitnessKind};
use diskvitals_smart::policy::DriveSmartPolicy;

/// The used share of the designed life. Source: `life_time`. SUSPECT from `wear_suspect_percent`, never
/// BAD. Clears never: wear does not fall.
pub(crate) fn worn_out(input: &DriveInput) -> Option<Verdict> {
    let used = |flash: &FlashHealth| {
        let codes = flash.life_time.map(|code| format!("{code:#04x}")).join(" ");
        Some((flash.used_percent()?, codes))
    };
    judge(input, Reason::WornOut, "life_time", used, |percent, terms| {
        let limit = terms.limits.wear_suspect_percent;
        (limit > 0 && percent >= limit)
            .then(|| format!("{percent} % or more of the designed life is used"))
    })
}

/// The reserved blocks. Source: `pre_eol_info`. SUSPECT from the drive's own warning, at 80 % of them;
/// never BAD, because what is left at `urgent` differs between models. Clears never.
pub(crate) fn spare_low(input: &DriveInput) -> Option<Verdict> {
    let used = |flash: &FlashHealth| {
        Some((flash.reserve_used_percent()?, format!("{:#04x}", flash.pre_eol_info)))
    };
    judge(input, Reason::SpareLow, "pre_eol_info", used, |percent, _| {
        (percent > 0).then(|| format!("{percent} % or more of the reserved blocks are used"))
    })
}

/// `used`: the percentage, and the file's text. `symptom`: None if it is well.
fn judge(
    input: &DriveInput,
    reason: Reason,
    file: &str,
    used: impl Fn(&FlashHealth) -> Option<(u64, String)>,
    symptom: impl Fn(u64, &DriveSmartPolicy) -> Option<String>,
) -> Option<Verdict> {
    let (known, facts) = (input.known, &input.known.facts);
    let (percent, text) = used(facts.flash.as_ref()?)?;
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
    let message = format!("{}: {symptom}, as of when the kernel initialized it", drive_name(known));
    let file = format!("/sys/block/{}/device/{file}", facts.name);
    let proof = vec![evidence(WitnessKind::Inventory, file, inventory.at()?, text)];
    raised(SUSPECT, message, proof, reason.clears(), None)
}
