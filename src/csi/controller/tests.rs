use super::*;

fn pool(kind: daemon::ProvidedKind, available_bytes: u64, problem: &str) -> daemon::PoolKind {
    let (largest_bytes, smallest_bytes) = (available_bytes, 4096);
    daemon::PoolKind {
        kind: kind.into(),
        total_bytes: 1 << 40,
        available_bytes,
        largest_bytes,
        smallest_bytes,
        problem: problem.into(),
    }
}

#[test]
fn capacity_is_that_of_the_pool_which_a_volume_would_be_made_in() {
    use daemon::ProvidedKind::{Loop, Lvm, Unspecified};
    let both = daemon::Pool { kinds: vec![pool(Loop, 5000, ""), pool(Lvm, 7000, "")] };
    assert_eq!(capacity_response(&both, Unspecified).available_capacity, 5000);
    let lvm = capacity_response(&both, Lvm);
    assert_eq!(
        (lvm.available_capacity, lvm.maximum_volume_size, lvm.minimum_volume_size),
        (7000, Some(7000), Some(4096))
    );
    let lvm_first = daemon::Pool { kinds: vec![pool(Lvm, 7000, ""), pool(Loop, 5000, "")] };
    assert_eq!(capacity_response(&lvm_first, Unspecified).available_capacity, 7000);
    assert_eq!(
        capacity_response(&daemon::Pool { kinds: vec![pool(Loop, 7000, "")] }, Lvm),
        wire::GetCapacityResponse::default()
    );
}

#[test]
fn a_faulty_pool_has_no_capacity() {
    let pool = daemon::Pool { kinds: vec![pool(daemon::ProvidedKind::Loop, 7000, "read-only")] };
    assert_eq!(
        capacity_response(&pool, daemon::ProvidedKind::Unspecified),
        wire::GetCapacityResponse::default()
    );
}

#[test]
fn an_unsupported_access_is_refused_with_its_reason() {
    let access =
        |mode: daemon::AccessMode| daemon::Access { mode: mode.into(), ..Default::default() };
    let loops = daemon::ProvidedKind::Loop;
    assert_eq!(
        unsupported_reason(&access(daemon::AccessMode::SingleNodeSingleWriter), loops),
        None
    );
    let many = unsupported_reason(&access(daemon::AccessMode::MultiNodeMultiWriter), loops)
        .expect("unfit");
    assert!(many.starts_with("access_mode: MULTI_NODE_MULTI_WRITER: "), "{many}");
    let block = daemon::Access { block: true, ..access(daemon::AccessMode::SingleNodeWriter) };
    assert_eq!(unsupported_reason(&block, loops), None);
    assert!(unsupported_reason(&block, daemon::ProvidedKind::StaticDirectory).is_some());
    let ntfs =
        daemon::Access { fs_type: "ntfs".into(), ..access(daemon::AccessMode::SingleNodeWriter) };
    assert_eq!(
        unsupported_reason(&ntfs, loops).as_deref(),
        Some("fs_type: `ntfs` is none of ext4, xfs, btrfs")
    );
}
