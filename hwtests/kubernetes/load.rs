//! A hundred volumes, one of which hangs: the duration of a kubelet round, and the resource use of
//! the containers.
//!
//! `DISKVITALS_MINUTES` sets how long resource use is measured (default: half a minute). The
//! figures are printed; docs/operations.md has those of a release image.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::claims::{As, DRIVER, given, is_running, pod, volume_health};
use crate::cluster::{self, SOON, TIME_LIMIT, apply, metric, pause, until};
use crate::fixture::Fixture;
use crate::support::Mode;

const PODS: usize = 10;
const OF_EACH: usize = 10;
const VOLUMES: usize = PODS * OF_EACH;
/// The kubelet's calls for each volume of a round.
const ROUND: [&str; 2] = ["NodeGetCapabilities", "NodeGetVolumeHealth"];

/// Duration in seconds of each health round's calls, and the number of volumes.
fn rounds() -> (f64, f64) {
    let of = |what: &str, method: &str| {
        metric(
            &format!("csi_operations_seconds_{what}"),
            &[&format!("driver_name=\"{DRIVER}\""), &format!("/csi.v1.Node/{method}\"")],
        )
        .unwrap_or(0.0)
    };
    (ROUND.iter().map(|method| of("sum", method)).sum(), of("count", "NodeGetVolumeHealth"))
}

/// Sums over all processes in a container.
#[derive(Clone, Debug)]
struct Cost {
    /// The program and its first argument.
    program: String,
    cpu: Duration,
    rss: u64,
}

/// By the name of the container's first process; its children count as its own. Containers with the
/// same name are listed separately.
fn costs(program: &str) -> Vec<Cost> {
    let mut costs = Vec::new();
    for process in procfs::process::all_processes().expect("/proc").flatten() {
        let Ok(stat) = process.stat() else { continue };
        // Its workers have the same name and are its children.
        if stat.comm == program && parent_is_not(stat.ppid, program) {
            let ticks = procfs::ticks_per_second();
            let own =
                stat.utime + stat.stime + u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
            let arguments = process.cmdline().unwrap_or_default();
            let program = format!("{program} {}", arguments.get(1).map_or("", String::as_str));
            costs.push(Cost {
                program,
                cpu: Duration::from_millis(own * 1000 / ticks),
                rss: stat.rss * procfs::page_size(),
            });
        }
    }
    costs
}

fn parent_is_not(parent: i32, program: &str) -> bool {
    procfs::process::Process::new(parent)
        .and_then(|process| process.stat())
        .map_or(true, |stat| stat.comm != program)
}

#[test]
#[ignore = "in a cluster: scripts/test kubernetes"]
fn a_round_of_the_kubelet_over_a_hundred_volumes_waits_for_none_that_hangs() {
    let mut fixture = Fixture::new();
    fixture.as_shipped();
    let disk = fixture.sata(1, 256).remove(0);
    let (hung, served) = fixture.failing_disk("hung", 64);
    let folder = fixture.path("static");
    crate::support::tools::mount_device(&disk.disk.device, "ext4", &folder, "");
    let name = |number: usize| format!("v-{number}");
    for number in 1..VOLUMES {
        let directory = folder.join(name(number));
        std::fs::create_dir(&directory).expect("a folder");
        fixture.configure(&format!(
            "[[static]]\nname = \"{}\"\ndirectory = \"{}\"\n",
            name(number),
            directory.display()
        ));
    }
    fixture.configure(&format!(
        "[[static]]\nname = \"{}\"\ndevice = \"{}\"\n",
        name(0),
        hung.device.display()
    ));
    let begun = Instant::now();
    fixture.install(&json!({"metrics": {"enabled": true, "address": "127.0.0.1"}}));
    let verdict = || {
        let drives = fixture.ask(&["drives"]).ok()?;
        drives["drives"].as_array()?.iter().find(|drive| drive["health"] == "HEALTH_GOOD").map(drop)
    };
    until("a drive has its first verdict", SOON, verdict);
    println!("first health {:.1?} after the installation began", begun.elapsed());

    let names: Vec<String> = (0..VOLUMES).map(name).collect();
    let mut objects = Vec::new();
    for (number, claims) in names.chunks(OF_EACH).enumerate() {
        objects.extend(claims.iter().flat_map(|claim| given(claim, DRIVER, claim, As::Filesystem)));
        let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
        objects.push(pod(&format!("p-{number}"), &claims, As::Filesystem));
    }
    let begun = Instant::now();
    apply(&objects);
    for number in 0..PODS {
        until("all pods run", TIME_LIMIT * 2, || is_running(&format!("p-{number}")).then_some(()));
    }
    println!("{VOLUMES} volumes in {PODS} pods run after {:.1?}", begun.elapsed());
    let shown = |text: String| {
        (0..PODS)
            .all(|number| text.contains(&format!("namespace=\"default\",pod=\"p-{number}\"")))
            .then_some(())
    };
    until("the daemon's metrics name the pods", SOON, || shown(cluster::scrape().ok()?));
    fixture.served(served).set(Mode::Hang);
    until("the hung volume is reported", TIME_LIMIT, || {
        volume_health("p-0", 0).filter(|conditions| !conditions.is_empty())
    });

    // At least three rounds, each of all volumes.
    let before = rounds();
    let volumes = until("three rounds", SOON * 2, || {
        Some(rounds().1 - before.1).filter(|more| *more >= 3.0 * VOLUMES as f64)
    });
    let round = (rounds().0 - before.0) / volumes * VOLUMES as f64;
    println!("a round of {VOLUMES} volumes takes the kubelet {round:.3} s");
    // The goal is for a release image. A debug build is slower, but does not wait for the hung
    // volume either.
    let goal = if std::env::var("DISKVITALS_PROFILE").is_ok_and(|profile| profile == "release") {
        2.0
    } else {
        20.0
    };
    assert!(round < goal, "{round} s");
    let others = (1..OF_EACH)
        .filter_map(|number| volume_health("p-0", number))
        .filter(|conditions| !conditions.is_empty())
        .count();
    assert_eq!(others, 0, "nothing is wrong with the others");

    let minutes: f64 = std::env::var("DISKVITALS_MINUTES")
        .map_or(0.5, |text| text.parse().expect("DISKVITALS_MINUTES is no number"));
    let time = Duration::from_secs_f64(minutes * 60.0);
    let all = || ["diskvitalsd", "diskvitals-csi"].map(costs).concat();
    let before = all();
    pause(time);
    let after = all();
    assert_eq!(before.len(), after.len(), "something was restarted: {after:?}");
    for (before, after) in before.iter().zip(&after) {
        let share =
            (after.cpu.saturating_sub(before.cpu)).as_secs_f64() / time.as_secs_f64() * 100.0;
        println!(
            "{}: {share:.2} % of a processor over {time:?}, {:.1} MiB",
            after.program,
            after.rss as f64 / f64::from(1 << 20)
        );
    }
    fixture.served(served).set(Mode::Pass);
    until("the findings are cleared", TIME_LIMIT, || volume_health("p-0", 0).filter(Vec::is_empty));
    fixture.end();
}
