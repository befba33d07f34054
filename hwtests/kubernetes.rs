//! End to end on a real Kubernetes: the chart as shipped, its image, the kubelet's own calls, and
//! what appears in pods and nodes. Start with `hwtests/kubernetes/README.md`.
//!
//! Each test installs the chart and removes it completely. The tests run in the cluster that
//! `hwtests/kubernetes/cluster` starts, one after the other, and are ignored outside of it.
#[path = "../tests/support/programs.rs"]
mod programs;
mod support;

#[path = "../tests/support/smartctl.rs"]
#[allow(dead_code, reason = "the tests of SMART use the rest of it")]
mod smartctl;

#[path = "kubernetes/chart.rs"]
mod chart;
#[path = "kubernetes/claims.rs"]
mod claims;
#[path = "kubernetes/cluster.rs"]
mod cluster;
#[path = "kubernetes/controller.rs"]
mod controller;
#[path = "kubernetes/cordon.rs"]
mod cordon;
#[path = "kubernetes/cut_off.rs"]
mod cut_off;
#[path = "kubernetes/fake_disks.rs"]
mod fake_disks;
#[path = "kubernetes/fixture.rs"]
mod fixture;
#[path = "kubernetes/fleet.rs"]
mod fleet;
#[path = "kubernetes/host_daemon.rs"]
mod host_daemon;
#[path = "kubernetes/hostile.rs"]
mod hostile;
#[path = "kubernetes/load.rs"]
mod load;
#[path = "kubernetes/lost_records.rs"]
mod lost_records;
#[path = "kubernetes/nodes.rs"]
mod nodes;
#[path = "kubernetes/notify.rs"]
mod notify;
#[path = "kubernetes/one_configuration.rs"]
mod one_configuration;
#[path = "kubernetes/other_driver.rs"]
mod other_driver;
#[path = "kubernetes/release.rs"]
mod release;
#[path = "kubernetes/reporter.rs"]
mod reporter;
#[path = "kubernetes/returned.rs"]
mod returned;
#[path = "kubernetes/transcript.rs"]
mod transcript;
#[path = "kubernetes/two_nodes.rs"]
mod two_nodes;
#[path = "kubernetes/unclean.rs"]
mod unclean;
#[path = "kubernetes/versions.rs"]
mod versions;
#[path = "kubernetes/volumes.rs"]
mod volumes;
#[path = "kubernetes/withdrawal.rs"]
mod withdrawal;
#[path = "kubernetes/words.rs"]
mod words;
