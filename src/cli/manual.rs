//! The manual of the command line: examples, exit statuses and related pages of each command, and
//! the one table of all exit statuses. Long help, man pages and docs/operations.md are made of it.

use std::io;
use std::path::Path;

use clap::CommandFactory;

use crate::args::Args;
use diskvitals_program::manual::{FILES, Page, configuration_page};
use diskvitals_program::pairs;

type Exit = &'static [(u8, &'static str)];
type Examples = &'static [(&'static str, &'static str)];

const USUAL: Exit = pairs! {
    0: "done";
    1: "failed: no daemon, no such thing, refused, no permission";
    2: "wrong usage";
};
const STATUS: Exit = pairs! {
    0: "done; with --exit-code and --format nagios: good; with --format checkmk: always";
    1: "failed; with --exit-code and --format nagios: warning";
    2: "wrong usage; with --exit-code and --format nagios: critical";
    3: "with --exit-code and --format nagios: unknown, also without a daemon, after a time-out and for wrong usage";
};
const ACK: Exit = pairs! {
    0: "done, or nothing to do";
    1: "failed, or one of the findings has become worse and was not acknowledged";
    2: "wrong usage, or not confirmed: without a terminal, --yes is needed for a thing";
};
const CHECK: Exit = pairs! {
    0: "clean (with --no-wait: queued)";
    1: "suspected or corrupted";
    2: "wrong usage";
    3: "inconclusive, failed, not started, or not followed to its end";
    130: "interrupted";
};
const REPORT: Exit = pairs! {
    0: "written, also of an incomplete bundle";
    1: "failed: no daemon, no bundle, not writable";
    2: "wrong usage, or -o json";
};
const BUNDLE: Exit = pairs! {
    0: "written, also if something is missing in it";
    1: "failed: no daemon, not writable, or the file exists (--force replaces it)";
    2: "wrong usage";
};
const SELF_TEST: Exit = pairs! {
    0: "passed (with --no-wait: started)";
    1: "failed, refused, or ended without a result";
    2: "wrong usage";
    130: "interrupted; the drive continues the test";
};
const REPLACE: Exit = pairs! {
    0: "the drive can be pulled; with --follow: it is replaced";
    1: "it cannot, or that is not known; the command failed";
    2: "wrong usage";
};
const DOCTOR: Exit = pairs! {
    0: "all that this machine needs works";
    1: "something does not work or is not known";
    2: "wrong usage";
};
const CLEANUP: Exit = pairs! {
    0: "done or printed";
    1: "refused, or a step failed";
    2: "wrong usage";
};
const ANALYZE: Exit = pairs! {
    0: "all files were read, with any result";
    1: "a file could not be read";
    2: "wrong usage";
    3: "a file has nothing that was understood, or nothing that allows a verdict";
};
const ANALYZE_KERNEL_LOG: Exit = pairs! {
    0: "all files were read and understood, with or without errors in them";
    1: "a file could not be read";
    2: "wrong usage";
    3: "unknown: a file has no record of the kernel, or less than half of its lines was understood, and no error was found in it";
};

/// Each command by its words, with its exit statuses and examples.
macro_rules! commands {
    ($($words:literal => $exit:ident { $($example:tt)* })*) => {
        const COMMANDS: &[(&str, Examples, Exit)] = &[$(($words, pairs! { $($example)* }, $exit)),*];
    };
}

