//! The chart's value sets against the API server, which rejects fields that no schema covers.

use crate::cluster;
use crate::fixture::{NAMESPACE, render_chart};

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn every_set_of_values_is_accepted_by_the_api_server() {
    let home = tempfile::tempdir().expect("a folder");
    // Of the chart, and of the claims in which the controller may carry out actions.
    for name in [NAMESPACE, "shop", "ware-house"] {
        let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n");
        cluster::try_kubectl(&["apply", "-f", "-"], &namespace).expect("the namespace");
    }
    let sets: Vec<_> = std::fs::read_dir("helm/diskvitals/ci")
        .expect("the sets of values")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    assert!(sets.len() >= 5, "{sets:?}");
    for set in sets {
        let manifest = render_chart(&set, home.path());
        // The Prometheus operator is not installed here; scripts/check-chart validates its kinds
        // against their definitions.
        let parts: Vec<&str> = manifest
            .split("\n---\n")
            .filter(|part| !part.contains("apiVersion: monitoring.coreos.com/"))
            .collect();
        let taken = cluster::try_kubectl(
            &["apply", "--dry-run=server", "--validate=strict", "-f", "-"],
            &parts.join("\n---\n"),
        );
        let taken = taken.unwrap_or_else(|error| panic!("{}: {error}", set.display()));
        assert!(
            taken.lines().all(|line| line.ends_with("(server dry run)")),
            "{}: {taken}",
            set.display()
        );
    }
    let wrong = "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: a.example.com}\nspec: {attachRequire: false}\n";
    let refused =
        cluster::try_kubectl(&["apply", "--dry-run=server", "--validate=strict", "-f", "-"], wrong)
            .expect_err("a wrong field must be rejected");
    assert!(refused.contains("unknown field"), "{refused}");
}
