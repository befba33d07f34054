//! Families about models of drives: time in service and failures, for failure rates over a fleet.

use std::collections::BTreeMap;
use std::fmt;

use diskvitals_exposition::families;
use diskvitals_exposition::families::{Families, FamilyRow};
use diskvitals_exposition::label::label;
use diskvitals_model::model_statistics::ModelTally;
use diskvitals_model::snapshot::Snapshot;

const FAMILIES: [FamilyRow<ModelTally>; 2] = families! {
    ModelTally:
    Counter "diskvitals_model_drive" in SECONDS:
        "Time for which drives of a model and firmware were present, added up, since the daemon's start."
        => |it, to| to.value(it.in_service.as_secs_f64());
    Counter "diskvitals_model_drive_failures":
        "Drives of a model and firmware that have failed since the daemon's start; each drive counts once, ever."
        => |it, to| to.value(it.failures);
};

pub(super) fn encode(families: &mut Families<'_>, snapshot: &Snapshot) -> fmt::Result {
    // Two names of which the ends are cut off may be one label.
    let mut tallies: BTreeMap<(String, String), ModelTally> = BTreeMap::new();
    for (key, tally) in snapshot.models.tallies() {
        let labels = (label(&key.model).into(), label(&key.firmware).into());
        let sum = tallies.entry(labels).or_default();
        sum.in_service += tally.in_service;
        sum.failures += tally.failures;
    }
    let models = tallies.iter();
    let models: Vec<_> = models
        .map(|((model, firmware), it)| ([("model", model.as_str()), ("firmware", firmware)], it))
        .collect();
    families.encode(&FAMILIES, &models)
}
