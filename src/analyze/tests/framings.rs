//! The same incident in every framing, wrapped at any column: the same events as from the plain
//! form.

use proptest::prelude::*;

use crate::kernel_log_analysis::{KernelLogAnalysis, LogHealth};
use crate::tests::read;

/// Records of several layers, some longer than a line of a mail.
const RECORDS: [&str; 12] = [
    "ata3.00: exception Emask 0x0 SAct 0x100000 SErr 0x0 action 0x0",
    "ata3.00: irq_stat 0x40000008",
    "ata3.00: failed command: READ FPDMA QUEUED",
    "ata3.00: error: { UNC }",
    "ata3: EH complete",
    "sd 2:0:0:0: [sdb] tag#3 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_OK cmd_age=3s",
    "sd 2:0:0:0: [sdb] tag#3 Sense Key : Medium Error [current]",
    "sd 2:0:0:0: [sdb] tag#3 Add. Sense: Unrecovered read error - auto reallocate failed",
    "sd 2:0:0:0: [sdb] tag#3 CDB: Read(10) 28 00 11 22 33 44 00 00 08 00",
    "blk_update_request: critical medium error, dev sdb, sector 287454020 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 0",
    "EXT4-fs error (device sdc1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0",
    "XFS (sdd1): metadata I/O error in \"xfs_trans_read_buf_map+0x1b0/0x2f0 [xfs]\" at daddr 0x74706db0 len 32 error 5",
];

/// Each record, as a framing prints it; `number` counts from 0.
fn framed(frame: impl Fn(usize, &str) -> String) -> String {
    let lines: Vec<String> =
        RECORDS.iter().enumerate().map(|(number, text)| frame(number, text)).collect();
    lines.join("\n") + "\n"
}

fn plain() -> String {
    framed(|number, text| format!("[  100.00000{}] {text}", number % 10))
}

/// The whole result, without the numbers of the lines.
fn summary(answer: &KernelLogAnalysis) -> String {
    let events: Vec<String> = answer
        .events
        .iter()
        .map(|event| {
            let text = event.text.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("{} {} {text}", event.class.name(), event.device)
        })
        .collect();
    let devices: Vec<String> = answer
        .devices
        .iter()
        .map(|device| {
            format!(
                "{} {:?} {:?} {} sectors",
                device.device, device.classes, device.drive_fault, device.distinct_sectors
            )
        })
        .collect();
    format!("{}\n{}", events.join("\n"), devices.join("\n"))
}

fn assert_like_plain(name: &str, text: &str, expected: &str) {
    let answer = read(text.as_bytes());
    assert_eq!(summary(&answer), expected, "{name}\n{text}");
    assert_eq!(answer.health, LogHealth::Errors, "{name}");
    assert_eq!(answer.lines_not_understood, 0, "{name}: {:?}\n{text}", answer.example);
}

fn clock(number: usize) -> String {
    format!("16:01:{:02}", 25 + number / 4)
}

