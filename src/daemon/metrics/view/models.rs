//! Families about models of drives: time in service and failures, for failure rates over a fleet.

use std::collections::BTreeMap;
use std::fmt;

use diskvitals_exposition::families::{Families, SECONDS};
use diskvitals_exposition::label::label;
use diskvitals_model::model_statistics::ModelTally;
use diskvitals_model::snapshot::Snapshot;

pub(super) fn encode(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    // Two names of which the ends are cut off may be one label.
    let mut tallies: BTreeMap<(String, String), ModelTally> = BTreeMap::new();
    for (key, tally) in snapshot.models.tallies() {
        let labels = (label(&key.model).into(), label(&key.firmware).into());
        let sum = tallies.entry(labels).or_default();
        sum.in_service += tally.in_service;
        sum.failures += tally.failures;
    }
    let help = "Time for which drives of a model and firmware were present, added up, since the daemon's start.";
    let mut family = families.counter("diskvitals_model_drive", Some(&SECONDS), help)?;
    for ((model, firmware), tally) in &tallies {
        family.fractional_count(
            &[("model", model.as_str()), ("firmware", firmware.as_str())],
            tally.in_service.as_secs_f64(),
        )?;
    }
    let help = "Drives of a model and firmware that have failed since the daemon's start; each drive counts once, ever.";
    let mut family = families.counter("diskvitals_model_drive_failures", None, help)?;
    for ((model, firmware), tally) in &tallies {
        family
            .count(&[("model", model.as_str()), ("firmware", firmware.as_str())], tally.failures)?;
    }
    Ok(())
}
