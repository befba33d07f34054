//! Tests over pipes, files, sockets and programs in place of the device, with a real runtime's
//! time.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;

use super::*;
use crate::context::{SmartSettings, SourceSettings};
use diskvitals_finding::path::HostPath;
use diskvitals_host::clock::now;
use diskvitals_host::root::HostRoot;
use diskvitals_host::worker_pool::{WorkerPool, WorkerPoolConfig};
use diskvitals_model::facts::kernel_log::lost_records::LOSS_PERIOD;
use diskvitals_model::probe::ProbeTarget;

const BOOT: &str = "bc410abf-5868-4598-8a1a-df242baf6e4d";
/// No assertion needs this long on a machine of any speed.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A host with its own log, and the updates of its reader.
struct Host {
    dir: tempfile::TempDir,
    settings: watch::Sender<Arc<SourceSettings>>,
    resume: watch::Sender<ResumePoint>,
    targets: watch::Sender<Arc<Vec<ProbeTarget>>>,
    journalctl: Vec<PathBuf>,
}

struct Running {
    reports: mpsc::Receiver<SourceUpdate>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Host {
    fn new() -> Host {
        let dir = tempfile::tempdir().expect("a folder");
        for folder in ["dev", "proc/sys/kernel/random", "proc/1/ns", "run/systemd/journal"] {
            std::fs::create_dir_all(dir.path().join(folder)).expect("made");
        }
        std::fs::write(dir.path().join("proc/sys/kernel/random/boot_id"), format!("{BOOT}\n"))
            .expect("written");
        let settings = SourceSettings {
            checks: Default::default(),
            kubelet_root: HostPath::new("/var/lib/kubelet"),
            admit: Vec::new(),
            ignore: Vec::new(),
            reconcile_interval: TEST_TIMEOUT,
            probe_interval: TEST_TIMEOUT,
            probe_timeout: TEST_TIMEOUT,
            worker_timeout: TEST_TIMEOUT,
            disk_stats_interval: TEST_TIMEOUT,
            kernel_log: KernelLogSettings {
                enabled: true,
                path: HostPath::new(DEVICE),
                admit: Vec::new(),
            },
            counters_interval: TEST_TIMEOUT,
            fs_events: false,
            smart: SmartSettings {
                enabled: false,
                command: "/nonexistent".into(),
                interval: TEST_TIMEOUT,
                suspect_interval: TEST_TIMEOUT,
                shortest_interval: TEST_TIMEOUT,
                slow_interval: TEST_TIMEOUT,
                idle_interval: TEST_TIMEOUT,
                timeout: TEST_TIMEOUT,
                at_once: 1,
                nvme_events: false,
                device_types: Vec::new(),
            },
        };
        Host {
            dir,
            settings: watch::Sender::new(Arc::new(settings)),
            resume: watch::Sender::new(ResumePoint::From(None)),
            targets: watch::Sender::default(),
            journalctl: Vec::new(),
        }
    }

    fn kmsg(&self) -> PathBuf {
        self.dir.path().join("dev/kmsg")
    }

    fn fifo(self) -> Host {
        nix::unistd::mkfifo(&self.kmsg(), nix::sys::stat::Mode::S_IRWXU).expect("made");
        self
    }

    /// Opened as the reader opens it: without waiting for the other end.
    fn writer(&self) -> std::fs::File {
        std::fs::File::options().read(true).write(true).open(self.kmsg()).expect("opened")
    }

    fn set(&self, enabled: bool) {
        self.settings.send_modify(|settings| {
            let mut new = (**settings).clone();
            new.kernel_log.enabled = enabled;
            *settings = Arc::new(new);
        });
    }

    /// The output of journalctl, as a shell script.
    fn journal(&mut self, script: &str) {
        std::fs::write(self.dir.path().join("run/systemd/journal/socket"), "").expect("written");
        let program = self.dir.path().join("journalctl");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("set");
        self.journalctl = vec![program];
    }

    fn start(&self) -> Running {
        let (sender, reports) = mpsc::channel(16);
        let workers = || {
            WorkerPool::start(WorkerPoolConfig {
                program: "/nonexistent".into(),
                args: Vec::new(),
                active: 1,
                max_stuck: 1,
            })
        };
        let context = Context {
            root: HostRoot::new(self.dir.path()),
            reports: sender,
            requests: broadcast::channel(1).0,
            workers: workers(),
            probe_workers: workers(),
            settings: self.settings.subscribe(),
            targets: self.targets.subscribe(),
            fs_errors: diskvitals_host::helper::Program {
                program: "/nonexistent".into(),
                args: Vec::new(),
            },
            smart_targets: watch::Sender::default().subscribe(),
            raid_tools: watch::Sender::default().subscribe(),
            checks: watch::Sender::default().subscribe(),
            checker: diskvitals_host::helper::Program {
                program: "/nonexistent".into(),
                args: Vec::new(),
            },
            freezer: diskvitals_host::helper::Program {
                program: "/nonexistent".into(),
                args: Vec::new(),
            },
            freeze_intents: "/nonexistent".into(),
            grid: diskvitals_host::timer_grid::TimerGrid::start(),
            resume: self.resume.subscribe(),
        };
        let journalctl = self.journalctl.clone();
        let task = tokio::spawn(async move {
            // Ends only when its receiver is dropped.
            let Err(_gone) = run_with(context, journalctl).await;
        });
        Running { reports, task }
    }
}

impl Running {
    async fn next(&mut self) -> SourceUpdate {
        tokio::time::timeout(TEST_TIMEOUT, self.reports.recv())
            .await
            .expect("in time")
            .expect("the reader runs")
    }

