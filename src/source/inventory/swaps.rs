//! Active swap devices, from /proc/swaps (proc_swaps(5)).
//!
//! In: the file. Out: kernel names, each with its path as the kernel prints it. Swap files belong to
//! the filesystem that contains them.

use std::collections::BTreeMap;

use crate::inventory::sysfs::SysfsReader;

const SWAPS: &str = "/proc/swaps";

/// A kernel without swap has no such file.
pub fn read(reader: &SysfsReader<'_>) -> BTreeMap<String, String> {
    match reader.text(SWAPS) {
        Ok(text) => parse(&text.unwrap_or_default()),
        Err(_) => BTreeMap::new(),
    }
}

fn parse(text: &str) -> BTreeMap<String, String> {
    text.lines().skip(1).filter_map(parse_line).collect()
}

/// `/dev/sdb1 partition 524284 0 -2`; swap_show(), mm/swapfile.c, with escaped spaces. The node of a
/// removed device is `/dev/sdb1\040(deleted)`.
fn parse_line(line: &str) -> Option<(String, String)> {
    let mut fields = line.split_ascii_whitespace();
    let (path, kind) = (fields.next()?, fields.next()?);
    let node = path.strip_suffix("\\040(deleted)").unwrap_or(path);
    let name = node.rsplit_once('/').map_or(node, |(_, name)| name);
    (kind == "partition").then(|| (name.to_owned(), path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_devices_are_listed_also_when_their_node_is_gone() {
        let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/sdb1                               partition\t524284\t\t0\t\t-2\n/dev/sdc\\040(deleted)   partition\t524284\t0\t-3\n/swapfile  file\t524284\t0\t-4\n";
        let found = parse(text);
        let found: Vec<(&str, &str)> =
            found.iter().map(|(name, path)| (name.as_str(), path.as_str())).collect();
        assert_eq!(found, [("sdb1", "/dev/sdb1"), ("sdc", "/dev/sdc\\040(deleted)")]);
        assert!(parse("").is_empty());
    }
}
