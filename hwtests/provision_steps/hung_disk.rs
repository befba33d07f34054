//! A disk that does not answer: its own steps are stuck, all others continue.

use std::time::Duration;

use diskvitals_provision::step::{Content, Step, StepErrorKind, StepExecutor, StepOutput};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::fixture::{Fixture, MIB};
use crate::support::{FuseServer, Mode, SOON, eventually};

const TIME_LIMIT: Duration = Duration::from_secs(3);

/// A loop device over a FUSE file whose server can hang.
fn hanging(fixture: &Fixture) -> (FuseServer, Step) {
    let backing = fixture.testbed.image("backing.img", 16 * MIB);
    let served = FuseServer::mount(&fixture.testbed.path("fuse"), &backing);
    let disk = fixture.testbed.attach(&served.file());
    (served, Step::ProbeContent { device: super::fixture::path(&disk.device) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_on_a_hung_disk_is_stuck_with_its_wait_state_and_others_continue() {
    let fixture = Fixture::with_max_timeout(TIME_LIMIT);
    let (served, look) = hanging(&fixture);
    served.set(Mode::Hang);
    let (kind, why) = fixture.refused(look.clone()).await;
    assert!(kind == StepErrorKind::Stuck && why.contains("it waits in"), "{why}");
    assert_eq!(
        fixture.steps.stuck().iter().map(|stuck| *stuck.borrow()).collect::<Vec<_>>(),
        [0, 0, 1]
    );
    let (kind, why) = fixture.refused(Step::DirectoryCapacity { folder: "/".into() }).await;
    assert!(
        kind == StepErrorKind::Stuck && why.contains("was not begun"),
        "the same device, although at another path: {why}"
    );
    let other = fixture.attached_for("other", 8 * MIB).await;
    let looked = fixture.steps.execute("other", Step::ProbeContent { device: other }).await;
    assert_eq!(looked, Ok(StepOutput::Content(Content::Blank)));

    served.set(Mode::Pass);
    let blank =
        eventually("the target is free again", SOON, async || fixture.run(look.clone()).await.ok())
            .await;
    assert_eq!(blank, StepOutput::Content(Content::Blank));
    assert!(fixture.steps.stuck().iter().all(|stuck| *stuck.borrow() == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_filesystem_is_discovered_and_lazily_unmounted_without_access_to_it() {
    let fixture = Fixture::with_max_timeout(TIME_LIMIT);
    let backing = fixture.testbed.image("backing.img", MIB);
    let served = FuseServer::mount(fixture.target("hung").path.as_path(), &backing);
    served.set(Mode::Hang);
    let StepOutput::Mounted { mounted: Some(mounted) } =
        fixture.twice(Step::FindMount { target: fixture.target("hung"), folder: None }).await
    else {
        panic!("nothing is mounted")
    };
    assert_eq!(mounted.fs_type, "fuse.dvhw");
    fixture.twice(Step::Unmount { target: fixture.target("hung"), lazy: true }).await;
    fixture.twice(Step::RemoveTarget { target: fixture.target("hung"), owner: None }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_step_worker_fails_its_step_and_another_worker_takes_the_next() {
    let fixture = Fixture::new();
    let (served, look) = hanging(&fixture);
    fixture.run(look.clone()).await.expect("it answers");
    served.set(Mode::Hang);
    let steps = fixture.steps.clone();
    let pending = tokio::spawn({
        let look = look.clone();
        async move { steps.execute("v", look).await }
    });
    let mine = std::process::id();
    let worker = eventually("blkid is started", SOON, async || {
        children(mine).into_iter().find(|pid| !children(*pid).is_empty())
    })
    .await;
    kill(Pid::from_raw(i32::try_from(worker).expect("a number")), Signal::SIGKILL)
        .expect("it is ours");
    let error = pending.await.expect("its task").expect_err("killed");
    assert!(
        error.kind == StepErrorKind::Other && error.message.contains("ended without an answer"),
        "{error:?}"
    );
    served.set(Mode::Pass);
    assert_eq!(fixture.run(look).await, Ok(StepOutput::Content(Content::Blank)));
}

/// Child processes of this process.
fn children(of: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parent = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    all.filter(|pid| parent(pid) == Some(of)).collect()
}

impl Fixture {
    async fn attached_for(&self, target: &str, size: u64) -> diskvitals_finding::path::HostPath {
        let image = self.image("other.img");
        self.steps
            .execute(target, Step::CreateImage { image: image.clone(), size })
            .await
            .expect("an image");
        let attached = self
            .steps
            .execute(target, Step::AttachImage { image, read_only: false })
            .await
            .expect("a device");
        super::fixture::device(attached).node
    }
}
