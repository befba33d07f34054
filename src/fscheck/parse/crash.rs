//! Lines that a checker, its C library or the shell prints when the checker crashes. They say
//! nothing about the filesystem.

/// Whether the checker ends with this line.
pub(crate) fn is_crash(line: &str) -> bool {
    let line = line.trim();
    // btrfs-progs, kerncompat.h: `FILE:LINE: FUNCTION: BUG_ON `CONDITION` triggered, value N`.
    let bug = line.contains(": BUG_ON `") && line.contains("` triggered");
    // The same file and assert(3): `PROGRAM: FILE:LINE: FUNCTION: Assertion `CONDITION' failed.`
    let assertion = line.contains(": Assertion `")
        && ["' failed", "` failed"].iter().any(|end| line.contains(end));
    // e2fsck, sigcatcher.c: `Signal (11) SIGSEGV si_code=SEGV_MAPERR fault addr=0x10`.
    let signal = line.starts_with("Signal (") && line.contains(") SIG");
    bug || assertion || signal || is_libc_abort(line) || is_shell_notice(line)
}

/// `btrfs(main+0x94)[0x55b0053c50c4]`: backtrace_symbols_fd(3). btrfs also prints a trace after a
/// warning, and continues.
pub(crate) fn is_stack_frame(line: &str) -> bool {
    let line = line.trim();
    let Some((place, address)) = line.strip_suffix(']').and_then(|line| line.rsplit_once('['))
    else {
        return false;
    };
    let place = place.trim_end();
    is_hex(address)
        && (place.is_empty()
            || !place.contains(' ')
                && place.ends_with(')')
                && place.rsplit_once('(').is_some_and(|(_, symbol)| {
                    symbol.trim_end_matches(')').is_empty() || symbol.contains("+0x")
                }))
}

fn is_hex(text: &str) -> bool {
    text.strip_prefix("0x").is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// abort(3) of glibc after it found the heap or the stack damaged (malloc/malloc.c,
/// debug/fortify_fail.c).
fn is_libc_abort(line: &str) -> bool {
    const MESSAGES: [&str; 8] = [
        "double free or corruption",
        "corrupted size vs. prev_size",
        "corrupted double-linked list",
        "malloc(): ",
        "malloc_consolidate(): ",
        "free(): invalid ",
        "munmap_chunk(): invalid pointer",
        "realloc(): invalid ",
    ];
    let message = line.trim_start_matches("*** ");
    MESSAGES.iter().any(|known| message.starts_with(known))
        || line.starts_with("*** ") && line.contains(" detected ***")
}

/// `Aborted (core dumped)`, with bash's `bash: line 1: 1234` before it and the command after it.
fn is_shell_notice(line: &str) -> bool {
    const NOTICES: [&str; 6] = [
        "Aborted",
        "Segmentation fault",
        "Bus error",
        "Illegal instruction",
        "Floating point exception",
        "Trace/breakpoint trap",
    ];
    let words = match line.split_once(": line ") {
        Some((_, rest)) => {
            rest.trim_start_matches(|c: char| c.is_ascii_digit() || ": ".contains(c))
        }
        None => line,
    };
    NOTICES.iter().any(|notice| {
        words
            .strip_prefix(notice)
            .is_some_and(|rest| rest.is_empty() || rest.trim_start().starts_with("(core dumped)"))
            || words.len() < line.len() && words.starts_with(notice)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_of_checkers_libc_and_shells_are_recognized() {
        for line in [
            "check/main.c:4619: add_extent_rec_nolookup: BUG_ON `tmpl->max_size == 0` triggered, value 1",
            "kernel-shared/ctree.c:81: btrfs_search_slot: Assertion `level < 8` failed, value 0",
            "xfs_repair: rmap.c:1279: fix_inode_reflink_flags: Assertion `(irec->ino_is_fl & irec->ino_was_fl) == 0' failed.",
            "Signal (11) SIGSEGV si_code=SEGV_MAPERR fault addr=0x10",
            "*** stack smashing detected ***: terminated",
            "double free or corruption (!prev)",
            "free(): invalid pointer",
            "Aborted",
            "Aborted (core dumped)",
            "Segmentation fault (core dumped)",
            "bash: line 1:  4711 Segmentation fault      btrfs check --readonly /dev/sdb1",
        ] {
            assert!(is_crash(line), "{line}");
        }
        for line in [
            "e2fsck: aborted",
            "kernel-shared/ctree.c:81: f: Warning: assertion `x` failed, value 0",
            "Signal handlers of inode 7 are wrong",
            "checksum verify failed on 30441472 wanted 0x42cd2901 found 0x4952e4b5",
        ] {
            assert!(!is_crash(line), "{line}");
        }
    }

    #[test]
    fn frames_of_a_stack_trace_are_recognized() {
        for line in [
            "btrfs(+0x387f2)[0x55b0053e77f2]",
            "/usr/lib/libc.so.6(__libc_start_main+0xd5)[0x7f5765b35b25]",
            "/lib/x86_64-linux-gnu/libc.so.6(+0x38e00) [0x7f38c7f46e00]",
            "e2fsck()[0x4321]",
            "[0x7fff]",
        ] {
            assert!(is_stack_frame(line), "{line}");
        }
        for line in [
            "ref mismatch on [13754368 12288] extent item 1, found 0",
            "backpointer mismatch on [13754368 12288]",
            "block group[0x10]",
            "Inode 7 (name) has a bad block [0x10]",
        ] {
            assert!(!is_stack_frame(line), "{line}");
        }
    }
}
