//! Bundles that are cut short, damaged, of another version, or none at all.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::bundle::read::{ReadError, from_gzip};

fn answers() -> Answers {
    let drive = |n: usize| wire::Drive {
        id: format!("naa.5000c500a1d{n:05x}"),
        id_stable: true,
        name: format!("sd{n}"),
        serial: format!("SERIAL{n:05}"),
        health: wire::Health::Good.into(),
        ..Default::default()
    };
    Answers {
        version: "0.1.0".to_owned(),
        taken: "2026-03-01T12:00:00Z".parse().expect("a time"),
        node: wire::Node { name: "rack7".to_owned(), settled: true, ..Default::default() },
        drives: (0..40).map(drive).collect(),
        volumes: vec![wire::Volume { health: wire::Health::Good.into(), ..Default::default() }; 30],
        causes: Some(Vec::new()),
        ..Answers::default()
    }
}

fn archive_of(parts: &[Part]) -> Vec<u8> {
    write::archive("diskvitals-rack7", parts).expect("packed")
}

fn bundle(answers: &Answers) -> Vec<u8> {
    let log = Some("[    1.0] sda: error\n".to_owned());
    archive_of(&parts(answers, &mut Vec::new(), log, false).expect("parts").1)
}

/// The bundle with a file replaced, or added at its end.
fn with_file(answers: &Answers, name: &str, value: &Value) -> Vec<u8> {
    let (_, mut parts) = parts(answers, &mut Vec::new(), None, false).expect("parts");
    let bytes = value.to_string().into_bytes();
    match parts.iter_mut().find(|part| part.name == name) {
        Some(part) => part.bytes = bytes,
        None => parts.push(Part { name: name.to_owned(), bytes }),
    }
    archive_of(&parts)
}

#[test]
fn all_files_are_in_one_folder_and_bundles_without_one_are_read() {
    let (manifest, parts) = parts(&answers(), &mut Vec::new(), None, false).expect("parts");
    let folder = folder(&manifest);
    assert_eq!(folder, "diskvitals-rack7-20260301T120000Z");
    let packed = write::archive(&folder, &parts).expect("packed");
    let mut archive = tar::Archive::new(GzDecoder::new(&packed[..]));
    for entry in archive.entries().expect("entries") {
        let path = entry.expect("an entry").path().expect("a path").into_owned();
        assert_eq!(path.iter().next(), Some(folder.as_ref()), "{path:?}");
    }
    let encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut old = tar::Builder::new(encoder);
    for part in &parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(part.bytes.len() as u64);
        let bytes = part.bytes.as_slice();
        old.append_data(&mut header, &part.name, bytes).expect("added");
    }
    let old = old.into_inner().and_then(GzEncoder::finish).expect("packed");
    assert_eq!(from_gzip(&old[..]), from_gzip(&packed[..]));
    let hostile = Manifest { host: "../a b/\u{1b}".to_owned(), ..manifest };
    assert!(super::folder(&hostile).starts_with("diskvitals-___a_b__-"));
}

#[test]
fn what_is_written_is_read_again() {
    let answers = answers();
    assert_eq!(from_gzip(&bundle(&answers)[..]), Ok(answers));
}

#[test]
fn a_bundle_that_is_cut_short_says_what_is_missing_at_every_length() {
    let whole = bundle(&answers());
    let mut with_drives = 0;
    for length in 0..whole.len() {
        match from_gzip(&whole[..length]) {
            Err(what) => assert!(length < 1000, "{length}: {what}"),
            Ok(read) => {
                assert_eq!(read.node.name, "rack7");
                // Without the trailer of gzip everything may have been read.
                let complete = read.drives.len() == 40 && read.volumes.len() == 30;
                assert!(!read.gaps.is_empty() || complete, "{length}");
                assert_eq!(read.drives.is_empty(), read.lost.contains(&"drives"), "{length}");
                with_drives += usize::from(!read.drives.is_empty());
            }
        }
    }
    assert!(with_drives > 100, "{with_drives}");
}

