//! The same with real processes: a smartctl that is a script, and the one that is installed here,
//! if any.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::fake::{Lab, healthy, settings, target};
use crate::context::SmartSettings;
use crate::smart::backend::HostBackend;
use diskvitals_finding::source::Source;
use diskvitals_host::exec::{self, Exec};
use diskvitals_host::root::HostRoot;
use diskvitals_host::worker_pool::{WorkerPool, WorkerPoolConfig};
use diskvitals_model::drive::Transport;
use diskvitals_model::source_update::{SmartTarget, SourceStatus, SourceUpdate};
use diskvitals_smart::SmartResponse;

const PATIENCE: Duration = Duration::from_secs(60);

/// Put there by a process of its own: while another test starts one, a file that we have written
/// may count as still being written (ETXTBSY).
async fn script(dir: &tempfile::TempDir) -> PathBuf {
    let (draft, program) = (dir.path().join("draft"), dir.path().join("smartctl"));
    std::fs::write(dir.path().join("answer"), healthy("SDE").to_string()).unwrap();
    let text = format!(
        r#"#!/bin/sh
for last; do :; done
case $last in
--version) echo '{{"smartctl":{{"version":[7,3],"exit_status":0}}}}' ;;
/dev/sda) trap '' TERM; while :; do sleep 1000; done ;;
/dev/sdb) exec head -c 100000000 /dev/zero ;;
/dev/sdc) head -c 50 {answer} ;;
/dev/sdd) kill -KILL $$ ;;
*) exec cat {answer} ;;
esac
"#,
        answer = dir.path().join("answer").display()
    );
    std::fs::write(&draft, text).unwrap();
    let args = vec!["-m755".to_owned(), draft.display().to_string(), program.display().to_string()];
    let install = Exec {
        program: "/usr/bin/install".into(),
        args,
        stdin: Vec::new(),
        timeout: PATIENCE,
        max_output: 1000,
    };
    assert_eq!(exec::run(&install).await.unwrap().status, 0);
    program
}

fn lab(command: PathBuf, targets: Vec<SmartTarget>) -> Lab {
    let workers = WorkerPool::start(WorkerPoolConfig {
        program: "/nonexistent".into(),
        args: Vec::new(),
        active: 1,
        max_stuck: 1,
    });
    let smart =
        SmartSettings { command, timeout: Duration::from_secs(3), at_once: 2, ..settings() };
    super::fake::lab_of(
        HostBackend { workers, root: HostRoot::new("/") },
        HostRoot::new("/"),
        targets,
        smart,
    )
}

async fn next(lab: &mut Lab, drive: &str) -> SmartResponse {
    loop {
        let report = tokio::time::timeout(PATIENCE, lab.reports.recv())
            .await
            .expect("in time")
            .expect("it runs");
        match report {
            SourceUpdate::Smart { drive: of, response: answer, .. } if of.as_str() == drive => {
                return *answer;
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_smartctl_that_hangs_floods_truncates_or_dies_fails_its_drive_alone() {
    let dir = tempfile::tempdir().unwrap();
    let program = script(&dir).await;
    let names = ["sda", "sdb", "sdc", "sdd", "sde"];
    for (drive, expected) in [
        ("sda", "has not ended after 3s"),
        ("sdb", "wrote more than 1024 KiB"),
        ("sdc", "is invalid"),
        ("sdd", "ended by signal 9"),
    ] {
        let mut lab = lab(program.clone(), names.map(target).into());
        match next(&mut lab, drive).await {
            SmartResponse::Failed { why } | SmartResponse::TimedOut { why } => {
                assert!(why.contains(expected), "{drive}: {why}")
            }
            other => panic!("{drive}: {other:?}"),
        }
    }
    let begun = Instant::now();
    let mut lab = lab(program.clone(), vec![target("sda"), target("sde")]);
    assert!(matches!(next(&mut lab, "sde").await, SmartResponse::Report(_)));
    assert!(begun.elapsed() < PATIENCE);
}

#[tokio::test]
async fn the_installed_smartctl_reports_its_version_and_rejects_a_non_device() {
    let installed = PathBuf::from("/usr/sbin/smartctl");
    if !installed.exists() {
        return;
    }
    let virtio = SmartTarget { transport: Transport::Virtio, serial: None, ..target("vda") };
    let mut lab = lab(installed, vec![virtio]);
    loop {
        match tokio::time::timeout(PATIENCE, lab.reports.recv())
            .await
            .expect("in time")
            .expect("it runs")
        {
            SourceUpdate::Source { source: Source::Smart, status: SourceStatus::Down(why) } => {
                panic!("{why}")
            }
            SourceUpdate::Smart { response, .. } => {
                assert!(
                    matches!(
                        *response,
                        SmartResponse::NotApplicable { .. } | SmartResponse::Failed { .. }
                    ),
                    "{response:?}"
                );
                return;
            }
            _ => {}
        }
    }
}