    async fn status(&mut self) -> SourceStatus {
        loop {
            if let SourceUpdate::Source { source: Source::KernelLog, status } = self.next().await {
                return status;
            }
        }
    }

    /// The status that follows the batch with the record `seq`.
    async fn status_after(&mut self, seq: u64) -> SourceStatus {
        self.until(seq).await;
        self.status().await
    }

    async fn batch(&mut self) -> Batch {
        loop {
            if let SourceUpdate::KernelLog(batch) = self.next().await {
                return batch;
            }
        }
    }

    /// Batches up to the one that has read this record.
    async fn until(&mut self, seq: u64) -> Vec<Batch> {
        let mut batches = Vec::new();
        loop {
            batches.push(self.batch().await);
            if batches.last().is_some_and(|batch| batch.cursor.counted_to >= Some(seq)) {
                return batches;
            }
        }
    }
}

fn failure(seq: u64, device: &str) -> String {
    format!(
        "3,{seq},{seq},-;I/O error, dev {device}, sector {} op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2\n",
        seq % 7 * 8
    )
}

fn records(batches: &[Batch]) -> u64 {
    batches.iter().flat_map(|batch| &batch.events).map(|event| event.records).sum()
}

#[tokio::test]
async fn a_record_in_a_pipe_is_reported_at_once_with_its_arrival_time() {
    let host = Host::new().fifo();
    let mut running = host.start();
    assert_eq!(running.status().await, SourceStatus::Active("/dev/kmsg, a pipe".into()));
    assert!(running.batch().await.is_backlog, "what was there: nothing");
    let before = now();
    let written = Instant::now();
    host.writer().write_all(failure(5, "sda").as_bytes()).expect("written");
    let batch = running.batch().await;
    let took = written.elapsed();
    assert!(
        !batch.is_backlog
            && batch.events[0].first.time >= before
            && batch.events[0].first.time <= now()
    );
    assert_eq!(
        (batch.events[0].seq, batch.cursor.counted_to, batch.cursor.reread_from),
        (5, Some(5), 5),
        "the incident may go on"
    );
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
async fn records_written_before_the_start_are_backlog() {
    let host = Host::new().fifo();
    let mut writer = host.writer();
    writer.write_all(failure(5, "sda").as_bytes()).expect("written");
    let mut running = host.start();
    let batches = running.until(5).await;
    assert_eq!((records(&batches), batches.iter().all(|batch| batch.is_backlog)), (1, true));
    writer.write_all(failure(6, "sda").as_bytes()).expect("written");
    let batches = running.until(6).await;
    assert_eq!((records(&batches), batches.last().expect("one").is_backlog), (1, false));
}

#[tokio::test]
async fn torn_records_junk_and_lines_of_a_megabyte_harm_no_other_record() {
    let host = Host::new().fifo();
    let mut running = host.start();
    let text = failure(7, "sda");
    let mut writer = host.writer();
    let writing = tokio::task::spawn_blocking(move || {
        let (a, b) = text.as_bytes().split_at(40);
        writer.write_all(a).expect("written");
        writer.write_all(b).expect("written");
        writer.write_all(b" SUBSYSTEM=block\n\0\xff\xfe\n3,x;\n").expect("written");
        writer.write_all(&vec![b'x'; 1 << 20]).expect("written");
        writer.write_all(b"\n SUBSYSTEM=scsi\n").expect("written");
        writer.write_all(failure(8, "sdb").as_bytes()).expect("written");
        writer
    });
    let batches = running.until(8).await;
    assert_eq!(records(&batches), 2);
    writing.await.expect("written");
}

#[tokio::test]
async fn a_gap_in_sequence_numbers_is_reported_as_a_loss() {
    let host = Host::new().fifo();
    let mut running = host.start();
    running.batch().await;
    host.writer()
        .write_all(format!("{}{}", failure(1, "sda"), failure(40, "sda")).as_bytes())
        .expect("written");
    let batches = running.until(40).await;
    assert_eq!(batches.last().expect("one").cursor.lost, 38);
    let status = running.status().await;
    assert_eq!(
        status,
        SourceStatus::Limited("/dev/kmsg, a pipe; 38 records since the boot were overwritten before they could be read".into())
    );
}

#[tokio::test]
async fn a_loss_limits_the_source_for_ten_minutes_and_is_then_only_mentioned() {
    let host = Host::new().fifo();
    let mut running = host.start();
    running.batch().await;
    let mut writer = host.writer();
    writer
        .write_all(format!("{}{}", failure(1, "sda"), failure(40, "sda")).as_bytes())
        .expect("written");
    assert!(matches!(running.status_after(40).await, SourceStatus::Limited(_)));
    let past = |lost| {
        SourceStatus::Active(format!(
            "/dev/kmsg, a pipe; {lost} records since the boot were overwritten before they could be read"
        ))
    };
    pass(LOSS_PERIOD).await;
    assert_eq!(running.status().await, past(38));
    // Another loss begins anew.
    writer.write_all(failure(43, "sda").as_bytes()).expect("written");
    assert!(matches!(running.status_after(43).await, SourceStatus::Limited(_)));
    pass(LOSS_PERIOD).await;
    assert_eq!(running.status().await, past(40));
}

/// Lets time pass for the reader.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_flood_arrives_complete_in_few_batches_and_starves_no_task() {
    const FLOOD: u64 = 50_000;
    let host = Host::new().fifo();
    let mut running = host.start();
    running.batch().await;
    let mut writer = host.writer();
    let writing = tokio::task::spawn_blocking(move || {
        for seq in 1..=FLOOD {
            writer
                .write_all(failure(seq, ["sda", "sdb"][(seq % 2) as usize]).as_bytes())
                .expect("written");
        }
        // The pipe stays open: the reader still holds it.
        writer
    });
    // On the same thread as the reader.
    let turns = tokio::spawn(async {
        let mut longest = Duration::ZERO;
        loop {
            let began = Instant::now();
            tokio::task::yield_now().await;
            longest = longest.max(began.elapsed());
            if began.elapsed() > Duration::from_secs(20) {
                return longest;
            }
        }
    });
    let batches = running.until(FLOOD).await;
    assert_eq!(records(&batches), FLOOD);
    assert!(!turns.is_finished());
    turns.abort();
    assert!(
        batches.iter().all(|batch| batch.events.len() <= diskvitals_kernel_log::rollup::MAX_EVENTS)
    );
    writing.await.expect("written");
}

#[tokio::test]
async fn a_recording_is_read_once_to_its_end() {
    let host = Host::new();
    std::fs::write(host.kmsg(), format!("{}{}", failure(1, "sda"), failure(2, "sda").trim_end()))
        .expect("written");
    let mut running = host.start();
    assert_eq!(running.status().await, SourceStatus::Active("/dev/kmsg, a recording".into()));
    let batches = running.until(1).await;
    // Its last line has no line break: it was still being written.
    assert_eq!((records(&batches), batches.iter().all(|batch| batch.is_backlog)), (1, true));
    assert!(
        tokio::time::timeout(Duration::from_millis(300), running.reports.recv()).await.is_err()
    );
}

#[tokio::test]
async fn reading_waits_for_the_store_and_resumes_at_its_cursor() {
    let host = Host::new();
    std::fs::write(host.kmsg(), (1..=20).map(|seq| failure(seq, "sda")).collect::<String>())
        .expect("written");
    host.resume.send_replace(ResumePoint::Unknown);
    let mut running = host.start();
    assert!(
        tokio::time::timeout(Duration::from_millis(200), running.reports.recv()).await.is_err()
    );
    host.resume.send_replace(ResumePoint::From(Some(Cursor {
        boot_id: BOOT.into(),
        counted_to: Some(15),
        reread_from: 12,
        lost: 3,
    })));
    let batches = running.until(20).await;
    let events: Vec<_> = batches
        .iter()
        .flat_map(|batch| &batch.events)
        .map(|event| (event.seq, event.records))
        .collect();
    assert_eq!(events, [(15, 4), (20, 5)], "what is counted stays apart");
    assert_eq!(batches.last().expect("one").cursor.lost, 3);
}

#[tokio::test]
async fn a_cursor_beyond_the_end_restarts_at_the_oldest_record() {
    let host = Host::new();
    std::fs::write(host.kmsg(), (1..=20).map(|seq| failure(seq, "sda")).collect::<String>())
        .expect("written");
    host.resume.send_replace(ResumePoint::From(Some(Cursor {
        boot_id: BOOT.into(),
        counted_to: Some(1500),
        reread_from: 1501,
        lost: 3,
    })));
    let batches = host.start().until(20).await;
    assert_eq!(records(&batches), 20);
    assert_eq!(
        batches.last().expect("one").cursor,
        Cursor { boot_id: format!("{BOOT}+1"), counted_to: Some(20), reread_from: 1, lost: 0 }
    );
}

#[tokio::test]
async fn an_empty_pipe_is_not_another_log() {
    let host = Host::new().fifo();
    host.resume.send_replace(ResumePoint::From(Some(Cursor {
        boot_id: BOOT.into(),
        counted_to: Some(15),
        reread_from: 16,
        lost: 0,
    })));
    let mut running = host.start();
    assert_eq!(
        running.batch().await.cursor,
        Cursor { boot_id: BOOT.into(), counted_to: Some(15), reread_from: 16, lost: 0 }
    );
    host.writer()
        .write_all((10..=20).map(|seq| failure(seq, "sda")).collect::<String>().as_bytes())
        .expect("written");
    let batches = running.until(20).await;
    assert_eq!((records(&batches), batches[0].cursor.boot_id.as_str()), (5, BOOT));
}

#[tokio::test]
async fn a_disabled_reader_reads_nothing_and_resumes_when_enabled() {
    let host = Host::new();
    std::fs::write(host.kmsg(), failure(1, "sda")).expect("written");
    let mut running = host.start();
    running.until(1).await;
    host.set(false);
    assert_eq!(
        running.status().await,
        SourceStatus::Absent("switched off: [kernel_log] enabled = false".into())
    );
    std::fs::write(host.kmsg(), format!("{}{}", failure(1, "sda"), failure(2, "sda")))
        .expect("written");
    host.set(true);
    let new = running
        .until(2)
        .await
        .into_iter()
        .flat_map(|batch| batch.events)
        .filter(|event| event.seq > 1);
    assert_eq!(new.map(|event| event.records).sum::<u64>(), 1);
}

/// Whether an epoll instance of this process watches `fd` (proc_pid_fdinfo(5)).
fn is_watched(fd: i32) -> bool {
    let watched = |info: std::fs::DirEntry| {
        let text = std::fs::read_to_string(info.path()).unwrap_or_default();
        let mut targets = text.lines().filter_map(|line| line.strip_prefix("tfd:"));
        targets.any(|target| target.split_whitespace().next() == Some(&fd.to_string()))
    };
    let infos = std::fs::read_dir("/proc/self/fdinfo").expect("the descriptors");
    infos.flatten().any(watched)
}

#[tokio::test]
async fn records_wake_the_reader_only_while_it_waits_for_them() {
    let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().expect("a pair");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&theirs);
    let log_fd = LogFd::from_datagrams(theirs.into()).expect("a descriptor that can be waited for");
    assert!(!is_watched(fd));
    {
        let mut waiting = std::pin::pin!(log_fd.readable());
        let ended = tokio::time::timeout(Duration::ZERO, &mut waiting).await;
        assert!(ended.is_err() && is_watched(fd));
        ours.send(failure(1, "sda").as_bytes()).expect("sent");
        let ended = tokio::time::timeout(TEST_TIMEOUT, waiting).await;
        ended.expect("woken").expect("readable");
    }
    assert!(!is_watched(fd));
    // A record that arrived meanwhile is reported at once.
    let ended = tokio::time::timeout(TEST_TIMEOUT, log_fd.readable()).await;
    ended.expect("woken").expect("readable");
}

