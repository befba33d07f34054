//! A node's list of taints: one field, which is written as a whole.
//!
//! In: the list, and our taint. Out: the list with or without it.

use k8s_openapi::api::core::v1::Taint;

/// All other taints stay as they are.
pub(crate) fn with_taint(taints: &[Taint], key: &str, value: Option<&str>) -> Vec<Taint> {
    let others = taints.iter().filter(|taint| taint.key != key).cloned();
    let ours = value.map(|value| Taint {
        key: key.to_owned(),
        value: Some(value.to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    });
    others.chain(ours).collect()
}
