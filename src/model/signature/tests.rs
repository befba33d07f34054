use proptest::prelude::*;

use super::*;

const SIZE: u64 = 100 << 20;

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

fn edge() -> Vec<u8> {
    vec![0; EDGE_LENGTH as usize]
}

fn kinds(start: &[u8], end: &[u8], size: u64) -> Vec<String> {
    parse(start, end, size, &[]).into_iter().map(|it| it.fs_type).collect()
}

fn ceph_string(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_le_bytes(), text.as_bytes()].concat()
}

const OSD: &str = "0d4f6c1e-8a3b-4f57-9c21-5b6d7e8f9a01";

fn label(role: &str, entries: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = [LABEL, OSD.as_bytes(), b"\n", &[2, 1, 0, 0, 0, 0], &[0; 32]].concat();
    bytes.extend(ceph_string(role));
    bytes.extend(u32::try_from(entries.len()).unwrap().to_le_bytes());
    for (key, value) in entries {
        bytes.extend([ceph_string(key), ceph_string(value)].concat());
    }
    bytes.resize(LABEL_LENGTH, 0);
    bytes
}

fn xdr(text: &str) -> Vec<u8> {
    let mut bytes = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The start of a device with a ZFS label.
fn zfs(pool: Option<&str>, state: u64) -> Vec<u8> {
    let mut list = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut pair = |name: &str, kind: u32, value: Vec<u8>| {
        let body =
            [xdr(name), kind.to_be_bytes().to_vec(), 1u32.to_be_bytes().to_vec(), value].concat();
        let length = u32::try_from(body.len() + 8).unwrap();
        list.extend([&length.to_be_bytes()[..], &length.to_be_bytes(), &body].concat());
    };
    pair("version", 8, 5000u64.to_be_bytes().to_vec());
    if let Some(pool) = pool {
        pair("name", 9, xdr(pool));
    }
    pair("state", 8, state.to_be_bytes().to_vec());
    list.extend([0; 8]);
    let mut start = edge();
    put(&mut start, ZFS_NVLIST, &list);
    start
}

#[test]
fn each_magic_number_is_found_at_its_place_and_nowhere_else() {
    for (kind, place, magic) in &MAGICS {
        for size in [SIZE, SIZE + 512, SIZE + 5 * 4096] {
            let (mut start, mut end) = (edge(), edge());
            match place {
                Start(at) => put(&mut start, usize::try_from(*at).unwrap(), magic),
                End(back, align, plus) => {
                    let at = (size - back) / align * align + plus - (size - EDGE_LENGTH);
                    put(&mut end, usize::try_from(at).unwrap(), magic);
                }
            }
            assert_eq!(kinds(&start, &end, size), [*kind], "{kind} {size}");
            start.rotate_right(1);
            end.rotate_right(1);
            assert!(kinds(&start, &end, size).is_empty(), "{kind} {size}");
        }
    }
}

#[test]
fn two_signatures_are_both_named_and_zeros_are_none() {
    let mut start = edge();
    assert!(kinds(&start, &edge(), SIZE).is_empty());
    put(&mut start, 512 + 24, b"LVM2 001");
    put(&mut start, 0, b"XFSB");
    put(&mut start, 32, &[0x11; 16]);
    assert_eq!(kinds(&start, &edge(), SIZE), ["LVM2_member", "xfs"]);
    let is_member = |it: &Signature| it.is_member();
    assert_eq!(parse(&start, &edge(), SIZE, &[]).iter().filter(|it| is_member(it)).count(), 1);
}

#[test]
fn the_label_of_an_osd_has_its_number_and_its_cluster_and_that_of_its_db_only_its_uuid() {
    let entries = [("ceph_fsid", "5f0c-fsid"), ("ready", "ready"), ("whoami", "12")];
    let found = parse(&label("main", &entries), &[], SIZE, &[]).remove(0);
    let expected = OsdLabel {
        uuid: OSD.into(),
        role: "main".into(),
        id: Some("12".into()),
        cluster: Some("5f0c-fsid".into()),
    };
    assert_eq!((found.fs_type.as_str(), found.osd.as_ref()), ("ceph_bluestore", Some(&expected)));
    let db = parse(&label("bluefs db", &[]), &[], SIZE, &[]).remove(0).osd.unwrap();
    assert_eq!(db, OsdLabel { role: "bluefs db".into(), id: None, cluster: None, ..expected });
}

#[test]
fn a_copy_of_the_label_is_found_when_the_first_is_wiped() {
    let copies = [vec![0; LABEL_LENGTH], label("main", &[("whoami", "3")])];
    let found = parse(&edge(), &edge(), 20 << 30, &copies);
    assert_eq!(found[0].osd.as_ref().unwrap().id.as_deref(), Some("3"));
}

#[test]
fn a_label_of_zfs_has_its_state() {
    let states = [
        LabelState::Active,
        LabelState::Exported,
        LabelState::Destroyed,
        LabelState::Spare,
        LabelState::L2cache,
    ];
    for (number, state) in (0..).zip(states) {
        let found = parse(&zfs(Some("my pool"), number), &[], SIZE, &[]).remove(0);
        assert_eq!(found.zfs, Some(ZfsLabel { pool: Some("my pool".into()), state }));
    }
    let spare = parse(&zfs(None, 3), &[], SIZE, &[]).remove(0);
    assert_eq!(spare.zfs, Some(ZfsLabel { pool: None, state: LabelState::Spare }));
    assert!(parse(&zfs(None, 9), &[], SIZE, &[]).is_empty());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        start in proptest::collection::vec(any::<u8>(), 0..600),
        end in proptest::collection::vec(any::<u8>(), 0..600),
        size in any::<u64>(),
    ) {
        let _found = parse(&start, &end, size, std::slice::from_ref(&start));
        let _label = osd_label(&[LABEL, &start, &[0; LABEL_LENGTH]].concat());
        let _list = zfs_label(&[&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], &start].concat());
    }
}