commands! {
    "" => USUAL {
        "diskvitals status": "The node on one screen, worst first";
        "diskvitals explain /srv/db":
            "Why a mount is bad: the chain from drive to pod, with the evidence";
    }
    "status" => STATUS {
        "diskvitals status": "The node on one screen, worst first";
        "diskvitals status --exit-code":
            "As a monitoring plugin: 0 good, 1 warning, 2 critical, 3 unknown";
        "diskvitals status --watch":
            "The screen, kept up to date, with the drives' I/O, checks and self-tests";
        "diskvitals status --format nagios":
            "A plugin's output with performance data, for Nagios and Icinga";
    }
    "drives" => USUAL {
        "diskvitals drives": "All drives, also removed ones";
        "diskvitals drives -o json": "The same as canonical protobuf JSON";
    }
    "drive" => USUAL {
        "diskvitals drive sda": "One drive in full";
        "diskvitals drive sda --history": "Its temperature, latency, wear, sectors and errors over the years";
    }
    "self-test" => SELF_TEST {
        "diskvitals self-test sda short": "Tests a sample and waits: minutes";
        "diskvitals self-test sda long --no-wait": "Starts a test of the whole medium";
    }
    "care" => USUAL {
        "diskvitals care": "The schedule of all drives, and what is held back";
        "diskvitals care sda -o json": "One drive in full, for a program";
    }
    "locate" => USUAL {
        "diskvitals locate sda on": "Lights the lamp of its slot, for 24 hours at most";
        "diskvitals locate sda off": "Turns it off";
    }
    "replace" => REPLACE {
        "diskvitals replace sda": "What is on the drive, whether it can be pulled now, and what to type next";
        "diskvitals replace sda --follow": "Lights its lamp, and prints each step until the replacement is done";
    }
    "volumes" => USUAL {
        "diskvitals volumes": "All filesystems and CSI volumes";
        "diskvitals volumes --stale": "Mounts that no pod still uses";
    }
    "volume" => USUAL {
        "diskvitals volume /srv/db": "The volume at a mount point";
        "diskvitals volume shop/db-0": "The volume of a pod";
    }
    "findings" => USUAL {
        "diskvitals findings --severity bad --since 2d": "What became bad within two days";
        "diskvitals findings --all --drive sda": "Everything about a drive, cleared findings too";
        "diskvitals findings 1f3a": "One finding in full, by the begin of its id";
    }
    "explain" => USUAL {
        "diskvitals explain sda": "A drive, what is on it, and what to do";
        "diskvitals explain shop/db-0": "A pod's volumes down to their drives";
        "diskvitals explain ./data/orders.ibd": "The volume that holds a file";
        "diskvitals explain slot 05": "The drive in a slot";
    }
    "watch" => USUAL {
        "diskvitals watch": "One line for each change";
        "diskvitals watch --changes --severity bad": "Only new and changed problems that are BAD";
        "diskvitals watch -o json": "One JSON object in each line";
    }
    "ack" => ACK {
        "diskvitals ack 1f3a --note \"replacement ordered\"": "One finding, by the begin of its id";
        "diskvitals ack sda --note \"replaced on Friday\" --yes":
            "All present findings of a drive, without a question";
        "diskvitals ack sda --repaired --note \"new SATA cable\"":
            "After a repair: errors until now no longer count";
    }
    "unack" => ACK {
        "diskvitals unack 1f3a": "One finding, by the begin of its id";
        "diskvitals unack sda": "All acknowledged findings of a drive, after a question";
    }
    "maintenance" => USUAL {
        "diskvitals maintenance sda 2h --note \"swapping the cable\"":
            "For two hours, what the drive's absence causes does not count";
        "diskvitals maintenance sda end": "Ends it before its time";
        "diskvitals maintenance": "Lists what is under maintenance";
    }
    "check" => CHECK {
        "diskvitals check /srv/db": "Checks a mounted filesystem without writing to it";
        "diskvitals check --image disk.img": "Checks a file, without a daemon";
    }
    "checks" => USUAL {
        "diskvitals checks": "All checks, newest first";
        "diskvitals checks /srv/db": "The checks of one volume";
    }
    "refresh" => USUAL {
        "diskvitals refresh": "Reads everything again";
        "diskvitals refresh sda": "Reads one drive again";
    }
    "cleanup" => CLEANUP {
        "diskvitals cleanup pvc-1": "Prints the steps and changes nothing";
        "diskvitals cleanup pvc-1 --yes --lazy":
            "Executes them although the device does not respond";
    }
    "format-authorize" => CLEANUP {
        "diskvitals format-authorize": "Lists the permissions that can still be used";
        "diskvitals format-authorize fast-1": "Permits one format of the device of a static volume";
    }
    "config" => USUAL {
        "diskvitals config": "The settings in force, with all defaults";
        "diskvitals config -o json": "The same with its files and warnings as fields";
    }
    "reasons" => USUAL {
        "diskvitals reasons": "All reasons";
        "diskvitals reasons PendingSectors": "One reason: its meaning, and what to do";
    }
    "report" => REPORT {
        "diskvitals report > report.txt": "As text, for a mail or a ticket";
        "diskvitals report --html report.html": "As one self-contained page";
        "diskvitals report --from node7.tar.gz --html node7.html":
            "Of a support bundle, without a daemon";
    }
    "bundle" => BUNDLE {
        "diskvitals bundle node7.tar.gz": "Everything that the daemon knows, in one file";
        "diskvitals bundle --redact node7.tar.gz": "Without serial numbers";
    }
    "analyze" => ANALYZE {
        "dmesg | diskvitals analyze kernel-log": "Finds errors in the kernel log of this machine";
        "diskvitals analyze smart sda.json": "Evaluates the output of smartctl -j -x";
    }
    "analyze io" => ANALYZE {
        "diskvitals analyze io node7.io": "A file of diskvitals record io";
        "diskvitals analyze io --peers sda,sdb,sdc,sdd iostat.json":
            "iostat's JSON, of four drives of one model";
    }
    "analyze kernel-log" => ANALYZE_KERNEL_LOG {
        "journalctl -k -o short-iso | diskvitals analyze kernel-log": "Reads standard input";
        "diskvitals analyze kernel-log -o json dmesg.txt kern.log.1.gz":
            "One line of JSON for each file";
    }
    "analyze smart" => ANALYZE {
        "smartctl -j -x /dev/sda | diskvitals analyze smart": "Reads standard input";
        "diskvitals analyze smart --config diskvitals.toml sda.json sdb.json":
            "With the limits of a configuration";
    }
    "analyze fsck" => ANALYZE {
        "diskvitals analyze fsck --filesystem ext4 --mode unmounted run.txt":
            "One run of e2fsck -fn";
        "diskvitals analyze fsck --filesystem xfs --mode live --exit-status 1 a.txt b.txt c.txt":
            "Three runs that must agree";
    }
    "record" => USUAL {
        "diskvitals record io > node7.io": "The drives' I/O counters of a day";
        "diskvitals record io --for 14d > node7.io": "Long enough for each drive's own past";
    }
    "record io" => USUAL {
        "diskvitals record io --for 24h > node7.io": "For diskvitals analyze io";
        "diskvitals record io --for 14d | gzip > node7.io.gz": "Compressed";
    }
    "completions" => USUAL {
        "diskvitals completions bash > /etc/bash_completion.d/diskvitals": "For all users of bash";
        "source <(diskvitals completions zsh)": "For this zsh";
    }
    "man" => USUAL {
        "diskvitals man /usr/local/share/man/man1": "Writes all pages to a directory";
        "diskvitals man": "Writes them to the working directory";
    }
    "version" => USUAL {
        "diskvitals version": "The versions of this program and of the daemon";
        "diskvitals version -o json": "The same as JSON";
    }
    "doctor" => DOCTOR {
        "diskvitals doctor": "Each source and program, with what to install; also without a daemon";
        "diskvitals doctor -o json": "The same on one line of JSON";
    }
}

