//! The settings of the owner that a reload may change.

use std::sync::Arc;

use crate::model::ledger::RetentionLimits;
use crate::model::policy::{Policy, VolumeSettings};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssessmentSettings {
    pub policy: Policy,
    /// What counts as a volume.
    pub volumes: VolumeSettings,
    /// How much history is kept.
    pub history: RetentionLimits,
}

pub type SharedAssessmentSettings = Arc<AssessmentSettings>;
