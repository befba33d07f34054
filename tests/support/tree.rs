//! A recorded host of any size: drives, partitions, logical volumes, mounts, the kubelet's records
//! and the answers of probes, as files.
//!
//! In: the numbers of drives and volumes, and which of them hang. Out: a folder for `diskvitalsd
//! --host-root`. The formats are those of a real node (Linux 6.12 sysfs, udev 255, kubelet 1.30 and
//! later); the numbers are invented. Shared by the tests and by `benches/`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

pub const KUBELET_ROOT: &str = "/var/lib/kubelet";
const DRIVER: &str = "local.csi.example.org";

/// The contents of the tree.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of drives; a third each are SATA, SAS and NVMe.
    pub drives: usize,
    /// CSI volumes, distributed over the drives: in turn a partition, a logical volume and a folder
    /// of a drive's data filesystem.
    pub volumes: usize,
    /// The number of volumes, counted from the last, that never answer a probe.
    pub hung: usize,
}

/// One CSI volume of the tree.
#[derive(Clone, Debug)]
pub struct TreeVolume {
    pub driver: String,
    pub handle: String,
}

impl TreeVolume {
    /// The volume's id in the API.
    pub fn id(&self) -> String {
        format!("csi:{}/{}", self.driver, self.handle)
    }
}

/// Writes the tree below `dir`, which must be an empty folder.
pub fn write(dir: &Path, plan: Plan) -> io::Result<Vec<TreeVolume>> {
    let mut tree = Tree {
        dir: dir.to_owned(),
        mountinfo: String::new(),
        diskstats: String::new(),
        fstab: String::new(),
        probes: BTreeMap::new(),
        mounts: 0,
    };
    tree.system()?;
    let drives = (0..plan.drives).map(|at| tree.drive(at)).collect::<io::Result<Vec<_>>>()?;
    if let Some(first) = drives.first() {
        tree.partition(first, 62, Some(("ext4", uuid(6, 0))))?;
    }
    let mut volumes = Vec::with_capacity(plan.volumes);
    for at in 0..plan.volumes {
        let drive = &drives[at % drives.len()];
        volumes.push(tree.volume(at, at / drives.len(), drive, at >= plan.volumes - plan.hung)?);
    }
    tree.finish()?;
    Ok(volumes)
}

struct Tree {
    dir: PathBuf,
    mountinfo: String,
    diskstats: String,
    fstab: String,
    probes: BTreeMap<String, Value>,
    mounts: u32,
}

/// A written drive.
struct Drive {
    at: usize,
    name: String,
    /// Its folder below the tree: `sys/devices/…/block/sda`.
    sysfs: String,
    major: usize,
    first_minor: usize,
}

impl Drive {
    fn partition_name(&self, number: usize) -> String {
        if self.name.starts_with("nvme") {
            format!("{}p{number}", self.name)
        } else {
            format!("{}{number}", self.name)
        }
    }

    /// SCSI disks have sixteen minors each; further partitions have extended ones (block/genhd.c).
    /// The tree gives every drive 64.
    fn partition_dev(&self, number: usize) -> String {
        format!("{}:{}", self.major, self.first_minor + number)
    }
}

const DRIVE_BYTES: u64 = 4_000_787_030_016;
const PARTITION_BYTES: u64 = 64 << 30;
/// Mount id of the root.
const ROOT_MOUNT: u32 = 21;

impl Tree {
    fn system(&mut self) -> io::Result<()> {
        for folder in [
            "exec",
            "sys/class/nvme",
            "sys/class/block",
            "sys/class/enclosure",
            "sys/fs/btrfs",
            "sys/block",
            "dev",
            "run/udev/data",
            "proc/1",
        ] {
            std::fs::create_dir_all(self.dir.join(folder))?;
        }
        self.put("proc/sys/kernel/random/boot_id", "5e1c2f4a-0b6d-4c1e-9a57-3f2b8d6c7e10\n")?;
        self.put("proc/sys/kernel/hostname", "recorded\n")?;
        self.put("proc/sys/kernel/osrelease", "6.12.0-recorded\n")?;
        self.put("etc/hostname", "recorded\n")?;
        self.put("proc/mdstat", "Personalities : \nunused devices: <none>\n")?;
        // The root is the first mount, and the parent of all others.
        self.mount("8:62", "/", "/", "ext4", "/dev/sda62");
        self.add_probe_answer("/", false);
        self.mount("0:20", "/", "/proc", "proc", "proc");
        self.mount("0:21", "/", "/sys", "sysfs", "sysfs");
        self.mount("0:22", "/", "/run", "tmpfs", "tmpfs");
        Ok(())
    }

