//! Attacks on the real kernel; attacks/README.md lists them. `holds`: false traces of deleted
//! pods. `jail`: a hostile checker. `jail_bounds`: what it takes from others. `shares`: clients that
//! hold all they can get. `writable_files`: a configuration and programs that users may change.
//! `user_mounts`:
//! FUSE filesystems that users mount for themselves. Here: other attacks
//! of users on the running daemon. What they make the kernel print proves nothing; the same texts in all forms of records are in
//! src/kernel_log/tests/foreign_text.rs.
//!
//! Each attack must leave its record in the kernel log. A genuine failure of another disk follows:
//! when the daemon reports it, it has read all records before it.

mod holds;
mod jail;
mod jail_bounds;
mod shares;
mod user_mounts;
mod writable_files;

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, sendto, socket,
};

use diskvitals_wire::{Health, Volume};

use crate::kernel_errors::{assert_no_finding, fail_until, on_a_server};
use crate::support::daemon::Arguments;
use crate::support::fuse::Fault;
use crate::support::testbed::Claim;
use crate::support::tools::{mount_device, run};
use crate::support::{Daemon, Disk, FuseServer, Mode, SOON, Testbed, eventually};

const MIB: u64 = 1 << 20;

/// Messages that would blame the disk, its filesystem, or take evidence back. A file name has no
/// slash.
fn messages(disk: &Disk) -> Vec<String> {
    let name = disk.name();
    vec![
        format!("critical medium error, dev {name}, sector 4242 op 0x0:(READ)"),
        format!("x: critical medium error, dev {name}, sector 4242 op 0x0:(READ)"),
        format!("critical target error, dev {name}, sector 8 op 0x0:(READ)"),
        format!("{name}: rw=0, want=12, limit=4"),
        format!("EXT4-fs ({name}): hecksum invalid"),
        format!("EXT4-fs ({name}): Remounting filesystem read-only"),
        format!("Aborting journal on device {name}-8."),
        format!("x\nEXT4-fs error (device {name}): ext4_lookup:1: inode #2: deleted inode"),
    ]
}

/// The records of /dev/kmsg from now on.
pub(crate) struct KernelLog(std::fs::File);

impl KernelLog {
    pub(crate) fn from_now() -> KernelLog {
        let file = std::fs::File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .expect("/dev/kmsg");
        nix::unistd::lseek(&file, 0, nix::unistd::Whence::SeekEnd).expect("its end");
        KernelLog(file)
    }

    /// Whether a record that contains both texts was added.
    pub(crate) fn has(&mut self, text: &str, other: &str) -> bool {
        let mut record = [0; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(length) => {
                    let record = String::from_utf8_lossy(&record[..length]);
                    if record.contains(text) && record.contains(other) {
                        return true;
                    }
                }
                // Overwritten before it was read.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => return false,
            }
        }
    }
}