#[tokio::test]
async fn records_of_a_device_are_whole_however_long_they_are() {
    // A socket keeps records apart as the device does. EINVAL, EPIPE and the wake-up from sleep are
    // tested on the device itself.
    let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().expect("a pair");
    let tap = LogFd::from_datagrams(theirs.into()).expect("a descriptor that can be waited for");
    let mut buffer = vec![0; BUFFER];
    assert_eq!(
        tap.try_read(&mut buffer).expect_err("nothing is there").kind(),
        io::ErrorKind::WouldBlock
    );
    let long = format!("{}{}", failure(1, "sda"), " KEY=value\n".repeat(700));
    ours.send(long.as_bytes()).expect("sent");
    ours.send(failure(2, "sda").as_bytes()).expect("sent");
    tokio::time::timeout(TEST_TIMEOUT, tap.readable()).await.expect("in time").expect("readable");
    assert_eq!(tap.try_read(&mut buffer).expect("read"), long.len());
    assert_eq!(tap.try_read(&mut buffer).expect("read"), failure(2, "sda").len());
}

fn entry(seq: u64, text: &str) -> String {
    format!(
        r#"{{"__CURSOR":"s=ab;i={seq:x};b=ee","__REALTIME_TIMESTAMP":"1700000000000000","__MONOTONIC_TIMESTAMP":"{seq}000500","_SOURCE_MONOTONIC_TIMESTAMP":"{seq}000000","PRIORITY":"3","SYSLOG_FACILITY":"0","MESSAGE":"{text}"}}"#
    )
}

