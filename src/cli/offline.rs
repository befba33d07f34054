//! Commands without a daemon: the limits of a configuration file.

use std::path::Path;

use crate::config;
use crate::config::ConfigError;
use diskvitals_model::policy::Policy;

/// The policy of the daemon's configuration; the defaults if no file is named.
pub(crate) fn policy(file: Option<&Path>) -> Result<Policy, ConfigError> {
    file.map_or_else(|| Ok(Policy::default()), |file| Ok(config::load(Some(file))?.policy()))
}