    /// One drive with a data filesystem on its first partition and an LVM physical volume on its
    /// second.
    fn drive(&mut self, at: usize) -> io::Result<Drive> {
        let drive = if at % 3 == 2 { self.nvme(at)? } else { self.scsi(at, at % 3 == 1)? };
        let data = format!("/srv/disk{at}");
        self.partition(&drive, 1, Some(("ext4", uuid(1, at))))?;
        self.partition(&drive, 2, Some(("LVM2_member", uuid(2, at))))?;
        let source = format!("/dev/{}", drive.partition_name(1));
        self.mount(&drive.partition_dev(1), "/", &data, "ext4", &source);
        writeln!(self.fstab, "UUID={} {data} ext4 defaults,noatime 0 2", uuid(1, at))
            .map_err(io::Error::other)?;
        self.add_probe_answer(&data, false);
        Ok(drive)
    }

    fn scsi(&mut self, at: usize, sas: bool) -> io::Result<Drive> {
        let name = format!("sd{}", letters(at));
        // SATA drives have one AHCI port each. All SAS drives are behind one HBA and an expander.
        let (host, above, address) = if sas {
            let place = format!(
                "pci0000:80/0000:80:02.0/0000:81:00.0/host0/port-0:0/expander-0:0/port-0:0:{at}/end_device-0:0:{at}"
            );
            (0, place, format!("0:0:{at}:0"))
        } else {
            let host = at + 1;
            (host, format!("pci0000:00/0000:00:17.0/ata{host}/host{host}"), format!("{host}:0:0:0"))
        };
        let target = address.rsplit_once(':').map_or("", |(target, _lun)| target);
        let device = format!("sys/devices/{above}/target{target}/{address}");
        let wwid = format!("naa.5000c500{:08x}", 0xa000_0000_u64 + at as u64);
        let serial = format!("ZL2{at:05}");
        let (vendor, model, firmware) = if sas {
            ("SEAGATE ", "ST4000NM0295    ", "DT31")
        } else {
            ("ATA     ", "WDC WD40EFRX-68N", "0A82")
        };
        for (file, text) in [
            ("vendor", vendor),
            ("model", model),
            ("rev", firmware),
            ("state", "running"),
            ("type", "0"),
            ("scsi_level", "7"),
            ("wwid", wwid.as_str()),
            ("power/runtime_status", "active"),
            ("queue_depth", "32"),
            ("iocounterbits", "32"),
            ("ioerr_cnt", "0x0"),
        ] {
            self.put(&format!("{device}/{file}"), &format!("{text}\n"))?;
        }
        let mut page = vec![0, 0x80, 0, serial.len() as u8];
        page.extend_from_slice(serial.as_bytes());
        self.put_bytes(&format!("{device}/vpd_pg80"), &page)?;
        if sas {
            self.put(
                &format!("{device}/sas_address"),
                &format!("0x5000c500{:08x}\n", 0xa000_0001_u64 + at as u64),
            )?;
        }
        let driver = if sas { "mpt3sas" } else { "ahci" };
        let class = format!(
            "sys/devices/{}/scsi_host/host{host}",
            above
                .split_once(&format!("host{host}"))
                .map_or(above.clone(), |(before, _)| format!("{before}host{host}"))
        );
        self.put(&format!("{class}/proc_name"), &format!("{driver}\n"))?;
        self.link(&format!("sys/class/scsi_host/host{host}"), &class)?;

        let sysfs = format!("{device}/block/{name}");
        // Majors 8, 65, 66… have four drives each, so that all their partitions have distinct
        // numbers.
        let drive = Drive {
            at,
            name,
            sysfs,
            major: if at < 4 { 8 } else { 61 + at / 4 },
            first_minor: at % 4 * 64,
        };
        self.disk(&drive, true)?;
        self.link(&format!("{}/device", drive.sysfs), &device)?;
        let bus = if sas { "scsi" } else { "ata" };
        let path = if sas {
            format!("pci-0000:81:00.0-sas-exp0x500304801f2e1c3f-phy{at}-lun-0")
        } else {
            format!("pci-0000:00:17.0-ata-{}", at + 1)
        };
        let by_id = format!("{bus}-{}_{serial}", model.trim());
        let properties = [
            ("DEVTYPE", "disk".to_owned()),
            ("ID_BUS", bus.to_owned()),
            ("ID_MODEL", model.trim().replace(' ', "_")),
            ("ID_SERIAL_SHORT", serial.clone()),
            ("ID_WWN", wwid.replace("naa.", "0x")),
            ("ID_PATH", path.clone()),
            ("ID_TYPE", "disk".to_owned()),
            ("ID_PART_TABLE_TYPE", "gpt".to_owned()),
        ];
        self.udev(
            &drive.partition_dev(0),
            &[format!("disk/by-id/{by_id}"), format!("disk/by-path/{path}")],
            &properties,
        )?;
        Ok(drive)
    }

