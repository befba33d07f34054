//! The cordon of the pool with real errors: the pool's folder is on a loop device of which some
//! sectors fail.

use diskvitals_csi::wire::GetCapacityRequest;
use tonic::Code;

use super::fixture::{MIB, both, claim, ext4};
use crate::kernel_errors::{fail_until, on_a_server};
use crate::support::fuse::Fault;
use crate::support::shim::Csi;
use crate::support::tools::{mount_device, run};
use crate::support::{SOON, Testbed, eventually};

async fn capacity(csi: &Csi) -> Option<i64> {
    let mut controller = csi.controller();
    let answer = controller.get_capacity(GetCapacityRequest::default()).await;
    Some(answer.ok()?.into_inner().available_capacity)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_drive_below_the_pool_takes_no_new_volumes_until_its_errors_are_over() {
    const BYTES: u64 = 1 << 20;
    let testbed = Testbed::new();
    let image = testbed.image("pool.img", 256 << 20);
    run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &image]);
    let (served, disk) = on_a_server(&testbed, &image);
    mount_device(&disk.device, "ext4", &testbed.path("pool"), "");
    let (daemon, shim) = both(&testbed, "").await;
    let (csi, client) = (&shim.csi, &daemon.client);
    let drive = client.drive_named(disk.name()).await.id;
    eventually("the pool has room", SOON, async || capacity(csi).await.filter(|bytes| *bytes > 0))
        .await;
    let old = csi.create("pvc-old", 4 * MIB, ext4()).await.expect("made");

    // Sectors at the end, where the filesystem has nothing yet.
    served.fault(vec![Fault::reads(240 * BYTES..256 * BYTES)]);
    let bad = async || {
        let finding = client.finding(&drive, "IoErrors").await;
        finding.filter(|it| it.severity() == diskvitals_wire::Severity::Bad)
    };
    let bad = fail_until(&disk.device, &[241, 243, 245], bad).await;
    assert_eq!(capacity(csi).await, Some(0));
    let refused = csi.create("pvc-new", 4 * MIB, ext4()).await.expect_err("the pool is cordoned");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    for part in [disk.name(), "IoErrors since", "has no redundancy"] {
        assert!(refused.message().contains(part), "{refused:?}");
    }
    let node = client.node().await;
    assert_eq!(node.pool_cordons[0].drive_id, drive, "{node:#?}");

    client.acknowledge(&bad.id, "ordered").await.expect("acknowledged");
    assert_eq!(capacity(csi).await, Some(0), "an acknowledgement does not lift it");
    // The old volume is used as before.
    let old = claim(&testbed, &old, "pvc-old", ext4());
    old.up(csi).await;
    old.down(csi).await;

    served.fault(Vec::new());
    client.cleared(&bad.id, SOON).await;
    eventually("the pool has room again", SOON, async || {
        capacity(csi).await.filter(|bytes| *bytes > 0)
    })
    .await;
    let new = csi.create("pvc-new", 4 * MIB, ext4()).await.expect("made");
    claim(&testbed, &new, "pvc-new", ext4()).down(csi).await;
    assert!(client.node().await.pool_cordons.is_empty());
    daemon.stop().await;
}
