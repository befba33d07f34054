//! End to end on a real Kubernetes: the chart as shipped, its image, the kubelet's own calls, and
//! what of it stands in pods and nodes. `hwtests/kubernetes/README.md` is the way in.
//!
//! Each test installs the chart for itself and leaves nothing. They run in the cluster that
//! `hwtests/kubernetes/cluster` makes, one after the other, and are ignored where there is none.
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
#[path = "kubernetes/fake_disks.rs"]
mod fake_disks;
#[path = "kubernetes/fixture.rs"]
mod fixture;
#[path = "kubernetes/host_daemon.rs"]
mod host_daemon;
#[path = "kubernetes/hostile.rs"]
mod hostile;
#[path = "kubernetes/load.rs"]
mod load;
#[path = "kubernetes/other_driver.rs"]
mod other_driver;
#[path = "kubernetes/reporter.rs"]
mod reporter;
#[path = "kubernetes/versions.rs"]
mod versions;
#[path = "kubernetes/volumes.rs"]
mod volumes;