    fn nvme(&mut self, at: usize) -> io::Result<Drive> {
        let number = at / 3;
        let controller = format!(
            "sys/devices/pci0000:40/0000:40:01.{}/0000:{:02x}:00.0/nvme/nvme{number}",
            number % 8,
            0x41 + number
        );
        let serial = format!("S6ESNX0R{at:06}");
        let address = format!("0000:{:02x}:00.0", 0x41 + number);
        let nqn = format!("nqn.1994-11.com.example:nvme:{serial}");
        for (file, text) in [
            ("model", "SAMSUNG MZQL23T8HCLS-00A07               "),
            ("serial", serial.as_str()),
            ("firmware_rev", "GDC5902Q"),
            ("state", "live"),
            ("transport", "pcie"),
            ("address", address.as_str()),
            ("cntlid", "6"),
            ("subsysnqn", nqn.as_str()),
            ("power/runtime_status", "active"),
        ] {
            self.put(&format!("{controller}/{file}"), &format!("{text}\n"))?;
        }
        self.link(&format!("sys/class/nvme/nvme{number}"), &controller)?;
        let name = format!("nvme{number}n1");
        let drive = Drive {
            at,
            sysfs: format!("{controller}/{name}"),
            name,
            major: 259,
            first_minor: number * 64,
        };
        self.disk(&drive, false)?;
        self.link(&format!("{}/device", drive.sysfs), &controller)?;
        let eui = format!("0025385{:09x}", 0xb_0000_0000_u64 + at as u64);
        self.put(&format!("{}/wwid", drive.sysfs), &format!("eui.{eui}\n"))?;
        let spaced = eui
            .as_bytes()
            .chunks(2)
            .map(|pair| String::from_utf8_lossy(pair).into_owned())
            .collect::<Vec<_>>()
            .join(" ");
        self.put(&format!("{}/eui", drive.sysfs), &format!("{spaced}\n"))?;
        self.put(&format!("{}/nsid", drive.sysfs), "1\n")?;
        let properties = [
            ("DEVTYPE", "disk".to_owned()),
            ("ID_MODEL", "SAMSUNG MZQL23T8HCLS-00A07".to_owned()),
            ("ID_SERIAL_SHORT", serial.clone()),
            ("ID_WWN", format!("eui.{eui}")),
            ("ID_PATH", format!("pci-{address}-nvme-1")),
            ("ID_PART_TABLE_TYPE", "gpt".to_owned()),
        ];
        let links = [
            format!("disk/by-id/nvme-SAMSUNG_MZQL23T8HCLS-00A07_{serial}"),
            format!("disk/by-path/pci-{address}-nvme-1"),
        ];
        self.udev(&drive.partition_dev(0), &links, &properties)?;
        Ok(drive)
    }

