//! What a checker in its jail can do: read every filesystem in every mode, at the permitted speed,
//! and write nothing.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use diskvitals_fscheck::{Filesystem, Mode, Run, RunActivity, Termination};
use diskvitals_source::checks::runner::{self, OrphanedRuns, RunRequest};
use tokio::sync::watch;

use super::fixture::{ALL, digest, fill, make, order, program, ran, script, text, written};
use crate::support::checkers::no_loops_over;
use crate::support::tools::{mount_device, run, umount};
use crate::support::{Disk, Testbed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_filesystem_is_read_in_every_mode_and_nothing_is_written() {
    for filesystem in ALL {
        let testbed = Testbed::new();
        let disk = make(&testbed, filesystem);
        let mount = testbed.path("mnt");
        mount_device(&disk.device, filesystem.name(), &mount, "");
        fill(&mount, 500);
        umount(&mount);
        for mode in [Mode::Unmounted, Mode::ReadOnly, Mode::Live, Mode::Frozen] {
            match mode {
                Mode::Unmounted => {}
                Mode::ReadOnly => mount_device(&disk.device, filesystem.name(), &mount, "ro"),
                _ => mount_device(&disk.device, filesystem.name(), &mount, ""),
            }
            if mode == Mode::Frozen {
                run("/usr/sbin/fsfreeze", &[&"-f", &mount]);
            }
            let still = mode != Mode::Live;
            let (before, sectors) = (digest(&disk.image), written(disk.name()));
            let ran = ran(order(&disk, filesystem, mode)).await;
            let (after, sectors_after) = (digest(&disk.image), written(disk.name()));
            if mode == Mode::Frozen {
                run("/usr/sbin/fsfreeze", &[&"-u", &mount]);
            }
            if mode != Mode::Unmounted {
                umount(&mount);
            }
            let text = text(&ran.run);
            println!(
                "{} {}: {:?} {:?} {} KiB read, {:?} KiB peak, {:?}",
                filesystem.name(),
                mode.name(),
                ran.run.termination,
                ran.run.duration,
                ran.run.bytes_read / 1024,
                ran.run.peak_memory.map(|bytes| bytes / 1024),
                ran.run.result
            );
            // A log in use is reported and is not a finding.
            let usual =
                if filesystem == Filesystem::Xfs && matches!(mode, Mode::Live | Mode::Frozen) {
                    0..=1
                } else {
                    0..=0
                };
            let expected =
                format!("{} {}: {:?}\n{text}", filesystem.name(), mode.name(), ran.run.termination);
            assert!(
                matches!(ran.run.termination, Termination::Exited(code) if usual.contains(&code)),
                "{expected}"
            );
            // The peak may be absent: a run of some milliseconds ends before it is measured.
            assert!(
                ran.unkillable.is_none()
                    && ran.run.output.written > 0
                    && ran.run.peak_memory != Some(0),
                "{:?}",
                ran.run
            );
            // A buffered reader may find everything in the cache.
            assert!(filesystem == Filesystem::Ext4 || ran.run.bytes_read > 0, "{:?}", ran.run);
            if still {
                assert_eq!(
                    (before, sectors),
                    (after, sectors_after),
                    "{} {}",
                    filesystem.name(),
                    mode.name()
                );
            }
            no_loops_over(&testbed).await;
        }
    }
}

/// The output of a script in the jail, by lines.
async fn jailed(
    testbed: &Testbed,
    disk: &Disk,
    filesystem: Filesystem,
    body: &str,
) -> (Vec<String>, Run) {
    let command = script(testbed, "checker", body);
    let ran = ran(RunRequest {
        command,
        timeout: Duration::from_secs(20),
        ..order(disk, filesystem, Mode::Unmounted)
    })
    .await;
    (text(&ran.run).lines().map(str::to_owned).collect(), ran.run)
}

/// The run of a script in the jail, and the last activity that was reported of it.
async fn followed(testbed: &Testbed, disk: &Disk, body: &str) -> (Run, RunActivity) {
    let command = script(testbed, "checker", body);
    let order = RunRequest {
        command,
        timeout: Duration::from_secs(20),
        ..order(disk, Filesystem::Ext4, Mode::Unmounted)
    };
    let orphans = OrphanedRuns::default();
    let prepared = runner::prepare(&program(), &orphans, order).await;
    let activity = watch::Sender::new(RunActivity::default());
    let ran = prepared.expect("a prepared run").run(&activity).await;
    (ran.reap().await.run, activity.borrow().clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_comes_on_a_descriptor_of_its_own_that_can_only_be_written_to() {
    let testbed = Testbed::new();
    let disk = make(&testbed, Filesystem::Ext4);
    let body = r#"exec bash -c '
        [ "$1 $2" = "-C 200" ] || echo "no descriptor: $*"
        echo "Pass 2: Checking directory structure"
        echo "1 5 10 /dev/x" >&200
        head -c 3000000 /dev/zero >&200
        printf "\n2 1 2 /dev/x\n3 9" >&200
        if read -r -t 1 -u 200 line; then echo "read: $line"; fi
        sleep 1
    ' checker "$@""#;
    let (run, activity) = followed(&testbed, &disk, body).await;
    let output = text(&run);
    assert_eq!(
        (activity.phase.as_str(), activity.permille),
        ("Pass 2: Checking directory structure", Some(800)),
        "{run:?} {output}"
    );
    for unwanted in ["/dev/x", "no descriptor", "read:"] {
        assert!(!output.contains(unwanted), "{output}");
    }
    assert!(!run.command.contains("-C"), "{}", run.command);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_progress_delays_neither_the_output_nor_the_end() {
    let testbed = Testbed::new();
    let disk = make(&testbed, Filesystem::Ext4);
    let body = r#"exec bash -c '
        yes "2 1 2 /dev/x" >&200 &
        echo "Pass 3: Checking directory connectivity"
        sleep 2
    ' checker"#;
    let began = std::time::Instant::now();
    let (run, activity) = followed(&testbed, &disk, body).await;
    assert_eq!(run.termination, Termination::Exited(0), "{run:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(activity.permille, Some(800));
    assert!(run.output.written < 1000, "{}", text(&run));
}

/// xfs_repair works on them in as many threads, which share the address space of the jail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_xfs_with_many_allocation_groups_is_read_in_its_address_space() {
    let testbed = Testbed::new();
    let image = testbed.image("many.img", 8 << 30);
    run("/usr/sbin/mkfs.xfs", &[&"-q", &"-d", &"agcount=48", &image]);
    let disk = testbed.attach(&image);
    let ran = ran(order(&disk, Filesystem::Xfs, Mode::Unmounted)).await;
    let output = text(&ran.run);
    assert_eq!(ran.run.termination, Termination::Exited(0), "{output}");
    // Its progress lines are no problems.
    assert!(output.contains("allocation groups done"), "{output}");
    assert!(ran.run.problems.is_empty(), "{:?}", ran.run.problems);
}

/// A line of /proc/PID/status with one user id of the reserved range, four times.
fn is_own_id(line: &str) -> bool {
    let ids = line.strip_prefix("Uid:").map(|ids| {
        ids.split_whitespace().filter_map(|id| id.parse::<u32>().ok()).collect::<Vec<_>>()
    });
    ids.is_some_and(|ids| ids[0] >= 2_130_706_432 && ids == [ids[0]; 4])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jailed_program_cannot_write_or_regain_privileges() {
    let testbed = Testbed::new();
    for filesystem in ALL {
        let disk = make(&testbed, filesystem);
        let before = digest(&disk.image);
        let folder = testbed.path("open");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777))
            .expect("its mode");
        let body = format!(
            r#"
            for last in "$@"; do :; done
            try() {{ what=$1; shift; if "$@" >/dev/null 2>&1; then echo "$what: POSSIBLE"; else echo "$what: refused"; fi; }}
            try "write the node" dd if=/dev/zero of=$last bs=512 count=1 conv=notrunc
            try "write through descriptors" sh -c "exec 5<>$last"
            try "make a node" mknod /dev/sdx b 7 0
            try "make a node elsewhere" mknod /tmp/sdx b 7 0
            try "change the node" chmod 666 $last
            try "change /dev" rm -f $last
            try "a file in /tmp" touch /tmp/dvhw-jail
            try "a file in an open folder" touch {open}/file
            try "a file in /dev/shm" touch /dev/shm/file
            try "a file in /run" touch /run/dvhw-jail
            try "a file in /var/tmp" touch /var/tmp/dvhw-jail
            try "mount" mount -t tmpfs none /mnt
            try "remount" mount -o remount,rw /dev
            try "a namespace" unshare -m true
            try "a user namespace that maps root" unshare -Ur mount -t tmpfs none /mnt
            try "become root" setpriv --reuid=0 true
            try "change the loop" losetup --direct-io=off $last
            try "set the kernel" sh -c 'echo 1 > /proc/sys/vm/drop_caches'
            try "a signal to the parent" kill -0 $PPID
            try "read the node" dd if=$last of=/dev/null bs=512 count=1
            grep -E '^(Cap|NoNewPrivs|Groups|Uid|Gid)' /proc/self/status
            cat /proc/self/oom_score_adj
            ls /dev
            readlink /proc/self/fd/0
            ls /proc/self/fd | wc -l
            env
            ulimit -c; ulimit -v
            "#,
            open = folder.display()
        );
        let (lines, run) = jailed(&testbed, &disk, filesystem, &body).await;
        let text = lines.join("\n");
        assert_eq!(run.termination, Termination::Exited(0), "{text} {}", run.failure_reason);
        let possible: Vec<&String> =
            lines.iter().filter(|line| line.contains("POSSIBLE")).collect();
        assert_eq!(possible, ["read the node: POSSIBLE"], "{text}");
        assert_eq!(lines.iter().filter(|line| line.ends_with(": refused")).count(), 19, "{text}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(lines.contains(&format!("{set}:\t0000000000000000")), "{text}");
        }
        assert!(
            lines.contains(&"NoNewPrivs:\t1".to_owned())
                && lines.iter().any(|line| is_own_id(line)),
            "{text}"
        );
        assert!(lines.iter().any(|line| line.trim_end() == "Groups:"), "{text}");
        assert!(
            lines.contains(&"1000".to_owned()) && lines.contains(&"/dev/null".to_owned()),
            "{text}"
        );
        assert!(
            text.contains("\nfull\n")
                && !text.contains("loop-control")
                && text.matches("\nloop").count() == 1,
            "{text}"
        );
        assert!(
            lines.contains(&"E2FSCK_CONFIG=/dev/null".to_owned())
                && lines.contains(&"1048576".to_owned()),
            "{text}"
        );
        assert_eq!(digest(&disk.image), before);
        no_loops_over(&testbed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn xfs_and_btrfs_are_read_through_a_loop_that_cannot_be_written() {
    let testbed = Testbed::new();
    for filesystem in [Filesystem::Xfs, Filesystem::Btrfs] {
        let disk = make(&testbed, filesystem);
        let body = r#"
            for last in "$@"; do :; done
            name=$(basename $last); cat /sys/block/$name/ro /sys/block/$name/loop/dio /sys/block/$name/loop/autoclear
            cat /sys/block/$name/loop/backing_file /sys/block/$name/queue/logical_block_size
            # A number that is used again keeps its counters.
            written() { set -- $(cat /sys/block/$name/stat); echo $5 $7; }
            before=$(written)
            dd if=$last of=/dev/null bs=1M count=8 2>/dev/null
            [ "$before" = "$(written)" ] && echo nothing written
        "#;
        let (lines, run) = jailed(&testbed, &disk, filesystem, body).await;
        assert_eq!(run.termination, Termination::Exited(0), "{lines:?}");
        assert_eq!(lines[..3], ["1", "1", "1"], "{lines:?}");
        assert!(diskvitals_host::loops::is_ours(&lines[3]), "{lines:?}");
        assert_eq!(lines[4], "512");
        assert_eq!(lines[5], "nothing written");
        no_loops_over(&testbed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_run_is_held_back_and_a_frozen_one_is_not() {
    let testbed = Testbed::new();
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        let disk = make(&testbed, filesystem);
        // The checker is paused repeatedly. Only its own process counts, for at least half a
        // second: the supervisor shares the two processors with others.
        let body = r#"
            for last in "$@"; do :; done
            exec perl -e 'open(my $in, "<", $ARGV[0]) or die; for (1..40) { sysread($in, my $piece, 1 << 20) or die; select(undef, undef, undef, 0.01) }' $last
        "#;
        let command = script(&testbed, "reads", body);
        // 40 MiB at 20 MiB a second.
        let order = RunRequest {
            command,
            bytes_per_second: Some(20 << 20),
            ..order(&disk, filesystem, Mode::Live)
        };
        run("/usr/sbin/blockdev", &[&"--flushbufs", &disk.device]);
        let live = ran(order.clone()).await.run;
        run("/usr/sbin/blockdev", &[&"--flushbufs", &disk.device]);
        let frozen = ran(RunRequest { mode: Mode::Frozen, ..order }).await.run;
        println!(
            "{}: live {:?} (active {:?}, {} KiB), frozen {:?} ({} KiB)",
            filesystem.name(),
            live.duration,
            live.active,
            live.bytes_read / 1024,
            frozen.duration,
            frozen.bytes_read / 1024
        );
        assert_eq!(
            (&live.termination, &frozen.termination),
            (&Termination::Exited(0), &Termination::Exited(0))
        );
        assert!(
            live.bytes_read >= 40 << 20 && frozen.bytes_read >= 40 << 20,
            "{live:?} {frozen:?}"
        );
        assert!(live.duration > Duration::from_millis(1700), "{live:?}");
        // Time in which it was paused or waited for a processor is not its own.
        assert!(live.active + Duration::from_millis(300) < live.duration, "{live:?}");
        assert!(frozen.active == frozen.duration && frozen.duration < live.duration, "{frozen:?}");
    }
}
