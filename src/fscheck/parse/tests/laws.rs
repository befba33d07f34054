//! Laws of the parsers over any output, and long lines.

use proptest::prelude::*;

use super::*;

fn line() -> impl Strategy<Value = String> {
    let known = [
        "Block bitmap differences:  +1 -(2--3) -4",
        "Inode bitmap differences:  -7",
        "Inode 35 was part of the orphaned inode list.  IGNORED.",
        "Fix? no",
        "\tindented 3",
        "disconnected inode 134, would move to lost+found",
        "would have reset inode 134 nlinks from 0 to 1",
        "Metadata CRC error detected at 0x55b6333a0f80, xfs_agf block 0x1/0x200",
        "checksum verify failed on 1 wanted 0x1 found 0x2",
        "sb_fdblocks 1, counted 2",
        "x: 1/2 files (0.0% non-contiguous), 3/4 blocks",
        "found 1 bytes used, no error found",
        "",
    ];
    prop_oneof![
        proptest::sample::select(known.to_vec()).prop_map(str::to_owned),
        "\\PC{0,60}",
        "[a-z]{1,3} [0-9]{1,4}"
    ]
}

proptest! {
    // Hundreds of flaws a case.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn problems_are_bounded_sorted_distinct_and_all_counted(lines in proptest::collection::vec(line(), 0..60), many in 0_usize..400) {
        for filesystem in [Ext4, Xfs, Btrfs] {
            let mut text = lines.join("\n");
            text.extend((0..many).map(|number| format!("\ngizmo {number} is crooked\n")));
            let parsed = parse(filesystem, &text);
            prop_assert!(parsed.problems.len() <= MAX_PROBLEMS);
            prop_assert!(parsed.problems.is_sorted_by_key(|flaw| std::cmp::Reverse(flaw.weight)));
            prop_assert!(parsed.problems.iter().all(|flaw| flaw.text.len() <= MAX_TEXT_BYTES));
            prop_assert!(parsed.problems.len() as u64 + parsed.more_problems >= many as u64);
            prop_assert!(parsed.more_problems == 0 || parsed.problems.len() == MAX_PROBLEMS);
            for (at, flaw) in parsed.problems.iter().enumerate() {
                prop_assert!(!parsed.problems[..at].iter().any(|other| other.is_same_problem(flaw)));
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        for filesystem in [Ext4, Xfs, Btrfs] {
            parse(filesystem, &String::from_utf8_lossy(&bytes));
        }
    }

    /// Boilerplate is recognised word for word: whatever else is added to a clean run makes a flaw,
    /// a failure or a pending replay.
    #[test]
    fn no_unknown_line_is_dropped(words in "[a-z]{3,9} [a-z]{3,9} [0-9]{1,5}") {
        for (filesystem, clean) in [(Ext4, EXT4_CLEAN), (Xfs, XFS_CLEAN), (Btrfs, BTRFS_CLEAN)] {
            prop_assert_eq!(parse(filesystem, &insert_lines(clean, &words)).problems.len(), 1);
        }
    }

    /// The transient kinds do not depend on what came first.
    #[test]
    fn the_order_of_lines_does_not_change_what_is_transient(mut inodes in proptest::collection::btree_set(1_u32..50, 1..20), first in any::<bool>()) {
        let unlinked: Vec<u32> = inodes.iter().copied().filter(|inode| inode % 2 == 0).collect();
        let moved: String = inodes.iter().map(|inode| format!("disconnected inode {inode}, would move to lost+found\n")).collect();
        let links: String = unlinked.iter().map(|inode| format!("would have reset inode {inode} nlinks from 0 to 1\n")).collect();
        let text = if first { format!("{moved}{links}") } else { format!("{links}{moved}") };
        inodes.retain(|inode| inode % 2 == 1);
        let real = parse(Xfs, &text).problems.into_iter().filter(|flaw| flaw.weight > Weight::Transient).count();
        prop_assert_eq!(real, inodes.len());
    }
}

const ORPHANED: &str = "Inode 12 was part of the orphaned inode list.  IGNORED.";

/// What is said of one bitmap line that came in parts of `limit` bytes at most.
fn parse_in_parts(items: &[String], limit: usize) -> ParsedOutput {
    let line = format!("Block bitmap differences:  {}", items.join(" "));
    let mut reader = OutputParser::new(Ext4);
    reader.push_line(ORPHANED);
    let parts = line_template::split_line(&line, limit);
    assert!(parts.iter().all(|part| part.len() <= limit), "{parts:?}");
    parts.iter().for_each(|part| reader.push_line(part));
    reader.push_line("Fix? no");
    reader.finish()
}

#[test]
fn a_list_of_differences_is_read_to_its_end_however_long_it_is() {
    let mut items: Vec<String> = (0..60_000).map(|block| format!("-{block}")).collect();
    let all = items.join(" ");
    assert!(all.len() > MAX_LINE_BYTES);
    let said = |items: &[String]| {
        let mut reader = OutputParser::new(Ext4);
        reader.push_line(ORPHANED);
        reader.push_line(&format!("Block bitmap differences:  {}", items.join(" ")));
        reader.finish()
    };
    let parsed = said(&items);
    assert!(parsed.problems.iter().all(|flaw| flaw.weight == Weight::Transient));
    assert_eq!(parsed.problems.len() as u64 + parsed.more_problems, 60_001);
    items.push("+7".to_owned());
    assert!(said(&items).problems.iter().any(|flaw| flaw.weight == Weight::Bookkeeping));
}

#[test]
fn any_long_line_is_read_in_parts_and_terminates() {
    for line in [
        "x".repeat(MAX_LINE_BYTES * 3),
        format!("a: {}", "ü".repeat(MAX_LINE_BYTES)),
        ":".repeat(MAX_LINE_BYTES * 2),
    ] {
        let mut reader = OutputParser::new(Ext4);
        reader.push_line(&line);
        assert!(!reader.finish().problems.is_empty());
    }
}

proptest! {
    #[test]
    fn the_split_point_of_a_difference_list_changes_nothing(
        blocks in proptest::collection::vec((0_u64..1 << 40, any::<bool>()), 1..60),
        limit in 80_usize..300,
        plus in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let item = |(block, range): &(u64, bool)| if *range { format!("-({block}--{})", block + 7) } else { format!("-{block}") };
        let mut items: Vec<String> = blocks.iter().map(item).collect();
        let whole = parse_in_parts(&items, usize::MAX);
        let parsed = parse_in_parts(&items, limit);
        prop_assert_eq!(&parsed, &whole);
        prop_assert!(parsed.problems.iter().all(|flaw| flaw.weight == Weight::Transient));
        if let Some(plus) = plus {
            items.insert(plus.index(items.len()), "+99".to_owned());
            let parsed = parse_in_parts(&items, limit);
            prop_assert_eq!(&parsed, &parse_in_parts(&items, usize::MAX));
            prop_assert!(parsed.problems.iter().any(|flaw| flaw.kind == "block-bitmap" && flaw.weight == Weight::Bookkeeping));
            prop_assert!(parsed.problems.iter().all(|flaw| flaw.kind != "block-bitmap" || flaw.ids.len() == 1));
        }
    }
}
