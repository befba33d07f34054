//! What the fuzz targets call (`fuzz/`): for each parser of foreign bytes a function that panics when
//! the parser breaks a law.
//!
//! The seeds in `fuzz/corpus/`, and with them every case that was ever found, also run as a test.

use std::path::Path;

use bytes::Bytes;
use http::HeaderMap;

use diskvitals_analyze::smart::smart_from;
use diskvitals_checker::output::OutputSink;
use diskvitals_csi::authority::frames::FrameRewriter;
use diskvitals_csi::health::{HealthErrorType, HealthStatus, VolumeCondition};
use diskvitals_csi::interposer::{grpc, merge, raw};
use diskvitals_finding::path::HostPath;
use diskvitals_fscheck::parse::{MAX_PROBLEMS, MAX_TEXT_BYTES, OutputParser, ProgressStream};
use diskvitals_fscheck::{Filesystem, Mode, RunResult, Termination, run_result};
use diskvitals_model::graph::kube;
use diskvitals_provision::worker::lvm;
use diskvitals_smart::parse as smart;
use diskvitals_smart::policy::SmartPolicy;
use diskvitals_source::checks::lvm_snapshot::lvs;
use diskvitals_source::inventory::udev_db;
use diskvitals_source::kubelet::records;
use diskvitals_source::layers::status;
use diskvitals_source::mounts;

/// How long a repeated input is; what takes longer than in proportion to its length shows then.
const LONG_INPUT: usize = 256 << 10;

/// Runs one target's function, for some inputs also on the input repeated many times.
pub fn run(target: fn(&[u8]), bytes: &[u8]) {
    target(bytes);
    let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    if sum.is_multiple_of(64) {
        target(&repeated(bytes));
    }
}

fn repeated(bytes: &[u8]) -> Vec<u8> {
    bytes.repeat(LONG_INPUT / bytes.len().max(1))
}

/// The output of smartctl, and the daemon's judgement of it.
pub fn smartctl(bytes: &[u8]) {
    let judged = smart_from(bytes, "fuzz".to_owned(), &SmartPolicy::default());
    assert_eq!(judged.is_ok(), smart::parse(bytes).is_ok());
    if let Ok(analysis) = judged {
        assert!(analysis.messages.len() <= 64 && analysis.findings.len() <= 64);
    }
    let _version = smart::version(bytes);
    let _identity = smart::identity(bytes);
}

/// mountinfo and fstab: each line is a mount or a warning, whatever the others are.
pub fn mountinfo(bytes: &[u8]) {
    let lines = || bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let (mounts, warnings) = mounts::parse(bytes);
    assert_eq!(mounts.len() + warnings.len(), lines().count());
    let alone: Vec<_> = lines().flat_map(|line| mounts::parse(line).0).collect();
    assert_eq!(mounts, alone);
    assert!(mounts::parse_fstab(bytes).len() <= lines().count());
    for mount in mounts {
        let _pod = kube::pod_path(&HostPath::from("/var/lib/kubelet"), &mount.mount_point);
    }
}

/// A file of udev's database.
pub fn udev_record(bytes: &[u8]) {
    let record = udev_db::parse(bytes);
    assert!(record.links.is_sorted());
    for key in record.properties.keys() {
        let _value = record.get_decoded(key.trim_end_matches("_ENC"));
    }
}

/// `vol_data.json`, the name of a pod's log folder, and a path below the kubelet's directory.
pub fn kubelet_records(bytes: &[u8]) {
    if let Ok(data) = records::parse_volume_data(bytes) {
        assert!(!data.driver_name.is_empty() && !data.volume_handle.is_empty());
    }
    let name = String::from_utf8_lossy(bytes);
    if let Some((uid, pod)) = records::parse_pod_log_folder(&name) {
        assert_eq!(format!("{}_{}_{uid}", pod.namespace, pod.name), name);
    }
    let root = HostPath::from("/var/lib/kubelet");
    let _place = kube::parse_csi_path(&root, &root.join(&*name));
}

/// The output of e2fsck, xfs_repair and btrfs check: bounded, the same in pieces, and clean only if it
/// lists nothing real.
pub fn checker_output(bytes: &[u8]) {
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs] {
        let parse = |size: usize| {
            let (mut parser, mut sink) = (OutputParser::new(filesystem), OutputSink::default());
            for piece in bytes.chunks(size) {
                sink.write(piece, &mut |line| parser.push_line(line));
            }
            let _output = sink.finish(&mut |line| parser.push_line(line));
            assert!(parser.permille().is_none_or(|done| done <= 1000));
            parser.finish()
        };
        let parsed = parse(bytes.len().max(1));
        assert_eq!(parsed, parse(7));
        assert!(parsed.problems.len() <= MAX_PROBLEMS);
        for problem in &parsed.problems {
            assert!(problem.text.len() <= MAX_TEXT_BYTES && !problem.kind.is_empty());
        }
        for status in [0, 1, 4, 12] {
            let end = Termination::Exited(status);
            let (result, _) = run_result::classify_run(filesystem, Mode::Unmounted, &parsed, &end);
            let real = run_result::non_transient(&parsed.problems).count();
            assert!(result != RunResult::Clean || parsed.complete && real == 0);
        }
    }
    let mut progress = ProgressStream::default();
    bytes.chunks(11).for_each(|piece| progress.push(piece));
    assert!(progress.permille().is_none_or(|done| done <= 1000));
}

