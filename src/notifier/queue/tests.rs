use super::*;
use crate::message::tests_support::sample;

const HOUR: Duration = Duration::from_secs(3600);

fn message(id: &str, kind: Kind) -> Arc<Notification> {
    Arc::new(Notification { id: id.to_owned(), kind, ..sample() })
}

fn queue() -> Queue {
    let mut queue = Queue::new(3, 24 * HOUR);
    queue.set_targets(&["chat", "mail"], 3, 24 * HOUR);
    queue
}

fn down() -> Result<String, DeliveryError> {
    Err(DeliveryError::unavailable("connecting: refused"))
}

fn ids(started: &[(String, Arc<Notification>)]) -> Vec<(&str, &str)> {
    started
        .iter()
        .map(|(target, notification)| (target.as_str(), notification.id.as_str()))
        .collect()
}

#[tokio::test]
async fn a_dead_target_delays_no_other_and_is_tried_at_growing_intervals() {
    let (mut queue, start) = (queue(), Instant::now());
    for target in ["mail", "chat"] {
        queue.push(target, &message("1", Kind::Changes), false, start);
        queue.push(target, &message("2", Kind::Changes), false, start);
    }
    let started = queue.start_due(start);
    assert_eq!(ids(&started), [("chat", "1"), ("mail", "1")]);
    assert_eq!(ids(&queue.start_due(start)), [], "one attempt at a time");
    queue.finish("mail", "1", down(), start);
    queue.finish("chat", "1", Ok("ok".to_owned()), start);
    assert_eq!(ids(&queue.start_due(start)), [("chat", "2")]);
    let mut waits = Vec::new();
    let mut now = start;
    for _ in 0..11 {
        let due = queue.next_due().expect("it waits");
        waits.push((due - now).as_secs());
        now = due;
        assert_eq!(ids(&queue.start_due(now)), [("mail", "1")], "in order");
        queue.finish("mail", "1", down(), now);
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
    queue.finish("chat", "2", Ok("ok".to_owned()), now);
    assert_eq!(queue.waiting(), 2);
}

#[tokio::test]
async fn a_refused_message_waits_alone_and_is_given_up_at_the_end() {
    let (mut queue, start) = (queue(), Instant::now());
    queue.push("mail", &message("1", Kind::Changes), false, start);
    queue.push("mail", &message("2", Kind::Changes), false, start);
    queue.start_due(start);
    queue.finish("mail", "1", Err(DeliveryError::refused("550 no")), start);
    assert_eq!(ids(&queue.start_due(start)), [("mail", "2")]);
    queue.finish("mail", "2", Ok("250".to_owned()), start);
    assert_eq!(queue.next_due(), Some(start + Duration::from_secs(300)));
    let late = start + 25 * HOUR;
    assert_eq!(ids(&queue.start_due(late)), [("mail", "1")]);
    queue.finish("mail", "1", Err(DeliveryError::refused("550 no")), late);
    assert_eq!(queue.waiting(), 0);
}

#[tokio::test]
async fn a_full_queue_drops_reminders_before_changes() {
    let (mut queue, now) = (queue(), Instant::now());
    for (id, kind) in [
        ("1", Kind::Changes),
        ("2", Kind::Reminder),
        ("3", Kind::Changes),
        ("4", Kind::Changes),
        ("5", Kind::Changes),
    ] {
        queue.push("mail", &message(id, kind), false, now);
    }
    let mut left = Vec::new();
    while let [(target, notification)] = queue.start_due(now).as_slice() {
        left.push(notification.id.clone());
        queue.finish(target, &notification.id, Ok(String::new()), now);
    }
    assert_eq!(left, ["3", "4", "5"]);
}

#[tokio::test]
async fn a_write_that_failed_is_repeated_with_what_came_since() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.push("mail", &message("1", Kind::Changes), false, now);
    queue.set_planner("one".to_owned());
    let failed = queue.take_changes();
    assert!(queue.take_changes().is_empty());
    queue.start_due(now);
    queue.finish("mail", "1", Ok(String::new()), now);
    queue.push("mail", &message("2", Kind::Changes), false, now);
    queue.restore(failed);
    let changes = queue.take_changes();
    let added: Vec<&str> = changes.added.iter().map(|(_, added)| added.id.as_str()).collect();
    assert_eq!(added, ["2"]);
    assert_eq!(changes.removed, [("1".to_owned(), "mail".to_owned())]);
    assert_eq!(changes.planner.as_deref(), Some("one"));
}

#[tokio::test]
async fn messages_of_a_target_that_is_gone_are_removed_from_the_disk_as_well() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.push("mail", &message("1", Kind::Changes), true, now);
    queue.push("gone", &message("2", Kind::Changes), true, now);
    queue.set_targets(&["chat"], 3, HOUR);
    let removed = queue.take_changes().removed;
    assert_eq!(removed, [("2".to_owned(), "gone".to_owned()), ("1".to_owned(), "mail".to_owned())]);
    assert_eq!(queue.waiting(), 0);
}

#[tokio::test]
async fn what_users_can_make_waits_for_the_rest_and_is_dropped_first() {
    let (mut queue, start) = (queue(), Instant::now());
    let users = |id: &str| {
        let mut message = (*message(id, Kind::Changes)).clone();
        message.items[0].user_made = true;
        Arc::new(message)
    };
    queue.push("mail", &message("digest", Kind::Digest), false, start);
    for id in ["a", "b", "c"] {
        queue.push("mail", &users(id), false, start);
    }
    queue.push("mail", &message("own", Kind::Changes), false, start);
    let mut order = Vec::new();
    while let [(_, next)] = queue.start_due(start).as_slice() {
        order.push(next.id.clone());
        queue.finish("mail", &next.id, Ok("ok".to_owned()), start);
    }
    assert_eq!(order, ["digest", "own", "c"]);
}
