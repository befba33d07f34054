use proptest::prelude::*;

use super::*;

const MAX: usize = 32;

fn drive(name: &str) -> FailureDomain {
    FailureDomain::Drives(vec![DriveId::new(name)])
}

fn driver(name: &str) -> FailureDomain {
    FailureDomain::Driver(name.into())
}

fn pod(uid: &str) -> FailureDomain {
    FailureDomain::Pod(uid.into())
}

fn stuck(domains: &[FailureDomain]) -> OverdueJob {
    OverdueJob { domains: domains.into(), stuck: true }
}

/// Starts jobs that all hang; returns those that were started.
fn hang(max: usize, jobs: impl IntoIterator<Item = Vec<FailureDomain>>) -> Vec<OverdueJob> {
    let mut hung = Vec::new();
    for job in jobs {
        if admit(max, hung.iter(), &job) == Admission::Start {
            hung.push(stuck(&job));
        }
    }
    hung
}

#[test]
fn sixty_hanging_volumes_of_one_pod_leave_workers_for_all_other_pods() {
    let hung = hang(MAX, vec![vec![driver("s3"), pod("a")]; 60]);
    assert_eq!(hung.len(), 12);
    let refused = admit(MAX, hung.iter(), &[driver("s3"), pod("a")]);
    let Admission::Refuse(limit) = refused else { panic!("{refused:?}") };
    assert_eq!(
        limit.to_string(),
        "not tried while 12 others of pod a do not answer (limit 12 of 32)"
    );
    for other in [vec![driver("s3"), pod("b")], vec![drive("A")], vec![]] {
        assert_eq!(admit(MAX, hung.iter(), &other), Admission::Start, "{other:?}");
    }
}

#[test]
fn forty_volumes_on_one_dead_drive_hide_no_volume_of_another_drive() {
    // The volumes of this node's own driver, one per pod.
    let jobs = (0..40).map(|number| vec![drive("DEAD"), pod(&format!("p{number}"))]);
    let hung = hang(MAX, jobs);
    assert_eq!(hung.len(), 8);
    // Also a pod that has volumes on both drives.
    let hung_pod = hang(MAX, vec![vec![drive("DEAD"), pod("p")]; 40]);
    for hung in [hung, hung_pod] {
        assert_eq!(admit(MAX, hung.iter(), &[drive("A"), pod("p")]), Admission::Start);
    }
}

#[test]
fn an_array_that_hangs_hides_no_volume_of_one_of_its_drives() {
    let array = FailureDomain::Drives(vec![DriveId::new("A"), DriveId::new("B")]);
    let hung = hang(MAX, vec![vec![array]; 40]);
    assert_eq!(admit(MAX, hung.iter(), &[drive("A")]), Admission::Start);
}

#[test]
fn the_last_quarter_is_for_storage_of_which_nothing_hangs() {
    let jobs = (0..400).map(|number| vec![drive(&format!("D{}", number % 4))]);
    let hung = hang(MAX, jobs);
    assert_eq!(hung.len(), 24);
    let refused = admit(MAX, hung.iter(), &[drive("D1")]);
    assert!(matches!(refused, Admission::Refuse(_)), "{refused:?}");
    assert_eq!(admit(MAX, hung.iter(), &[drive("HEALTHY")]), Admission::Start);
}

#[test]
fn slow_jobs_are_awaited_and_a_returned_job_frees_its_share() {
    let mut jobs: Vec<OverdueJob> = hang(MAX, vec![vec![drive("A")]; 40]);
    jobs[0].stuck = false;
    assert_eq!(admit(MAX, jobs.iter(), &[drive("A")]), Admission::Wait);
    jobs.remove(0);
    assert_eq!(admit(MAX, jobs.iter(), &[drive("A")]), Admission::Start);
}

fn job() -> impl Strategy<Value = Vec<FailureDomain>> {
    let storage = prop_oneof![
        (0..4_u8).prop_map(|number| Some(drive(&format!("D{number}")))),
        (0..3_u8).prop_map(|number| Some(driver(&format!("d{number}")))),
        Just(None),
    ];
    let pods = proptest::collection::btree_set(0..5_u8, 0..3);
    (storage, pods).prop_map(|(storage, pods)| {
        let pods = pods.iter().map(|number| pod(&format!("p{number}")));
        storage.into_iter().chain(pods).collect()
    })
}

proptest! {
    #[test]
    fn whatever_hangs_in_one_domain_a_volume_of_another_domain_is_probed(
        max in 8..64_usize,
        domain in prop_oneof![Just(drive("D0")), Just(driver("d0")), Just(pod("p0"))],
        jobs in proptest::collection::vec(job(), 0..200),
        other in job(),
    ) {
        let jobs = jobs.into_iter().filter(|job| job.contains(&domain));
        let hung = hang(max, jobs);
        let shares = |hung: &OverdueJob| hung.domains.iter().any(|domain| other.contains(domain));
        prop_assume!(!hung.iter().any(shares));
        prop_assert_eq!(admit(max, hung.iter(), &other), Admission::Start);
    }

    #[test]
    fn one_pod_hides_no_other_pod_of_its_driver_and_one_drive_hides_nothing_else_of_its_pod(
        max in 8..64_usize,
        count in 0..200_usize,
    ) {
        let hung = hang(max, vec![vec![driver("d"), pod("p")]; count]);
        prop_assert_eq!(admit(max, hung.iter(), &[driver("d"), pod("q")]), Admission::Start);
        let hung = hang(max, vec![vec![drive("A"), pod("p")]; count]);
        prop_assert_eq!(admit(max, hung.iter(), &[drive("B"), pod("p")]), Admission::Start);
    }

    #[test]
    fn storage_of_which_nothing_hangs_is_probed_until_all_workers_are_stuck(
        max in 1..64_usize,
        jobs in proptest::collection::vec(job(), 0..200),
    ) {
        let hung = hang(max, jobs);
        prop_assert!(hung.len() <= max);
        let admitted = admit(max, hung.iter(), &[drive("HEALTHY"), pod("new")]);
        prop_assert_eq!(admitted == Admission::Start, hung.len() < max);
    }
}
