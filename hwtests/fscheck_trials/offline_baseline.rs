//! What the offline checkers find of each kind of damage, and which damaged filesystems can be
//! mounted: the baseline of the trials, without a daemon.

use std::path::Path;
use std::time::Duration;

use diskvitals_fscheck::Filesystem;

use crate::fixture::{self, Mountable, MountedImage};
use crate::support::load::Load;
use crate::support::offline::{self, OfflineResult};
use crate::support::tools::run;
use crate::support::{Testbed, corrupt};

/// Returns whether all kinds are visible and the undamaged filesystems are clean.
pub fn show(filesystems: &[Filesystem], seed: u64) -> bool {
    let testbed = Testbed::new();
    let mut good = true;
    for filesystem in filesystems {
        let filesystem = *filesystem;
        let pristine = fixture::pristine(
            &testbed,
            filesystem,
            &format!("{}-pristine", filesystem.name()),
            seed,
        );
        let truth = offline::check(filesystem, &pristine);
        println!("{} undamaged: {truth:?}", filesystem.name());
        good &= truth == OfflineResult::Clean;
        good &= under_load(&testbed, filesystem, &pristine, seed);
        let (mut visible, mut mounting) = (0, 0);
        let kinds = corrupt::kinds(filesystem);
        for kind in &kinds {
            match fixture::damaged(&testbed, filesystem, *kind, &pristine, seed) {
                Ok(damaged) => {
                    visible += 1;
                    let mounts = match &damaged.mount {
                        Mountable::Yes => {
                            mounting += 1;
                            "mounts".to_owned()
                        }
                        Mountable::No(why) => format!("unmounted only: {why}"),
                    };
                    println!(
                        "{} {}: {}\n    {mounts}\n    {}",
                        filesystem.name(),
                        damaged.kind,
                        damaged.what,
                        damaged.truth.join("\n    ")
                    );
                    std::fs::remove_file(&damaged.image).expect("the image");
                }
                Err(why) => {
                    good = false;
                    println!("{} {}: NO DAMAGE: {why}", filesystem.name(), kind.0);
                }
            }
        }
        println!(
            "{}: {visible} of {} kinds are visible offline, {mounting} of them mount\n",
            filesystem.name(),
            kinds.len()
        );
    }
    good
}

/// Writers wait while it is frozen, continue afterwards, and leave a healthy filesystem behind.
fn under_load(testbed: &Testbed, filesystem: Filesystem, pristine: &Path, seed: u64) -> bool {
    let name = format!("{}-load", filesystem.name());
    let image = fixture::copy(testbed, filesystem, pristine, &name);
    let mounted =
        MountedImage::new(testbed, filesystem, &image, &name).expect("a healthy filesystem mounts");
    let load = Load::start(&mounted.at, 3, seed);
    // Time for the load, the freeze, and the load again.
    let wait = |time| std::thread::park_timeout(time);
    wait(Duration::from_secs(2));
    run("/usr/sbin/fsfreeze", &[&"--freeze", &mounted.at]);
    wait(Duration::from_secs(1));
    run("/usr/sbin/fsfreeze", &[&"--unfreeze", &mounted.at]);
    wait(Duration::from_secs(1));
    let written = load.stop();
    mounted.end();
    let truth = offline::check(filesystem, &image);
    std::fs::remove_file(&image).expect("the image");
    println!(
        "{} under load, frozen for 1 s meanwhile: {written:?}; afterwards {truth:?}",
        filesystem.name()
    );
    truth == OfflineResult::Clean
        && written.longest >= Duration::from_millis(900)
        && written.stuck == 0
}