const RELATED: [&str; 4] =
    ["diskvitals(1)", "diskvitals.toml(5)", "diskvitalsd(8)", "diskvitals-csi(8)"];

fn page(words: &str) -> Option<Page> {
    let (_, examples, exit) = COMMANDS.iter().find(|(command, ..)| *command == words)?;
    Some(Page { section: "1", examples, exit, files: FILES, see_also: &RELATED })
}

/// The arguments, with examples and exit statuses in the long help of each command.
pub fn command() -> clap::Command {
    with_help(Args::command(), "")
}

fn with_help(mut command: clap::Command, words: &str) -> clap::Command {
    let names: Vec<String> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    for name in names {
        let below = format!("{words} {name}");
        command = command.mut_subcommand(name, |it| with_help(it, below.trim_start()));
    }
    match page(words) {
        Some(page) => command.after_long_help(page.help()),
        None => command,
    }
}

/// Writes diskvitals(1), one page for each command, and diskvitals.toml(5).
pub fn write_pages(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    write_page(&command, "", dir)?;
    let example = include_str!("../../systemd/diskvitals.toml");
    std::fs::write(dir.join("diskvitals.toml.5"), configuration_page(example)?)
}

fn write_page(command: &clap::Command, words: &str, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        let words = format!("{words} {}", below.get_name());
        write_page(below, words.trim_start(), dir)?;
    }
    let Some(page) = page(words) else {
        return Ok(());
    };
    let name = command.get_display_name().unwrap_or(command.get_name());
    std::fs::write(dir.join(format!("{name}.1")), page.man(command.clone())?)
}

#[cfg(test)]
mod tests;
