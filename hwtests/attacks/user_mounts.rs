//! FUSE filesystems of users. The kernel shows who mounted them; type and source are texts of the
//! user. They must be in the daemon's list as mounts of that user, and nowhere else.

use diskvitals_wire::{Health, UserMounts};

use crate::support::tools::mount_device;
use crate::support::{Daemon, FuseServer, Mode, SOON, Testbed, eventually};

const USER: u32 = 4001;

/// Twenty that call themselves a network filesystem, that everybody may enter, and that do not
/// answer: more than the stuck probes that filesystems of one type may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_mounts_of_a_user_are_listed_as_the_users_and_never_probed_or_judged() {
    const HANGING: u32 = 20;
    let testbed = Testbed::new();
    let content = testbed.image("content", 4096);
    let hostile: Vec<FuseServer> = (0..HANGING)
        .map(|number| {
            let at = testbed.path(format!("u/h{number}"));
            FuseServer::mount_as(USER, "s3fs", &at, &content)
        })
        .collect();
    // The same type, mounted by root.
    let at = testbed.path("mnt/far");
    let far = FuseServer::mount_as(0, "s3fs", &at, &content);
    let far_id = format!("mnt:{}", at.display());
    let disk = testbed.ext4("good.img", 64, &[]);
    let good = testbed.path("mnt/good");
    mount_device(&disk.device, "ext4", &good, "");
    let good_id = format!("mnt:{}", good.display());
    hostile.iter().for_each(|server| server.set(Mode::Hang));
    let before: Vec<usize> = hostile.iter().map(FuseServer::received).collect();

    let daemon = Daemon::start(&testbed).await;
    let client = &daemon.client;
    let expected = UserMounts { uid: USER, listed: HANGING, not_listed: 0 };
    eventually("they are in the list as the user's", SOON, async || {
        let listed = client.node().await.user_mounts;
        listed.contains(&expected).then_some(())
    })
    .await;
    let path = testbed.path("u/h0").display().to_string();
    let refused = client.try_volume(&path).await.expect_err("it is no volume");
    let why = "fuse.s3fs is mounted there by the user with uid 4001";
    assert!(refused.message().contains(why), "{refused}");

    let others = [far_id.as_str(), good_id.as_str()];
    for id in others {
        client.normal(id).await;
    }
    // Longer than the time-out of a probe.
    for _ in 0..3 {
        client.probed_anew(&others).await;
    }
    let after: Vec<usize> = hostile.iter().map(FuseServer::received).collect();
    assert_eq!(after, before, "requests to the servers of the user");
    assert_eq!(client.node().await.stuck_probes, 0);
    let folder = testbed.path("u").display().to_string();
    let findings = client.findings(true).await;
    let of_user = findings.iter().find(|it| format!("{it:?}").contains(&folder));
    assert!(of_user.is_none(), "{of_user:#?}");
    let volumes = client.volumes().await;
    let of_user = volumes.iter().find(|it| it.id.contains(&folder));
    assert!(of_user.is_none(), "{of_user:#?}");

    // A hang of root's is still found.
    far.set(Mode::Hang);
    client.raised(&far_id, "ProbeTimeout", SOON).await;
    far.set(Mode::Pass);
    client.normal(&far_id).await;
    daemon.stop().await;
}

/// Over the folder above a volume, and over the volume itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_a_mount_of_a_user_hides_is_unknown_until_it_is_gone() {
    let testbed = Testbed::new();
    let content = testbed.image("content", 4096);
    let disk = testbed.ext4("disk.img", 64, &[]);
    let home = testbed.path("mnt/home");
    let at = home.join("disk");
    mount_device(&disk.device, "ext4", &at, "");
    let id = format!("mnt:{}", at.display());
    let daemon = Daemon::start(&testbed).await;
    let client = &daemon.client;
    client.normal(&id).await;

    for over in [&home, &at] {
        let server = FuseServer::mount_as(USER, "s3fs", over, &content);
        server.set(Mode::Hang);
        let volume = eventually("it is unknown", SOON, async || {
            let volume = client.try_volume(&id).await.ok()?;
            (volume.health() == Health::Unknown).then_some(volume)
        })
        .await;
        let why =
            format!("uid {USER} has mounted a FUSE filesystem over it, at {}", over.display());
        assert!(volume.health_unknown_why.contains(&why), "{volume:#?}");
        assert!(volume.findings.is_empty(), "{volume:#?}");
        drop(server);
        // A lookup of the daemon may still wait in it.
        eventually("it is unmounted", SOON, async || nix::mount::umount(over).ok()).await;
        client.normal(&id).await;
    }
    daemon.stop().await;
}
