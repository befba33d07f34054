//! How much of a run is done, as the checkers report it: e2fsck on a descriptor of its own
//! (e2fsck(8), -C), xfs_repair in its output (repair/progress.c, -t). Pure.
//!
//! In: bytes of the descriptor, lines. Out: thousandths of the whole run. Nothing here is evidence:
//! whatever a checker that was taken over writes, it changes a number that people see.

/// A line of e2fsck has far less.
const MAX_PROGRESS_LINE: usize = 512;

/// Thousandths that are done when a pass of e2fsck begins, as its own progress bar counts them
/// (e2fsck/unix.c, e2fsck_tbl).
const E2FSCK_PASSES: [u32; 6] = [0, 700, 900, 920, 950, 1000];
/// The steps of `xfs_repair -n` that report (repair/progress.c), each with the thousandths of the run
/// when it begins and ends. The steps that read the inodes take the most time.
const XFS_STEPS: [(&str, u32, u32); 8] = [
    ("zeroing log", 0, 10),
    ("scanning filesystem freespace", 10, 50),
    ("scanning agi unlinked lists", 50, 60),
    ("process known inodes and inode discovery", 60, 450),
    ("process newly discovered inodes", 450, 500),
    ("setting up duplicate extent list", 500, 510),
    ("check for inodes claiming duplicate blocks", 510, 800),
    ("verify and correct link counts", 980, 1000),
];

/// The newest complete line of a stream of e2fsck's progress lines.
#[derive(Debug, Default)]
pub struct ProgressStream {
    /// The end of the stream, without a line end.
    rest: Vec<u8>,
    permille: Option<u16>,
}

impl ProgressStream {
    /// Reads only the last complete line: the others are outdated.
    pub fn push(&mut self, bytes: &[u8]) {
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            self.keep(bytes);
            return;
        };
        let (lines, rest) = bytes.split_at(end);
        let last = match lines.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => lines.get(at + 1..).unwrap_or_default().to_vec(),
            None => {
                self.keep(lines);
                std::mem::take(&mut self.rest)
            }
        };
        self.permille = e2fsck_permille(&last).or(self.permille);
        self.rest.clear();
        self.keep(rest.get(1..).unwrap_or_default());
    }

    pub fn permille(&self) -> Option<u16> {
        self.permille
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_PROGRESS_LINE.saturating_sub(self.rest.len());
        self.rest.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }
}

/// `PASS CURRENT MAXIMUM DEVICE`.
fn e2fsck_permille(line: &[u8]) -> Option<u16> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (pass, done, all) = (number()?, number()?, number()?);
    let pass = usize::try_from(pass).ok()?;
    let begin = *E2FSCK_PASSES.get(pass.checked_sub(1)?)?;
    within(begin, *E2FSCK_PASSES.get(pass)?, done, all)
}

/// Thousandths that are done, of a step from `begin` to `end` of which `done` of `all` is.
fn within(begin: u32, end: u32, done: u64, all: u64) -> Option<u16> {
    let share = u128::from(done.min(all)) * u128::from(end.saturating_sub(begin));
    u16::try_from(u128::from(begin) + share / u128::from(all.max(1))).ok()
}

/// A line of xfs_repair's progress thread: the text before it (another line may be open), and
/// what it reports.
pub(crate) struct XfsProgress<'a> {
    pub before: &'a str,
    report: &'a str,
}