/// Bodies and messages that pass through the interposer: what it merges is valid again, and no byte
/// of another field is lost.
pub fn grpc_messages(bytes: &[u8]) {
    let _gzip = grpc::only_message(&Bytes::copy_from_slice(bytes), &gzip_header());
    let frame = grpc::frame_message(bytes).expect("it is short");
    let plain = grpc::only_message(&frame, &HeaderMap::new());
    assert_eq!(plain.as_deref(), Some(bytes));
    if let Ok(fields) = raw::fields(bytes) {
        let joined: Vec<u8> = fields.iter().flat_map(|field| field.raw).copied().collect();
        assert_eq!(joined, bytes);
    }
    let condition =
        VolumeCondition { abnormal: true, message: "a sector cannot be read".to_owned() };
    let ours = [HealthStatus::new(HealthErrorType::Degraded, "PendingSectors", "8 sectors")];
    let one = |handle: &str| [(handle.to_owned(), ours.to_vec())];
    let merged = [
        merge::add_capabilities(bytes, &[4, 7]),
        merge::stats(bytes, &condition),
        merge::volume(bytes, &condition),
        merge::health(bytes, "handle", &ours),
        merge::storage(bytes, &ours),
        merge::listed_health(bytes, &one("a").into()),
        merge::append_entries(bytes, &one("b"), "next"),
        merge::request_for_page(bytes, "next"),
    ];
    for message in merged.into_iter().flatten() {
        assert!(raw::fields(&message).is_ok());
    }
    let _page = merge::parse_page(bytes);
}

fn gzip_header() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("grpc-encoding", http::HeaderValue::from_static("gzip"));
    headers
}

/// HTTP/2 of a client whose `:authority` may be invalid: the same bytes, however they arrive.
pub fn http2_frames(bytes: &[u8]) {
    let rewrite = |size: usize| {
        let (mut frames, mut out) = (FrameRewriter::default(), Vec::new());
        for piece in bytes.chunks(size) {
            match frames.rewrite(piece, &mut out, usize::MAX) {
                Ok(seen) => assert_eq!(seen, piece.len()),
                // How much had passed before depends on the pieces.
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(out)
    };
    assert_eq!(rewrite(bytes.len().max(1)), rewrite(5));
}

/// The configuration of the daemon and of the notifier.
pub fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let file = Path::new("/nonexistent/diskvitals.toml");
    if let Err(error) = diskvitals_config::parse(file, text) {
        assert!(error.to_string().len() <= 16_384 + 4 * text.len());
    }
    let _is_good = diskvitals_notifier::is_configuration(file, text);
}

/// The reports of lvs and vgs, and device-mapper's status.
pub fn lvm_reports(bytes: &[u8]) {
    let volumes = lvs::parse_lvs(bytes).unwrap_or_default();
    for volume in &volumes {
        let _plan = lvs::plan(&volumes, &volume.lv_name);
        let _dev = volume.dev();
    }
    let text = String::from_utf8_lossy(bytes);
    if let Some(capacity) = lvm::parse_capacity(&text) {
        assert!(!capacity.physical_volumes.is_empty());
    }
    let _volumes = lvm::parse_volumes(&text);
    let _state = status::parse(&text);
    let _linear = status::parse_linear(&text);
    let _is_linear = status::is_all_linear(&text);
}

/// The first bytes of a device.
pub fn superblock(bytes: &[u8]) {
    let (start, btrfs) = bytes.split_at(bytes.len().min(4096));
    for found in [
        diskvitals_model::superblock::parse(start, btrfs),
        diskvitals_model::superblock::parse(&[], start),
    ]
    .into_iter()
    .flatten()
    {
        assert_eq!(found.uuid.len(), 36);
        assert_eq!(found.ext.is_some(), found.fs_type == "ext4");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    type Target = (&'static str, fn(&[u8]));

    const TARGETS: [Target; 10] = [
        ("checker_output", super::checker_output),
        ("configuration", super::configuration),
        ("grpc_messages", super::grpc_messages),
        ("http2_frames", super::http2_frames),
        ("kubelet_records", super::kubelet_records),
        ("lvm_reports", super::lvm_reports),
        ("mountinfo", super::mountinfo),
        ("smartctl", super::smartctl),
        ("superblock", super::superblock),
        ("udev_record", super::udev_record),
    ];

    fn names(folder: &str) -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
        std::fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
            .map(|path| path.file_stem().expect("a name").to_string_lossy().into())
            .collect()
    }

    fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        std::fs::read_dir(folder.join(target))
            .expect("a folder of seeds")
            .map(|seed| seed.expect("a seed").path())
            .map(|path| (path.clone(), std::fs::read(path).expect("a seed")))
            .collect()
    }

    #[test]
    fn every_seed_passes_and_every_target_has_one() {
        let mut targets: BTreeSet<String> = names("fuzz/fuzz_targets");
        for (name, run) in TARGETS {
            assert!(targets.remove(name), "fuzz/fuzz_targets/{name}.rs");
            let seeds = seeds(name);
            assert!(!seeds.is_empty(), "{name} has no seed");
            for (_, seed) in seeds {
                run(&seed);
            }
        }
        // These reach public parsers themselves.
        let others = ["foreign_text", "kernel_log", "kernel_log_text"];
        assert_eq!(targets, others.map(str::to_owned).into());
    }

    #[test]
    fn a_long_input_takes_time_in_proportion() {
        for (name, run) in TARGETS {
            for (path, seed) in seeds(name) {
                let started = Instant::now();
                run(&super::repeated(&seed));
                let took = started.elapsed();
                // Half a minute and more if each byte looks at all others; less than one second else.
                assert!(took < Duration::from_secs(15), "{}: {took:?}", path.display());
            }
        }
    }
}