    fn disk(&mut self, drive: &Drive, rotational: bool) -> io::Result<()> {
        let uevent = format!(
            "MAJOR={}\nMINOR={}\nDEVNAME={}\nDEVTYPE=disk\n",
            drive.major, drive.first_minor, drive.name
        );
        self.block(&drive.sysfs, &drive.name, &drive.partition_dev(0), DRIVE_BYTES, &uevent)?;
        self.queue(&drive.sysfs, rotational)?;
        self.link(&format!("sys/block/{}", drive.name), &drive.sysfs)?;
        self.stat(drive.major, drive.first_minor, &drive.name)
    }

    fn queue(&self, sysfs: &str, rotational: bool) -> io::Result<()> {
        for (file, text) in [
            ("rotational", if rotational { "1" } else { "0" }),
            ("logical_block_size", "512"),
            ("physical_block_size", "4096"),
            ("write_cache", "write back"),
            ("iostats", "1"),
            ("scheduler", "[none] mq-deadline"),
        ] {
            self.put(&format!("{sysfs}/queue/{file}"), &format!("{text}\n"))?;
        }
        Ok(())
    }

    fn partition(
        &mut self,
        drive: &Drive,
        number: usize,
        content: Option<(&str, String)>,
    ) -> io::Result<()> {
        let name = drive.partition_name(number);
        let sysfs = format!("{}/{name}", drive.sysfs);
        let uevent = format!(
            "MAJOR={}\nMINOR={}\nDEVNAME={name}\nDEVTYPE=partition\nPARTN={number}\n",
            drive.major,
            drive.first_minor + number
        );
        self.block(&sysfs, &name, &drive.partition_dev(number), PARTITION_BYTES, &uevent)?;
        self.put(&format!("{sysfs}/partition"), &format!("{number}\n"))?;
        self.put(
            &format!("{sysfs}/start"),
            &format!("{}\n", 2048 + (number as u64 - 1) * PARTITION_BYTES / 512),
        )?;
        self.stat(drive.major, drive.first_minor + number, &name)?;
        let (fs_type, fs_uuid) = content.unwrap_or_default();
        let properties = [
            ("DEVTYPE", "partition".to_owned()),
            ("ID_FS_TYPE", fs_type.to_owned()),
            ("ID_FS_UUID", fs_uuid.clone()),
        ];
        self.udev(&drive.partition_dev(number), &[format!("disk/by-uuid/{fs_uuid}")], &properties)
    }

    /// Writes the files that every block device has.
    fn block(
        &mut self,
        sysfs: &str,
        name: &str,
        dev: &str,
        bytes: u64,
        uevent: &str,
    ) -> io::Result<()> {
        for (file, text) in [
            ("dev", dev.to_owned()),
            ("size", (bytes / 512).to_string()),
            ("ro", "0".into()),
            ("removable", "0".into()),
            ("range", "16".into()),
        ] {
            self.put(&format!("{sysfs}/{file}"), &format!("{text}\n"))?;
        }
        self.put(&format!("{sysfs}/uevent"), uevent)?;
        for folder in ["holders", "slaves"] {
            std::fs::create_dir_all(self.dir.join(sysfs).join(folder))?;
        }
        self.link(&format!("sys/class/block/{name}"), sysfs)
    }

