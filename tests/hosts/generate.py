#!/usr/bin/env python3
"""Writes the recorded hosts: miniature trees of what diskvitals reads, laid out as the kernel and udev lay them out.

Run it in this folder after changing it: every case is written anew, except its expected *.json beside `proc`. Only attributes that are read are there.
"""

import json
import os
import shutil
import struct

G = 1024**3


class Host:
    def __init__(self, case, udev=True):
        self.base, self.udev = case, udev
        for part in ("proc", "sys", "run", "exec", "etc", "var", "dev"):
            shutil.rmtree(f"{case}/{part}", ignore_errors=True)
        self.stats, self.mounts, self.probes, self.fstab = [], [], {}, []
        self.mount_id = 21
        os.makedirs(f"{case}/sys/class/block", exist_ok=True)

    def file(self, path, content=""):
        path = self.base + path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        data = content if isinstance(content, bytes) else str(content).encode() + b"\n"
        with open(path, "wb") as file:
            file.write(data)

    def link(self, path, target):
        """A relative link, as sysfs makes them."""
        full = self.base + path
        os.makedirs(os.path.dirname(full), exist_ok=True)
        os.symlink(os.path.relpath(target, os.path.dirname(path)), full)

    def symlink(self, path, target):
        full = self.base + path
        os.makedirs(os.path.dirname(full), exist_ok=True)
        os.symlink(target, full)

    def record(self, dev, links=(), **properties):
        if self.udev:
            lines = [f"S:{link}" for link in links] + ["I:4711000"] + [f"E:{key}={value}" for key, value in properties.items()] + ["G:systemd", "V:1"]
            self.file(f"/run/udev/data/{dev}", "\n".join(lines))

    def block(self, sysfs, dev, size, rotational=0, logical=512, physical=512, cache="write back", queue=True, links=(), udev=None, removable=0, busy=(0, 0)):
        """A whole disk at `sysfs`; size in bytes."""
        name = sysfs.rsplit("/", 1)[1]
        self.link(f"/sys/class/block/{name}", sysfs)
        self.link(f"/sys/block/{name}", sysfs)
        self.file(f"{sysfs}/dev", dev)
        self.file(f"{sysfs}/size", size // 512)
        self.file(f"{sysfs}/ro", 0)
        self.file(f"{sysfs}/removable", removable)
        if queue:
            for key, value in dict(rotational=rotational, logical_block_size=logical, physical_block_size=physical, write_cache=cache, iostats=1).items():
                self.file(f"{sysfs}/queue/{key}", value)
        if udev is not None:
            self.record(f"b{dev}", links, **udev)
        self.stat(dev, name, *busy)

    def stat(self, dev, name, done=0, flying=0):
        major, minor = dev.split(":")
        self.stats.append(f"{major:>4} {minor:>7} {name} {done} 0 {done * 8} 20 {done} 0 {done * 8} 40 {flying} 60 60 0 0 0 0 0 0")

    def partition(self, disk, name, number, dev, start, size, links=(), **udev):
        sysfs = f"{disk}/{name}"
        self.link(f"/sys/class/block/{name}", sysfs)
        for key, value in dict(dev=dev, size=size // 512, ro=0, partition=number, start=start // 512).items():
            self.file(f"{sysfs}/{key}", value)
        self.record(f"b{dev}", links, **udev)
        self.stat(dev, name, 100)
        return sysfs

    def on(self, above, *below):
        """`above` (a sysfs path) stands on `below`."""
        for device in below:
            self.link(f"{above}/slaves/{device.rsplit('/', 1)[1]}", device)
            self.link(f"{device}/holders/{above.rsplit('/', 1)[1]}", above)

    def scsi(self, place, hctl, name, dev, size, vendor, model, rev, proc_name, wwid=None, serial=None, state="running", runtime="active", pg89=None, timeout=None, **block):
        """A SCSI disk; `place` is the folder of its host or what is between it and the target."""
        device = f"{place}/target{hctl.rsplit(':', 1)[0]}/{hctl}"
        sysfs = f"{device}/block/{name}"
        self.block(sysfs, dev, size, **block)
        self.link(f"{sysfs}/device", device)
        attributes = dict(vendor=f"{vendor:8}", model=f"{model:16}", rev=rev, state=state, **{"power/runtime_status": runtime})
        if wwid:
            attributes["wwid"] = wwid
        if timeout:
            attributes["timeout"] = timeout
        for key, value in attributes.items():
            self.file(f"{device}/{key}", value)
        if serial:
            self.file(f"{device}/vpd_pg80", b"\x00\x80" + struct.pack(">H", len(serial)) + serial.encode())
        if pg89:
            self.file(f"{device}/vpd_pg89", ata_page(*pg89))
        parts = place.split("/")
        host = next(at for at, part in enumerate(parts) if part.startswith("host"))
        self.file("/".join(parts[: host + 1]) + f"/scsi_host/{parts[host]}/proc_name", proc_name)
        return sysfs

    def counts(self, device, failed=0, timed_out=0, asked=0x1A2B3C):
        """What the SCSI mid layer counts, as it prints it."""
        for key, value in dict(ioerr_cnt=failed, iotmo_cnt=timed_out, iorequest_cnt=asked, iodone_cnt=asked).items():
            self.file(f"{device}/{key}", hex(value))

    def aer(self, function, **counts):
        """What a PCI function has reported of errors; those not given are 0."""
        names = dict(correctable="RxErr BadTLP BadDLLP Rollover Timeout NonFatalErr CorrIntErr HeaderOF", **{
            kind: "Undefined DLP SDES TLP FCP CmpltTO CmpltAbrt UnxCmplt RxOF MalfTLP ECRC UnsupReq ACSViol UncorrIntErr BlockedTLP AtomicOpBlocked TLPBlockedErr PoisonTLPBlocked" for kind in ("fatal", "nonfatal")})
        for kind, known in names.items():
            values = [(name, counts.get(name, 0) if kind == "correctable" else 0) for name in known.split()]
            total = f"TOTAL_ERR_{'COR' if kind == 'correctable' else kind.upper()}"
            self.file(f"{function}/aer_dev_{kind}", "\n".join(f"{name} {value}" for name, value in values + [(total, sum(value for _, value in values))]))

    def ext4(self, name, **counts):
        """A mounted ext4's counters; `first` and `last` are the fields of these errors."""
        fields = dict(time=0, errcode=0, func="", line=0, ino=0, block=0)
        for which in ("first", "last"):
            for key, value in {**fields, **counts.pop(which, {})}.items():
                self.file(f"/sys/fs/ext4/{name}/{which}_error_{key}", value)
        for key, value in {**dict(errors_count=0, warning_count=0, msg_count=1), **counts}.items():
            self.file(f"/sys/fs/ext4/{name}/{key}", value)

    def ata(self, number, name, dev, size, model, serial, firmware, wwn, rotational, pci="0000:00:17.0", **more):
        """A SATA disk on the board's own controller."""
        place = f"/sys/devices/pci0000:00/{pci}/ata{number}/host{number - 1}"
        udev = dict(
            ID_ATA="1", ID_BUS="ata", ID_MODEL=model.replace(" ", "_"), ID_MODEL_ENC=model.replace(" ", "\\x20"), ID_REVISION=firmware, ID_SERIAL=f"{model.replace(' ', '_')}_{serial}",
            ID_SERIAL_SHORT=serial, ID_WWN=f"0x{wwn}", ID_WWN_WITH_EXTENSION=f"0x{wwn}", ID_PATH=f"pci-{pci}-ata-{number}",
        )
        links = [f"disk/by-id/ata-{model.replace(' ', '_')}_{serial}", f"disk/by-id/wwn-0x{wwn}", f"disk/by-path/pci-{pci}-ata-{number}"]
        return self.scsi(
            place, f"{number - 1}:0:0:0", name, dev, size, "ATA", model[:16], firmware[-4:], "ahci", wwid=f"naa.{wwn}", serial=f"{serial:>20}",
            rotational=rotational, physical=4096, links=links, udev=udev, busy=(1000, 0), pg89=(model, serial, firmware), **more,
        )

    def nvme(self, number, pci, model, serial, firmware, dev, size, nguid=None, eui=None, subsystem=None, partition_links=True):
        """A PCIe controller with one namespace. Returns the namespace's sysfs path."""
        controller = f"/sys/devices/pci0000:00/{pci}/nvme/nvme{number}"
        nqn = f"nqn.2014.08.org.nvmexpress:144d144d{serial:20}{model:40}"
        values = dict(model=f"{model:40}", serial=f"{serial:20}", firmware_rev=f"{firmware:8}", transport="pcie", state="live", subsysnqn=nqn)
        for key, value in values.items():
            self.file(f"{controller}/{key}", value)
        self.link(f"/sys/class/nvme/nvme{number}", controller)
        virtual = f"/sys/devices/virtual/nvme-subsystem/nvme-subsys{number}"
        for key in ("model", "serial", "firmware_rev", "subsysnqn"):
            self.file(f"{virtual}/{key}", values[key])
        self.link(f"/sys/class/nvme-subsystem/nvme-subsys{number}", virtual)
        sysfs = f"{controller}/nvme{number}n1"
        wwn = f"eui.{(nguid or eui).replace('-', '').replace(' ', '')}"
        underscored = model.replace(" ", "_")
        udev = dict(ID_MODEL=underscored, ID_SERIAL=f"{underscored}_{serial}_1", ID_SERIAL_SHORT=serial, ID_WWN=wwn, ID_PATH=f"pci-{pci.split('/')[-1]}-nvme-1")
        self.block(sysfs, dev, size, links=[f"disk/by-id/nvme-{underscored}_{serial}", f"disk/by-id/nvme-{wwn}", f"disk/by-path/pci-{pci.split('/')[-1]}-nvme-1"], udev=udev, busy=(5000, 0))
        self.link(f"{sysfs}/device", controller)
        self.file(f"{sysfs}/nsid", 1)
        self.file(f"{sysfs}/wwid", wwn)
        if nguid:
            self.file(f"{sysfs}/nguid", nguid)
        if eui:
            self.file(f"{sysfs}/eui", eui)
        return sysfs

    def virtual(self, name, dev, size, **attributes):
        sysfs = f"/sys/devices/virtual/block/{name}"
        udev = attributes.pop("udev", None)
        links = attributes.pop("links", ())
        self.block(sysfs, dev, size, udev=udev, links=links)
        for key, value in attributes.items():
            self.file(f"{sysfs}/{key.replace('__', '/')}", value)
        return sysfs

    def dm(self, minor, name, size, uuid, below, status, links=(), **udev):
        udev = dict(DM_NAME=name, DM_UUID=uuid, **udev)
        sysfs = self.virtual(f"dm-{minor}", f"253:{minor}", size, dm__name=name, dm__uuid=uuid, udev=udev, links=[f"mapper/{name}", *links])
        self.on(sysfs, *below)
        self.file(f"/exec/dm/dm-{minor}.status", status)
        return sysfs

    def mount(self, dev, root, point, fs, source, options="rw,relatime", super_options="rw", shared=True, probe=None, fstab=None):
        """`probe`: (bytes, used part) or an answer as it is; mounts of a disk get one."""
        tag = f"shared:{self.mount_id} " if shared else ""
        self.mounts.append(f"{self.mount_id} 1 {dev} {root} {point} {options} {tag}- {fs} {source} {super_options}")
        self.mount_id += 1
        if isinstance(probe, dict):
            self.probes[point] = probe
        elif probe:
            total, used = probe[0], int(probe[0] * probe[1])
            inodes = 0 if fs in ("btrfs", "vfat") else total // 16384
            self.probes[point] = {"statfs": {
                "total_bytes": total, "available_bytes": total - used, "used_bytes": used,
                "total_inodes": inodes, "available_inodes": inodes - inodes // 10, "used_inodes": inodes // 10}}
        if fstab:
            self.fstab.append(f"{fstab} {point} {fs} defaults 0 2")

    def pseudo(self):
        self.mount("0:21", "/", "/sys", "sysfs", "sysfs", "rw,nosuid,nodev,noexec,relatime")
        self.mount("0:22", "/", "/proc", "proc", "proc", "rw,nosuid,nodev,noexec,relatime")
        self.mount("0:5", "/", "/dev", "devtmpfs", "udev", "rw,nosuid,relatime")
        self.mount("0:24", "/", "/run", "tmpfs", "tmpfs", "rw,nosuid,nodev")

    def done(self):
        self.file("/proc/1/mountinfo", "\n".join(self.mounts))
        self.file("/proc/diskstats", "\n".join(self.stats))
        self.file("/etc/fstab", "\n".join(self.fstab))
        self.file("/exec/probes.json", json.dumps(self.probes, indent=2))
        # A log without a record about storage.
        self.file("/dev/kmsg", "6,0,0,-;Linux version 6.18.44\n6,1,900000,-;Run /init as init process")


def ata_page(model, serial, firmware):
    """SAT's ATA information page around IDENTIFY DEVICE, whose strings are byte-swapped words."""
    identify = bytearray(512)
    for word, length, text in ((10, 20, serial), (23, 8, firmware), (27, 40, model)):
        padded = f"{text:{length}}".encode()
        identify[word * 2 : word * 2 + length] = b"".join(padded[at + 1 : at + 2] + padded[at : at + 1] for at in range(0, length, 2))
    return b"\x00\x89\x02\x38" + bytes(56) + bytes(identify)


def fs(kind, uuid, label=None):
    found = dict(ID_FS_TYPE=kind, ID_FS_UUID=uuid, ID_FS_UUID_ENC=uuid)
    if label:
        found.update(ID_FS_LABEL=label.replace(" ", "_"), ID_FS_LABEL_ENC=label.replace(" ", "\\x20"))
    return found


def nvme_laptop():
    """One NVMe drive, LUKS on it, btrfs with two subvolumes inside; a snap on a loop device, zram."""
    host = Host("nvme-laptop")
    disk = host.nvme(0, "0000:00:06.0/0000:01:00.0", "Samsung SSD 980 PRO 1TB", "S5GXNX0R123456", "5B2QGXA7", "259:0", 1000204886016, eui="00 25 38 5b 11 b2 c3 d4")
    host.partition(disk, "nvme0n1p1", 1, "259:1", 1048576, 536870912, ["disk/by-uuid/4D2A-11F0"], **fs("vfat", "4D2A-11F0", "EFI SYSTEM"))
    luks = host.partition(disk, "nvme0n1p2", 2, "259:2", 537919488, 999666966528, **fs("crypto_LUKS", "b4f3f1c2-7d1e-4a55-9d0c-2f6f0d8a1b3c"))
    uuid = "0f0b7a9e-3c1d-4a5e-8b6f-9d2c4e6a8b0d"
    host.dm(0, "luks-root", 999650189312, "CRYPT-LUKS2-b4f3f1c27d1e4a559d0c2f6f0d8a1b3c-luks-root", [luks], "0 1952441776 crypt", [f"disk/by-uuid/{uuid}"], **fs("btrfs", uuid, "laptop"))
    host.file(f"/sys/fs/btrfs/{uuid}/label", "laptop")
    host.link(f"/sys/fs/btrfs/{uuid}/devices/dm-0", "/sys/devices/virtual/block/dm-0")
    host.file(f"/sys/fs/btrfs/{uuid}/devinfo/1/missing", 0)
    host.file(f"/sys/fs/btrfs/{uuid}/allocation/data/single/total_bytes", 400 * G)
    host.file(f"/sys/fs/btrfs/{uuid}/allocation/metadata/dup/total_bytes", 4 * G)
    host.file("/sys/fs/btrfs/features/raid1c34", 0)
    host.virtual("zram0", "252:0", 8 * G)
    host.virtual("loop0", "7:0", 4096 * 26000, loop__backing_file="/var/lib/snapd/snaps/hello_42.snap", udev=fs("squashfs", ""))
    host.virtual("loop1", "7:1", 0)
    host.pseudo()
    host.mount("0:30", "/@", "/", "btrfs", "/dev/mapper/luks-root", "rw,noatime", "rw,ssd,space_cache=v2,subvolid=256,subvol=/@", probe=(999650189312, 0.4), fstab=f"UUID={uuid}")
    host.mount("0:30", "/@home", "/home", "btrfs", "/dev/mapper/luks-root", "rw,noatime", "rw,ssd,space_cache=v2,subvolid=257,subvol=/@home", probe=(999650189312, 0.4), fstab=f"UUID={uuid}")
    host.mount("259:1", "/", "/boot/efi", "vfat", "/dev/nvme0n1p1", super_options="rw,fmask=0077,errors=remount-ro", probe=(535805952, 0.02), fstab="UUID=4D2A-11F0")
    host.mount("7:0", "/", "/snap/hello/42", "squashfs", "/dev/loop0", "ro,nodev,relatime", "ro,errors=continue", probe=(4096 * 26000, 1.0))
    host.done()


def sas_12_bay():
    """Twelve SAS drives behind an expander whose enclosure names the slots, one of them asleep; the system on a SATA SSD."""
    host = Host("sas-12-bay")
    system = host.ata(1, "sda", "8:0", 240057409536, "INTEL SSDSC2KB240G8", "PHYF1234567890ABCD", "XCV10132", "55cd2e4150a1b2c3", 0)
    root = "6e1f2d3c-1111-4222-8333-444455556666"
    host.partition(system, "sda1", 1, "8:1", 1048576, 240055312384, [f"disk/by-uuid/{root}"], **fs("ext4", root))
    hba = "/sys/devices/pci0000:00/0000:00:03.0/0000:03:00.0/host8"
    expander = f"{hba}/port-8:0/expander-8:0"
    ses = f"{expander}/port-8:0:12/end_device-8:0:12/target8:0:12/8:0:12:0/enclosure/8:0:12:0"
    host.file(f"{ses}/id", "0x500304800123457f")
    host.link("/sys/class/enclosure/8:0:12:0", ses)
    host.pseudo()
    host.mount("8:1", "/", "/", "ext4", "/dev/sda1", probe=(240055312384, 0.2), fstab=f"UUID={root}")
    error = dict(time=1722945600, errcode=5, func="ext4_wait_block_bitmap", line=574, ino=0, block=1048583)
    host.ext4("sda1", errors_count=2, msg_count=3, first=error, last={**error, "time": 1722945607})
    host.aer("/sys/devices/pci0000:00/0000:00:03.0/0000:03:00.0", RxErr=3, BadTLP=1)
    for bay in range(12):
        letter, minor = "bcdefghijklm"[bay], 16 * (bay + 1)
        wwn, address = f"5000c500a1b2{0xC000 + bay * 16 + 7:04x}", f"0x5000c500a1b2{0xC000 + bay * 16 + 5:04x}"
        serial, place = f"ZC1A{bay:02}QX0000C9{bay:02}", f"{expander}/port-8:0:{bay}/end_device-8:0:{bay}"
        path = f"pci-0000:03:00.0-sas-exp0x500304800123457f-phy{bay}-lun-0"
        uuid = f"aaaa{bay:04}-0000-4000-8000-00000000{bay:04}"
        sysfs = host.scsi(
            place, f"8:0:{bay}:0", f"sd{letter}", f"8:{minor}", 12000138625024, "SEAGATE", "ST12000NM0038", "E004", "mpt3sas", wwid=f"naa.{wwn}", serial=serial,
            runtime="suspended" if bay == 11 else "active", rotational=1, physical=4096, cache="write through", busy=(300 + bay, 0),
            links=[f"disk/by-id/scsi-3{wwn}", f"disk/by-id/wwn-0x{wwn}", f"disk/by-path/{path}"] + ([f"disk/by-uuid/{uuid}"] if bay < 3 else []),
            udev=dict(ID_BUS="scsi", ID_MODEL="ST12000NM0038", ID_REVISION="E004", ID_SCSI="1", ID_SCSI_SERIAL=serial, ID_SERIAL=f"3{wwn}", ID_SERIAL_SHORT=wwn,
                      ID_VENDOR="SEAGATE", ID_WWN=f"0x{wwn}", ID_WWN_WITH_EXTENSION=f"0x{wwn}", ID_PATH=path, **(fs("xfs", uuid, f"bay {bay}") if bay < 3 else {})),
        )
        host.file(f"{place}/sas_device/end_device-8:0:{bay}/sas_address", address)
        host.counts(f"{place}/target8:0:{bay}/8:0:{bay}:0", *((0x1F, 2) if bay == 4 else ()))
        slot = f"{ses}/Slot {bay:02}"
        device = f"{place}/target8:0:{bay}/8:0:{bay}:0"
        host.file(f"{slot}/type", "array device")
        host.link(f"{slot}/device", device)
        host.link(f"{device}/enclosure_device:Slot {bay:02}", slot)
        if bay < 3:
            host.mount(f"8:{minor}", "/", f"/srv/bay{bay}", "xfs", f"/dev/sd{letter}", probe=(12000138625024, 0.5), fstab=f"UUID={uuid}")
    host.done()


def lvm_on_md():
    """Two SATA disks, RAID1 that has lost a member, LVM with a thin pool on top, hyphens in every name."""
    host = Host("lvm-on-md")
    parts = []
    for number, (letter, serial) in enumerate((("a", "WD-WX11A1111111"), ("b", "WD-WX11A2222222"))):
        disk = host.ata(number + 1, f"sd{letter}", f"8:{16 * number}", 4000787030016, "WDC WD40EFRX-68N32N0", serial, "82.00A82", f"50014ee2b{number + 1:07}", 1)
        member = dict(ID_FS_TYPE="linux_raid_member", ID_FS_UUID="5a1d7c2e-90ab-4cde-8f01-23456789abcd", ID_FS_UUID_SUB=f"00000000-0000-4000-8000-00000000000{number}", ID_FS_LABEL="nas:0")
        parts.append(host.partition(disk, f"sd{letter}1", 1, f"8:{16 * number + 1}", 1048576, 3999999991808, **member))
    md = host.virtual("md127", "9:127", 3999865774080, md__level="raid1", md__raid_disks="2", md__degraded="1", md__array_state="clean", md__sync_action="idle", md__sync_completed="none", md__mismatch_cnt="128",
                      links=["disk/by-id/md-name-nas:0", "md/0"], udev=dict(MD_LEVEL="raid1", MD_NAME="nas:0", ID_FS_TYPE="LVM2_member", ID_FS_UUID="abcdef-0123-4567-89ab-cdef-0123-456789"))
    host.on(md, *parts)
    for part, state, slot, errors in ((parts[0], "in_sync", "0", 0), (parts[1], "faulty", "none", 12)):
        name = part.rsplit("/", 1)[1]
        for key, value in dict(state=state, slot=slot, errors=errors).items():
            host.file(f"{md}/md/dev-{name}/{key}", value)
        host.link(f"{md}/md/dev-{name}/block", part)
    group = "LVM-Zs8kQ0vYxUoWm1rT2nB3cD4eF5gH6iJ7"
    lvm = lambda volume: dict(DM_VG_NAME="vg-nas", DM_LV_NAME=volume)
    meta = host.dm(0, "vg--nas-pool--0_tmeta", 1 * G, f"{group}aaaa-tmeta", [md], "0 2097152 linear", **lvm("pool-0_tmeta"))
    data = host.dm(1, "vg--nas-pool--0_tdata", 3000 * G, f"{group}bbbb-tdata", [md], "0 6291456000 linear", **lvm("pool-0_tdata"))
    pool = host.dm(2, "vg--nas-pool--0-tpool", 3000 * G, f"{group}cccc-tpool", [meta, data],
                   "0 6291456000 thin-pool 7 41230/262144 46080/49152 - rw discard_passdown queue_if_no_space - 1024", DM_VG_NAME="vg-nas", DM_LV_NAME="pool-0", DM_LV_LAYER="tpool")
    uuid = "1c2d3e4f-5a6b-4c7d-8e9f-0a1b2c3d4e5f"
    # Without udev's LVM names, as when the rules of lvm2 are not installed.
    host.dm(3, "vg--nas-home--dirs", 2000 * G, f"{group}dddd", [pool], "0 4194304000 thin 4000000000 4194303999", [f"disk/by-uuid/{uuid}"], **fs("ext4", uuid))
    root = host.dm(4, "vg--nas-root", 20 * G, f"{group}eeee", [md], "0 41943040 linear", **lvm("root"), **fs("xfs", "77777777-0000-4000-8000-000000000001"))
    host.pseudo()
    host.mount("253:4", "/", "/", "xfs", "/dev/mapper/vg--nas-root", probe=(20 * G, 0.3), fstab="/dev/vg-nas/root")
    host.mount("253:3", "/", "/srv/home\\040dirs", "ext4", "/dev/mapper/vg--nas-home--dirs", probe=None, fstab=None)
    host.probes["/srv/home dirs"] = {"statfs": {"total_bytes": 2000 * G, "available_bytes": 700 * G, "used_bytes": 1200 * G, "total_inodes": 1000000, "available_inodes": 900000, "used_inodes": 100000}}
    host.fstab.append("/dev/vg-nas/home-dirs /srv/home\\040dirs ext4 defaults 0 2")
    host.done()


def zfs_member(pool, guid, vdev):
    return dict(ID_FS_TYPE="zfs_member", ID_FS_USAGE="filesystem", ID_FS_LABEL=pool, ID_FS_LABEL_ENC=pool, ID_FS_UUID=guid, ID_FS_UUID_ENC=guid, ID_FS_UUID_SUB=vdev, ID_FS_UUID_SUB_ENC=vdev)


def zpool_status(pool, guid, state, vdevs, spares, errors=0):
    """What `zpool status -j --json-int -p -P` of OpenZFS 2.3 prints of one pool."""
    def vdev(name, guid, state, children=(), **more):
        kind = name.rsplit("-", 1)[0].rstrip("0123456789") if children else "disk"
        found = dict(name=name, vdev_type=kind, guid=guid, path=name if not children else None, state=state, read_errors=0, write_errors=0, checksum_errors=0, **more)
        if children:
            found["vdevs"] = {child[0]: vdev(*child[:3], *child[3:4], **(child[4] if len(child) > 4 else {})) for child in children}
        else:
            found["slow_ios"] = 0
        return {key: value for key, value in found.items() if value is not None}

    root = dict(name=pool, vdev_type="root", guid=guid, state=state, read_errors=0, write_errors=0, checksum_errors=0, vdevs={it[0]: vdev(*it) for it in vdevs})
    scan = dict(function="RESILVER", state="FINISHED", start_time=1790000000, end_time=1790040000, to_examine=9 * 1024**4, examined=9 * 1024**4, errors=0)
    found = dict(name=pool, state=state, pool_guid=guid, txg=4711, spa_version=5000, zpl_version=5, scan_stats=scan, vdevs={pool: root}, error_count=errors)
    if spares:
        found["spares"] = {name: dict(name=name, vdev_type="disk", guid=guid, path=name, state=state) for name, guid, state in spares}
    return json.dumps(dict(output_version=dict(command="zpool status", vers_major=0, vers_minor=1), pools={pool: found}), indent=1)


def zfs_nas():
    """Eight bays with a raidz2 of whole disks: the disk of bay 3 was pulled, and the spare in bay 7 has taken its place. A zvol with ext4."""
    host = Host("zfs-nas")
    shutil.rmtree("zfs-nas/exec/smartctl", ignore_errors=True)
    host.pseudo()
    well = ((5, "Reallocated_Sector_Ct", 0, 100, 10), (197, "Current_Pending_Sector", 0))
    root = "6e1f2d3c-1111-4222-8333-444455557777"
    system = host.ata(1, "sda", "8:0", 240057409536, "INTEL SSDSC2KB240G8", "PHYF1234567890ZFS0", "XCV10132", "55cd2e4150a1b2d4", 0)
    status, answer = smart_answer("sda", "INTEL SSDSC2KB240G8", "PHYF1234567890ZFS0", "XCV10132", 240057409536, "55cd2e4150a1b2d4", well, 41310, 29, rotation=0)
    host.file("/exec/smartctl/dev/sda.json", json.dumps(answer, indent=1))
    host.file("/exec/smartctl/dev/sda.exit", status)
    host.partition(system, "sda1", 1, "8:1", 1048576, 240055312384, [f"disk/by-uuid/{root}"], **fs("ext4", root))
    host.mount("8:1", "/", "/", "ext4", "/dev/sda1", probe=(240055312384, 0.2), fstab=f"UUID={root}")
    pool, size = "14802031763550229251", 8001563222016
    for bay in range(8):
        name, minor = f"sd{'bcdefghi'[bay]}", 16 * (bay + 1)
        if bay == 3:
            continue
        disk = host.ata(bay + 2, name, f"8:{minor}", size, "WDC WD80EFAX-68KNBN0", f"VAG{bay}R4KL", "81.00A81", f"5000cca0b{bay:07}", 1)
        status, answer = smart_answer(name, "WDC WD80EFAX-68KNBN0", f"VAG{bay}R4KL", "81.00A81", size, f"5000cca0b{bay:07}", well, 41200 + bay, 34, rotation=5400)
        host.file(f"/exec/smartctl/dev/{name}.json", json.dumps(answer, indent=1))
        host.file(f"/exec/smartctl/dev/{name}.exit", status)
        # Partition 9 is the reserve that zpool makes.
        label = zfs_member("tank", pool, f"1104207765200000{bay:04}") if bay < 7 else dict(ID_FS_TYPE="zfs_member", ID_FS_USAGE="filesystem", ID_FS_UUID_SUB="7712000000000000007")
        host.partition(disk, f"{name}1", 1, f"8:{minor + 1}", 1048576, size - 16 * 1024**2, **label)
        host.file(f"/exec/devices/{name}9", bytes(4096))
        host.partition(disk, f"{name}9", 9, f"8:{minor + 9}", size - 8 * 1024**2 - 1048576, 8 * 1024**2)
    members = [(f"/dev/disk/by-id/ata-WDC_WD80EFAX-68KNBN0_VAG{bay}R4KL-part1", int(f"1104207765200000{bay:04}"), "ONLINE") for bay in range(7)]
    spare = ("/dev/disk/by-id/ata-WDC_WD80EFAX-68KNBN0_VAG7R4KL-part1", 7712000000000000007, "ONLINE")
    pulled = ("1104207765200000" "0003", 11042077652000000003, "CANT_OPEN", (), dict(not_present=1, was=members[3][0]))
    members[3] = ("spare-3", 5500000000000000003, "DEGRADED", [pulled, spare])
    host.file("/exec/zpool/tank.json", zpool_status("tank", int(pool), "DEGRADED", [("raidz2-0", 3300000000000000001, "DEGRADED", members)], [(*spare[:2], "INUSE")]))
    host.file("/proc/spl/kstat/zfs/arcstats", "9 1 0x01 147 39984 4711 4812")
    host.file("/proc/spl/kstat/zfs/tank/state", "DEGRADED")
    host.file("/proc/spl/kstat/zfs/tank/guid", pool)
    for number, dataset in enumerate(("tank", "tank/home", "tank/media")):
        host.mount(f"0:{50 + number}", "/", f"/{dataset}", "zfs", dataset, "rw,relatime", "rw,xattr,noacl", probe=(29 * 1024 * G, 0.5))
    host.mount("0:60", "/", "/tank/home/.zfs/snapshot/daily", "zfs", "tank/home@daily", "ro,relatime", "ro,xattr,noacl", probe=(29 * 1024 * G, 0.5))
    uuid = "2b9c0f5e-7d1a-4e9a-8a55-0d6f7c1e2a3b"
    host.virtual("zd0", "230:0", 100 * G, links=["zvol/tank/vm-101-disk-0"], udev=fs("ext4", uuid))
    host.mount("230:0", "/", "/srv/vm", "ext4", "/dev/zd0", probe=(100 * G, 0.4))
    host.done()


def degraded_arrays():
    """A two-way mirror whose second copy is being made, a raid5 of six with five members, a raid6 without one whose last check found wrong parity, and a vendor's system mirror over four bays of which two were ever filled."""
    host = Host("degraded-arrays")
    letters = "abcdefghijkl"
    disks = [host.ata(at + 1, f"sd{letter}", f"8:{16 * at}", 4000787030016, "EXAMPLE HDD 4000", f"TEST{at:04}", "0001", f"5000c500{at + 1:08}", 1) for at, letter in enumerate(letters)]
    size = 3 * 1024 * G

    def array(name, dev, level, slots, members, udev, sync="idle", completed="none", layout="0", speed="none", last="idle", mismatch="0"):
        missing = sum(1 for _, state in members if state == "spare") + slots - len(members)
        md = host.virtual(name, dev, size, udev=udev, md__level=level, md__layout=layout, md__raid_disks=str(slots), md__array_state="clean", md__sync_action=sync,
                          md__sync_completed=completed, md__sync_speed=speed, md__last_sync_action=last, md__resync_start="none", md__mismatch_cnt=mismatch,
                          md__degraded=str(missing))
        parts = [disk for disk, _ in members]
        host.on(md, *parts)
        for slot, (disk, state) in enumerate(members):
            short = disk.rsplit("/", 1)[1]
            for key, value in dict(state=state, slot=slot, errors=0, offset=264192, bad_blocks="").items():
                host.file(f"{md}/md/dev-{short}/{key}", value)
            host.link(f"{md}/md/dev-{short}/block", disk)
        return md

    uuid = lambda number: fs("ext4", f"0a0b0c0d-0000-4000-8000-{number:012}")
    in_sync = lambda some: [(disk, "in_sync") for disk in some]
    array("md127", "9:127", "raid1", 2, [(disks[1], "in_sync"), (disks[0], "spare")], uuid(1), sync="recover", completed="146488486 / 1464884864", speed="61037", last="recover")
    array("md0", "9:0", "raid5", 6, in_sync(disks[2:7]), uuid(2), layout="2")
    array("md1", "9:1", "raid6", 4, in_sync(disks[7:10]), uuid(3), layout="2", last="check", mismatch="256")
    array("md9", "9:9", "raid1", 4, in_sync(disks[10:12]), uuid(4))
    host.pseudo()
    for dev, point in (("9:9", "/"), ("9:127", "/srv/a"), ("9:0", "/srv/b"), ("9:1", "/srv/c")):
        host.mount(dev, "/", point, "ext4", f"/dev/md{dev[2:]}", probe=(size, 0.3))
    host.done()


def multipath():
    """One LUN of an array through two Fibre Channel ports, one of which is gone; the system on a logical disk of a RAID controller."""
    host = Host("multipath")
    raid = "/sys/devices/pci0000:00/0000:00:01.0/0000:02:00.0/host0"
    wwn = "61866da0a1b2c3002a1b2c3d4e5f6071"
    system = host.scsi(raid, "0:2:0:0", "sda", "8:0", 479559942144, "DELL", "PERC H730P Mini", "4.30", "megaraid_sas", wwid=f"naa.{wwn}", serial=f"0071605f4e3d2c1b2a00c3b2a1a06d86", rotational=1,
                       links=[f"disk/by-id/wwn-0x{wwn}", "disk/by-path/pci-0000:02:00.0-scsi-0:2:0:0"], busy=(900, 0),
                       udev=dict(ID_BUS="scsi", ID_MODEL="PERC_H730P_Mini", ID_VENDOR="DELL", ID_REVISION="4.30", ID_SCSI_SERIAL="0071605f4e3d2c1b2a00c3b2a1a06d86", ID_SERIAL=f"3{wwn}", ID_SERIAL_SHORT=wwn,
                                 ID_WWN_WITH_EXTENSION=f"0x{wwn}", ID_PATH="pci-0000:02:00.0-scsi-0:2:0:0"))
    host.partition(system, "sda1", 1, "8:1", 1048576, 479557844992, **fs("xfs", "99999999-0000-4000-8000-000000000001"))
    lun, serial, paths = "600a098038303053453f463045727a34", "80000SE?F0Erz4", []
    for number, (name, dev, port, state) in enumerate((("sdb", "8:16", "0x2001d039ea1b2c3d", "running"), ("sdc", "8:32", "0x2002d039ea1b2c3d", "transport-offline"))):
        place = f"/sys/devices/pci0000:00/0000:00:02.0/0000:04:00.{number}/host{number + 1}/rport-{number + 1}:0-1"
        path = f"pci-0000:04:00.{number}-fc-{port}-lun-0"
        paths.append(host.scsi(place, f"{number + 1}:0:0:0", name, dev, 1099511627776, "NETAPP", "LUN C-Mode", "9131", "qla2xxx", wwid=f"naa.{lun}", serial=serial, state=state, rotational=0,
                               cache="write through", physical=4096, links=[f"disk/by-path/{path}"], busy=(400, 0),
                               udev=dict(ID_BUS="scsi", ID_MODEL="LUN_C-Mode", ID_VENDOR="NETAPP", ID_REVISION="9131", ID_SCSI_SERIAL=serial, ID_SERIAL=f"3{lun}", ID_SERIAL_SHORT=lun,
                                         ID_WWN_WITH_EXTENSION=f"0x{lun}", ID_PATH=path, DM_MULTIPATH_DEVICE_PATH="1", ID_FS_TYPE="mpath_member")))
    mpath = host.dm(0, "mpatha", 1099511627776, f"mpath-3{lun}", paths, "0 2147483648 multipath 2 0 0 0 2 1 A 0 1 2 8:16 A 0 0 1 E 0 1 2 8:32 F 4 0 1", [f"disk/by-id/dm-uuid-mpath-3{lun}", f"disk/by-id/wwn-0x{lun}"])
    uuid = "88888888-0000-4000-8000-000000000001"
    host.dm(1, "mpatha1", 1099509530624, f"part1-mpath-3{lun}", [mpath], "0 2147479552 linear", [f"disk/by-uuid/{uuid}"], **fs("xfs", uuid, "san"))
    host.pseudo()
    host.mount("8:1", "/", "/", "xfs", "/dev/sda1", probe=(479557844992, 0.3), fstab="UUID=99999999-0000-4000-8000-000000000001")
    host.mount("253:1", "/", "/srv/san", "xfs", "/dev/mapper/mpatha1", probe=(1099509530624, 0.6), fstab=f"UUID={uuid}")
    host.done()


def usb():
    """A bridge whose serial number is zeros, and a dock with two bays that both show the dock's serial number."""
    host = Host("usb")
    system = host.ata(1, "sda", "8:0", 500107862016, "CT500MX500SSD1", "1928E20A1B2C", "M3CR023", "500a0751e20a1b2c", 0)
    host.partition(system, "sda1", 1, "8:1", 1048576, 500105216000, **fs("ext4", "22222222-0000-4000-8000-000000000001"))
    controller = "/sys/devices/pci0000:00/0000:00:14.0/usb2"

    def bay(port, number, lun, name, dev, size, vendor, model, usb_serial, uuid=None):
        device = f"{controller}/2-{port}"
        for key, value in dict(idVendor="152d", idProduct="0578", serial=usb_serial).items():
            host.file(f"{device}/{key}", value)
        path = f"pci-0000:00:14.0-usb-0:{port}:1.0-scsi-0:0:0:{lun}"
        label = f"usb-{vendor}_{model.replace(' ', '_')}_{usb_serial}-0:{lun}"
        return host.scsi(f"{device}/2-{port}:1.0/host{number}", f"{number}:0:0:{lun}", name, dev, size, vendor, model, "0209", "uas" if port == 1 else "usb-storage", rotational=1, cache="write through",
                         links=[f"disk/by-id/{label}", f"disk/by-path/{path}"], busy=(50, 0),
                         udev=dict(ID_BUS="usb", ID_MODEL=model.replace(" ", "_"), ID_MODEL_ENC=f"{model:16}".replace(" ", "\\x20"), ID_VENDOR=vendor, ID_REVISION="0209", ID_SERIAL_SHORT=usb_serial,
                                   ID_SERIAL=f"{vendor}_{model.replace(' ', '_')}_{usb_serial}-0:{lun}", ID_PATH=path, ID_USB_DRIVER="usb-storage", **(fs("exfat", uuid, "Stick of Zoë") if uuid else {})))

    bay(1, 4, 0, "sdb", "8:16", 2000398934016, "JMicron", "Generic", "000000000000", "5C1A-90F2")
    bay(2, 5, 0, "sdc", "8:32", 4000787030016, "ASMedia", "ASM1352R", "A123456DOCK7")
    bay(2, 5, 1, "sdd", "8:48", 4000787030016, "ASMedia", "ASM1352R", "A123456DOCK7")
    host.block("/sys/devices/pci0000:00/0000:00:17.0/ata2/host1/target1:0:0/1:0:0:0/block/sr0", "11:0", 1073741312, removable=1, udev=dict(ID_CDROM="1", ID_BUS="ata"))
    host.link("/sys/devices/pci0000:00/0000:00:17.0/ata2/host1/target1:0:0/1:0:0:0/block/sr0/device", "/sys/devices/pci0000:00/0000:00:17.0/ata2/host1/target1:0:0/1:0:0:0")
    host.pseudo()
    host.mount("8:1", "/", "/", "ext4", "/dev/sda1", probe=(500105216000, 0.3), fstab="UUID=22222222-0000-4000-8000-000000000001")
    host.mount("8:16", "/", "/media/ann/Stick\\040of\\040Zo\\303\\253".replace("\\303\\253", "ë"), "exfat", "/dev/sdb")
    host.probes["/media/ann/Stick of Zoë"] = {"errno": 5, "operation": "readdir"}
    host.done()


def vm_virtio():
    """A virtual machine: a disk without any identity, one with a serial number, a SCSI disk of the hypervisor, an empty floppy."""
    host = Host("vm-virtio")

    def disk(slot, number, name, dev, size, serial):
        device = f"/sys/devices/pci0000:00/0000:00:{slot}.0/virtio{number}"
        sysfs = f"{device}/block/{name}"
        udev = dict(ID_PATH=f"pci-0000:00:{slot}.0")
        if serial:
            udev["ID_SERIAL"] = serial
        host.block(sysfs, dev, size, rotational=1, links=[f"disk/by-path/pci-0000:00:{slot}.0"] + ([f"disk/by-id/virtio-{serial}"] if serial else []), udev=udev, busy=(700, 0))
        host.link(f"{sysfs}/device", device)
        host.file(f"{sysfs}/serial", serial.encode())
        host.file(f"{device}/vendor", "0x1af4")
        return sysfs

    system = disk("04", 1, "vda", "252:0", 40 * G, "")
    host.partition(system, "vda1", 1, "252:1", 1048576, 40 * G - 2097152, ["disk/by-label/cloudimg-rootfs"], **fs("ext4", "33333333-0000-4000-8000-000000000001", "cloudimg-rootfs"))
    disk("05", 2, "vdb", "252:16", 100 * G, "data-1")
    host.record("b252:16", ["disk/by-id/virtio-data-1", "disk/by-path/pci-0000:00:05.0"], ID_SERIAL="data-1", ID_PATH="pci-0000:00:05.0", **fs("xfs", "33333333-0000-4000-8000-000000000002"))
    host.scsi("/sys/devices/pci0000:00/0000:00:06.0/virtio3/host2", "2:0:0:1", "sda", "8:0", 10 * G, "QEMU", "QEMU HARDDISK", "2.5+", "Virtio SCSI HBA", serial="drive-scsi1", rotational=1,
              links=["disk/by-path/pci-0000:00:06.0-scsi-0:0:0:1"], udev=dict(ID_BUS="scsi", ID_MODEL="QEMU_HARDDISK", ID_VENDOR="QEMU", ID_REVISION="2.5+", ID_SCSI_SERIAL="drive-scsi1", ID_PATH="pci-0000:00:06.0-scsi-0:0:0:1"))
    host.block("/sys/devices/platform/floppy.0/block/fd0", "2:0", 4096, removable=1)
    host.link("/sys/devices/platform/floppy.0/block/fd0/device", "/sys/devices/platform/floppy.0")
    host.file("/sys/devices/platform/floppy.0/modalias", "platform:floppy")
    host.pseudo()
    host.mount("252:1", "/", "/", "ext4", "/dev/vda1", probe=(40 * G, 0.3), fstab="LABEL=cloudimg-rootfs")
    host.mount("252:16", "/", "/data", "xfs", "/dev/vdb", probe=(100 * G, 0.97), fstab="UUID=33333333-0000-4000-8000-000000000002")
    host.done()


def kubernetes_node():
    """A node whose pods use volumes of two CSI drivers, one of them a raw block volume."""
    host = Host("kubernetes-node")
    system = host.nvme(0, "0000:00:1d.0/0000:05:00.0", "INTEL SSDPE2KX010T8", "BTLJ9050021A1P0FGN", "VDV10131", "259:0", 1000204886016, nguid="01000000-0100-0000-5cd2-e4abcd125151")
    host.partition(system, "nvme0n1p1", 1, "259:1", 1048576, 1000202788864, **fs("ext4", "44444444-0000-4000-8000-000000000001"))
    sda = host.ata(1, "sda", "8:0", 960197124096, "MTFDDAK960TDS-1AW1ZABYY", "2019289A1B2C", "D3MU001", "500a0751289a1b2c", 0)
    sdb = host.ata(2, "sdb", "8:16", 960197124096, "MTFDDAK960TDS-1AW1ZABYY", "2019289A1B2D", "D3MU001", "500a0751289a1b2d", 0)
    volume = host.dm(0, "data-pvc--7a1c", 100 * G, "LVM-KpW1xvTg0aUuMmQ9rS8tV7wX6yZ5aaaabbbb", [sda], "0 209715200 linear", DM_VG_NAME="data", DM_LV_NAME="pvc-7a1c", **fs("xfs", "44444444-0000-4000-8000-000000000002"))
    kubelet = "/var/lib/kubelet"
    pods = {"shop_orders-db-0": "0d4f6c1e-8a3b-4f57-9c21-5b6d7e8f9a01", "lab_scratch-5d9f7b8c6-x2x9p": "7b2e9d40-1c5a-4e8f-b3d6-0f1e2d3c4b5a", "shop_queue-0": "c3a9b8d7-6e5f-4d3c-8b2a-1f0e9d8c7b6a"}
    for pod, uid in pods.items():
        host.file(f"/var/log/pods/{pod.split('_')[0]}_{pod.split('_')[1]}_{uid}/main/0.log", "")
    host.pseudo()
    host.mount("259:1", "/", "/", "ext4", "/dev/nvme0n1p1", probe=(1000202788864, 0.4), fstab="UUID=44444444-0000-4000-8000-000000000001")

    def record(path, **data):
        host.file(f"{path}/vol_data.json", json.dumps(data, separators=(",", ":")))

    # LVM driver: staged and published, with the pod's record.
    pv, driver, handle, uid = "pvc-7a1c9e42-3f6b-4f0e-8d5b-2a6c1e9f7b30", "lvm.csi.example.org", "pvc-7a1c", pods["shop_orders-db-0"]
    staged = f"{kubelet}/plugins/kubernetes.io/csi/{driver}/8b1f0a2c3d4e5f60718293a4b5c6d7e8f9000112233445566778899aabbccdd0"
    record(staged, driverName=driver, volumeHandle=handle)
    published = f"{kubelet}/pods/{uid}/volumes/kubernetes.io~csi/{pv}"
    record(published, attachmentID="csi-1f2e3d", driverName=driver, nodeName="node-1", specVolID=pv, volumeHandle=handle, volumeLifecycleMode="Persistent")
    host.mount("253:0", "/", f"{staged}/globalmount", "xfs", "/dev/mapper/data-pvc--7a1c", probe=(100 * G, 0.5))
    host.mount("253:0", "/", f"{published}/mount", "xfs", "/dev/mapper/data-pvc--7a1c", probe=(100 * G, 0.5))
    # Folder driver: no staging, a bind mount of a folder on the system disk.
    pv, driver, uid = "pvc-c0ffee00-1111-4222-8333-444455556666", "folders.csi.example.org", pods["lab_scratch-5d9f7b8c6-x2x9p"]
    published = f"{kubelet}/pods/{uid}/volumes/kubernetes.io~csi/{pv}"
    record(published, attachmentID="", driverName=driver, nodeName="node-1", specVolID=pv, volumeHandle="node-1#/srv/folders#" + pv, volumeLifecycleMode="Persistent")
    host.mount("259:1", f"/srv/folders/{pv}", f"{published}/mount", "ext4", "/dev/nvme0n1p1", probe=(1000202788864, 0.4))
    # Raw block volume of the first driver: the whole of sdb, bound for the pod, and the loop device with which the kubelet holds it.
    pv, driver, handle, uid = "pvc-b10cb10c-2222-4333-8444-555566667777", "lvm.csi.example.org", "raw-sdb", pods["shop_queue-0"]
    block = f"{kubelet}/plugins/kubernetes.io/csi/volumeDevices"
    record(f"{block}/{pv}/data", driverName=driver, volumeHandle=handle, specVolID=pv, nodeName="node-1", attachmentID="csi-4a5b6c")
    host.file(f"{block}/publish/{pv}/{uid}", "")
    host.file(f"{block}/{pv}/dev/{uid}", "")
    host.symlink(f"{kubelet}/pods/{uid}/volumeDevices/kubernetes.io~csi/{pv}", f"{block}/publish/{pv}/{uid}")
    host.mount("0:5", "/sdb", f"{block}/publish/{pv}/{uid}", "devtmpfs", "udev", "rw,nosuid,relatime")
    host.mount("0:5", "/sdb", f"{block}/{pv}/dev/{uid}", "devtmpfs", "udev", "rw,nosuid,relatime")
    host.virtual("loop0", "7:0", 960197124096, loop__backing_file=f"{block}/{pv}/dev/{uid}")
    host.done()


def no_udevd():
    """A machine on which udevd never ran: sysfs alone, with a SATA disk whose link was slowed down, a worn eMMC and a virtio disk."""
    host = Host("no-udevd", udev=False)
    disk = host.ata(3, "sda", "8:0", 4000787030016, "ST4000DM004-2CV104", "ZFN0ABCD", "0001", "5000c500b6c7d8e9", 1)
    host.partition(disk, "sda1", 1, "8:1", 1048576, 4000784416768)
    for key, value in dict(sata_spd="1.5 Gbps", sata_spd_limit="1.5 Gbps", hw_sata_spd_limit="<unknown>").items():
        host.file(f"/sys/class/ata_link/link3/{key}", value)
    card = "/sys/devices/platform/soc/fe330000.mmc/mmc_host/mmc0/mmc0:0001"
    sysfs = f"{card}/block/mmcblk0"
    host.block(sysfs, "179:0", 31268536320, busy=(2000, 0))
    host.link(f"{sysfs}/device", card)
    for key, value in dict(name="DG4032", serial="0x3f2a1b0c", fwrev="0x3000000000000000", type="MMC", manfid="0x000045", life_time="0x0b 0x02", pre_eol_info="0x01").items():
        host.file(f"{card}/{key}", value)
    host.partition(sysfs, "mmcblk0p1", 1, "179:1", 1048576, 31267487744)
    boot = f"{sysfs}/mmcblk0boot0"
    host.block(boot, "179:8", 4194304)
    host.link(f"{boot}/device", sysfs)
    device = "/sys/devices/pci0000:00/0000:00:02.0/virtio1"
    host.block(f"{device}/block/vda", "254:0", 8 * G, rotational=1, busy=(10, 0))
    host.link(f"{device}/block/vda/device", device)
    host.file(f"{device}/vendor", "0x1af4")
    host.file(f"{device}/block/vda/serial", "cache-7")
    host.pseudo()
    host.mount("179:1", "/", "/", "ext4", "/dev/mmcblk0p1", probe=(31267487744, 0.3), fstab="/dev/mmcblk0p1")
    host.mount("8:1", "/", "/srv", "ext4", "/dev/sda1", probe=(4000784416768, 0.1), fstab="/dev/sda1")
    host.done()


def smart_answer(name, model, serial, firmware, size, wwn, attributes, hours, celsius, passed=True, rotation=7200):
    """What `smartctl -j -x` prints for an ATA disk; `attributes` are (id, name, raw) or (id, name, raw, value, threshold)."""
    def row(number, title, raw, value=100, threshold=0):
        return {"id": number, "name": title, "value": value, "worst": value, "thresh": threshold, "when_failed": "now" if value <= threshold else "",
                "flags": {"value": 51, "string": "PO--CK ", "prefailure": threshold > 0}, "raw": {"value": raw, "string": str(raw)}}

    status = 0 if passed else 0x18
    rows = [row(*attribute) for attribute in attributes] + [row(9, "Power_On_Hours", hours), row(194, "Temperature_Celsius", celsius)]
    return status, {
        "json_format_version": [1, 0], "smartctl": {"version": [7, 4], "exit_status": status, "argv": ["smartctl", "-j", "-x", f"/dev/{name}"]},
        "device": {"name": f"/dev/{name}", "info_name": f"/dev/{name} [SAT]", "type": "sat", "protocol": "ATA"}, "in_smartctl_database": True,
        "model_name": model, "serial_number": serial, "firmware_version": firmware, "wwn": {"naa": 5, "oui": int(wwn[1:7], 16), "id": int(wwn[7:], 16)},
        "rotation_rate": rotation, "user_capacity": {"blocks": size // 512, "bytes": size}, "logical_block_size": 512, "physical_block_size": 4096,
        "smart_support": {"available": True, "enabled": True}, "smart_status": {"passed": passed},
        "ata_smart_attributes": {"revision": 16, "table": sorted(rows, key=lambda row: row["id"])},
        "power_on_time": {"hours": hours}, "temperature": {"current": celsius},
    }


def two_dying_disks():
    """A storage node with two dying disks and four smaller troubles: a mirror that lacks a disk, a thin pool that fills up, a worn SSD, a full filesystem."""
    host = Host("two-dying-disks")
    shutil.rmtree("two-dying-disks/exec", ignore_errors=True)
    hba = "/sys/devices/pci0000:00/0000:00:03.0/0000:03:00.0/host0"
    expander = f"{hba}/port-0:0/expander-0:0"
    ses = f"{expander}/port-0:0:12/end_device-0:0:12/target0:0:12/0:0:12:0/enclosure/0:0:12:0"
    host.file(f"{ses}/id", "0x500304801a2b3c7f")
    host.link("/sys/class/enclosure/0:0:12:0", ses)
    kinds = {
        "intel": ("INTEL SSDSC2KB960G8", "XCV10132", 960197124096, 0), "toshiba": ("TOSHIBA MG08ACA16TE", "0102", 16000900661248, 7200),
        "wd": ("WDC WD40EFRX-68N32N0", "82.00A82", 4000787030016, 5400), "micron": ("MTFDDAK480TDS-1AW1ZA", "D3MU001", 480103981056, 0),
    }
    well = ((5, "Reallocated_Sector_Ct", 0, 100, 10), (197, "Current_Pending_Sector", 0), (198, "Offline_Uncorrectable", 0), (199, "UDMA_CRC_Error_Count", 0))

    def bay(slot, kind, serial, attributes=well, hours=31207, celsius=34, passed=True):
        model, firmware, size, rotation = kinds[kind]
        name, minor, wwn = f"sd{'abcdefgh'[slot]}", 16 * slot, f"5000c500a1d{slot:05x}"
        place = f"{expander}/port-0:0:{slot}/end_device-0:0:{slot}"
        path, underscored = f"pci-0000:03:00.0-sas-exp0x500304801a2b3c7f-phy{slot}-lun-0", model.replace(" ", "_")
        disk = host.scsi(
            place, f"0:0:{slot}:0", name, f"8:{minor}", size, "ATA", model[:16], firmware[-4:], "mpt3sas", wwid=f"naa.{wwn}", serial=f"{serial:>20}",
            rotational=int(rotation > 0), physical=4096, busy=(700 + slot, 0), pg89=(model, serial, firmware),
            links=[f"disk/by-id/ata-{underscored}_{serial}", f"disk/by-id/wwn-0x{wwn}", f"disk/by-path/{path}"],
            udev=dict(ID_ATA="1", ID_BUS="ata", ID_MODEL=underscored, ID_MODEL_ENC=model.replace(" ", "\\x20"), ID_REVISION=firmware, ID_SERIAL=f"{underscored}_{serial}",
                      ID_SERIAL_SHORT=serial, ID_WWN=f"0x{wwn}", ID_WWN_WITH_EXTENSION=f"0x{wwn}", ID_PATH=path))
        device = f"{place}/target0:0:{slot}/0:0:{slot}:0"
        host.file(f"{ses}/Slot {slot:02}/type", "array device")
        host.file(f"{ses}/Slot {slot:02}/slot", slot)
        host.link(f"{ses}/Slot {slot:02}/device", device)
        host.link(f"{device}/enclosure_device:Slot {slot:02}", f"{ses}/Slot {slot:02}")
        status, answer = smart_answer(name, model, serial, firmware, size, wwn, attributes, hours, celsius, passed, rotation)
        host.file(f"/exec/smartctl/dev/{name}.json", json.dumps(answer, indent=1))
        host.file(f"/exec/smartctl/dev/{name}.exit", status)
        return disk, size

    def lv(minor, group, volume, size, below, status, **more):
        mapped = f"{group.replace('-', '--')}-{volume.replace('-', '--')}"
        return host.dm(minor, mapped, size, f"LVM-Zs8kQ0vYxUoWm1rT2nB3cD4eF5gH6iJ{minor}", below, status, DM_VG_NAME=group, DM_LV_NAME=volume, **more)

    uuid = lambda number: f"d15cd15c-0000-4000-8000-{number:012}"
    host.pseudo()
    # Slot 00 fails: the system, a filesystem and a pod's volume are on it.
    sda, _ = bay(0, "intel", "PHYF8421007W960CGN", (
        (5, "Reallocated_Sector_Ct", 1204, 1, 10), (187, "Uncorrectable_Error_Cnt", 3), (197, "Current_Pending_Sector", 24), (199, "UDMA_CRC_Error_Count", 0)), 44120, 41, passed=False)
    host.partition(sda, "sda1", 1, "8:1", 1048576, 100 * G, **fs("ext4", uuid(1)))
    host.partition(sda, "sda2", 2, "8:2", 1048576 + 100 * G, 300 * G, **fs("xfs", uuid(2)))
    pv = host.partition(sda, "sda3", 3, "8:3", 1048576 + 400 * G, 400 * G, **fs("LVM2_member", "abcdef-0123-4567-89ab-cdef-0123-000003"))
    lv(0, "data", "pvc-5e0d", 100 * G, [pv], "0 209715200 linear", **fs("ext4", uuid(3)))
    host.mount("8:1", "/", "/", "ext4", "/dev/sda1", probe=(100 * G, 0.4), fstab=f"UUID={uuid(1)}")
    host.mount("8:2", "/", "/srv/bay0", "xfs", "/dev/sda2", probe=(300 * G, 0.5), fstab=f"UUID={uuid(2)}")
    kubelet, driver, pod, volume = "/var/lib/kubelet", "lvm.csi.example.org", "5f0c2e71-0b1d-4f5a-8f5e-6a7b8c9d0e1f", "pvc-5e0d7a9c-1b2c-4d3e-8f90-a1b2c3d4e5f6"
    host.file(f"/var/log/pods/db_mysql-0_{pod}/main/0.log", "")
    staged, published = f"{kubelet}/plugins/kubernetes.io/csi/{driver}/{'5e0d' * 16}", f"{kubelet}/pods/{pod}/volumes/kubernetes.io~csi/{volume}"
    host.file(f"{staged}/vol_data.json", json.dumps(dict(driverName=driver, volumeHandle="pvc-5e0d"), separators=(",", ":")))
    host.file(f"{published}/vol_data.json", json.dumps(dict(
        attachmentID="csi-5e0d", driverName=driver, nodeName="node-1", specVolID=volume, volumeHandle="pvc-5e0d", volumeLifecycleMode="Persistent"), separators=(",", ":")))
    for point in (f"{staged}/globalmount", f"{published}/mount"):
        host.mount("253:0", "/", point, "ext4", "/dev/mapper/data-pvc--5e0d", probe=(100 * G, 0.3))
    # Slot 01 fails too.
    _, size = bay(1, "toshiba", "Y0A0A0QBFVNG", (
        (5, "Reallocated_Sector_Ct", 2088, 98, 50), (187, "Reported_Uncorrect", 19), (197, "Current_Pending_Sector", 312), (198, "Offline_Uncorrectable", 312), (199, "UDMA_CRC_Error_Count", 0)), 38551, 39)
    host.record("b8:16", ["disk/by-id/wwn-0x5000c500a1d00001"], ID_ATA="1", ID_BUS="ata", ID_MODEL="TOSHIBA_MG08ACA16TE", ID_SERIAL_SHORT="Y0A0A0QBFVNG",
                ID_WWN_WITH_EXTENSION="0x5000c500a1d00001", **fs("xfs", uuid(4)))
    host.mount("8:16", "/", "/srv/bay1", "xfs", "/dev/sdb", probe=(size, 0.7), fstab=f"UUID={uuid(4)}")
    # Slots 02 and 03 are a mirror; slot 03 is empty.
    sdc, size = bay(2, "wd", "WD-WX11D6PLACE2")
    md = host.virtual("md0", "9:0", size, md__level="raid1", md__raid_disks="2", md__degraded="1", md__array_state="clean", md__sync_action="idle", md__sync_completed="none", md__mismatch_cnt="0",
                      links=["disk/by-id/md-name-nas:0", "md/0"], udev=dict(MD_LEVEL="raid1", MD_NAME="nas:0", ID_FS_TYPE="LVM2_member", ID_FS_UUID="abcdef-0123-4567-89ab-cdef-0123-000009"))
    host.on(md, sdc)
    for key, value in dict(state="in_sync", slot="0", errors=0).items():
        host.file(f"{md}/md/dev-sdc/{key}", value)
    host.link(f"{md}/md/dev-sdc/block", sdc)
    lv(1, "vg-nas", "home-dirs", 2000 * G, [md], "0 4194304000 linear", **fs("ext4", uuid(5)))
    lv(2, "vg-nas", "mail", 500 * G, [md], "0 1048576000 linear", **fs("ext4", uuid(6)))
    host.mount("253:1", "/", "/home", "ext4", "/dev/mapper/vg--nas-home--dirs", probe=(2000 * G, 0.6), fstab="/dev/vg-nas/home-dirs")
    host.mount("253:2", "/", "/srv/mail", "ext4", "/dev/mapper/vg--nas-mail", probe=(500 * G, 0.2), fstab="/dev/vg-nas/mail")
    # Slot 04: a thin pool that fills up.
    sde, _ = bay(4, "wd", "WD-WX11D6PLACE4")
    meta = lv(3, "vg-thin", "pool-0_tmeta", 1 * G, [sde], "0 2097152 linear")
    data = lv(4, "vg-thin", "pool-0_tdata", 3000 * G, [sde], "0 6291456000 linear")
    pool = lv(5, "vg-thin", "pool-0", 3000 * G, [meta, data], "0 6291456000 thin-pool 7 41230/262144 46080/49152 - rw discard_passdown queue_if_no_space - 1024")
    lv(6, "vg-thin", "images", 2500 * G, [pool], "0 5242880000 thin 4000000000 5242879999", **fs("xfs", uuid(7)))
    host.mount("253:6", "/", "/srv/images", "xfs", "/dev/mapper/vg--thin-images", probe=(2500 * G, 0.8), fstab="/dev/vg-thin/images")
    # Slot 05: an SSD at the end of its designed life.
    _, size = bay(5, "micron", "2019289A1B5C", well + ((202, "Percent_Lifetime_Remain", 97, 3),), 40999, 36)
    host.record("b8:80", ["disk/by-id/wwn-0x5000c500a1d00005"], ID_ATA="1", ID_BUS="ata", ID_MODEL="MTFDDAK480TDS-1AW1ZA", ID_SERIAL_SHORT="2019289A1B5C",
                ID_WWN_WITH_EXTENSION="0x5000c500a1d00005", **fs("ext4", uuid(8)))
    host.mount("8:80", "/", "/srv/cache", "ext4", "/dev/sdf", probe=(size, 0.5), fstab=f"UUID={uuid(8)}")
    # Slot 06: a filesystem that is nearly full.
    _, size = bay(6, "wd", "WD-WX11D6PLACE6")
    host.record("b8:96", ["disk/by-id/wwn-0x5000c500a1d00006"], ID_ATA="1", ID_BUS="ata", ID_MODEL="WDC_WD40EFRX-68N32N0", ID_SERIAL_SHORT="WD-WX11D6PLACE6",
                ID_WWN_WITH_EXTENSION="0x5000c500a1d00006", **fs("ext4", uuid(9)))
    host.mount("8:96", "/", "/srv/archive", "ext4", "/dev/sdg", probe=None, fstab=f"UUID={uuid(9)}")
    host.probes["/srv/archive"] = {"statfs": {"total_bytes": 50 * G, "available_bytes": 400 * 1024**2, "used_bytes": 50 * G - 400 * 1024**2, "total_inodes": 3000000, "available_inodes": 2900000, "used_inodes": 100000}}
    host.done()


def megaraid_server():
    """A server with two arrays of a MegaRAID controller, one of which lacks a member: the kernel log and storcli say so. Its disks answer through the controller."""
    host = Host("megaraid-server")
    shutil.rmtree("megaraid-server/exec", ignore_errors=True)
    raid = "/sys/devices/pci0000:00/0000:00:01.0/0000:02:00.0/host0"
    host.link("/sys/class/scsi_host/host0", f"{raid}/scsi_host/host0")
    host.pseudo()

    def array(number, name, size, point, kind, uuid):
        wwn, serial, path = f"600605b00a1b2c3d2a1b2c3d4e5f607{number}", f"00{number}7605f4e3d2c1b2a3d2c1b0ab00506", f"pci-0000:02:00.0-scsi-0:2:{number}:0"
        host.scsi(raid, f"0:2:{number}:0", name, f"8:{16 * number}", size, "AVAGO", "MR9361-8i", "4.68", "megaraid_sas", wwid=f"naa.{wwn}", serial=serial, rotational=1,
                  links=[f"disk/by-id/wwn-0x{wwn}", f"disk/by-path/{path}"], busy=(900, 0),
                  udev=dict(ID_BUS="scsi", ID_MODEL="MR9361-8i", ID_VENDOR="AVAGO", ID_REVISION="4.68", ID_SCSI_SERIAL=serial, ID_SERIAL=f"3{wwn}", ID_SERIAL_SHORT=wwn,
                            ID_WWN_WITH_EXTENSION=f"0x{wwn}", ID_PATH=path, **fs(kind, uuid)))
        host.mount(f"8:{16 * number}", "/", point, kind, f"/dev/{name}", probe=(size, 0.5), fstab=f"UUID={uuid}")

    array(0, "sda", 480 * 10**9, "/", "ext4", "ce9a0000-0000-4000-8000-000000000001")
    array(1, "sdb", 24 * 10**12, "/srv/data", "xfs", "ce9a0000-0000-4000-8000-000000000002")
    # The controller numbers its disks with gaps. Number 11 is gone.
    for number in (8, 9, 10, 12, 13, 14):
        name, wwn, size = f"bus/0.megaraid,{number}", f"5000c500c9a{number:05x}", 8001563222016
        status, answer = smart_answer("bus/0", "ST8000NM000A-2KE101", f"WSD0A1{number:02}", "SN02", size, wwn, ((5, "Reallocated_Sector_Ct", 0, 100, 10), (197, "Current_Pending_Sector", 0)), 30100 + number, 33)
        host.file(f"/exec/smartctl/dev/{name}.json", json.dumps(answer, indent=1))
        host.file(f"/exec/smartctl/dev/{name}.exit", status)
    drives = [{"EID:Slt": f"252:{number - 8}", "DID": number, "State": "Onln", "DG": int(number > 9), "Size": "7.276 TB", "Intf": "SATA", "Med": "HDD"} for number in (8, 9, 10, 12, 13, 14)]
    host.file("/exec/storcli/show.json", json.dumps({"Controllers": [{
        "Command Status": {"CLI Version": "007.2807.0000.0000", "Controller": 0, "Status": "Success", "Description": "None"},
        "Response Data": {
            "Basics": {"Controller": 0, "Model": "AVAGO MegaRAID SAS 9361-8i", "PCI Address": "00:02:00:00"},
            "Status": {"Controller Status": "Optimal", "Any Offline VD Cache Preserved": "No", "BBU Status": 0},
            "HwCfg": {"BBU": "Present"},
            "VD LIST": [
                {"DG/VD": "0/0", "TYPE": "RAID1", "State": "Optl", "Access": "RW", "Consist": "Yes", "Cache": "RWBD", "Size": "447.034 GB", "Name": "system"},
                {"DG/VD": "1/1", "TYPE": "RAID6", "State": "Pdgd", "Access": "RW", "Consist": "Yes", "Cache": "RWBD", "Size": "21.827 TB", "Name": "data"}],
            "PD LIST": drives, "Cachevault_Info": [{"Model": "CVPM05", "State": "Optimal", "Temp": "28C"}]}}]}, indent=1))
    host.done()
    host.file("/dev/kmsg", "\n".join((
        "6,0,0,-;Linux version 6.18.44", "6,1,900000,-;Run /init as init process",
        "4,2,81000000,-;megaraid_sas 0000:02:00.0: 4711 (817300000s/0x0001/CRIT) - VD 01/1 is now PARTIALLY DEGRADED")))


def smart_array():
    """A server with two arrays of a Smart Array. One member of the second has failed, the spare is being filled, and the battery of the cache is dead; ssacli says so."""
    host = Host("smart-array")
    shutil.rmtree("smart-array/exec", ignore_errors=True)
    raid, path = "/sys/devices/pci0000:5b/0000:5b:00.0/0000:5c:00.0/host0", "pci-0000:5c:00.0-scsi-0:1:0"
    host.link("/sys/class/scsi_host/host0", f"{raid}/scsi_host/host0")
    host.pseudo()
    logical, uuid = [], "5a5a0000-0000-4000-8000-00000000000"
    for number, name, size, level, point, kind in ((0, "sda", 480 * 10**9, "RAID-1(1+0)", "/", "ext4"), (1, "sdb", 7200 * 10**9, "RAID-6", "/srv/data", "xfs")):
        wwn, dev = f"600508b1001c0000000000000000000{number + 1}", f"8:{16 * number}"
        host.scsi(raid, f"0:1:0:{number}", name, dev, size, "HPE", "LOGICAL VOLUME", "5.32", "smartpqi", wwid=f"naa.{wwn}", serial=f"PWXYZ0ARH0{number}", rotational=1, busy=(700, 0),
                  links=[f"disk/by-id/wwn-0x{wwn}", f"disk/by-path/{path}:{number}"],
                  udev=dict(ID_BUS="scsi", ID_MODEL="LOGICAL_VOLUME", ID_VENDOR="HPE", ID_REVISION="5.32", ID_SCSI_SERIAL=f"PWXYZ0ARH0{number}", ID_SERIAL=f"3{wwn}", ID_SERIAL_SHORT=wwn,
                            ID_WWN_WITH_EXTENSION=f"0x{wwn}", ID_PATH=f"{path}:{number}", **fs(kind, f"{uuid}{number}")))
        host.file(f"{raid}/target0:1:0/0:1:0:{number}/raid_level", level)
        host.mount(dev, "/", point, kind, f"/dev/{name}", probe=(size, 0.4), fstab=f"UUID={uuid}{number}")
        logical.append(wwn.upper())
    drive = lambda place, status, kind="Data Drive": f"""
      physicaldrive {place}
         Port: {place[:2]}
         Box: 1
         Bay: {place[-1]}
         Status: {status}
         Drive Type: {kind}
         Interface Type: SAS
         Size: 2.4 TB
         Drive exposed to OS: False"""
    volume = lambda number, size, level, status: f"""
      Logical Drive: {number}
         Size: {size}
         Fault Tolerance: {level}
         Status: {status}
         Unrecoverable Media Errors: None
         MultiDomain Status: OK
         Caching:  Enabled
         Unique Identifier: {logical[number - 1]}
         Disk Name: /dev/sd{"ab"[number - 1]}
         Drive Type: Data
         LD Acceleration Method: Controller Cache
"""
    array = lambda letter, status: f"""
   Array: {letter}
      Interface Type: SAS
      Unused Space: 0 MB (0.00%)
      Status: {status}
      Array Type: Data
"""
    host.file("/exec/ssacli/config.txt", "\n".join((
        "", "HPE Smart Array P408i-a SR Gen10 in Slot 0 (Embedded)", "   Bus Interface: PCI", "   Slot: 0", "   RAID 6 Status: Enabled", "   Controller Status: OK", "   Firmware Version: 5.32",
        "   Cache Status: Temporarily Disabled", "   Drive Write Cache: Disabled", "   No-Battery Write Cache: Disabled", "   Cache Backup Power Source: Batteries", "   Battery/Capacitor Count: 1",
        "   Battery/Capacitor Status: Failed (Replace Batteries)", "   Driver Name: smartpqi", "   PCI Address (Domain:Bus:Device.Function): 0000:5C:00.0", "",
        array("A", "OK"), volume(1, "447.10 GB", "1", "OK"), drive("1I:1:1", "OK"), drive("1I:1:2", "OK"),
        array("B", "Failed Physical Drive"), volume(2, "6.55 TB", "6", "Recovering, 54.28% complete"),
        *(drive(place, "OK") for place in ("1I:1:3", "1I:1:4", "2I:1:5", "2I:1:6")), drive("2I:1:7", "Failed"), drive("2I:1:8", "Rebuilding", "Spare Drive"), "")))
    host.done()


def adaptec():
    """A server with two arrays of an Adaptec controller. The second lacks a member and is being rebuilt onto another; write-back is forced without a battery. arcconf says so."""
    host = Host("adaptec")
    shutil.rmtree("adaptec/exec", ignore_errors=True)
    raid, path = "/sys/devices/pci0000:00/0000:00:03.0/0000:07:00.0/host0", "pci-0000:07:00.0-scsi-0:0"
    host.link("/sys/class/scsi_host/host0", f"{raid}/scsi_host/host0")
    host.pseudo()
    uuid = "ada90000-0000-4000-8000-00000000000"
    for number, name, size, title, point, kind in ((0, "sda", 240 * 10**9, "system", "/", "ext4"), (1, "sdb", 2 * 10**12, "data", "/srv/data", "xfs")):
        serial, dev = f"2B3D4F5{number}", f"8:{16 * number}"
        host.scsi(raid, f"0:0:{number}:0", name, dev, size, "Adaptec", title, "V1.0", "aacraid", serial=serial, rotational=1, busy=(500, 0), links=[f"disk/by-path/{path}:{number}:0"],
                  udev=dict(ID_BUS="scsi", ID_MODEL=title, ID_VENDOR="Adaptec", ID_REVISION="V1.0", ID_SCSI_SERIAL=serial, ID_SERIAL=f"SAdaptec_{title}_{serial}", ID_SERIAL_SHORT=serial,
                            ID_PATH=f"{path}:{number}:0", **fs(kind, f"{uuid}{number}")))
        host.mount(dev, "/", point, kind, f"/dev/{name}", probe=(size, 0.4), fstab=f"UUID={uuid}{number}")
    row = lambda indent, key, value: f"{' ' * indent}{key:<{41 - indent}}: {value}"
    title = lambda text: ["-" * 70, text, "-" * 70]
    part = lambda text: ["   " + "-" * 56, f"   {text}", "   " + "-" * 56]
    place = lambda slot: f"(Controller:1,Enclosure:0,Slot:{slot})"

    def device(number, name, level, status, size, segments):
        rows = (("Logical device name", name), ("RAID level", level), ("Status of logical device", status), ("Size", size), ("Stripe-unit size", "256 KB"), ("Write-cache setting", "Enabled"),
                ("Write-cache status", "On"), ("Partitioned", "Yes"), ("Protected by Hot-Spare", "No"), ("Failed stripes", "No"))
        return [f"Logical device number {number}", *(row(3, *it) for it in rows), *part("Logical device segment information"), *(row(3, *it) for it in segments), ""]

    def disk(number, state):
        rows = (("State", state), ("Supported", "Yes"), ("Reported Location", f"Enclosure 0, Slot {number}"), ("Serial number", f"WD-EXAMPLE{number:02}"), ("S.M.A.R.T.", "No"), ("S.M.A.R.T. warnings", 0))
        return [f"      Device #{number}", "         Device is a Hard drive", *(row(9, *it) for it in rows)]

    host.file("/exec/arcconf/getconfig.txt", "\n".join((
        "Controllers found: 1", *title("Controller information"), *(row(3, *it) for it in (("Controller Status", "Optimal"), ("Controller Model", "Adaptec 6405"), ("Defunct disk drive count", 1),
        ("Logical devices/Failed/Degraded", "2/0/1"))), *part("Controller ZMM Information"), row(3, "Status", "ZMM not installed"), "", *title("Logical device information"),
        *device(0, "system", 1, "Optimal", "228878 MB", (("Segment 0", f"Present {place(0)}      WD-EXAMPLE00"), ("Segment 1", f"Present {place(1)}      WD-EXAMPLE01"))),
        *device(1, "data", 10, "Degraded", "1906678 MB", (
            ("Group 0, Segment 0", f"Present {place(2)}      WD-EXAMPLE02"), ("Group 0, Segment 1", f"Rebuilding {place(3)}      WD-EXAMPLE03"),
            ("Group 1, Segment 0", f"Present {place(4)}      WD-EXAMPLE04"), ("Group 1, Segment 1", "Missing"))),
        *title("Physical Device information"), *(line for number, state in enumerate(("Online", "Online", "Online", "Rebuilding", "Online", "Failed")) for line in disk(number, state)),
        "", "Command completed successfully.")))
    host.file("/exec/arcconf/getstatus.txt", "\n".join((
        "Controllers found: 1", "Logical device Task:", *(row(3, *it) for it in (("Logical device", 1), ("Task ID", 102), ("Current operation", "Rebuild"), ("Status", "In Progress"),
        ("Priority", "High"), ("Percentage complete", 36))), "", "", "Command completed successfully.")))
    host.done()


def lvm_raid_integrity():
    """A mirror of LVM with integrity below each leg: one of its two disks has unreadable sectors, the other is old and its error recovery has no limit."""
    host = Host("lvm-raid-integrity")
    shutil.rmtree("lvm-raid-integrity/exec", ignore_errors=True)
    model, firmware, size = "TOSHIBA MG08ACA16TE", "0102", 16000900661248
    group = "LVM-Zs8kQ0vYxUoWm1rT2nB3cD4eF5gH6iJ7"
    well = ((5, "Reallocated_Sector_Ct", 0, 100, 10), (199, "UDMA_CRC_Error_Count", 0))
    legs = []
    for number, (name, serial, pending, hours) in enumerate((("sda", "Y0A0A0QBFVN1", 16, 20100), ("sdb", "4160A0MWF57H", 0, 61400))):
        wwn = f"500003999c{number:06}"
        disk = host.ata(number + 1, name, f"8:{16 * number}", size, model, serial, firmware, wwn, 1, timeout=30)
        host.record(f"b8:{16 * number}", [f"disk/by-id/wwn-0x{wwn}"], ID_ATA="1", ID_BUS="ata", ID_MODEL=model.replace(" ", "_"), ID_SERIAL_SHORT=serial,
                    ID_WWN_WITH_EXTENSION=f"0x{wwn}", ID_FS_TYPE="LVM2_member", ID_FS_USAGE="raid", ID_FS_UUID=f"abcdef-0123-4567-89ab-cdef-0123-00000{number}")
        status, answer = smart_answer(name, model, serial, firmware, size, wwn, well + ((197, "Current_Pending_Sector", pending),), hours, 35)
        timer = {"enabled": True, "deciseconds": 70} if pending else {"enabled": False}
        answer.update(ata_sct_capabilities={"value": 61, "error_recovery_control_supported": True}, ata_sct_erc={"read": timer, "write": timer})
        host.file(f"/exec/smartctl/dev/{name}.json", json.dumps(answer, indent=1))
        host.file(f"/exec/smartctl/dev/{name}.exit", status)
        lv = lambda at, volume, bytes, below, status: host.dm(
            5 * number + at, f"vg--data-{volume}", bytes, f"{group}{number}{at}", below, status, DM_VG_NAME="vg-data", DM_LV_NAME=volume)
        sectors = 8000 * G // 512
        meta = lv(0, f"home_rmeta_{number}", 4 * 1024**2, [disk], "0 8192 linear")
        tags = lv(1, f"home_rimage_{number}_imeta", 64 * G, [disk], f"0 {64 * G // 512} linear")
        origin = lv(2, f"home_rimage_{number}_iorig", 8000 * G, [disk], f"0 {sectors} linear")
        image = lv(3, f"home_rimage_{number}", 8000 * G, [tags, origin], f"0 {sectors} integrity {3 if pending else 0} {sectors} -")
        legs += [meta, image]
    home = host.dm(10, "vg--data-home", 8000 * G, f"{group}home", legs, f"0 {sectors} raid raid1 2 AA {sectors}/{sectors} idle 0 0 -",
                   DM_VG_NAME="vg-data", DM_LV_NAME="home", **fs("ext4", "77777777-0000-4000-8000-000000000010"))
    host.pseudo()
    host.mount("253:10", "/", "/home", "ext4", "/dev/mapper/vg--data-home", probe=(8000 * G, 0.4), fstab="/dev/vg-data/home")
    host.done()


def nvme_answer(number, model, serial, firmware, size, hours, spare=100, used=5):
    """What `smartctl -j -x` prints for an NVMe drive."""
    warning = 1 if spare < 10 else 0
    status = 8 if warning else 0
    return status, {
        "json_format_version": [1, 0], "smartctl": {"version": [7, 4], "exit_status": status, "argv": ["smartctl", "-j", "-x", f"/dev/nvme{number}"]},
        "device": {"name": f"/dev/nvme{number}", "info_name": f"/dev/nvme{number}", "type": "nvme", "protocol": "NVMe"},
        "model_name": model, "serial_number": serial, "firmware_version": firmware, "nvme_total_capacity": size, "nvme_number_of_namespaces": 1,
        "user_capacity": {"blocks": size // 512, "bytes": size}, "logical_block_size": 512, "smart_support": {"available": True, "enabled": True},
        "smart_status": {"passed": not warning, "nvme": {"value": warning}},
        "nvme_smart_health_information_log": dict(critical_warning=warning, temperature=38, available_spare=spare, available_spare_threshold=10, percentage_used=used, data_units_read=81000000,
                                                  data_units_written=910000000, host_reads=4100000000, host_writes=9900000000, controller_busy_time=41000, power_cycles=21, power_on_hours=hours,
                                                  unsafe_shutdowns=3, media_errors=0, num_err_log_entries=0, warning_temp_time=0, critical_comp_time=0),
        "temperature": {"current": 38}, "power_on_time": {"hours": hours}, "power_cycle_count": 21,
    }


def osd_label(uuid, role, **entries):
    """BlueStore's label (bluestore_bdev_label_t)."""
    text = lambda it: struct.pack("<I", len(it)) + it.encode()
    body = bytes.fromhex(uuid.replace("-", "")) + bytes(16) + text(role) + struct.pack("<I", len(entries)) + b"".join(text(key) + text(value) for key, value in entries.items())
    return (b"bluestore block device\n" + uuid.encode() + b"\n" + struct.pack("<BBI", 2, 1, len(body)) + body).ljust(4096, b"\0")


def zfs_label(pool, state):
    """The first label of a member, up to the end of its nvlist: 1 is exported."""
    text = lambda it: struct.pack(">I", len(it)) + it.encode().ljust((len(it) + 3) // 4 * 4, b"\0")
    pair = lambda body: struct.pack(">II", len(body) + 8, len(body) + 8) + body
    name = pair(text("name") + struct.pack(">II", 9, 1) + text(pool))
    return bytes(16384) + struct.pack(">BBHII", 1, 1, 0, 0, 1) + name + pair(text("state") + struct.pack(">IIQ", 8, 1, state)) + bytes(8)


def ceph_node():
    """A node of Rook: four OSDs on LVM of which an NVMe drive at the end of its life has the DBs, and two on raw block volumes."""
    host = Host("ceph-node")
    shutil.rmtree("ceph-node/exec", ignore_errors=True)
    fsid, size = "9b1f7c52-3d0e-4a86-b7c4-1e5d2f6a8b90", 16000900661248

    def smart(name, answer):
        host.file(f"/exec/smartctl/dev/{name}.json", json.dumps(answer[1], indent=1))
        host.file(f"/exec/smartctl/dev/{name}.exit", answer[0])

    system = host.nvme(0, "0000:00:1d.0/0000:05:00.0", "INTEL SSDPE2KX010T8", "BTLJ9050021A1P0CEP", "VDV10131", "259:0", 1000204886016, nguid="01000000-0100-0000-5cd2-e4abcd125152")
    root = "ce9b0000-0000-4000-8000-000000000001"
    host.partition(system, "nvme0n1p1", 1, "259:1", 1048576, 1000202788864, [f"disk/by-uuid/{root}"], **fs("ext4", root))
    smart("nvme0", nvme_answer(0, "INTEL SSDPE2KX010T8", "BTLJ9050021A1P0CEP", "VDV10131", 1000204886016, 26100))
    host.pseudo()
    host.mount("259:1", "/", "/", "ext4", "/dev/nvme0n1p1", probe=(1000202788864, 0.3), fstab=f"UUID={root}")
    dbs = host.nvme(1, "0000:00:1d.1/0000:06:00.0", "SAMSUNG MZQLB1T9HAJR-00007", "S439NA0R500123", "EDA5402Q", "259:2", 1920383410176, eui="00 25 38 4a 01 b2 c3 d4")
    pv = lambda number: dict(ID_FS_TYPE="LVM2_member", ID_FS_USAGE="raid", ID_FS_UUID=f"ceph00-0123-4567-89ab-cdef-0123-00000{number}")
    host.record("b259:2", ["disk/by-id/nvme-eui.0025384a01b2c3d4"], ID_MODEL="SAMSUNG_MZQLB1T9HAJR-00007", ID_SERIAL_SHORT="S439NA0R500123", ID_WWN="eui.0025384a01b2c3d4", **pv(9))
    smart("nvme1", nvme_answer(1, "SAMSUNG MZQLB1T9HAJR-00007", "S439NA0R500123", "EDA5402Q", 1920383410176, 41200, spare=4, used=112))
    bluestore = dict(ID_FS_TYPE="ceph_bluestore", ID_FS_USAGE="other")

    def disk(number):
        name, serial, wwn = f"sd{'abcdef'[number]}", f"ZL2B{number}X0C", f"5000c500ce{number:06}"
        sysfs = host.ata(number + 1, name, f"8:{16 * number}", size, "ST16000NM001G-2KK103", serial, "SN03", wwn, 1)
        record = lambda **content: host.record(f"b8:{16 * number}", [f"disk/by-id/wwn-0x{wwn}"], ID_ATA="1", ID_BUS="ata", ID_MODEL="ST16000NM001G-2KK103", ID_SERIAL_SHORT=serial,
                                               ID_WWN_WITH_EXTENSION=f"0x{wwn}", **content)
        smart(name, smart_answer(name, "ST16000NM001G-2KK103", serial, "SN03", size, wwn, ((5, "Reallocated_Sector_Ct", 0, 100, 10), (197, "Current_Pending_Sector", 0)), 26000 + number, 31))
        return sysfs, record

    lv = lambda minor, group, volume, bytes, below: host.dm(
        minor, f"{group.replace('-', '--')}-{volume.replace('-', '--')}", bytes, f"LVM-{group[5:37]:32}{minor:032}", [below], f"0 {bytes // 512} linear", DM_VG_NAME=group, DM_LV_NAME=volume, **bluestore)
    group = "ceph-5a0c7d1e-db00-4d7b-9a51-6c3e2f1d0b99"
    for osd in range(4):
        sysfs, record = disk(osd)
        record(**pv(osd))
        uuid = f"0d4f6c1e-8a3b-4f57-9c21-5b6d7e8f9a0{osd}"
        lv(osd, f"ceph-7e1b2c3d-b10c-4e5f-8a9b-0c1d2e3f4a5{osd}", f"osd-block-{uuid}", size - 4 * 1024**2, sysfs)
        host.file(f"/exec/devices/dm-{osd}", osd_label(uuid, "main", ceph_fsid=fsid, ready="ready", whoami=str(osd)))
        lv(osd + 4, group, f"osd-db-3c2d1e0f-db0{osd}-4b5a-8c7d-9e0f1a2b3c4d", 440 * G, dbs)
        host.file(f"/exec/devices/dm-{osd + 4}", osd_label(uuid, "bluefs db"))
    kubelet, driver = "/var/lib/kubelet", "local.csi.example.org"
    block = f"{kubelet}/plugins/kubernetes.io/csi/volumeDevices"
    for osd in (4, 5):
        name, pv_name, uid = f"sd{'abcdef'[osd]}", f"pvc-0e5d0e5d-000{osd}-4333-8444-555566667777", f"c3a9b8d7-6e5f-4d3c-8b2a-1f0e9d8c7b0{osd}"
        disk(osd)[1](**bluestore)
        host.file(f"/exec/devices/{name}", osd_label(f"1e5f7a2b-9c4d-4068-ad32-6c7e8f9a0b1{osd}", "main", ceph_fsid=fsid, ready="ready", whoami=str(osd)))
        host.file(f"/var/log/pods/rook-ceph_rook-ceph-osd-{osd}-6d9f7b8c{osd}-x2x9p_{uid}/osd/0.log", "")
        host.file(f"{block}/{pv_name}/data/vol_data.json", json.dumps(dict(driverName=driver, volumeHandle=f"disk-{name}", specVolID=pv_name, nodeName="node-1", attachmentID=""), separators=(",", ":")))
        host.file(f"{block}/publish/{pv_name}/{uid}", "")
        host.file(f"{block}/{pv_name}/dev/{uid}", "")
        host.symlink(f"{kubelet}/pods/{uid}/volumeDevices/kubernetes.io~csi/{pv_name}", f"{block}/publish/{pv_name}/{uid}")
        host.mount("0:5", f"/{name}", f"{block}/publish/{pv_name}/{uid}", "devtmpfs", "udev", "rw,nosuid,relatime")
        host.mount("0:5", f"/{name}", f"{block}/{pv_name}/dev/{uid}", "devtmpfs", "udev", "rw,nosuid,relatime")
        host.virtual(f"loop{osd - 4}", f"7:{osd - 4}", size, loop__backing_file=f"{block}/{pv_name}/dev/{uid}")
    host.done()


def proxmox():
    """A host of virtual machines: a mirror with their zvols, one disk of which has unreadable sectors; a disk with two signatures, and one of an exported pool."""
    host = Host("proxmox")
    shutil.rmtree("proxmox/exec", ignore_errors=True)
    host.pseudo()
    pool, model, size = "9917263545281736451", "SAMSUNG MZ7L31T9HBLT-00A07", 1920383410176
    members = []
    for number in range(4):
        name, serial, wwn = f"sd{'abcd'[number]}", f"S6ESNA0T10{number}", f"5002538f{number + 1:08}"
        disk = host.ata(number + 1, name, f"8:{16 * number}", size, model, serial, "JXTC304Q", wwn, 0)
        pending = 24 if number == 1 else 0
        status, answer = smart_answer(name, model, serial, "JXTC304Q", size, wwn, ((5, "Reallocated_Sector_Ct", 0, 100, 10), (197, "Current_Pending_Sector", pending)), 19800 + number, 30, rotation=0)
        host.file(f"/exec/smartctl/dev/{name}.json", json.dumps(answer, indent=1))
        host.file(f"/exec/smartctl/dev/{name}.exit", status)
        part = lambda index, start, bytes, **content: host.partition(disk, f"{name}{index}", index, f"8:{16 * number + index}", start, bytes, **content)
        if number < 2:
            part(1, 17408, 1031168)
            part(2, 1048576, G, **fs("vfat", f"5A1D-00{number:02}"))
            part(3, G + 1048576, size - 2 * G, **zfs_member("rpool", pool, f"885500000000000000{number}"))
            members.append((f"/dev/disk/by-id/ata-{model.replace(' ', '_')}_{serial}-part3", int(f"885500000000000000{number}"), "ONLINE"))
    old = bytearray(4096)
    old[:4], old[32:48], old[536:544] = b"XFSB", bytes(range(16)), b"LVM2 001"
    host.file("/exec/devices/sdc", bytes(old))
    host.partition(disk, "sdd1", 1, "8:49", 1048576, size - 16 * 1024**2, **zfs_member("backup", "5512340987651234098", "7700000000000000001"))
    host.file("/exec/devices/sdd1", zfs_label("backup", 1))
    host.file("/exec/zpool/rpool.json", zpool_status("rpool", int(pool), "ONLINE", [("mirror-0", 3300000000000000077, "ONLINE", members)], []))
    host.file("/proc/spl/kstat/zfs/arcstats", "9 1 0x01 147 39984 4711 4812")
    host.file("/proc/spl/kstat/zfs/rpool/state", "ONLINE")
    host.file("/proc/spl/kstat/zfs/rpool/guid", pool)
    for number, (dataset, point) in enumerate((("rpool/ROOT/pve-1", "/"), ("rpool", "/rpool"), ("rpool/data", "/rpool/data"))):
        host.mount(f"0:{50 + number}", "/", point, "zfs", dataset, "rw,relatime", "rw,xattr,noacl", probe=(1700 * G, 0.4))
    for number, volume in enumerate(("vm-100-disk-0", "vm-100-disk-1", "vm-101-disk-0", "vm-102-cloudinit")):
        zvol = host.virtual(f"zd{16 * number}", f"230:{16 * number}", 32 * G, links=[f"zvol/rpool/data/{volume}"], udev=dict(ID_PART_TABLE_TYPE="gpt") if number == 0 else {})
        if number == 0:
            host.partition(zvol, "zd0p1", 1, "230:1", 1048576, 31 * G, [f"zvol/rpool/data/{volume}-part1"], **fs("ext4", "10000000-0000-4000-8000-000000000100"))
    host.done()


def gateway():
    """A small board: an eMMC that is worn out, a UFS device that is well, a NVMe drive of four lanes in a slot of two, and one with two ports, one of which is gone."""
    host = Host("gateway")
    card = "/sys/devices/platform/fe310000.mmc/mmc_host/mmc0/mmc0:0001"
    emmc = f"{card}/block/mmcblk0"
    host.block(emmc, "179:0", 31268536320, links=["disk/by-id/mmc-DG4032_0x4b3c2d1e"], udev=dict(ID_NAME="DG4032", ID_SERIAL="0x4b3c2d1e", ID_PATH="platform-fe310000.mmc"), busy=(9000, 0))
    host.link(f"{emmc}/device", card)
    for key, value in dict(type="MMC", name="DG4032", serial="0x4b3c2d1e", manfid="0x000045", fwrev="0x3433303130000000", life_time="0x0b 0x03", pre_eol_info="0x01").items():
        host.file(f"{card}/{key}", value)
    host.partition(emmc, "mmcblk0p1", 1, "179:1", 1048576, 31266439168, **fs("ext4", "aaaaaaaa-0000-4000-8000-000000000001"))
    ufs = "/sys/devices/platform/soc/1d84000.ufshc"
    lun = host.scsi(f"{ufs}/host0", "0:0:0:0", "sda", "8:0", 128035676160, "KIOXIA", "THGJFGT0T25BAIL", "0305", "ufshcd", serial="0020", rotational=0, physical=4096,
                    links=["disk/by-path/platform-1d84000.ufshc-scsi-0:0:0:0"], udev=dict(ID_BUS="scsi", ID_MODEL="THGJFGT0T25BAIL", ID_VENDOR="KIOXIA", ID_REVISION="0305", ID_PATH="platform-1d84000.ufshc-scsi-0:0:0:0"))
    for key, value in dict(eol_info="0x01", life_time_estimation_a="0x02", life_time_estimation_b="0x00").items():
        host.file(f"{ufs}/health_descriptor/{key}", value)
    host.file(f"{ufs}/power/runtime_status", "active")
    host.partition(lun, "sda1", 1, "8:1", 1048576, 128033579008, **fs("ext4", "aaaaaaaa-0000-4000-8000-000000000002"))
    disk = host.nvme(0, "0000:00:01.0/0000:01:00.0", "KBG50ZNV512G KIOXIA", "Y2SPH0A1B2C3", "AEAA0102", "259:0", 512110190592, eui="8c e3 8e 05 01 2a 3b 4c")
    function = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    for key, value in dict(current_link_width=2, max_link_width=4, current_link_speed="8.0 GT/s PCIe", max_link_speed="16.0 GT/s PCIe", power_state="D0", power__runtime_status="active").items():
        host.file(f"{function}/{key.replace('__', '/')}", value)
    host.file(f"{disk}/stat", "5000 0 40000 20 5000 0 40000 40 0 60 60")
    host.partition(disk, "nvme0n1p1", 1, "259:1", 1048576, 512107044864, **fs("xfs", "aaaaaaaa-0000-4000-8000-000000000003"))
    # The kernel sends I/O to the head, below the subsystem, over its paths below the controllers.
    nqn, model, serial = "nqn.1994-11.com.samsung:nvme:PM1735:2.5-inch:S5RZNX0R000001", "SAMSUNG MZWLJ3T8HBLS-00007", "S5RZNX0R000001"
    subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys1"
    shared = dict(model=f"{model:40}", serial=f"{serial:20}", firmware_rev="EPK9CB5Q", subsysnqn=nqn)
    for key, value in dict(shared, iopolicy="numa").items():
        host.file(f"{subsystem}/{key}", value)
    host.link("/sys/class/nvme-subsystem/nvme-subsys1", subsystem)
    for number, (bus, state) in enumerate((("0000:02:00.0", "live"), ("0000:03:00.0", "dead")), 1):
        controller = f"/sys/devices/pci0000:00/0000:00:0{number + 1}.0/{bus}/nvme/nvme{number}"
        for key, value in dict(shared, transport="pcie", state=state).items():
            host.file(f"{controller}/{key}", value)
        host.link(f"/sys/class/nvme/nvme{number}", controller)
        host.link(f"{subsystem}/nvme{number}", controller)
        host.file(f"{controller}/nvme1c{number}n1/ana_state", "optimized")
    host.block(f"{subsystem}/nvme1n1", "259:2", 3840755982336, links=["disk/by-id/nvme-eui.3456789012345678002538b100000001"], busy=(700, 0),
               udev=dict(ID_MODEL=model.replace(" ", "_"), ID_SERIAL_SHORT=serial, ID_WWN="eui.3456789012345678002538b100000001", **fs("xfs", "aaaaaaaa-0000-4000-8000-000000000004")))
    host.file(f"{subsystem}/nvme1n1/nsid", 1)
    host.file(f"{subsystem}/nvme1n1/wwid", "eui.3456789012345678002538b100000001")
    host.pseudo()
    for number, (dev, point, kind, device, size) in enumerate((("179:1", "/", "ext4", "mmcblk0p1", 31266439168), ("8:1", "/srv/log", "ext4", "sda1", 128033579008),
                                                               ("259:1", "/srv/cache", "xfs", "nvme0n1p1", 512107044864), ("259:2", "/srv/data", "xfs", "nvme1n1", 3840755982336)), 1):
        host.mount(dev, "/", point, kind, f"/dev/{device}", probe=(size, 0.4), fstab=f"UUID=aaaaaaaa-0000-4000-8000-00000000000{number}")
    host.done()


if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    for make in (nvme_laptop, sas_12_bay, lvm_on_md, multipath, usb, vm_virtio, kubernetes_node, no_udevd, two_dying_disks, degraded_arrays, megaraid_server, smart_array, adaptec, lvm_raid_integrity, zfs_nas, ceph_node, proxmox, gateway):
        make()