/// A program of a few bytes that accesses address 0.
fn write_crashing_program(path: &Path) {
    let mut elf = vec![0_u8; 120];
    elf[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
    let mut put = |at: usize, bytes: &[u8]| elf[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &2_u16.to_le_bytes());
    put(18, &62_u16.to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    // Entry point behind both headers; the program header at 64.
    put(24, &(0x40_0000_u64 + 120).to_le_bytes());
    put(32, &64_u64.to_le_bytes());
    put(52, &64_u16.to_le_bytes());
    put(54, &56_u16.to_le_bytes());
    put(56, &1_u16.to_le_bytes());
    put(64, &1_u32.to_le_bytes());
    put(68, &5_u32.to_le_bytes());
    put(80, &0x40_0000_u64.to_le_bytes());
    put(96, &124_u64.to_le_bytes());
    put(104, &124_u64.to_le_bytes());
    put(112, &4096_u64.to_le_bytes());
    // xor eax, eax; mov [rax], eax
    elf.extend_from_slice(&[0x31, 0xc0, 0x89, 0x00]);
    std::fs::write(path, elf).expect("the program");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// A disk with a mounted volume, another one that can fail, and the daemon.
struct Scene {
    testbed: Testbed,
    disk: Disk,
    fence: (crate::support::FuseServer, Disk),
    daemon: Daemon,
}

impl Scene {
    async fn start() -> Scene {
        let testbed = Testbed::new();
        let disk = testbed.ext4("victim.img", 64, &[]);
        let claim = Claim {
            driver: "a.csi.example.com",
            handle: "v",
            pv: "pvc-v",
            pod: "2e000000-0000-4000-8000-0000000000a1",
        };
        testbed.stage_and_publish(&disk, "ext4", "", &claim);
        let image = testbed.image("fence.img", 64 << 20);
        run("/usr/sbin/mkfs.ext4", &[&"-q", &"-F", &image]);
        let fence = on_a_server(&testbed, &image);
        mount_device(&fence.1.device, "ext4", &testbed.path("mnt/fence"), "");
        let daemon = Daemon::start(&testbed).await;
        Scene { testbed, disk, fence, daemon }
    }

    /// Nothing is known against the disk after all records so far.
    async fn assert_nothing_proven(self) {
        let client = &self.daemon.client;
        let fence = client.drive_named(self.fence.1.name()).await;
        self.fence.0.fault(vec![Fault::reads(40 * MIB..48 * MIB)]);
        fail_until(&self.fence.1.device, &[40], async || {
            client.finding(&fence.id, "IoErrors").await
        })
        .await;
        assert_no_finding(&self.daemon, &self.disk).await;
        client.normal("csi:a.csi.example.com/v").await;
        self.fence.0.fault(Vec::new());
        self.daemon.stop().await;
        drop(self.testbed);
    }
}

/// The kernel prints the name of the process and of the mapped file.
#[cfg(target_arch = "x86_64")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "the attack is an unprivileged program that crashes")]
async fn a_crash_of_a_program_with_a_hostile_name_proves_nothing() {
    use std::os::unix::process::{CommandExt, ExitStatusExt};

    let scene = Scene::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
        .expect("its mode");
    for message in messages(&scene.disk) {
        let program = folder.path().join(&message);
        write_crashing_program(&program);
        // The kernel prints ten such records in five seconds.
        eventually("the crash is in the kernel log", SOON, async || {
            let mut log = KernelLog::from_now();
            for _ in 0..3 {
                let ended = std::process::Command::new(&program)
                    .uid(65532)
                    .gid(65532)
                    .status()
                    .expect("the program starts");
                assert_eq!(ended.signal(), Some(libc::SIGSEGV), "{message}");
            }
            let name = message.replace('\n', "\\x0a");
            log.has("segfault at", &name).then_some(())
        })
        .await;
    }
    scene.assert_nothing_proven().await;
}

/// A user may mount tmpfs in a user namespace, and the kernel prints options that it does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "the attack is an unprivileged program that mounts")]
async fn a_mount_option_in_a_user_namespace_proves_nothing() {
    use std::os::unix::process::CommandExt;

    let scene = Scene::start().await;
    let messages = messages(&scene.disk);
    for message in messages
        .iter()
        .chain([&format!("Buffer I/O error on dev {}, logical block 1", scene.disk.name())])
    {
        // Commas separate options, and the kernel prints the first unknown one.
        let option = message.split([',', '=']).next().expect("a text");
        eventually("the option is in the kernel log", SOON, async || {
            let mut log = KernelLog::from_now();
            let output = std::process::Command::new("/usr/bin/unshare")
                .args(["--user", "--map-root-user", "--mount"])
                .args(["/usr/bin/mount", "-i", "-t", "tmpfs", "-o", option])
                .args(["x", "/mnt"])
                .current_dir("/")
                .uid(65532)
                .gid(65532)
                .output()
                .expect("unshare starts");
            assert!(!output.status.success(), "{option}: mounted");
            let printed = option.replace('\n', "\\x0a");
            log.has("Unknown parameter", &printed).then_some(())
        })
        .await;
    }
    scene.assert_nothing_proven().await;
}

/// CAP_AUDIT_WRITE suffices for a user message; without auditd the kernel prints it (facility 0).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_the_audit_system_proves_nothing() {
    const AUDIT_USER_AVC: u16 = 1107;
    const NLM_F_REQUEST: u16 = 1;
    let scene = Scene::start().await;
    let netlink = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkAudit,
    )
    .expect("the kernel has audit");
    for message in messages(&scene.disk) {
        let mut packet = Vec::new();
        packet.extend_from_slice(&(16 + message.len() as u32 + 1).to_ne_bytes());
        packet.extend_from_slice(&AUDIT_USER_AVC.to_ne_bytes());
        packet.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
        packet.extend_from_slice(&[0; 8]);
        packet.extend_from_slice(message.as_bytes());
        packet.push(0);
        let printed = message.replace('\n', "\\x0a");
        let mut log = KernelLog::from_now();
        // The kernel prints ten of them in five seconds (printk_ratelimit()).
        eventually("it is in the kernel log", SOON, async || {
            sendto(netlink.as_raw_fd(), &packet, &NetlinkAddr::new(0, 0), MsgFlags::empty())
                .expect("root may send it");
            log.has("type=1107", &printed).then_some(())
        })
        .await;
    }
    scene.assert_nothing_proven().await;
}

/// A program that may write to /dev/kmsg, with any priority in front: the kernel never gives it
/// facility 0 (devkmsg_write()).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_to_dev_kmsg_proves_nothing() {
    let scene = Scene::start().await;
    for message in messages(&scene.disk) {
        for priority in ["", "<0>", "<3>"] {
            let mut log = KernelLog::from_now();
            let mut kmsg =
                std::fs::File::options().write(true).open("/dev/kmsg").expect("/dev/kmsg");
            // Without the line break another write could continue the record.
            kmsg.write_all(format!("{priority}{message}\n").as_bytes()).expect("root may write it");
            let printed = message.replace('\n', "\\x0a");
            eventually("it is in the kernel log", Duration::from_secs(10), async || {
                log.has(&printed, "").then_some(())
            })
            .await;
        }
    }
    scene.assert_nothing_proven().await;
}