    fn volume(
        &mut self,
        at: usize,
        turn: usize,
        drive: &Drive,
        hangs: bool,
    ) -> io::Result<TreeVolume> {
        let handle = format!("vol-{at:06}");
        let pv = format!("pvc-{}", uuid(3, at));
        let pod_uid = uuid(4, at);
        let staged = format!("{KUBELET_ROOT}/plugins/kubernetes.io/csi/{DRIVER}/{}", hash(&handle));
        let published = format!("{KUBELET_ROOT}/pods/{pod_uid}/volumes/kubernetes.io~csi/{pv}");
        let (dev, root, source) = match turn % 3 {
            0 => {
                let number = 3 + turn;
                self.partition(drive, number, Some(("ext4", uuid(5, at))))?;
                (
                    drive.partition_dev(number),
                    "/".to_owned(),
                    format!("/dev/{}", drive.partition_name(number)),
                )
            }
            1 => self.logical_volume(at, drive)?,
            // A bind mount of a folder of the drive's data filesystem.
            _ => (
                drive.partition_dev(1),
                format!("/volumes/{handle}"),
                format!("/dev/{}", drive.partition_name(1)),
            ),
        };
        for path in [&format!("{staged}/globalmount"), &format!("{published}/mount")] {
            self.mount(&dev, &root, path, "ext4", &source);
            self.add_probe_answer(path, hangs);
            std::fs::create_dir_all(self.dir.join(&path[1..]))?;
        }
        self.put(
            &format!("{}/vol_data.json", &staged[1..]),
            &json!({"driverName": DRIVER, "volumeHandle": handle}).to_string(),
        )?;
        let record = json!({
            "attachmentID": format!("csi-{}", hash(&pv)), "driverName": DRIVER, "nodeName": "recorded", "specVolID": pv, "volumeHandle": handle,
            "volumeLifecycleMode": "Persistent",
        });
        self.put(&format!("{}/vol_data.json", &published[1..]), &record.to_string())?;
        std::fs::create_dir_all(
            self.dir.join(format!("var/log/pods/tenant-{}_app-{at}_{pod_uid}/main", at % 20)),
        )?;
        Ok(TreeVolume { driver: DRIVER.into(), handle })
    }

    /// Writes a linear volume on the drive's physical volume. Returns its device number, the root
    /// of its mount, and its node.
    fn logical_volume(&mut self, at: usize, drive: &Drive) -> io::Result<(String, String, String)> {
        let minor = at;
        let name = format!("dm-{minor}");
        let (group, lv) = (format!("vg{}", drive.at), format!("lv{at}"));
        let dev = format!("252:{minor}");
        let sysfs = format!("sys/devices/virtual/block/{name}");
        self.block(
            &sysfs,
            &name,
            &dev,
            PARTITION_BYTES,
            &format!("MAJOR=252\nMINOR={minor}\nDEVNAME={name}\nDEVTYPE=disk\n"),
        )?;
        self.queue(&sysfs, false)?;
        self.link(&format!("sys/block/{name}"), &sysfs)?;
        let lvm_uuid = format!("LVM-{}{}", &hash(&group)[..32], &hash(&lv)[..32]);
        for (file, text) in [
            ("dm/name", format!("{group}-{lv}")),
            ("dm/uuid", lvm_uuid.clone()),
            ("dm/suspended", "0".into()),
        ] {
            self.put(&format!("{sysfs}/{file}"), &format!("{text}\n"))?;
        }
        let below = format!("{}/{}", drive.sysfs, drive.partition_name(2));
        self.link(&format!("{sysfs}/slaves/{}", drive.partition_name(2)), &below)?;
        self.link(&format!("{below}/holders/{name}"), &sysfs)?;
        self.stat(252, minor, &name)?;
        self.put(
            &format!("exec/dm/{name}.status"),
            &format!("0 {} linear\n", PARTITION_BYTES / 512),
        )?;
        let properties = [
            ("DEVTYPE", "disk".to_owned()),
            ("DM_NAME", format!("{group}-{lv}")),
            ("DM_UUID", lvm_uuid),
            ("DM_VG_NAME", group.clone()),
            ("DM_LV_NAME", lv.clone()),
            ("ID_FS_TYPE", "ext4".to_owned()),
            ("ID_FS_UUID", uuid(5, at)),
        ];
        self.udev(
            &dev,
            &[
                format!("mapper/{group}-{lv}"),
                format!("{group}/{lv}"),
                format!("disk/by-uuid/{}", uuid(5, at)),
            ],
            &properties,
        )?;
        Ok((dev, "/".into(), format!("/dev/mapper/{group}-{lv}")))
    }