#[test]
fn a_newer_bundle_is_read_as_far_as_it_is_known_and_says_so() {
    let newer = json!({"kind": KIND, "format": FORMAT + 1, "diskvitals": "9.0.0", "time": "2030-01-01T00:00:00Z", "host": "rack7", "novelty": 1, "files": ["drives.json", "dreams.json"]});
    let drives = json!({"drives": [
        {"name": "sda", "health": "HEALTH_GOOD", "novelty": {"a": 1}},
        {"name": "sdb", "health": "HEALTH_RADIANT"},
        {"name": ["sdc"]},
    ], "more": 1});
    let parts = [(MANIFEST, newer), ("drives.json", drives), ("dreams.json", json!([]))];
    let parts = parts
        .map(|(name, value)| Part { name: name.to_owned(), bytes: value.to_string().into_bytes() });
    let read = from_gzip(&archive_of(&parts)[..]).expect("a bundle");
    // What this version does not know is never good.
    assert_eq!(read.drives[1].health(), wire::Health::Unknown);
    let gaps = read.gaps.join("\n");
    for expected in [
        "newer format (2, by diskvitals 9.0.0)",
        "1 entries of drives.json cannot be read",
        "1 files in the bundle are unknown",
    ] {
        assert!(gaps.contains(expected), "{expected}: {gaps}");
    }
}

#[test]
fn paths_of_a_bundle_are_never_followed_and_odd_contents_are_skipped() {
    for (name, value) in [
        ("drives.json", json!(null)),
        ("drives.json", json!({"drives": "none"})),
        ("node.json", json!([1])),
        ("/etc/shadow", json!(1)),
        ("smartctl/../../../tmp/x.json", json!(1)),
    ] {
        // tar's writer refuses some of these paths itself.
        let parts = std::panic::catch_unwind(|| with_file(&answers(), name, &value));
        if let Ok(bytes) = parts {
            assert!(from_gzip(&bytes[..]).is_ok(), "{name}");
        }
    }
}

#[test]
fn what_is_no_bundle_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"just text").expect("written");
    let gzip = gzip.finish().expect("packed");
    let foreign = archive_of(&[Part { name: "README".to_owned(), bytes: vec![b'x'; 10] }]);
    for (bytes, what) in [
        (&b""[..], "is empty"),
        (b"PK\x03\x04", "is a ZIP archive"),
        (b"{}", "is JSON"),
        (b"<!DOCTYPE html>", "is HTML"),
        (b"hello", "is not compressed"),
        (&gzip, "no complete manifest.json"),
        (&foreign, "no complete manifest.json"),
    ] {
        std::fs::write(&file, bytes).expect("written");
        let error = read(&file).expect_err(what).to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
    assert!(matches!(read(&folder.path().join("none")), Err(ReadError::Open { .. })));
}

#[test]
fn a_bundle_is_never_unpacked_beyond_its_limits() {
    let mut header = tar::Header::new_gnu();
    header.set_size(1 << 40);
    header.set_path("drives.json").expect("a path");
    header.set_cksum();
    let manifest = parts(&answers(), &mut Vec::new(), None, false).expect("parts").1.remove(0);
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut first = tar::Header::new_gnu();
    first.set_size(manifest.bytes.len() as u64);
    tar.append_data(&mut first, MANIFEST, manifest.bytes.as_slice()).expect("added");
    let mut gzip = tar.get_mut();
    gzip.write_all(header.as_bytes()).expect("written");
    std::io::copy(&mut std::io::repeat(b' ').take(1 << 20), &mut gzip).expect("written");
    let bytes = tar.into_inner().expect("ended").finish().expect("packed");
    let read = from_gzip(&bytes[..]).expect("a manifest");
    assert!(read.gaps.iter().any(|gap| gap.contains("more than 128 MiB")), "{:?}", read.gaps);
    assert!(read.drives.is_empty() && read.lost.contains(&"drives"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_bundles_are_read_or_refused(at in 0_usize..4000, byte: u8, text in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = bundle(&answers());
        let length = bytes.len();
        bytes[at % length] ^= byte;
        let _ = from_gzip(&bytes[..]);
        let _ = from_gzip(&text[..]);
    }
}

#[test]
fn a_file_is_written_as_a_whole_for_its_owner_and_replaced_only_on_request() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("b.tgz");
    write_file(&path, b"one", Some(0o600), false).expect("written");
    let error = write_file(&path, b"two", Some(0o600), false).expect_err("there");
    assert!(matches!(error, WriteError::Exists(_)), "{error}");
    assert_eq!(std::fs::read(&path).expect("there"), b"one");
    write_file(&path, b"two", Some(0o600), true).expect("replaced");
    assert_eq!(std::fs::read(&path).expect("there"), b"two");
    let mode = path.metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let files = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(files, 1, "a temporary file remains");
}
