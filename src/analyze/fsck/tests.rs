use std::io::Write;
use std::path::PathBuf;

use super::*;
use diskvitals_fscheck::Filesystem::{Ext4, Xfs};

const CLEAN: &str = "e2fsck 1.47.0 (5-Feb-2023)
Pass 1: Checking inodes, blocks, and sizes
/dev/sdb1: 74/16384 files (0.0% non-contiguous), 10056/65536 blocks
";
const BAD: &str = "e2fsck 1.47.0 (5-Feb-2023)
Pass 1: Checking inodes, blocks, and sizes
Inode 1768 passes checks, but checksum does not match inode.  Fix? no

/dev/sdb1: 74/16384 files (0.0% non-contiguous), 10056/65536 blocks
";

fn file(text: &str, packed: bool) -> (tempfile::NamedTempFile, InputSource) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = text.as_bytes().to_vec();
    if packed {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(&bytes).unwrap();
        bytes = packer.finish().unwrap();
    }
    std::fs::write(file.path(), bytes).unwrap();
    let source = InputSource::File(file.path().to_owned());
    (file, source)
}

fn verdict_of(mode: Mode, statuses: &[i32], texts: &[&str]) -> CheckVerdict {
    let files: Vec<_> = texts.iter().map(|text| file(text, false)).collect();
    let sources: Vec<InputSource> = files.iter().map(|(_, source)| source.clone()).collect();
    fsck(Ext4, mode, statuses, &sources).unwrap().verdict
}

#[test]
fn the_verdict_is_the_one_the_daemon_would_give() {
    assert_eq!(verdict_of(Mode::Unmounted, &[4], &[BAD]), CheckVerdict::Corrupted);
    assert_eq!(verdict_of(Mode::Unmounted, &[], &[CLEAN]), CheckVerdict::Clean);
    assert_eq!(verdict_of(Mode::Live, &[4], &[BAD, BAD, BAD]), CheckVerdict::Suspected);
    assert_eq!(verdict_of(Mode::Live, &[], &[BAD, BAD, CLEAN]), CheckVerdict::Clean);
    assert_eq!(verdict_of(Mode::Frozen, &[4, 4], &[BAD, BAD]), CheckVerdict::Corrupted);
    assert_eq!(verdict_of(Mode::Frozen, &[4], &[BAD]), CheckVerdict::Inconclusive);
    assert_eq!(verdict_of(Mode::Frozen, &[139], &[CLEAN]), CheckVerdict::Failed);
    assert_eq!(verdict_of(Mode::Unmounted, &[12], &[BAD]), CheckVerdict::Failed);
}

#[test]
fn statuses_are_given_for_each_file_for_all_or_for_none() {
    let (_kept, source) = file(CLEAN, false);
    let sources = [source.clone(), source.clone(), source];
    assert!(matches!(
        fsck(Ext4, Mode::Live, &[0, 0], &sources),
        Err(FsckError::StatusCount { statuses: 2, files: 3 })
    ));
    let answer = fsck(Ext4, Mode::Live, &[0, 139, 8], &sources).unwrap();
    let ends: Vec<_> = answer.runs.iter().map(|run| (run.exit_status, run.signal)).collect();
    assert_eq!(ends, [(Some(0), None), (None, Some(11)), (Some(8), None)]);
}

#[test]
fn a_gzip_file_is_read_and_an_unreadable_one_is_reported() {
    let (_kept, source) = file(BAD, true);
    let answer = fsck(
        Ext4,
        Mode::Unmounted,
        &[],
        &[source, InputSource::File(PathBuf::from("/nonexistent"))],
    )
    .unwrap();
    assert_eq!(
        (answer.verdict, answer.runs.len(), answer.unreadable.len()),
        (CheckVerdict::Corrupted, 1, 1)
    );
    let answer =
        fsck(Xfs, Mode::Unmounted, &[], &[InputSource::File(PathBuf::from("/nonexistent"))])
            .unwrap();
    assert_eq!(answer.verdict, CheckVerdict::Failed);
}

#[test]
fn an_answer_has_the_shape_of_a_check() {
    let (kept, source) = file(BAD, false);
    let answer = fsck(Ext4, Mode::Unmounted, &[4], &[source]).unwrap();
    let text = serde_json::to_string_pretty(&answer)
        .unwrap()
        .replace(&*kept.path().to_string_lossy(), "FILE");
    insta::assert_snapshot!(text, @r##"
    {
      "files": [
        "FILE"
      ],
      "filesystem": "ext4",
      "mode": "MODE_UNMOUNTED",
      "runs": [
        {
          "file": "FILE",
          "exitStatus": 4,
          "ballot": "BALLOT_FINDINGS",
          "findings": [
            {
              "kind": "inode-checksum",
              "text": "Inode 1768 passes checks, but checksum does not match inode.  Fix? no",
              "ids": [
                "1768"
              ],
              "weight": "WEIGHT_DAMAGE"
            }
          ]
        }
      ],
      "verdict": "VERDICT_CORRUPTED",
      "reason": "e2fsck found one flaw (1 damage): \"Inode 1768 passes checks, but checksum does not match inode.  Fix? no\" while nothing could change (unmounted). Back up what can still be read, then repair it: mount and unmount DEVICE once, which replays its journal; `e2fsck -fn DEVICE` shows what would be changed; `e2fsck -f DEVICE` repairs it; mount it again, which shows the repair to diskvitals."
    }
    "##);
}

#[test]
fn input_that_is_no_finished_run_is_unknown_with_its_own_exit_status() {
    let kernel = "[   12.3] EXT4-fs (sda1): mounted filesystem\n[   13.0] usb 1-1: new device\n";
    for filesystem in [Ext4, Xfs, Filesystem::Btrfs] {
        for text in ["", "\n\n", "NAME=linux\nID=linux\n", kernel] {
            let (_file, source) = file(text, false);
            let answer = fsck(filesystem, Mode::Unmounted, &[], &[source]).unwrap();
            assert_eq!(answer.exit_status(), 3, "{filesystem:?} {text:?}: {answer:?}");
            assert!(answer.reason.starts_with("Unknown: "), "{}", answer.reason);
        }
    }
    let (_clean, clean) = file(CLEAN, false);
    let (_bad, bad) = file(BAD, false);
    for (source, status) in
        [(clean, 0), (bad, 0), (InputSource::File(PathBuf::from("/nonexistent")), 1)]
    {
        let answer = fsck(Ext4, Mode::Unmounted, &[], &[source]).unwrap();
        assert_eq!(answer.exit_status(), status);
    }
}
