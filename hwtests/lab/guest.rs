//! The guest: QEMU with all the drives, booted straight into the kernel. It never outlives this
//! process: it is killed when dropped, and by the kernel when this process dies.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::lab::agent::Agent;
use crate::lab::drives::{self, Drive};
use crate::lab::line_stream::Lines;
use crate::lab::pause;
use crate::lab::qmp::Qmp;

/// Under software emulation on a busy machine. Ten to thirty seconds are usual.
const BOOT: Duration = Duration::from_secs(300);
/// Where /dev/kvm exists and does not work, the guest hangs or QEMU ends.
const BOOT_WITH_KVM: Duration = Duration::from_secs(45);

pub struct Guest {
    qemu: Qemu,
    pub qmp: Qmp,
    pub agent: Agent,
    /// Lines that the guest writes to its port `lab.kmsg`.
    pub kernel_log: Lines,
    /// Lines that the guest writes to its port `lab.watch`.
    pub watch: Lines,
    /// Images, sockets, the console, and the directory that the guest mounts at /lab.
    dir: TempDir,
    /// Where the next SCSI disk returns: no two scenarios share a target.
    pub(super) free_scsi_target: u8,
    pub accelerator: &'static str,
    pub booted_in: Duration,
}

impl Guest {
    /// `built` is the output of `build-guest`.
    pub fn boot(built: &Path, scratch: &Path) -> Guest {
        // Whether KVM works is known after one boot with it, and remembered until the host reboots.
        let verdict = scratch.join("kvm");
        let this_boot =
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let refuted = std::fs::read_to_string(&verdict).is_ok_and(|boot| boot == this_boot);
        if Path::new("/dev/kvm").exists() && !refuted {
            match Guest::start(built, scratch, "kvm", BOOT_WITH_KVM) {
                Ok(guest) => return guest,
                Err(why) => eprintln!("KVM does not work here: {why}"),
            }
            std::fs::write(&verdict, this_boot).expect("the lab's folder");
        }
        Guest::start(built, scratch, "tcg,thread=multi", BOOT)
            .unwrap_or_else(|why| panic!("the guest does not boot: {why}"))
    }

    fn start(
        built: &Path,
        scratch: &Path,
        accelerator: &'static str,
        within: Duration,
    ) -> Result<Guest, String> {
        let started = Instant::now();
        let dir = tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(scratch)
            .expect("a folder for the guest");
        std::fs::create_dir(dir.path().join("share")).expect("the shared folder");
        let qemu = Qemu(spawn(built, dir.path(), accelerator));
        // Kept open: its directory is removed with the guest.
        let mut errors =
            std::fs::File::open(dir.path().join("qemu.err")).expect("the error output of QEMU");
        Guest::reach(qemu, dir, accelerator, started + within).map_err(|why| {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            format!("{why}\n{text}")
        })
    }

    fn reach(
        mut qemu: Qemu,
        dir: TempDir,
        accelerator: &'static str,
        deadline: Instant,
    ) -> Result<Guest, String> {
        let started = Instant::now();
        let at = |name: &str| dir.path().join(name);
        while !at("qmp").exists() {
            qemu.must_run()?;
            pause(Duration::from_millis(20));
        }
        let mut guest = Guest {
            qmp: Qmp::connect(&at("qmp"))?,
            agent: Agent::connect(&at("agent"))?,
            kernel_log: Lines::collect(&at("kmsg"))?,
            watch: Lines::collect(&at("watch"))?,
            qemu,
            dir,
            free_scsi_target: drives::FREE_SCSI_TARGET,
            accelerator,
            booted_in: Duration::ZERO,
        };
        while !guest.agent.answers(Duration::from_secs(1)) {
            guest.qemu.must_run()?;
            if Instant::now() > deadline {
                return Err(format!("no agent in time; the console's end:\n{}", guest.console(30)));
            }
        }
        guest.booted_in = started.elapsed();
        Ok(guest)
    }

    /// The directory that the guest mounts at /lab.
    pub fn share(&self) -> PathBuf {
        self.dir.path().join("share")
    }

    /// A drive that was not there at the boot, empty.
    pub fn add(&mut self, drive: &Drive) {
        for node in nodes(self.dir.path(), drive) {
            self.qmp.run("blockdev-add", node);
        }
        self.plug(drive, drive.bus);
    }