#[tokio::test]
async fn journald_is_followed_without_kmsg_and_a_new_journalctl_resumes() {
    let mut host = Host::new();
    let first = format!(
        "{}\n{}",
        entry(30, "I/O error, dev sda, sector 8"),
        entry(99, "usb 1-1: new device")
    );
    let second = entry(120, "I/O error, dev sdb, sector 8");
    let log = host.dir.path().join("arguments");
    // The first journalctl ends by itself; the second one is followed.
    host.journal(&format!(
        "echo \"$@\" >>{log}\ncase \"$*\" in *--after-cursor=*) cat <<'X'\n{second}\nX\nexec sleep 1000;; esac\ncat <<'X'\n{first}\nX\nexit 3",
        log = log.display()
    ));
    let mut running = host.start();
    let SourceStatus::Limited(text) = running.status().await else { panic!("it is a makeshift") };
    assert!(
        text.starts_with("journald's copy") && text.contains("opening /dev/kmsg: No such file"),
        "{text}"
    );
    let batches = running.until(99).await;
    assert_eq!(records(&batches), 1);
    let last = batches.last().expect("one");
    assert_eq!(
        (last.cursor.boot_id.clone(), last.cursor.lost, last.is_backlog),
        (format!("{BOOT}/journal"), 0, true)
    );
    // Its age is that of CLOCK_MONOTONIC: the wall clock may have been stepped since.
    let age = now().duration_since(batches[0].events[0].first.time);
    let since_boot = monotonic().as_secs().cast_signed();
    assert!((since_boot - 40..=since_boot).contains(&(age.as_secs() + 30)), "{age:?}");
    let SourceStatus::Down(text) = running.status().await else { panic!("it has ended") };
    assert!(text.contains("exit status: 3"), "{text}");
    assert_eq!(records(&running.until(120).await), 1);
    let arguments = std::fs::read_to_string(log).expect("written");
    assert!(
        arguments.contains(&format!("_BOOT_ID={}", BOOT.replace('-', "")))
            && arguments.contains("--after-cursor=s=ab;i=63;b=ee"),
        "{arguments}"
    );
}

