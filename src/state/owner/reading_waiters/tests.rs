use std::time::Duration;

use super::*;
use crate::model::fixture::*;

fn host() -> TestHost {
    let mut world = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    world.read_all(0);
    world
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_all_its_readings_and_for_the_first_snapshot() {
    let mut world = host();
    let mut waiters = ReadingWaiters::default();
    let (reply, _answer) = oneshot::channel();
    let until = Instant::now() + Duration::from_secs(45);
    assert!(waiters.add(vec!["/data".into()], at(10), until, reply));
    let mut due = |world: &TestHost, settled| {
        let due = waiters.take_due(&world.facts, settled, Instant::now());
        let answered = |due: DueReply| (due.inventory, due.missing);
        due.into_iter().map(answered).collect::<Vec<_>>()
    };
    assert_eq!(due(&world, true), []);
    world.scan(11);
    assert_eq!(due(&world, true), []);
    world.probe("/data", healthy_probe(usage(GIB, GIB)), 12);
    assert_eq!(due(&world, false), []);
    assert_eq!(due(&world, true), [(true, Vec::new())]);
    assert_eq!(due(&world, true), []);
}

#[tokio::test(start_paused = true)]
async fn when_its_time_is_over_the_answer_says_what_is_missing() {
    let mut world = host();
    let mut waiters = ReadingWaiters::default();
    let (reply, _answer) = oneshot::channel();
    let until = Instant::now() + Duration::from_secs(45);
    assert!(waiters.add(vec!["/data".into()], at(10), until, reply));
    world.scan(11);
    tokio::time::sleep(Duration::from_secs(45)).await;
    let due = waiters.take_due(&world.facts, false, Instant::now());
    assert_eq!(due.len(), 1);
    assert!(due[0].inventory);
    assert_eq!(due[0].missing, ["/data has not been probed again"]);
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
