//! Commands without a daemon: the limits of a configuration file.

use std::path::Path;

use diskvitals_config as config;
use diskvitals_config::ConfigError;
use diskvitals_model::policy::Policy;

/// The policy of the daemon's configuration; the defaults if no file is named.
pub fn policy(file: Option<&Path>) -> Result<Policy, ConfigError> {
    file.map_or_else(|| Ok(Policy::default()), |file| Ok(config::load(Some(file), &[])?.policy()))
}
