//! The kubelet's records as text: `vol_data.json` and the names of pod log folders. Pure.

use serde::Deserialize;

use diskvitals_finding::kubelet::PodName;

/// The used fields of a `vol_data.json`; the kubelet writes a flat map of strings (csi_util.go,
/// saveVolumeData). Other keys are ignored.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeData {
    pub driver_name: String,
    pub volume_handle: String,
    #[serde(rename = "specVolID")]
    pub spec_vol_id: String,
    pub volume_lifecycle_mode: String,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{0}")]
    Read(std::io::Error),
    #[error("not a record of the kubelet: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it names no {0}")]
    Missing(&'static str),
}

pub fn parse_volume_data(text: &[u8]) -> Result<VolumeData, RecordError> {
    let data: VolumeData = serde_json::from_slice(text)?;
    match &data {
        VolumeData { driver_name, .. } if driver_name.is_empty() => {
            Err(RecordError::Missing("driver (driverName)"))
        }
        VolumeData { volume_handle, .. } if volume_handle.is_empty() => {
            Err(RecordError::Missing("volume (volumeHandle)"))
        }
        _ => Ok(data),
    }
}

/// `NAMESPACE_NAME_UID` below /var/log/pods (pkg/kubelet/kuberuntime/helpers.go,
/// BuildPodLogsDirectory); none of the three contains an underscore.
pub fn parse_pod_log_folder(name: &str) -> Option<(String, PodName)> {
    let mut parts = name.split('_');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(namespace), Some(name), Some(uid), None) if ![namespace, name, uid].contains(&"") => {
            Some((
                uid.to_owned(),
                PodName { namespace: namespace.to_owned(), name: name.to_owned() },
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_published_record_is_read_and_unknown_keys_are_ignored() {
        let text = br#"{"attachmentID":"csi-1","driverName":"a.csi","nodeName":"n","specVolID":"pv-1","volumeHandle":"h","volumeLifecycleMode":"Persistent","later":"x"}"#;
        let data = parse_volume_data(text).expect("good");
        assert_eq!(
            (data.driver_name.as_str(), data.volume_handle.as_str(), data.spec_vol_id.as_str()),
            ("a.csi", "h", "pv-1")
        );
    }

    #[test]
    fn damage_is_an_error_that_says_what_is_wrong() {
        assert!(
            parse_volume_data(b"").is_err()
                && parse_volume_data(b"{\"driverName\":\"a").is_err()
                && parse_volume_data(b"[]").is_err()
        );
        assert!(
            parse_volume_data(b"{\"driverName\":\"a\"}")
                .expect_err("no handle")
                .to_string()
                .contains("volumeHandle")
        );
        assert!(parse_volume_data(b"{\"driverName\":7}").is_err());
    }

    #[test]
    fn a_log_folder_gives_the_pods_name() {
        let (uid, name) = parse_pod_log_folder("db_mysql-0_0f6b2a7e-1111").expect("good");
        assert_eq!(
            (uid.as_str(), name.namespace.as_str(), name.name.as_str()),
            ("0f6b2a7e-1111", "db", "mysql-0")
        );
        assert!(
            ["x", "a_b", "a_b_c_d", "__", "a__c"]
                .iter()
                .all(|name| parse_pod_log_folder(name).is_none())
        );
    }

    proptest! {
        #[test]
        fn junk_never_reads_as_a_record(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(data) = parse_volume_data(&text) {
                prop_assert!(!data.driver_name.is_empty() && !data.volume_handle.is_empty());
            }
        }
    }
}