    fn mount(&mut self, dev: &str, root: &str, point: &str, fs_type: &str, source: &str) {
        self.mounts += 1;
        let id = ROOT_MOUNT - 1 + self.mounts;
        let parent = if point == "/" { 1 } else { ROOT_MOUNT };
        let line = format!(
            "{id} {parent} {dev} {root} {point} rw,relatime shared:{} - {fs_type} {source} rw\n",
            self.mounts
        );
        self.mountinfo.push_str(&line);
    }

    /// Writes the worker's answer for a mount.
    fn add_probe_answer(&mut self, path: &str, hangs: bool) {
        let answer = if hangs {
            json!({"hang": true})
        } else {
            json!({"statfs": {"total_bytes": PARTITION_BYTES, "available_bytes": PARTITION_BYTES / 2, "used_bytes": PARTITION_BYTES / 2 - (1 << 30),
                "total_inodes": 4_194_304, "available_inodes": 4_000_000, "used_inodes": 194_304}})
        };
        self.probes.insert(path.to_owned(), answer);
    }

    fn udev(&self, dev: &str, links: &[String], properties: &[(&str, String)]) -> io::Result<()> {
        let mut text = String::new();
        for link in links {
            text.push_str(&format!("S:{link}\n"));
        }
        text.push_str("I:1234567\n");
        for (key, value) in properties {
            text.push_str(&format!("E:{key}={value}\n"));
        }
        text.push_str("G:systemd\nQ:systemd\nV:1\n");
        self.put(&format!("run/udev/data/b{dev}"), &text)
    }

    fn stat(&mut self, major: usize, minor: usize, name: &str) -> io::Result<()> {
        writeln!(
            self.diskstats,
            "{major:4} {minor:7} {name} 48210 1200 3903242 21042 91823 5512 9182744 81231 0 60211 102273 0 0 0 0 3310 901"
        )
        .map_err(io::Error::other)
    }

    fn finish(&self) -> io::Result<()> {
        self.put("proc/1/mountinfo", &self.mountinfo)?;
        self.put("proc/diskstats", &self.diskstats)?;
        self.put("etc/fstab", &self.fstab)?;
        self.put("exec/probes.json", &serde_json::to_string(&self.probes)?)
    }

    fn put(&self, path: &str, text: &str) -> io::Result<()> {
        self.put_bytes(path, text.as_bytes())
    }

    fn put_bytes(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.dir.join(path);
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(path, bytes)
    }

    /// Creates a relative link, as in sysfs. Both paths are below the tree.
    fn link(&self, link: &str, target: &str) -> io::Result<()> {
        let place = self.dir.join(link);
        place.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        if place.is_symlink() {
            return Ok(());
        }
        // The link starts at the nearest common folder.
        let (from, to): (Vec<&str>, Vec<&str>) =
            (link.split('/').collect(), target.split('/').collect());
        let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        let up = "../".repeat(from.len() - 1 - shared);
        symlink(format!("{up}{}", to[shared..].join("/")), place)
    }
}

/// `a` … `z`, `aa` … as sd.c names disks.
pub fn letters(mut at: usize) -> String {
    let mut name = String::new();
    loop {
        name.insert(0, char::from(b'a' + (at % 26) as u8));
        if at < 26 {
            return name;
        }
        at = at / 26 - 1;
    }
}

/// A UUID that is the same in every run.
fn uuid(space: usize, at: usize) -> String {
    format!("{space:08x}-1f2e-4d3c-8b5a-{at:012x}")
}

/// 64 hexadecimal digits in the form of the kubelet's SHA-256 of a handle; no code interprets them
/// further.
fn hash(text: &str) -> String {
    let fnv = |seed: u64| {
        text.bytes()
            .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    };
    (0..4).map(|part| format!("{:016x}", fnv(0xcbf2_9ce4_8422_2325 + part))).collect()
}