/// Framings by their name, with a line as each prints it.
type Frame = (&'static str, fn(usize, &str) -> String);

fn stamp(number: usize) -> String {
    format!("[  100.{:06}]", number * 1000)
}

const FRAMES: &[Frame] = &[
    ("dmesg", |n, t| format!("{} {t}", stamp(n))),
    ("dmesg -x", |n, t| format!("kern  :err   : {} {t}", stamp(n))),
    ("dmesg -T", |n, t| format!("[Thu Nov  7 {} 2019] {t}", clock(n))),
    ("dmesg -T -x", |n, t| format!("kern  :err   : [Thu Nov  7 {} 2019] {t}", clock(n))),
    ("dmesg -H", |n, t| match n {
        0 => format!("[Nov 7 16:01] {t}"),
        _ => format!("[  +0.00001{}] {t}", n % 10),
    }),
    ("dmesg -r", |n, t| format!("<3>{} {t}", stamp(n))),
    ("dmesg --time-format=iso", |n, t| format!("2019-11-07T{},185075+01:00 {t}", clock(n))),
    ("dmesg -x --time-format=iso", |n, t| {
        format!("kern  :err   : 2019-11-07T{},185075+01:00 {t}", clock(n))
    }),
    ("printk caller", |n, t| format!("{}[  T665] {t}", stamp(n))),
    ("short", |n, t| format!("Nov 07 {} host kernel: {t}", clock(n))),
    ("short-precise", |n, t| format!("Nov 07 {}.185075 host kernel: {t}", clock(n))),
    ("short-iso", |n, t| format!("2019-11-07T{}+0100 host kernel: {t}", clock(n))),
    ("short-iso-precise", |n, t| format!("2019-11-07T{}.185075+01:00 host kernel: {t}", clock(n))),
    ("short-monotonic", |n, t| format!("{} host kernel: {t}", stamp(n))),
    ("short-delta", |n, t| format!("[  100.{:06} <    0.000041>] host kernel: {t}", n * 1000)),
    ("short-unix", |n, t| format!("157313888{}.185075 host kernel: {t}", n / 4)),
    ("with-unit", |n, t| format!("Thu 2019-11-07 {} CET host kernel: {t}", clock(n))),
    ("syslog", |n, t| format!("Nov  7 {} host kernel: {} {t}", clock(n), stamp(n))),
    ("rsyslog PRI", |n, t| format!("<3>Nov  7 {} host kernel: {} {t}", clock(n), stamp(n))),
    ("RFC 5424", |n, t| format!("<3>1 2019-11-07T{}.185075+01:00 host kernel - - - {t}", clock(n))),
    ("facility.level", |n, t| format!("Nov  7 {} host kern.err kernel: {t}", clock(n))),
    ("facility.level without a tag", |n, t| {
        format!("Nov  7 {} host kern.err {} {t}", clock(n), stamp(n))
    }),
    ("facility.level first", |n, t| format!("kern.err Nov  7 {} host kernel: {t}", clock(n))),
    ("facility.level before a stamp", |n, t| format!("kern.warn: {} {t}", stamp(n))),
    ("facility and level", |n, t| format!("kern err {} {t}", stamp(n))),
    ("level in brackets", |n, t| format!("[kern.err] {} {t}", stamp(n))),
    ("level in capitals", |n, t| format!("2019-11-07 {},185 ERROR kernel: {t}", clock(n))),
    ("level and host", |n, t| {
        format!("2019-11-07 {} [err] host kernel: {} {t}", clock(n), stamp(n))
    }),
    ("ISO with a blank", |n, t| format!("2019-11-07 {}.185075+01:00 host kernel: {t}", clock(n))),
    ("ISO with a zone", |n, t| format!("2019-11-07 {} +0100 host kernel: {t}", clock(n))),
    ("date of a web server", |n, t| format!("07/Nov/2019:{} +0100 host kernel: {t}", clock(n))),
    ("CRI", |n, t| format!("2019-11-07T{}.123456789Z stdout F {} {t}", clock(n), stamp(n))),
    ("CRI with syslog", |n, t| {
        format!("2019-11-07T{}.123456789Z stderr F Nov  7 {} host kernel: {t}", clock(n), clock(n))
    }),
    ("kubectl --prefix", |n, t| format!("[pod/kmsg-x7k2p/reader] {} {t}", stamp(n))),
    ("kubectl --prefix --timestamps", |n, t| {
        format!("[pod/kmsg-x7k2p/reader] 2019-11-07T{}.123456789Z {} {t}", clock(n), stamp(n))
    }),
    ("stern", |n, t| format!("kmsg-x7k2p reader {} {t}", stamp(n))),
    ("compose", |n, t| format!("kmsg-1  | {} {t}", stamp(n))),
    ("compose of several", |n, t| format!("{} | {} {t}", ["kmsg-1", "log_2 "][n % 2], stamp(n))),
    ("compose with syslog", |n, t| format!("kmsg-1  | Nov  7 {} host kernel: {t}", clock(n))),
    ("docker's json-file", |n, t| {
        format!(
            r#"{{"log":"{} {}\n","stream":"stdout","time":"2019-11-07T16:01:25Z"}}"#,
            stamp(n),
            t.replace('"', "\\\"")
        )
    }),
    ("pdsh", |n, t| format!("node-07: {} {t}", stamp(n))),
    ("a rack and a slot", |n, t| format!("rack 4 / slot 7 >> {} {t}", stamp(n))),
    ("logfmt", |n, t| format!("ts=1573138885 src=kmsg msg=\"{} {t}\"", stamp(n))),
    ("relay in syslog", |n, t| format!("Nov  7 {} host kmsgd[812]: {} {t}", clock(n), stamp(n))),
    ("container in the journal", |n, t| {
        format!("Nov 07 {} host 9f3c2a[812]: Nov  7 {} host kernel: {t}", clock(n), clock(n))
    }),
    ("brackets round the line", |n, t| format!("[{} {t}]", stamp(n))),
    ("brackets round a syslog line", |n, t| format!("[Nov  7 {} host kernel: {t}]", clock(n))),
    ("parentheses", |n, t| format!("({} {t})", stamp(n))),
    ("quotes and a comma", |n, t| format!("\"{} {t}\",", stamp(n))),
    ("quoted mail", |n, t| format!("> {} {t}", stamp(n))),
    ("quoted twice", |n, t| format!("> > Nov  7 {} host kernel: {t}", clock(n))),
    ("code of a mail", |n, t| format!(">     {} {t}", stamp(n))),
    ("numbers of a forum", |n, t| format!("{:3} {} {t}", n + 1, stamp(n))),
    ("numbers and dots", |n, t| format!("{}. {} {t}", n + 1, stamp(n))),
    ("numbers and a bar", |n, t| format!("{:04}| Nov  7 {} host kernel: {t}", n + 1, clock(n))),
    ("numbers of bare lines", |n, t| format!("{}: {t}", n + 41)),
    ("grep -n", |n, t| format!("{}:{} {t}", n + 41, stamp(n))),
    ("list", |n, t| format!("- {} {t}", stamp(n))),
    ("dmesg --time-format=delta", |n, t| format!("[<    0.00001{}>] {t}", n % 10)),
    ("dmesg --time-format=reltime", |n, t| {
        format!("[  {}0.00001{}] {t}", if n == 3 { "-" } else { "+" }, n % 10)
    }),
    ("quoted /dev/kmsg", |n, t| {
        format!("> 3,{},{},-;{t}\n>  SUBSYSTEM=scsi", n + 600, 100_000_000 + n * 1000)
    }),
    ("/dev/kmsg in a container's log", |n, t| {
        format!("kmsg-1  | 3,{},{},-;{t}", n + 600, 100_000_000 + n * 1000)
    }),
    ("tabs", |n, t| format!("Nov  7 {}\thost\tkernel:\t{t}", clock(n))),
    ("a web page", |n, t| format!("&gt;&nbsp;&lt;3&gt;{}\u{a0}{t}", stamp(n))),
    ("a list of syslog lines", |n, t| format!("* Nov  7 {} host kernel: {t}", clock(n))),
    ("Android's log", |n, t| {
        format!("11-07 {}.185     0     0 E kernel  : {} {t}", clock(n), stamp(n))
    }),
    ("Android's log with a tag", |n, t| {
        format!("11-07 {}.185     0     0 E kernel: {t}", clock(n))
    }),
    ("verbose", |n, t| {
        format!(
            "Thu 2019-11-07 {}.185075 CET [s=0f;i=1;b=a;m=1;t=2;x=3]\n    _TRANSPORT=kernel\n    PRIORITY=3\n    MESSAGE={t}\n    _BOOT_ID=a",
            clock(n)
        )
    }),
    ("bare", |_, t| t.to_owned()),
];

#[test]
fn every_framing_gives_the_events_of_the_plain_form() {
    let expected = summary(&read(plain().as_bytes()));
    for (name, frame) in FRAMES {
        assert_like_plain(name, &framed(frame), &expected);
    }
}

/// A line in parts of at most `columns` characters: between words (a mail), or anywhere (a
/// terminal). `blank`: what a mail client keeps of the blank at the break.
fn wrap(line: &str, columns: usize, hard: bool, blank: Blank) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = line;
    while rest.chars().count() > columns {
        let limit = rest.char_indices().nth(columns).map_or(rest.len(), |(at, _)| at);
        let blank_at = rest[..=limit].rfind(' ').filter(|at| *at > columns / 2);
        match blank_at.filter(|_| !hard) {
            Some(at) => {
                let keep = usize::from(blank == Blank::AtTheEnd);
                parts.push(rest[..at + keep].to_owned());
                rest = match blank {
                    Blank::AtTheStart => &rest[at..],
                    Blank::Lost | Blank::AtTheEnd => &rest[at + 1..],
                };
                // A kept blank does not count.
                if blank == Blank::AtTheStart && rest.chars().count() <= columns {
                    break;
                }
            }
            None => {
                parts.push(rest[..limit].to_owned());
                rest = &rest[limit..];
                if blank == Blank::Lost
                    && let Some(part) = parts.last_mut()
                {
                    part.truncate(part.trim_end().len());
                }
            }
        }
    }
    parts.push(rest.to_owned());
    parts
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blank {
    Lost,
    AtTheEnd,
    AtTheStart,
}

const WRAPPED: [&str; 14] = [
    "dmesg",
    "dmesg -T",
    "dmesg -x",
    "dmesg -r",
    "dmesg --time-format=iso",
    "short",
    "short-iso",
    "short-monotonic",
    "syslog",
    "with-unit",
    "facility.level",
    "CRI",
    "compose",
    "pdsh",
];

#[test]
fn wrapped_lines_give_the_events_of_the_plain_form() {
    let expected = summary(&read(plain().as_bytes()));
    for (name, frame) in FRAMES.iter().filter(|(name, _)| WRAPPED.contains(name)) {
        for columns in [72, 76, 78, 80, 100] {
            for (hard, blank) in [
                (false, Blank::Lost),
                (false, Blank::AtTheEnd),
                (false, Blank::AtTheStart),
                (true, Blank::AtTheEnd),
                (true, Blank::Lost),
            ] {
                for (mark, later) in [("", ""), ("> ", "> "), ("> ", "")] {
                    // A terminal quotes nothing.
                    if hard && mark != later {
                        continue;
                    }
                    let text: String = framed(frame)
                        .lines()
                        .flat_map(|line| {
                            wrap(line, columns, hard, blank)
                                .into_iter()
                                .enumerate()
                                .map(|(part, text)| {
                                    format!("{}{text}\n", if part == 0 { mark } else { later })
                                })
                                .collect::<Vec<_>>()
                        })
                        .collect();
                    let name = format!("{name} {columns} {hard} {blank:?} {mark:?} {later:?}");
                    assert_like_plain(&name, &text, &expected);
                }
            }
        }
    }
}

/// A prefix counts only if it repeats: what one record quotes is no record.
#[test]
fn a_header_inside_one_record_is_text() {
    let quoted =
        "tmpfs: Unknown parameter '[    1.000000] critical medium error, dev sda, sector 8'";
    for text in [
        format!("[    0.5] usb 1-1: x\n[    0.6] {quoted}\n"),
        format!("usb 1-1: new device\n{quoted}\nusb 1-1: Product: x\n"),
        format!("Nov  7 16:01:25 host kernel: {quoted}\n"),
        format!(
            "Nov  7 16:01:25 host kernel: usb 1-1: x\nNov  7 16:01:26 host sudo[3]: {quoted}\n"
        ),
    ] {
        assert_eq!(read(text.as_bytes()).classes.len(), 0, "{text}");
    }
    // One program among the kernel's own lines passes nothing on.
    let forged = "Nov  7 16:01:25 host kernel: usb 1-1: x\n\
        Nov  7 16:01:25 host forger[9]: [    1.000000] critical medium error, dev sda, sector 8\n\
        Nov  7 16:01:25 host forger[9]: [    1.000001] critical medium error, dev sda, sector 9\n\
        Nov  7 16:01:25 host forger[9]: [    1.000002] critical medium error, dev sda, sector 7\n";
    assert_eq!(read(forged.as_bytes()).classes.len(), 0);
}

/// CRI splits long lines: `P` goes on.
#[test]
fn a_partial_line_of_a_container_is_joined() {
    let text = "2019-11-07T16:01:25.1Z stdout P [  100.000001] critical medium error, dev sda, sec\n\
        2019-11-07T16:01:25.2Z stdout F tor 2048\n";
    let answer = read(text.as_bytes());
    assert_eq!(answer.devices[0].distinct_sectors, 1);
    assert_eq!(answer.records, 1);
}

fn fragment() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "[   12.345678] ",
        "[",
        "]",
        "<3>",
        "Nov  7 16:01:25 ",
        "2024-01-02T03:04:05.1Z ",
        "stdout F ",
        "stdout P ",
        "host ",
        "kernel: ",
        "kernel - - -",
        "web-1 | ",
        "> ",
        "12: ",
        "{\"log\":\"",
        "\"}",
        "é",
        "\u{a0}",
        "&gt;",
        "=3D",
        "=\n",
        "kern.err ",
        "(",
        "'",
        "sd 2:0:0:0: [sdb] ",
        "critical medium error, dev sda, sector 8",
        "\n",
        "\n  ",
        "systemd[1]: ",
        "x[3]:",
        "-- Boot 3 --",
        "__CURSOR=s\n",
        "6,1,2,-;",
        "[+0.1]",
        "[<",
        "T[12]:",
    ])
}

proptest! {
    #[test]
    fn no_mixture_of_framings_makes_the_reader_panic(parts in proptest::collection::vec(fragment(), 0..80)) {
        read(parts.concat().as_bytes());
    }
}