/// Sixty volumes of one pod whose servers do not answer: only that pod's volumes are not probed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_hanging_volumes_of_one_pod_do_not_blind_the_node() {
    const DRIVER: &str = "fuse.csi.example.com";
    const HANGING: usize = 60;
    /// Three eighths of the default of `[probes] max_stuck`.
    const PER_POD: usize = 12;
    let testbed = Testbed::new();
    let content = testbed.image("content", 4096);
    let serve = |handle: &str, pod: &str| {
        let pv = format!("pvc-{handle}");
        let at = testbed.kubelet.publish(DRIVER, handle, &pv, pod);
        FuseServer::mount(&at, &content)
    };
    let hostile: Vec<FuseServer> = (0..HANGING)
        .map(|number| serve(&format!("h{number}"), "00000000-0000-4000-8000-000000000001"))
        .collect();
    // Another pod with the same driver, and a disk.
    let _good = serve("good", "4e000000-0000-4000-8000-000000000002");
    let disk = testbed.ext4("good.img", 64, &[]);
    let claim = Claim {
        driver: "disk.csi.example.com",
        handle: "v",
        pv: "pvc-v",
        pod: "4e000000-0000-4000-8000-000000000003",
    };
    testbed.stage_and_publish(&disk, "ext4", "", &claim);
    hostile.iter().for_each(|server| server.set(Mode::Hang));

    let daemon = Daemon::start(&testbed).await;
    let client = &daemon.client;
    let is_hostile = |volume: &Volume| volume.driver == DRIVER && volume.handle.starts_with('h');
    let volumes = eventually("each of them is stuck or not tried", SOON, async || {
        let volumes = client.volumes().await;
        let decided = |volume: &Volume| {
            volume.health() == Health::Bad || volume.health_unknown_why.contains("not tried")
        };
        let hostile = volumes.iter().filter(|volume| is_hostile(volume));
        (hostile.filter(|volume| decided(volume)).count() == HANGING).then_some(volumes)
    })
    .await;
    let bad = |volume: &&Volume| is_hostile(volume) && volume.health() == Health::Bad;
    assert_eq!(volumes.iter().filter(bad).count(), PER_POD);
    assert_eq!(client.node().await.stuck_probes as usize, PER_POD);
    let others = [format!("csi:{DRIVER}/good"), "csi:disk.csi.example.com/v".to_owned()];
    let others = [others[0].as_str(), others[1].as_str()];
    client.probed_anew(&others).await;
    for id in others {
        client.normal(id).await;
    }

    hostile.iter().for_each(|server| server.set(Mode::Pass));
    eventually("all are good", SOON, async || {
        let volumes = client.volumes().await;
        let good = |volume: &&Volume| is_hostile(volume) && volume.health() == Health::Good;
        (volumes.iter().filter(good).count() == HANGING).then_some(())
    })
    .await;
    daemon.stop().await;
}