impl XfsProgress<'_> {
    /// `- 21:27:17: scanning filesystem freespace - 4 of 4 allocation groups done`, or
    /// `- 21:27:17: Phase 3: 12% done - estimated remaining time 3 hours`.
    pub(crate) fn find(line: &str) -> Option<XfsProgress<'_>> {
        let is_time = |text: &str| {
            let bytes = text.as_bytes();
            bytes.len() >= 10
                && bytes.iter().take(10).enumerate().all(|(at, byte)| match at {
                    2 | 5 | 8 => *byte == b':',
                    9 => *byte == b' ',
                    _ => byte.is_ascii_digit(),
                })
        };
        let at = line
            .match_indices("- ")
            .map(|(at, _)| at)
            .find(|at| line.get(at + 2..).is_some_and(is_time))?;
        // Written behind spaces or a tab at the begin of its own line.
        let before = line.get(..at)?.trim_end_matches([' ', '\t']);
        Some(XfsProgress { before, report: line.get(at + 12..)? })
    }

    /// None for a line that says nothing about a known step.
    pub(crate) fn permille(&self) -> Option<u16> {
        let (step, counts) = self.report.rsplit_once(" - ")?;
        let (_, begin, end) = XFS_STEPS.iter().find(|(name, ..)| *name == step)?;
        let (done, all) = counts.split_once(" of ")?;
        let all = all.split(' ').next()?;
        within(*begin, *end, done.parse().ok()?, all.parse().ok()?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn streamed(pieces: &[&[u8]]) -> Option<u16> {
        let mut stream = ProgressStream::default();
        pieces.iter().for_each(|piece| stream.push(piece));
        stream.permille()
    }

    #[test]
    fn e2fscks_passes_count_as_in_its_own_bar() {
        assert_eq!(streamed(&[b"1 0 160 /dev/sda1\n"]), Some(0));
        assert_eq!(streamed(&[b"1 80 160 /dev/sda1\n"]), Some(350));
        assert_eq!(streamed(&[b"1 160 160 /dev/sda1\n2 1 2 /dev/sda1\n3 "]), Some(800));
        assert_eq!(streamed(&[b"5 16", b"0 160 /dev/sda1\n"]), Some(1000));
        assert_eq!(streamed(&[b"3 0 9", b" x", b" y\n4 0 9 x\n"]), Some(920));
    }

    #[test]
    fn what_is_no_progress_changes_nothing() {
        let mut stream = ProgressStream::default();
        stream.push(b"2 1 2 /dev/sda1\n");
        for junk in [
            &b"\n"[..],
            b"9 1 2 x\n",
            b"0 1 2 x\n",
            b"18446744073709551616 1 2\n",
            b"1 -1 2 x\n",
            b"\xff\xff 1 2\n",
        ] {
            stream.push(junk);
            assert_eq!(stream.permille(), Some(800), "{junk:?}");
        }
        stream.push(&vec![b'7'; 1 << 20]);
        assert!(stream.rest.len() <= MAX_PROGRESS_LINE);
    }

    #[test]
    fn xfs_repairs_lines_are_found_behind_an_open_line_too() {
        let permille =
            |line: &str| XfsProgress::find(line).map(|it| (it.before.to_owned(), it.permille()));
        let step = "process known inodes and inode discovery";
        assert_eq!(
            permille(&format!("        - 21:27:17: {step} - 100224 of 200448 inodes done")),
            Some((String::new(), Some(255)))
        );
        assert_eq!(
            permille(&format!("bad CRC for inode 5, \t- 01:02:03: {step} - 0 of 0 inodes done")),
            Some(("bad CRC for inode 5,".to_owned(), Some(60)))
        );
        for other in [
            "\t- 01:02:03: Phase 4: elapsed time 15 minutes - processed 9 inodes per minute",
            "\t- 01:02:03: Phase 4: 50% done - estimated remaining time 3 hours",
        ] {
            assert_eq!(permille(other), Some((String::new(), None)), "{other}");
        }
        for other in ["        - agno = 0", "- 1:2:3: x", "Phase 3 - for each AG..."] {
            assert_eq!(permille(other), None, "{other}");
        }
        let ordered = XFS_STEPS.windows(2).all(|pair| pair[0].2 <= pair[1].1);
        assert!(ordered && XFS_STEPS.iter().all(|(_, begin, end)| begin < end));
    }

    proptest! {
        #[test]
        fn no_input_is_more_than_all(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20), line in ".*") {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            prop_assert!(streamed(&pieces).is_none_or(|done| done <= 1000));
            let found = XfsProgress::find(&line).and_then(|it| it.permille());
            prop_assert!(found.is_none_or(|done| done <= 1000));
        }

        #[test]
        fn the_sizes_of_the_pieces_do_not_matter(size in 1_usize..40) {
            let text = b"1 5 10 /dev/sda1\n1 10 10 /dev/sda1\n2 5 10 /dev/sda1\n2 6 ";
            let pieces: Vec<&[u8]> = text.chunks(size).collect();
            prop_assert_eq!(streamed(&pieces), Some(800));
        }
    }
}
