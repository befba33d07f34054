//! Snapshots, with an LVM that is played. What the real one does: the QEMU lab
//! (`hwtests/lab/checks.rs`).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use diskvitals_host::exec::Output;

/// A volume group `vg` with what is in it; answers as lvs does, and changes as it is told.
#[derive(Clone, Debug, Default)]
struct FakeLvm {
    state: Arc<Mutex<FakeGroup>>,
}

#[derive(Debug, Default)]
struct FakeGroup {
    volumes: Vec<Value>,
    calls: Vec<String>,
    /// What was said to be changed.
    changes: Vec<String>,
    lvcreate_takes: Duration,
    lvcreate_fails: bool,
    /// So many attempts to remove find the snapshot in use.
    busy: u32,
    /// How the replay ends: exit status, last words.
    replay: (i32, &'static str),
    /// How full a classic snapshot is by now.
    full: &'static str,
}

impl FakeLvm {
    fn with_state<T>(&self, look: impl FnOnce(&mut FakeGroup) -> T) -> T {
        look(&mut self.state.lock().unwrap())
    }

    fn names(&self) -> Vec<String> {
        self.with_state(|group| {
            group
                .volumes
                .iter()
                .map(|volume| volume["lv_name"].as_str().unwrap().to_owned())
                .collect()
        })
    }

    fn calls(&self) -> Vec<String> {
        self.with_state(|group| {
            group.calls.iter().filter(|call| !call.starts_with("lvs")).cloned().collect()
        })
    }
}

fn output(status: i32, stdout: &str, stderr: &str) -> Output {
    Output { status: status << 8, stdout: stdout.into(), stderr: stderr.into(), truncated: false }
}

impl Lvm for FakeLvm {
    async fn query(&self, args: Vec<String>) -> Result<Output, ExecError> {
        self.with_state(|group| group.calls.push(args.join(" ")));
        match args[0].as_str() {
            "lvs" => {
                let of = args.last().filter(|last| !last.contains(',')).cloned();
                let one =
                    of.as_ref().and_then(|of| of.split_once('/')).map(|(_, name)| name.to_owned());
                self.with_state(|group| {
                    let full = group.full;
                    let lv: Vec<Value> = group
                        .volumes
                        .iter()
                        .filter(|volume| one.as_ref().is_none_or(|name| volume["lv_name"] == *name))
                        .cloned()
                        .map(|mut volume| {
                            if volume["segtype"] == "linear"
                                && !volume["origin"].as_str().unwrap().is_empty()
                            {
                                volume["data_percent"] = full.into();
                            }
                            volume
                        })
                        .collect();
                    if one.is_some() && lv.is_empty() {
                        return Ok(output(5, "", "  Failed to find logical volume"));
                    }
                    Ok(output(0, &json!({"report": [{"lv": lv}]}).to_string(), ""))
                })
            }
            "lvcreate" => {
                let long = self.with_state(|group| group.lvcreate_takes);
                tokio::time::sleep(long).await;
                let at = args.iter().position(|arg| arg == "--name").unwrap();
                let origin = args.last().unwrap().split_once('/').unwrap().1.to_owned();
                self.with_state(|group| {
                    if group.lvcreate_fails {
                        return Ok(output(5, "", "  WARNING: something else\n  Logical volume vg/home is used by another device.\n"));
                    }
                    group.volumes.push(volume(&args[at + 1], &origin, "linear", "", 0, 0, "diskvitals"));
                    Ok(output(0, "", ""))
                })
            }
            "lvremove" => {
                let name = args.last().unwrap().split_once('/').unwrap().1.to_owned();
                self.with_state(|group| {
                    if group.busy > 0 {
                        group.busy -= 1;
                        return Ok(output(
                            5,
                            "",
                            "  Logical volume vg/x is used by another device.\n",
                        ));
                    }
                    group.volumes.retain(|volume| volume["lv_name"] != name);
                    Ok(output(0, "", ""))
                })
            }
            other => panic!("{other}"),
        }
    }

