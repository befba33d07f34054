//! The guest's kernel log as it came through the port: raw records of /dev/kmsg
//! (Documentation/ABI/testing/dev-kmsg).

use crate::lab::line_stream::Lines;

/// The texts of the records that came after `mark`, without those of user space. Line breaks within
/// a record are `\n` here.
pub fn texts(log: &Lines, mark: usize) -> Vec<String> {
    log.since(mark).iter().filter_map(|line| text(line)).collect()
}

fn text(line: &str) -> Option<String> {
    // "6,732,91917345,-;usb 2-1: USB disconnect"; lines that begin with a blank are the record's
    // fields.
    let (head, text) = line.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    let kernel = priority >> 3 == 0;
    kernel.then(|| text.replace("\\x0a", "\n"))
}
