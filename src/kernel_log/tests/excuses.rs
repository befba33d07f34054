//! Records that would excuse an error prove nothing where sysfs knows the devices: in the daemon.

use super::*;
use crate::event::{Blame, Class, DeviceName};

fn in_the_daemon(lines: &[&str]) -> Vec<Event> {
    let mut classifier =
        Classifier::new(ClassifierOptions { knows_devices: true, ..ClassifierOptions::default() });
    let mut events = Vec::new();
    for (seq, line) in (1..).zip(lines) {
        let record = Record::from_text(seq, 60_000_000 + seq * 1000, line);
        classifier.push(&record, Timestamp::UNIX_EPOCH, &mut events);
    }
    classifier.finish(Timestamp::UNIX_EPOCH, &mut events);
    events
}

/// The incidents that the last line decides.
fn shown(lines: &[&str]) -> Vec<String> {
    let events = in_the_daemon(lines);
    let last = lines.last().copied().unwrap_or_default();
    let decided = events.iter().filter(|it| it.last.text == last);
    decided.filter(|it| it.count > 0).map(show).collect()
}

const NVME: &str =
    "I/O error, dev nvme0n1, sector 4096 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2";
const NVME_TIMEOUT: &str = "nvme nvme0: I/O 5 QID 1 timeout, aborting";
const SDA: &str = "I/O error, dev sda, sector 4096 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2";
const SENSE: &str = "sd 0:0:0:0: [sda] tag#1 Sense Key : Medium Error [current] ";

/// Whatever stands before it, the error means what it means alone.
#[test]
fn a_record_of_an_outage_or_of_a_kind_of_device_excuses_no_error() {
    let excuses = [
        "pcieport 0000:00:01.0: pciehp: Slot(1): Link Down",
        "pcieport 0000:00:01.0: pciehp: Slot(1): Card not present",
        "pciehp 0000:00:01.0:pcie04: Slot(1): Link Down",
        "pciehp 0000:00:01.0:pcie04: Card not present on Slot(1)",
        "scsi host0: usb-storage 1-1:1.0",
        "scsi host0: uas",
        "scsi host0: iSCSI Initiator over TCP/IP",
        "scsi host0: qla2xxx",
        " connection1:0: detected conn error (1020)",
        " session1: session recovery timed out after 120 secs",
        " rport-0:0-1: blocked FC remote port time out: removing target and saving binding",
        "scsi 0:0:0:0: CD-ROM            QEMU     QEMU DVD-ROM     2.5+ PQ: 0 ANSI: 5",
        "scsi 0:0:0:0: Enclosure         X        Y                1    PQ: 0 ANSI: 5",
        "scsi 0:0:0:0: Direct-Access     QEMU     QEMU HARDDISK    2.5+ PQ: 0 ANSI: 5",
        "ata1.00: ATA-7: QEMU HARDDISK, 2.5+, max UDMA/100",
        "Hypervisor detected: KVM",
        "DMI: QEMU Standard PC (Q35 + ICH9, 2009), BIOS 1.16.2 04/01/2014",
        "Linux version 6.1.0-1 (x@y) (gcc) #1 SMP",
        "nvme nvme0: rescanning namespaces.",
        "nvme nvme0: new ctrl: NQN \"nqn.x\", addr 10.0.0.1:4420",
    ];
    for error in [NVME, NVME_TIMEOUT, SDA, SENSE] {
        let alone = shown(&[error]);
        assert_eq!(alone.len(), 1, "{error}");
        for excuse in excuses {
            assert_eq!(shown(&[excuse, error]), alone, "{excuse}\n{error}");
        }
        assert_eq!(shown(&[&excuses[..], &[error]].concat()), alone, "{error}");
    }
}

/// A log that is analyzed later has no other witness: there, they still explain errors.
#[test]
fn in_a_file_an_empty_slot_explains_the_errors_of_its_drive() {
    let lines = format!("pcieport 0000:00:01.0: pciehp: Slot(1): Link Down\n{NVME}");
    assert_eq!(classify_to_text(&lines), "removed nvme0n1 no 4096");
}

/// What the kernel prints at its start, before any program runs, is believed.
#[test]
fn a_hypervisor_is_believed_at_the_start_of_the_kernel_only() {
    let blame = |at: u64| {
        let mut classifier = Classifier::new(ClassifierOptions {
            knows_devices: true,
            ..ClassifierOptions::default()
        });
        let mut events = Vec::new();
        for (seq, time, text) in
            [(1, at, "Hypervisor detected: KVM"), (2, 90_000_000, NVME_TIMEOUT)]
        {
            let record = Record::from_text(seq, time, text);
            classifier.push(&record, Timestamp::UNIX_EPOCH, &mut events);
        }
        events[0].blame
    };
    assert_eq!((blame(0), blame(60_000_000)), (Blame::No, Blame::Unclear));
}

/// A piece of a line is neither evidence nor excuse, whatever it says, nor does it end an incident.
#[test]
fn a_piece_of_a_line_is_neither_evidence_nor_excuse() {
    for text in
        [SENSE, SDA, NVME, "sd 0:0:0:0: [sda] Attached SCSI disk", "312 callbacks suppressed"]
    {
        let mut classifier = Classifier::new(ClassifierOptions::default());
        let mut events = Vec::new();
        let mut piece = Record::from_text(1, 1, text);
        piece.begins_line = false;
        classifier.push(&piece, Timestamp::UNIX_EPOCH, &mut events);
        classifier.push(&Record::from_text(2, 2, SENSE), Timestamp::UNIX_EPOCH, &mut events);
        classifier.finish(Timestamp::UNIX_EPOCH, &mut events);
        assert!(classifier.take_name_assignments().is_empty(), "{text}");
        let [event] = &events[..] else {
            panic!("{text}: {events:?}");
        };
        assert_eq!((event.class, event.suppressed), (Class::Medium, 0), "{text}");
        assert_eq!(event.device, DeviceName::Block("sda".into()), "{text}");
    }
}