    async fn change(
        &self,
        group: &str,
        volume: &str,
        snapshot: &str,
        args: Vec<String>,
    ) -> Result<Output, ExecError> {
        self.with_state(|state| state.changes.push(format!("{group}/{volume}: {snapshot}")));
        self.query(args).await
    }

    async fn replay(&self, filesystem: Filesystem, dev: DevNo) -> Result<Output, ExecError> {
        let (status, text) = self.with_state(|group| {
            group.calls.push(format!("replay {} {dev}", filesystem.name()));
            group.replay
        });
        Ok(output(status, "", text))
    }
}

fn volume(
    name: &str,
    origin: &str,
    segtype: &str,
    pool: &str,
    size: u64,
    free: u64,
    tags: &str,
) -> Value {
    json!({
        "vg_name": "vg", "lv_name": name, "lv_size": size.to_string(), "vg_free": free.to_string(), "segtype": segtype, "pool_lv": pool,
        "origin": origin, "lv_attr": if origin.is_empty() { "-wi-ao----" } else { "swi-a-s---" }, "lv_tags": tags, "data_percent": "",
        "metadata_percent": "", "lv_snapshot_invalid": "", "lv_kernel_major": "253", "lv_kernel_minor": "7",
    })
}

const GIB: u64 = 1 << 30;

fn classic(free: u64) -> FakeLvm {
    let played = FakeLvm::default();
    played.with_state(|group| {
        group.volumes = vec![volume("home", "", "linear", "", 10 * GIB, free, "")];
        group.full = "3.20";
    });
    played
}

fn thin(data: &str) -> FakeLvm {
    let played = FakeLvm::default();
    let mut pool = volume("[pool]", "", "thin-pool", "", GIB, GIB, "");
    pool["data_percent"] = data.into();
    pool["metadata_percent"] = "10.00".into();
    played.with_state(|group| {
        group.volumes = vec![volume("home", "", "thin", "[pool]", GIB, GIB, ""), pool]
    });
    played
}

fn request(filesystem: Filesystem) -> LvmSnapshotRequest {
    LvmSnapshotRequest {
        check: CheckId::known("0123456789ab"),
        group: "vg".to_owned(),
        volume: "home".to_owned(),
        filesystem,
        lvm: "/sbin/lvm".into(),
    }
}

fn refusal(made: Result<LvmSnapshot<FakeLvm>, LvmSnapshotError>) -> String {
    match made {
        Err(LvmSnapshotError::Refused(error)) => error.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_classic_snapshot_has_room_for_a_twentieth_is_replayed_and_removed() {
    let lvm = classic(2 * GIB);
    let snapshot = create(lvm.clone(), request(Filesystem::Xfs)).await.unwrap();
    assert_eq!((snapshot.device.name.as_str(), snapshot.device.dev), ("dm-7", DevNo::new(253, 7)));
    assert_eq!(snapshot.overflow_reason().await, None);
    snapshot.remove().await;
    let create = "lvcreate --yes --config activation/monitoring=0 --snapshot --addtag diskvitals --name diskvitals-check-0123456789ab \
                  --size 536870912b vg/home";
    assert_eq!(
        lvm.calls(),
        [create, "replay xfs 253:7", "lvremove --yes --force vg/diskvitals-check-0123456789ab"]
    );
    assert_eq!(lvm.names(), ["home"]);
    // What is said to be changed is what is resumed should lvm die in the middle.
    assert_eq!(
        lvm.with_state(|group| group.changes.clone()),
        ["vg/home: diskvitals-check-0123456789ab"; 2]
    );
}

#[tokio::test(start_paused = true)]
async fn a_thin_snapshot_needs_no_group_space_and_is_activated() {
    let lvm = thin("55.00");
    let snapshot = create(lvm.clone(), request(Filesystem::Ext4)).await.unwrap();
    assert_eq!(snapshot.overflow_reason().await, None);
    assert!(
        lvm.calls()[0].ends_with("--setactivationskip n --activate y vg/home"),
        "{:?}",
        lvm.calls()
    );
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_without_free_space_is_refused() {
    assert!(
        refusal(create(classic(100 << 20), request(Filesystem::Xfs)).await)
            .contains("100 MiB free, and a snapshot needs 512 MiB")
    );
    assert!(refusal(create(thin("90.00"), request(Filesystem::Xfs)).await).contains("too full"));
    assert!(
        refusal(create(thin(""), request(Filesystem::Xfs)).await)
            .contains("does not report how full")
    );
}

#[tokio::test(start_paused = true)]
async fn snapshots_of_a_btrfs_a_snapshot_or_an_unknown_volume_are_refused() {
    let lvm = classic(2 * GIB);
    assert!(
        refusal(create(lvm.clone(), request(Filesystem::Btrfs)).await).contains("same filesystem")
    );
    assert!(lvm.with_state(|group| group.calls.is_empty()));
    lvm.with_state(|group| group.volumes[0] = volume("home", "other", "linear", "", GIB, GIB, ""));
    assert!(refusal(create(lvm, request(Filesystem::Xfs)).await).contains("snapshot itself"));
    let empty = FakeLvm::default();
    assert!(
        refusal(create(empty, request(Filesystem::Xfs)).await)
            .contains("does not report the logical volume")
    );
}

#[tokio::test(start_paused = true)]
async fn a_small_volume_gets_a_snapshot_of_64_mib() {
    let lvm = classic(2 * GIB);
    lvm.with_state(|group| group.volumes[0] = volume("home", "", "linear", "", 300 << 20, GIB, ""));
    drop(create(lvm.clone(), request(Filesystem::Xfs)).await.unwrap());
    assert!(lvm.calls()[0].contains("--size 67108864b"), "{:?}", lvm.calls());
}

#[tokio::test(start_paused = true)]
async fn an_overflowed_or_unknown_snapshot_invalidates_the_run() {
    let lvm = classic(2 * GIB);
    let snapshot = create(lvm.clone(), request(Filesystem::Xfs)).await.unwrap();
    for full in ["100.00", ""] {
        lvm.with_state(|group| group.full = full);
        assert!(snapshot.overflow_reason().await.unwrap().contains("no more room"));
    }
    lvm.with_state(|group| group.volumes.truncate(1));
    assert!(snapshot.overflow_reason().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_failed_replay_removes_the_snapshot() {
    let lvm = classic(2 * GIB);
    lvm.with_state(|group| group.replay = (1, "mounting the snapshot: I/O error (EIO)\n"));
    match create(lvm.clone(), request(Filesystem::Xfs)).await {
        Err(error) => assert_eq!(
            error.to_string(),
            "replaying the log of a snapshot: mounting the snapshot: I/O error (EIO)"
        ),
        other => panic!("{other:?}"),
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lvm.names(), ["home"]);
}

#[tokio::test(start_paused = true)]
async fn damage_found_by_the_replay_is_a_kernel_signal() {
    let lvm = classic(2 * GIB);
    lvm.with_state(|group| {
        group.replay = (3, "mounting the snapshot: Structure needs cleaning (EUCLEAN)\n")
    });
    match create(lvm.clone(), request(Filesystem::Xfs)).await {
        Err(LvmSnapshotError::Damaged(signal)) => {
            assert_eq!(
                (signal.kind, signal.evidence.source.as_str()),
                (SignalKind::Corrupted, "mount of a snapshot of vg/home")
            );
            assert!(signal.evidence.text.contains("EUCLEAN"));
        }
        other => panic!("{other:?}"),
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lvm.names(), ["home"]);
}

#[tokio::test(start_paused = true)]
async fn removing_a_busy_snapshot_is_retried() {
    let lvm = classic(2 * GIB);
    let snapshot = create(lvm.clone(), request(Filesystem::Xfs)).await.unwrap();
    lvm.with_state(|group| group.busy = 3);
    snapshot.remove().await;
    assert_eq!(lvm.names(), ["home"]);
}

#[tokio::test(start_paused = true)]
async fn lvcreate_is_never_cancelled_and_an_unwanted_snapshot_is_removed() {
    let lvm = classic(2 * GIB);
    lvm.with_state(|group| group.lvcreate_takes = Duration::from_secs(20));
    let made =
        tokio::time::timeout(Duration::from_secs(1), create(lvm.clone(), request(Filesystem::Xfs)))
            .await;
    assert!(made.is_err(), "it is cancelled");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(lvm.names(), ["home"]);
    let did: Vec<String> =
        lvm.calls().iter().map(|call| call.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(did, ["lvcreate", "lvremove"], "and nothing is replayed");
}

#[tokio::test(start_paused = true)]
async fn a_failed_lvcreate_reports_its_stderr_and_its_snapshot_is_removed() {
    let lvm = classic(2 * GIB);
    lvm.with_state(|group| group.lvcreate_fails = true);
    match create(lvm.clone(), request(Filesystem::Xfs)).await {
        Err(error) => assert_eq!(
            error.to_string(),
            "lvcreate: Logical volume vg/home is used by another device."
        ),
        other => panic!("{other:?}"),
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(lvm.calls().iter().any(|call| call.starts_with("lvremove")));
}

#[test]
fn a_usage_error_of_lvcreate_reports_the_cause_without_the_help_hint() {
    let stderr = "  WARNING: something else\nmodprobe: ERROR: could not insert 'dm_snapshot': Operation not permitted\n  /sbin/modprobe failed: 1\n  \
                  snapshot: Required device-mapper target(s) not detected in your kernel.\n  Run `lvcreate --help' for more information.\n";
    let why = "lvcreate: modprobe: ERROR: could not insert 'dm_snapshot': Operation not permitted; /sbin/modprobe failed: 1; \
               snapshot: Required device-mapper target(s) not detected in your kernel.";
    assert_eq!(
        require_success(Ok(output(3, "", stderr)), "lvcreate").unwrap_err().to_string(),
        why
    );
}

#[tokio::test(start_paused = true)]
async fn leftover_snapshots_are_recognized_by_name_and_tag_and_removed() {
    let lvm = classic(2 * GIB);
    lvm.with_state(|group| {
        group.volumes.push(volume(
            "diskvitals-check-aa",
            "home",
            "linear",
            "",
            0,
            0,
            "other,diskvitals",
        ));
        group.volumes.push(volume("diskvitals-check-bb", "home", "linear", "", 0, 0, "other"));
        group.volumes.push(volume("backup", "home", "linear", "", 0, 0, "diskvitals"));
    });
    assert_eq!(
        remove_leftovers(&lvm).await,
        ["the snapshot vg/diskvitals-check-aa of a check was left behind, and is removed"]
    );
    assert_eq!(lvm.names(), ["home", "diskvitals-check-bb", "backup"]);
}

#[tokio::test(start_paused = true)]
async fn a_leftover_snapshot_of_the_same_volume_is_removed_first() {
    let lvm = classic(2 * GIB);
    lvm.with_state(|group| {
        group.volumes.push(volume("diskvitals-check-aa", "home", "linear", "", 0, 0, "diskvitals"));
        group.volumes.push(volume(
            "diskvitals-check-bb",
            "other",
            "linear",
            "",
            0,
            0,
            "diskvitals",
        ));
    });
    let snapshot = create(lvm.clone(), request(Filesystem::Xfs)).await.unwrap();
    assert_eq!(lvm.names(), ["home", "diskvitals-check-bb", "diskvitals-check-0123456789ab"]);
    snapshot.remove().await;
}

#[test]
fn lvm_is_called_only_if_device_mapper_has_a_snapshot_of_ours() {
    let dir = tempfile::tempdir().unwrap();
    let root = HostRoot::new(dir.path());
    assert!(!has_own_snapshot(&root));
    let name = |name: &str| {
        std::fs::create_dir_all(dir.path().join("sys/block/dm-0/dm")).unwrap();
        std::fs::write(dir.path().join("sys/block/dm-0/dm/name"), format!("{name}\n")).unwrap();
    };
    name("vg-home");
    assert!(!has_own_snapshot(&root));
    name("vg-diskvitals--check--0123456789ab");
    assert!(has_own_snapshot(&root));
}
