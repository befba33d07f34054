//! Commands without a daemon: the limits of a configuration file.

use std::path::Path;

use diskvitals_config as config;
use diskvitals_config::{Config, ConfigError};
use diskvitals_model::policy::Policy;

/// The policy of the daemon's configuration; the defaults and the package's advisories if no file is named.
pub fn policy(file: Option<&Path>) -> Result<Policy, ConfigError> {
    let config =
        file.map_or_else(|| Ok(Config::default()), |file| config::load(Some(file), &[]))?;
    Ok(config.policy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskvitals_analyze::smart::smart_from;

    #[test]
    fn a_recorded_file_is_judged_by_the_advisories_of_the_package() {
        let text =
            br#"{"smartctl": {"version": [7, 3], "exit_status": 0}, "device": {"protocol": "SCSI"},
            "scsi_vendor": "HP", "scsi_product": "VO1920JFDGV", "scsi_revision": "HPD2",
            "smart_status": {"passed": true}, "power_on_time": {"hours": 32000}}"#;
        let policy = policy(None).expect("no file");
        let answer = smart_from(text, "x.json".to_owned(), &policy.smart).expect("an answer");
        let [finding] = answer.findings.as_slice() else { panic!("{:?}", answer.findings) };
        assert_eq!(finding.reason.name(), "FirmwareNotice");
        assert!(finding.message.contains("(768 hours left)"), "{}", finding.message);
    }
}
