//! Snapshots, with an LVM that is played. What the real one does: the QEMU lab
//! (`hwtests/lab/checks.rs`).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::*;

/// A volume group `vg` with what is in it; answers as lvs does, and changes as it is told.
#[derive(Clone, Debug, Default)]
struct Played {
    state: Arc<Mutex<Group>>,
}

#[derive(Debug, Default)]
struct Group {
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

impl Played {
    fn look<T>(&self, look: impl FnOnce(&mut Group) -> T) -> T {
        look(&mut self.state.lock().unwrap())
    }

    fn names(&self) -> Vec<String> {
        self.look(|group| {
            group
                .volumes
                .iter()
                .map(|volume| volume["lv_name"].as_str().unwrap().to_owned())
                .collect()
        })
    }

    fn calls(&self) -> Vec<String> {
        self.look(|group| {
            group
                .calls
                .iter()
                .filter(|call| !call.starts_with("lvs"))
                .cloned()
                .collect()
        })
    }
}

fn ended(status: i32, stdout: &str, stderr: &str) -> Output {
    Output {
        status: status << 8,
        stdout: stdout.into(),
        stderr: stderr.into(),
        truncated: false,
    }
}

impl Lvm for Played {
    async fn call(&self, args: Vec<String>) -> Result<Output, ExecError> {
        self.look(|group| group.calls.push(args.join(" ")));
        match args[0].as_str() {
            "lvs" => {
                let of = args.last().filter(|last| !last.contains(',')).cloned();
                let one = of
                    .as_ref()
                    .and_then(|of| of.split_once('/'))
                    .map(|(_, name)| name.to_owned());
                self.look(|group| {
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
                        return Ok(ended(5, "", "  Failed to find logical volume"));
                    }
                    Ok(ended(0, &json!({"report": [{"lv": lv}]}).to_string(), ""))
                })
            }
            "lvcreate" => {
                let long = self.look(|group| group.lvcreate_takes);
                tokio::time::sleep(long).await;
                let at = args.iter().position(|arg| arg == "--name").unwrap();
                let origin = args.last().unwrap().split_once('/').unwrap().1.to_owned();
                self.look(|group| {
                    if group.lvcreate_fails {
                        return Ok(ended(5, "", "  WARNING: something else\n  Logical volume vg/home is used by another device.\n"));
                    }
                    group.volumes.push(volume(&args[at + 1], &origin, "linear", "", 0, 0, "diskvitals"));
                    Ok(ended(0, "", ""))
                })
            }
            "lvremove" => {
                let name = args.last().unwrap().split_once('/').unwrap().1.to_owned();
                self.look(|group| {
                    if group.busy > 0 {
                        group.busy -= 1;
                        return Ok(ended(
                            5,
                            "",
                            "  Logical volume vg/x is used by another device.\n",
                        ));
                    }
                    group.volumes.retain(|volume| volume["lv_name"] != name);
                    Ok(ended(0, "", ""))
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
        self.look(|state| state.changes.push(format!("{group}/{volume}: {snapshot}")));
        self.call(args).await
    }

    async fn replay(&self, filesystem: Filesystem, dev: DevNo) -> Result<Output, ExecError> {
        let (status, text) = self.look(|group| {
            group
                .calls
                .push(format!("replay {} {dev}", filesystem.name()));
            group.replay
        });
        Ok(ended(status, "", text))
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

fn classic(free: u64) -> Played {
    let played = Played::default();
    played.look(|group| {
        group.volumes = vec![volume("home", "", "linear", "", 10 * GIB, free, "")];
        group.full = "3.20";
    });
    played
}

fn thin(data: &str) -> Played {
    let played = Played::default();
    let mut pool = volume("[pool]", "", "thin-pool", "", GIB, GIB, "");
    pool["data_percent"] = data.into();
    pool["metadata_percent"] = "10.00".into();
    played.look(|group| {
        group.volumes = vec![volume("home", "", "thin", "[pool]", GIB, GIB, ""), pool]
    });
    played
}

fn order(filesystem: Filesystem) -> SnapshotOrder {
    SnapshotOrder {
        check: CheckId::known("0123456789ab"),
        group: "vg".to_owned(),
        volume: "home".to_owned(),
        filesystem,
        lvm: "/sbin/lvm".into(),
    }
}

fn refused(made: Result<Snapshot<Played>, SnapshotError>) -> String {
    match made {
        Err(SnapshotError::Refused(why)) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_classic_snapshot_has_room_for_a_twentieth_is_replayed_and_removed() {
    let lvm = classic(2 * GIB);
    let snapshot = make(lvm.clone(), order(Filesystem::Xfs)).await.unwrap();
    assert_eq!(
        (snapshot.device.name.as_str(), snapshot.device.dev),
        ("dm-7", DevNo::new(253, 7))
    );
    assert_eq!(snapshot.overflown().await, None);
    snapshot.remove().await;
    let create = "lvcreate --yes --config activation/monitoring=0 --snapshot --addtag diskvitals --name diskvitals-check-0123456789ab \
                  --size 536870912b vg/home";
    assert_eq!(
        lvm.calls(),
        [
            create,
            "replay xfs 253:7",
            "lvremove --yes --force vg/diskvitals-check-0123456789ab"
        ]
    );
    assert_eq!(lvm.names(), ["home"]);
    // What is said to be changed is what is resumed should lvm die in the middle.
    assert_eq!(
        lvm.look(|group| group.changes.clone()),
        ["vg/home: diskvitals-check-0123456789ab"; 2]
    );
}

#[tokio::test(start_paused = true)]
async fn a_thin_snapshot_takes_no_room_of_the_group_and_is_activated() {
    let lvm = thin("55.00");
    let snapshot = make(lvm.clone(), order(Filesystem::Ext4)).await.unwrap();
    assert_eq!(snapshot.overflown().await, None);
    assert!(
        lvm.calls()[0].ends_with("--setactivationskip n --activate y vg/home"),
        "{:?}",
        lvm.calls()
    );
}

#[tokio::test(start_paused = true)]
async fn without_room_there_is_none() {
    assert!(
        refused(make(classic(100 << 20), order(Filesystem::Xfs)).await)
            .contains("100 MiB free, and a snapshot needs 512 MiB")
    );
    assert!(refused(make(thin("90.00"), order(Filesystem::Xfs)).await).contains("too full"));
    assert!(refused(make(thin(""), order(Filesystem::Xfs)).await).contains("cannot be told"));
}

#[tokio::test(start_paused = true)]
async fn of_a_btrfs_and_of_a_snapshot_there_is_none_and_of_what_is_not_known_neither() {
    let lvm = classic(2 * GIB);
    assert!(refused(make(lvm.clone(), order(Filesystem::Btrfs)).await).contains("same filesystem"));
    assert!(lvm.look(|group| group.calls.is_empty()));
    lvm.look(|group| group.volumes[0] = volume("home", "other", "linear", "", GIB, GIB, ""));
    assert!(refused(make(lvm, order(Filesystem::Xfs)).await).contains("snapshot itself"));
    let empty = Played::default();
    assert!(refused(make(empty, order(Filesystem::Xfs)).await).contains("does not know"));
}

#[tokio::test(start_paused = true)]
async fn a_small_volume_gets_64_mib() {
    let lvm = classic(2 * GIB);
    lvm.look(|group| group.volumes[0] = volume("home", "", "linear", "", 300 << 20, GIB, ""));
    drop(make(lvm.clone(), order(Filesystem::Xfs)).await.unwrap());
    assert!(
        lvm.calls()[0].contains("--size 67108864b"),
        "{:?}",
        lvm.calls()
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_ran_over_says_so_and_one_whose_state_is_not_known_counts_for_nothing_either() {
    let lvm = classic(2 * GIB);
    let snapshot = make(lvm.clone(), order(Filesystem::Xfs)).await.unwrap();
    for full in ["100.00", ""] {
        lvm.look(|group| group.full = full);
        assert!(snapshot.overflown().await.unwrap().contains("no more room"));
    }
    lvm.look(|group| group.volumes.truncate(1));
    assert!(snapshot.overflown().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_replayed_leaves_no_snapshot() {
    let lvm = classic(2 * GIB);
    lvm.look(|group| group.replay = (1, "mounting the snapshot: I/O error (EIO)\n"));
    match make(lvm.clone(), order(Filesystem::Xfs)).await {
        Err(SnapshotError::Failed(why)) => assert_eq!(
            why,
            "replaying the log of a snapshot: mounting the snapshot: I/O error (EIO)"
        ),
        other => panic!("{other:?}"),
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lvm.names(), ["home"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_kernel_finds_damaged_in_the_replay_is_its_own_word() {
    let lvm = classic(2 * GIB);
    lvm.look(|group| {
        group.replay = (
            3,
            "mounting the snapshot: Structure needs cleaning (EUCLEAN)\n",
        )
    });
    match make(lvm.clone(), order(Filesystem::Xfs)).await {
        Err(SnapshotError::Damaged(signal)) => {
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
async fn a_busy_snapshot_is_removed_a_little_later() {
    let lvm = classic(2 * GIB);
    let snapshot = make(lvm.clone(), order(Filesystem::Xfs)).await.unwrap();
    lvm.look(|group| group.busy = 3);
    snapshot.remove().await;
    assert_eq!(lvm.names(), ["home"]);
}

#[tokio::test(start_paused = true)]
async fn lvcreate_is_not_stopped_half_way_and_what_it_makes_for_nobody_is_removed() {
    let lvm = classic(2 * GIB);
    lvm.look(|group| group.lvcreate_takes = Duration::from_secs(20));
    let made = tokio::time::timeout(
        Duration::from_secs(1),
        make(lvm.clone(), order(Filesystem::Xfs)),
    )
    .await;
    assert!(made.is_err(), "it is cancelled");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(lvm.names(), ["home"]);
    let did: Vec<String> = lvm
        .calls()
        .iter()
        .map(|call| call.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(did, ["lvcreate", "lvremove"], "and nothing is replayed");
}

#[tokio::test(start_paused = true)]
async fn an_lvcreate_that_failed_tells_its_last_words_and_may_have_made_it_all_the_same() {
    let lvm = classic(2 * GIB);
    lvm.look(|group| group.lvcreate_fails = true);
    match make(lvm.clone(), order(Filesystem::Xfs)).await {
        Err(SnapshotError::Failed(why)) => assert_eq!(
            why,
            "lvcreate: Logical volume vg/home is used by another device."
        ),
        other => panic!("{other:?}"),
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(lvm.calls().iter().any(|call| call.starts_with("lvremove")));
}

#[test]
fn of_an_lvcreate_that_was_called_wrongly_the_cause_is_told_and_not_where_there_is_help() {
    let stderr = "  WARNING: something else\nmodprobe: ERROR: could not insert 'dm_snapshot': Operation not permitted\n  /sbin/modprobe failed: 1\n  \
                  snapshot: Required device-mapper target(s) not detected in your kernel.\n  Run `lvcreate --help' for more information.\n";
    let why = "lvcreate: modprobe: ERROR: could not insert 'dm_snapshot': Operation not permitted; /sbin/modprobe failed: 1; \
               snapshot: Required device-mapper target(s) not detected in your kernel.";
    assert_eq!(said(Ok(ended(3, "", stderr)), "lvcreate").unwrap_err(), why);
}

#[tokio::test(start_paused = true)]
async fn what_was_left_behind_is_removed_by_its_name_and_tag_and_nothing_else_is() {
    let lvm = classic(2 * GIB);
    lvm.look(|group| {
        group.volumes.push(volume(
            "diskvitals-check-aa",
            "home",
            "linear",
            "",
            0,
            0,
            "other,diskvitals",
        ));
        group.volumes.push(volume(
            "diskvitals-check-bb",
            "home",
            "linear",
            "",
            0,
            0,
            "other",
        ));
        group
            .volumes
            .push(volume("backup", "home", "linear", "", 0, 0, "diskvitals"));
    });
    assert_eq!(
        sweep(&lvm).await,
        ["the snapshot vg/diskvitals-check-aa of a check was left behind, and is removed"]
    );
    assert_eq!(lvm.names(), ["home", "diskvitals-check-bb", "backup"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_left_of_the_same_volume_is_removed_before_another_is_made() {
    let lvm = classic(2 * GIB);
    lvm.look(|group| {
        group.volumes.push(volume(
            "diskvitals-check-aa",
            "home",
            "linear",
            "",
            0,
            0,
            "diskvitals",
        ));
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
    let snapshot = make(lvm.clone(), order(Filesystem::Xfs)).await.unwrap();
    assert_eq!(
        lvm.names(),
        [
            "home",
            "diskvitals-check-bb",
            "diskvitals-check-0123456789ab"
        ]
    );
    snapshot.remove().await;
}

#[test]
fn only_device_mappers_own_names_tell_whether_lvm_is_asked_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let root = HostRoot::new(dir.path());
    assert!(!has_ours(&root));
    let name = |name: &str| {
        std::fs::create_dir_all(dir.path().join("sys/block/dm-0/dm")).unwrap();
        std::fs::write(
            dir.path().join("sys/block/dm-0/dm/name"),
            format!("{name}\n"),
        )
        .unwrap();
    };
    name("vg-home");
    assert!(!has_ours(&root));
    name("vg-diskvitals--check--0123456789ab");
    assert!(has_ours(&root));
}