#[tokio::test]
async fn a_reader_without_kmsg_and_journald_reports_a_hint_and_retries() {
    let host = Host::new();
    let mut running = host.start();
    let SourceStatus::Down(text) = running.status().await else { panic!("there is nothing") };
    assert!(
        text.contains("No such file")
            && text.contains("a container needs")
            && text.contains("journald, which has a copy"),
        "{text}"
    );
    std::fs::write(host.kmsg(), failure(1, "sda")).expect("written");
    assert_eq!(records(&running.until(1).await), 1);
}

#[tokio::test]
async fn a_recorded_tree_without_a_log_never_reads_the_log_of_this_machine() {
    let mut host = Host::new();
    host.journal("echo wrong");
    std::fs::remove_dir_all(host.dir.path().join("proc/1")).expect("removed");
    std::fs::create_dir(host.dir.path().join("exec")).expect("made");
    assert_eq!(
        host.start().status().await,
        SourceStatus::Absent("no /dev/kmsg in the recorded tree".into())
    );
}

#[tokio::test]
async fn a_path_that_is_no_kernel_log_is_reported() {
    let host = Host::new();
    std::os::unix::fs::symlink("/dev/null", host.kmsg()).expect("made");
    let mut running = host.start();
    loop {
        match running.status().await {
            SourceStatus::Down(text) => {
                assert!(text.contains("no kernel log"), "{text}");
                return;
            }
            _first => {}
        }
    }
}
