use std::time::Duration;

use super::*;
use diskvitals_finding::observation::Observation;
use diskvitals_finding::source::Source;
use diskvitals_model::fixture::*;
use diskvitals_model::source_update::{SourceStatus, SourceUpdate};

fn host() -> TestHost {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    host.read_all(0);
    host
}

fn wanted() -> Vec<WantedReading> {
    vec![WantedReading::Hardware, WantedReading::Probe("/data".into())]
}

#[tokio::test(start_paused = true)]
async fn the_mount_table_and_the_kubelets_records_are_waited_for_without_the_hardware() {
    let mut host = host();
    let mut waiters = ReadingWaiters::default();
    let (reply, _answer) = oneshot::channel();
    let until = Instant::now() + Duration::from_secs(10);
    let both = vec![WantedReading::MountTable, WantedReading::KubeletRecords];
    assert!(waiters.add(both, at(10), until, reply));
    let mut due = |host: &TestHost| {
        let due = waiters.take_due(&host.facts, true, Instant::now());
        due.into_iter().map(|due| (due.inventory, due.missing)).collect::<Vec<_>>()
    };
    host.read_mounts(11);
    assert_eq!(due(&host), []);
    host.apply(SourceUpdate::Kubelet(Observation::failed(at(12), "no")), 12);
    let failed = "the kubelet's directory could not be read: no".to_owned();
    assert_eq!(due(&host), [(false, vec![failed])]);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_all_its_readings_and_for_the_first_snapshot() {
    let mut host = host();
    let mut waiters = ReadingWaiters::default();
    let (reply, _answer) = oneshot::channel();
    let until = Instant::now() + Duration::from_secs(45);
    assert!(waiters.add(wanted(), at(10), until, reply));
    let mut due = |host: &TestHost, settled| {
        let due = waiters.take_due(&host.facts, settled, Instant::now());
        let answered = |due: DueReply| (due.inventory, due.missing);
        due.into_iter().map(answered).collect::<Vec<_>>()
    };
    assert_eq!(due(&host, true), []);
    host.scan(11);
    assert_eq!(due(&host, true), []);
    host.probe("/data", healthy_probe(usage(GIB, GIB)), 12);
    assert_eq!(due(&host, false), []);
    assert_eq!(due(&host, true), [(true, Vec::new())]);
    assert_eq!(due(&host, true), []);
}

#[tokio::test(start_paused = true)]
async fn when_its_time_is_over_the_answer_says_what_is_missing() {
    let mut host = host();
    let mut waiters = ReadingWaiters::default();
    let (reply, _answer) = oneshot::channel();
    let until = Instant::now() + Duration::from_secs(45);
    assert!(waiters.add(wanted(), at(10), until, reply));
    host.scan(11);
    tokio::time::sleep(Duration::from_secs(45)).await;
    let due = waiters.take_due(&host.facts, false, Instant::now());
    assert_eq!(due.len(), 1);
    assert!(due[0].inventory);
    assert_eq!(due[0].missing, ["/data has not been probed again"]);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_not_read_is_no_log_without_errors() {
    let mut host = host();
    let mut waiters = ReadingWaiters::default();
    let mut ask = |host: &TestHost| {
        let (reply, _answer) = oneshot::channel();
        assert!(waiters.add(
            vec![WantedReading::KernelLog(Vec::new())],
            at(10),
            Instant::now(),
            reply
        ));
        let due = waiters.take_due(&host.facts, true, Instant::now());
        due.into_iter().map(|due| (due.kernel_log, due.missing)).collect::<Vec<_>>()
    };
    let unread = "kernel-log has not been read yet".to_owned();
    assert_eq!(ask(&host), [(false, vec![unread])]);
    let status = SourceStatus::Active("/dev/kmsg".into());
    host.apply(SourceUpdate::Source { source: Source::KernelLog, status }, 11);
    assert_eq!(ask(&host), [(true, Vec::new())]);
}

#[tokio::test]
async fn too_many_requests_are_refused_and_callers_that_left_make_room() {
    let mut waiters = ReadingWaiters::default();
    let until = Instant::now() + Duration::from_secs(45);
    let mut add = || {
        let (reply, answer) = oneshot::channel();
        (waiters.add(Vec::new(), at(0), until, reply), answer)
    };
    let callers: Vec<_> = (0..MAX_WAITERS).map(|_| add()).collect();
    assert!(callers.iter().all(|(fits, _)| *fits));
    assert!(!add().0);
    drop(callers);
    assert!(add().0);
}
