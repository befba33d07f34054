//! A log that was not understood says nothing, and is no clean log.

use crate::kernel_log_analysis::LogHealth;
use crate::tests::{ONE, read};
use diskvitals_kernel_log::fault::DriveFault;

/// Health, records, lines not understood.
fn understood(text: &str) -> (LogHealth, u64, u64) {
    let answer = read(text.as_bytes());
    (answer.health, answer.records, answer.lines_not_understood)
}

#[test]
fn a_file_without_a_record_of_the_kernel_is_unknown() {
    let prose = "The disk makes noises.\nI replaced the cable yesterday, without success.\n";
    let config = "server: example.org\nport: 8080\nlevel: info\n";
    let json = "{\n  \"smartctl\": {\n    \"version\": [7, 4]\n  }\n}\n";
    for (text, not_understood) in [("", 0), ("\n\n", 0), (prose, 2), (config, 3), (json, 2)] {
        assert_eq!(understood(text), (LogHealth::Unknown, 0, not_understood), "{text}");
    }
    for text in [
        "dmesg: read kernel buffer failed: Operation not permitted\n",
        "No journal files were found.\n-- No entries --\n",
        "NAME   MAJ:MIN RM   SIZE RO TYPE MOUNTPOINTS\nsda      8:0    0 465.8G  0 disk\n",
        "Personalities : [raid1]\nmd0 : active raid1 sdb1[1] sda1[0]\n      1953382464 blocks super 1.2 [2/2] [UU]\n\nunused devices: <none>\n",
        "  pool: tank\n state: ONLINE\nconfig:\n\n\tNAME        STATE     READ WRITE CKSUM\n",
        "=== START OF INFORMATION SECTION ===\nDevice Model:     DISK\nSerial Number:    0001\n",
        "<html><body><p>404 Not Found</p></body></html>\n",
        "\u{1}\u{2}PNG\n\u{0}\u{0}\n",
    ] {
        assert_eq!(understood(text).0, LogHealth::Unknown, "{text}");
    }
    // Lines of programs are understood; the kernel wrote none of them.
    let programs = "Nov  7 16:01:25 host sshd[812]: Accepted publickey for root\n\
        Nov  7 16:01:26 host cron[13]: (root) CMD (true)\n-- No entries --\n";
    assert_eq!(understood(programs), (LogHealth::Unknown, 0, 0));
    let container = "2024-01-02T03:04:05.123456789Z stdout F GET /index.html 200\n\
        2024-01-02T03:04:06.123456789Z stderr F done: yes\n";
    assert_eq!(understood(container), (LogHealth::Unknown, 0, 0));
    assert_eq!(read(b"x\n").drive_fault, DriveFault::Unclear);
}

#[test]
fn records_of_which_none_is_about_storage_are_clean() {
    for text in [
        "[    0.0] Linux version 6.1.0\n[    1.0] usb 1-1: new high-speed USB device number 2\n",
        "Linux version 6.1.0\nusb 1-1: new high-speed USB device number 2 using xhci_hcd\ne1000e 0000:00:19.0 eth0: NIC Link is Up\n",
        "Nov  7 16:01:25 host sshd[812]: x\nNov  7 16:01:25 host kernel: eth0: link up\nNov  7 16:01:25 host cron[3]: x\n",
        "6,1,2,-;eth0: link up\n SUBSYSTEM=net\n12,2,3,-;systemd[1]: x\n",
    ] {
        assert_eq!(understood(text).0, LogHealth::Clean, "{text}");
        assert_eq!(read(text.as_bytes()).drive_fault, DriveFault::No);
    }
}

#[test]
fn less_than_half_understood_is_unknown_unless_an_error_is_among_it() {
    let prose = "Since the update the machine is slow.\nWhat can be the cause of this?\n\n";
    let boot = "[    1.0] usb 1-1: new high-speed USB device number 2\n";
    let answer = read(format!("{prose}{boot}{prose}").as_bytes());
    assert_eq!(
        (answer.health, answer.records, answer.lines_not_understood),
        (LogHealth::Unknown, 1, 4)
    );
    let example = answer.example.expect("a line that was not understood");
    assert_eq!((example.line, example.text.as_str()), (1, "Since the update the machine is slow."));
    assert_eq!(understood(&format!("{prose}{boot}{boot}")), (LogHealth::Clean, 2, 2));
    let answer = read(format!("{prose}[    1.0] {ONE}\n\n{prose}").as_bytes());
    assert_eq!(
        (answer.health, answer.drive_fault, answer.lines_not_understood),
        (LogHealth::Errors, DriveFault::Yes, 4)
    );
}

/// A trace, a hexdump, an indented or a wrapped line belong to the record before them.
#[test]
fn further_lines_of_a_record_are_understood() {
    let text = "Nov  7 16:01:25 host kernel: INFO: task dd:1 blocked for more than 120 seconds.\n\
        Call Trace:\n __schedule+0x2eb/0x8d0\n schedule+0x5b/0xd0\n\
        00000000: 58 41 47 46 00 00 00 01 00 00 00 00 00 0f ff f8  XAGF............\n";
    assert_eq!(understood(text), (LogHealth::Clean, 1, 0));
}

#[test]
fn a_log_of_another_kind_in_json_lines_is_not_understood() {
    let text = "{\"a\":1}\n{\"b\":[]}\n";
    assert_eq!(understood(text), (LogHealth::Unknown, 0, 2));
    let journal = r#"{"_TRANSPORT":"syslog","MESSAGE":"x"}"#;
    assert_eq!(understood(journal), (LogHealth::Unknown, 0, 0));
}

/// `dmesg -t` also prints what programs wrote to the kernel's log.
#[test]
fn a_program_in_a_log_without_headers_hides_no_record() {
    let text = format!("Linux version 6.1.0\nsystemd[1]: Started x.\n{ONE}\nsystemd[1]: {ONE}\n");
    let answer = read(text.as_bytes());
    assert_eq!((answer.health, answer.records), (LogHealth::Errors, 2));
    assert_eq!(answer.classes.values().sum::<u64>(), 1);
}