/// flock(2) on a directory needs only the right to read it: any user has it for the main socket's
/// directory, and an interposer, whose uid is 0, for the agent socket's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(
    clippy::disallowed_methods,
    reason = "the attack is an unprivileged program that keeps a lock"
)]
async fn a_lock_on_the_directory_of_a_socket_prevents_no_start() {
    use std::os::unix::process::CommandExt;

    let testbed = Testbed::new();
    let arguments =
        Arguments { agent_socket: testbed.path("run/csi/agent"), ..Arguments::of(&testbed) };
    let main = testbed.path("run");
    let agent = testbed.path("run/csi");
    std::fs::create_dir(&agent).expect("a folder");
    for (folder, mode) in [(testbed.path(""), 0o711), (agent.clone(), 0o755)] {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).expect("its mode");
    }
    let lock = |path: &Path| {
        let file = std::fs::File::open(path).expect("the folder");
        Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)
    };
    let as_a_user = |words: &[&dyn AsRef<std::ffi::OsStr>]| {
        let mut command = std::process::Command::new("/usr/bin/flock");
        command.args(words).current_dir("/").uid(65532).gid(65532);
        command
    };

    let mut user =
        as_a_user(&[&"--no-fork", &main, &"/usr/bin/sleep", &"120"]).spawn().expect("flock starts");
    let _interposer = lock(&agent).expect("nobody else has it");
    eventually("the user has the lock", SOON, async || {
        matches!(lock(&main), Err(Errno::EWOULDBLOCK)).then_some(())
    })
    .await;
    let daemon = Daemon::start_with(&arguments).await;
    for folder in [&main, &agent] {
        assert!(
            matches!(lock(folder), Err(Errno::EWOULDBLOCK)),
            "{} was locked until the daemon ran",
            folder.display()
        );
    }

    // The locks that the daemon takes: no user may open them, and no pod sees them.
    let locks = main.join(".diskvitals.lock-0/bind");
    for path in [&locks, &arguments.state_dir.join("lock")] {
        assert!(path.exists(), "{}", path.display());
        let attempt =
            as_a_user(&[&"--nonblock", path, &"/usr/bin/true"]).output().expect("flock starts");
        let text = String::from_utf8_lossy(&attempt.stderr);
        assert!(
            !attempt.status.success() && text.contains("Permission denied"),
            "{}: {text}",
            path.display()
        );
    }
    let names = std::fs::read_dir(&agent).expect("the folder");
    let names: Vec<_> = names.map(|name| name.expect("read").file_name()).collect();
    assert_eq!(names, ["agent"], "what a pod sees");

    daemon.stop().await;
    user.kill().expect("SIGKILL");
    user.wait().expect("its status");
}