    /// The last lines of the console, for when not even the agent answers.
    pub fn console(&self, lines: usize) -> String {
        let text = read(&self.dir.path().join("console.log"));
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Keeps the directory for an inspection.
    pub fn keep(&mut self) -> &Path {
        self.dir.disable_cleanup(true);
        self.dir.path()
    }
}

struct Qemu(Child);

impl Qemu {
    fn must_run(&mut self) -> Result<(), String> {
        match self.0.try_wait() {
            Ok(Some(status)) => Err(format!("QEMU has ended: {status}")),
            _ => Ok(()),
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // The guest needs no shutdown: its disks are discarded.
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
            eprintln!("ending QEMU: {error}");
        }
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

#[expect(clippy::disallowed_methods, reason = "the machine that the daemon is tested in")]
fn spawn(built: &Path, dir: &Path, accelerator: &str) -> Child {
    let at = |name: &str| dir.join(name).display().to_string();
    let guest = |name: &str| built.join(name).display().to_string();
    // PDEATHSIG counts for the thread that starts it: this must be the main thread.
    let mut qemu = Command::new("/usr/bin/setpriv");
    qemu.args([
        "--pdeathsig",
        "KILL",
        "--",
        "/usr/bin/qemu-system-x86_64",
        "-accel",
        accelerator,
        "-M",
        "q35",
        "-cpu",
        "max",
    ]);
    qemu.args(["-smp", "2", "-m", "1536", "-nodefaults", "-display", "none", "-no-reboot"]);
    qemu.args([
        "-serial",
        &format!("file:{}", at("console.log")),
        "-qmp",
        &format!("unix:{},server=on,wait=off", at("qmp")),
    ]);
    qemu.args(["-kernel", &guest("vmlinuz"), "-initrd", &guest("initrd.cpio")]);
    qemu.args(["-append", "console=ttyS0 panic=-1 loglevel=4 log_buf_len=4M"]);
    qemu.args([
        "-drive",
        &format!("if=none,id=root,file={},format=raw,snapshot=on", guest("root.sqfs")),
    ]);
    qemu.args(["-device", "virtio-blk-pci,drive=root,serial=labroot", "-device", "virtio-rng-pci"]);
    qemu.args(["-fsdev", &format!("local,id=lab,path={},security_model=none", at("share"))]);
    qemu.args(["-device", "virtio-9p-pci,fsdev=lab,mount_tag=lab", "-device", "virtio-serial-pci"]);
    for (socket, port) in
        [("agent", "org.qemu.guest_agent.0"), ("kmsg", "lab.kmsg"), ("watch", "lab.watch")]
    {
        qemu.args([
            "-chardev",
            &format!("socket,id={socket},path={},server=on,wait=off", at(socket)),
        ]);
        qemu.args(["-device", &format!("virtserialport,chardev={socket},name={port}")]);
    }
    for port in 0..drives::NVME_PORTS {
        qemu.args([
            "-device",
            &format!("pcie-root-port,id=rp{port},chassis={0},slot={0}", port + 1),
        ]);
    }
    qemu.args(["-device", "virtio-scsi-pci,id=virtio-scsi", "-device", "megasas,id=megaraid"]);
    qemu.args(["-device", "mptsas1068,id=sas", "-device", "qemu-xhci,id=usb"]);
    for drive in drives::ALL {
        backing(&mut qemu, dir, drive);
        qemu.args(["-device", &drive.properties(drive.bus).to_string()]);
    }
    let errors = std::fs::File::create(at("qemu.err")).expect("the folder of the guest");
    qemu.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .expect("setpriv (util-linux) is there")
}

fn backing(qemu: &mut Command, dir: &Path, drive: &Drive) {
    for node in nodes(dir, drive) {
        qemu.args(["-blockdev", &node.to_string()]);
    }
}

/// Two nodes a drive, so that faults can be put between them while it runs.
fn nodes(dir: &Path, drive: &Drive) -> [Value; 2] {
    let image = dir.join(format!("{}.img", drive.node));
    std::fs::File::create(&image)
        .and_then(|file| file.set_len(drives::SIZE_MIB << 20))
        .expect("room for a sparse image");
    let file = json!({ "driver": "file", "node-name": drive.file_node(), "filename": image, "discard": "unmap" });
    let raw = json!({ "driver": "raw", "node-name": drive.node, "file": drive.file_node() });
    [file, raw]
}
