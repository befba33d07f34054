use super::*;
use diskvitals_finding::dev::DevNo;
use diskvitals_finding::failure_domain::FailureDomains;

fn intervals() -> Intervals {
    Intervals::new(500, Duration::from_secs(60), TimerGrid::start())
}

fn plans(mounts: &[(&str, u32)]) -> BTreeMap<HostPath, Plan> {
    let target = |&(path, minor): &(&str, u32)| ProbeTarget {
        path: path.into(),
        id: minor,
        dev: DevNo::new(8, minor),
        asleep: false,
        at_rest: false,
        filesystem: "ext4".into(),
        pace: ProbePace::Local,
        awaited_scrub: None,
        domains: FailureDomains::default(),
    };
    let targets: Vec<ProbeTarget> = mounts.iter().map(target).collect();
    let mut plans = BTreeMap::new();
    update_plans(&mut plans, &targets);
    plans
}

fn end(
    plans: &mut BTreeMap<HostPath, Plan>,
    path: &str,
    response: Response,
    was_stuck: bool,
) -> bool {
    let outcome = ProbeOutcome { path: path.into(), response, was_stuck };
    let next = record_outcome(plans, &outcome, intervals());
    next.is_some_and(|next| next <= Instant::now())
}

#[test]
fn the_mounts_of_a_filesystem_are_probed_by_one_task() {
    let mut plans = plans(&[("/a", 1), ("/b", 2), ("/c", 1)]);
    let due = take_due(&mut plans, intervals());
    let paths: Vec<Vec<String>> = due
        .filesystems
        .iter()
        .map(|targets| targets.iter().map(|target| target.path.to_string()).collect())
        .collect();
    assert_eq!(paths, [vec!["/a", "/c"], vec!["/b"]]);
    assert!(take_due(&mut plans, intervals()).filesystems.is_empty());
}

#[test]
fn a_stuck_probe_that_returns_makes_refused_and_waiting_mounts_due() {
    let mut plans = plans(&[("/a", 1), ("/b", 1), ("/other", 2)]);
    take_due(&mut plans, intervals());
    assert!(!end(&mut plans, "/b", Response::Missing, false));
    let refused = Response::NotTried { refused: true };
    assert!(!end(&mut plans, "/other", refused, false));
    assert_eq!(plans[&HostPath::from("/other")].consecutive_failures, 0);
    assert!(end(&mut plans, "/a", Response::Received, true));
    let due = take_due(&mut plans, intervals());
    assert_eq!(due.filesystems.len(), 2);
}

#[test]
fn a_worker_that_dies_after_it_was_stuck_frees_its_share_only() {
    let mut plans = plans(&[("/a", 1), ("/b", 1), ("/other", 2)]);
    take_due(&mut plans, intervals());
    end(&mut plans, "/b", Response::Missing, false);
    end(&mut plans, "/other", Response::NotTried { refused: true }, false);
    assert!(end(&mut plans, "/a", Response::Missing, true));
    let due = take_due(&mut plans, intervals()).filesystems;
    assert_eq!(due[0][0].path, HostPath::from("/other"));
    assert_eq!((due.len(), due[0].len()), (1, 1));
}

#[test]
fn a_mount_that_waits_for_another_job_of_its_filesystem_is_tried_again_soon() {
    let mut plans = plans(&[("/a", 1)]);
    for _ in 0..5 {
        take_due(&mut plans, intervals());
        end(&mut plans, "/a", Response::Waiting, false);
        let plan = plans.get_mut(&HostPath::from("/a")).expect("planned");
        assert!(plan.due <= Instant::now() + RETRY_INTERVAL);
        plan.due = Instant::now();
    }
    take_due(&mut plans, intervals());
    end(&mut plans, "/a", Response::Missing, false);
    assert!(plans[&HostPath::from("/a")].due > Instant::now() + RETRY_INTERVAL);
}

fn target(pace: ProbePace) -> ProbeTarget {
    ProbeTarget {
        path: "/a".into(),
        id: 1,
        dev: DevNo::new(8, 1),
        asleep: false,
        at_rest: false,
        filesystem: "ext4".into(),
        pace,
        awaited_scrub: None,
        domains: FailureDomains::default(),
    }
}

#[test]
fn a_mount_at_rest_is_probed_on_request_only() {
    let mut plans = plans(&[("/a", 1)]);
    let is_probed = |plans: &mut BTreeMap<HostPath, Plan>| {
        plans.values_mut().for_each(|plan| plan.due = Instant::now());
        let is_probed = !take_due(plans, intervals()).filesystems.is_empty();
        plans.values_mut().for_each(|plan| plan.in_flight = false);
        is_probed
    };
    assert!(is_probed(&mut plans));
    plans.values_mut().for_each(|plan| plan.target.at_rest = true);
    assert!(!is_probed(&mut plans));
    plans.values_mut().for_each(Plan::request);
    assert!(is_probed(&mut plans));
    assert!(!is_probed(&mut plans), "the request was answered");
    plans.values_mut().for_each(|plan| plan.target.at_rest = false);
    assert!(is_probed(&mut plans));
}

#[test]
fn the_interval_follows_the_number_of_mounts_between_ten_seconds_and_the_configured_one() {
    let seconds = |mounts, configured, pace| {
        let intervals = Intervals::new(mounts, Duration::from_secs(configured), TimerGrid::start());
        intervals.of(&target(pace)).as_secs()
    };
    for (mounts, configured, local, network, idle) in [
        (0, 60, 10, 30, 60),
        (3, 60, 10, 30, 60),
        (83, 60, 10, 30, 60),
        (250, 60, 30, 30, 60),
        (300, 60, 36, 36, 60),
        (500, 60, 60, 60, 60),
        (5000, 60, 60, 60, 60),
        (1000, 300, 120, 120, 300),
        (3, 20, 10, 20, 20),
        (3, 1, 1, 1, 1),
    ] {
        assert_eq!(
            (
                seconds(mounts, configured, ProbePace::Local),
                seconds(mounts, configured, ProbePace::Network),
                seconds(mounts, configured, ProbePace::Idle)
            ),
            (local, network, idle),
            "{mounts} mounts, {configured} s"
        );
    }
}

#[test]
fn a_mount_that_answered_is_due_after_its_interval_and_sooner_when_the_interval_becomes_shorter() {
    let mut plans = plans(&[("/a", 1)]);
    take_due(&mut plans, intervals());
    end(&mut plans, "/a", Response::Received, false);
    let due = |plans: &BTreeMap<HostPath, Plan>| {
        let plan = &plans[&HostPath::from("/a")];
        plan.due.saturating_duration_since(Instant::now())
    };
    assert!(due(&plans) > Duration::from_secs(50));
    shorten_waits(&mut plans, Intervals::new(1, Duration::from_secs(60), TimerGrid::start()));
    assert!(due(&plans) <= Duration::from_secs(10));
    take_due(&mut plans, intervals());
    for plan in plans.values_mut() {
        plan.due = Instant::now();
    }
    take_due(&mut plans, intervals());
    end(&mut plans, "/a", Response::Missing, false);
    let before = due(&plans);
    shorten_waits(&mut plans, Intervals::new(1, Duration::from_secs(60), TimerGrid::start()));
    assert!(due(&plans) + Duration::from_secs(1) >= before, "its back-off stays");
}
