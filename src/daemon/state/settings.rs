//! The settings of the owner that a reload may change.

use std::sync::Arc;

use diskvitals_model::ledger::RetentionLimits;
use diskvitals_model::policy::{Policy, VolumeSettings};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssessmentSettings {
    pub policy: Policy,
    /// The settings that define volumes.
    pub volumes: VolumeSettings,
    /// Limits on stored history.
    pub history: RetentionLimits,
    /// What is wrong with the configuration file; shown until it is mended.
    pub config_warnings: Vec<String>,
}

pub type SharedAssessmentSettings = Arc<AssessmentSettings>;
