//! Man pages and long help: what clap knows of a command, and what the arguments do not say:
//! examples, files, exit statuses, related pages. Pure, except for clap's rendering.

use std::fmt::Write;
use std::io;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// What a page says beside the arguments.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// `1`, `5` or `8`.
    pub section: &'static str,
    /// A command, and what it does.
    pub examples: &'static [(&'static str, &'static str)],
    pub exit: &'static [(u8, &'static str)],
    pub files: &'static [(&'static str, &'static str)],
    /// `diskvitalsd(8)`.
    pub see_also: &'static [&'static str],
}

/// A list of names, each with its meaning.
#[macro_export]
macro_rules! pairs {
    ($($name:literal: $meaning:literal;)*) => {
        &[$(($name, $meaning)),*]
    };
}

/// The files that all programs have in common.
pub const FILES: &[(&str, &str)] = pairs! {
    "/etc/diskvitals/diskvitals.toml": "configuration of the daemon: diskvitals.toml(5)";
    "/run/diskvitals/diskvitals.sock": "the daemon's socket";
    "/run/diskvitals/csi/agent.sock": "the daemon's socket for the CSI shim";
    "/var/lib/diskvitals": "history: findings, acknowledgements, drives that were present";
};

pub const DAEMON_EXIT: &[(u8, &str)] = pairs! {
    0: "stopped";
    1: "failed";
    2: "wrong usage, also a --config that does not exist; with --check-config: the file is refused";
};
pub const SHIM_EXIT: &[(u8, &str)] = pairs! {
    0: "stopped";
    1: "failed";
    2: "wrong usage";
};

pub const NOTIFY_EXIT: &[(u8, &str)] = pairs! {
    0: "stopped; all tests were sent";
    1: "failed; a test was not sent; a target cannot work";
    2: "wrong usage or configuration";
};

/// diskvitalsd(8).
pub const DAEMON: Page = Page {
    section: "8",
    examples: pairs! {
        "diskvitalsd --config /etc/diskvitals/diskvitals.toml --check-config":
            "Prints the effective settings, or why a file is refused";
        "diskvitalsd --socket ./d.sock --agent-socket ./a.sock --state-dir ./state":
            "A second daemon, beside the one of the system";
    },
    exit: DAEMON_EXIT,
    files: FILES,
    see_also: &["diskvitals.toml(5)", "diskvitals(1)", "diskvitals-csi(8)"],
};

/// diskvitals-csi(8).
pub const SHIM: Page = Page {
    section: "8",
    examples: pairs! {
        "diskvitals-csi --endpoint unix:///csi/csi.sock --node-id node-1":
            "The CSI driver of a node";
        "diskvitals-csi --mode interposer --endpoint unix:///csi/csi.sock --upstream unix:///csi/real.sock":
            "Health in front of another driver";
        "diskvitals-csi withdraw --endpoint unix:///csi/csi.sock":
            "Before a driver or an interposer is removed: empty lists for the kubelet";
    },
    exit: SHIM_EXIT,
    files: FILES,
    see_also: &["diskvitalsd(8)", "diskvitals(1)", "diskvitals.toml(5)"],
};

/// diskvitals-notify(8).
pub const NOTIFY: Page = Page {
    section: "8",
    examples: pairs! {
        "diskvitals-notify test mail":
            "Sends a test to the target `mail` and prints the server's answer";
        "diskvitals-notify --check-config":
            "Tries programs, addresses, certificates and secrets; sends nothing";
    },
    exit: NOTIFY_EXIT,
    files: pairs! {
        "/etc/diskvitals/notify.toml": "configuration: where messages go, and when";
        "/var/lib/diskvitals-notify": "the queue: messages that are not delivered yet";
        "/run/diskvitals/diskvitals.sock": "the daemon's socket";
    },
    see_also: &["diskvitalsd(8)", "diskvitals(1)"],
};

impl Page {
    /// The end of the long help: examples and exit statuses.
    pub fn help(&self) -> String {
        let mut text = "Examples:\n".to_owned();
        for (command, meaning) in self.examples {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {command}\n      {meaning}");
        }
        text.push_str("\nExit status:\n");
        for (code, meaning) in self.exit {
            let _ = writeln!(text, "  {code:<3}  {meaning}");
        }
        text.trim_end().to_owned()
    }

    /// The man page of a command that has this page's help.
    pub fn man(&self, command: clap::Command) -> io::Result<Vec<u8>> {
        let name = command.get_name().to_owned();
        let title = command.get_display_name().unwrap_or(&name).to_owned();
        let has_subcommands =
            command.get_subcommands().any(|it| !it.is_hide_set() && it.get_name() != "help");
        let version = command.get_version().unwrap_or(env!("CARGO_PKG_VERSION"));
        let source = format!("diskvitals {version}");
        let man = Man::new(command)
            .title(title)
            .section(self.section)
            .source(source)
            .manual("diskvitals");
        let mut page = Vec::new();
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        if has_subcommands {
            man.render_subcommands_section(&mut page)?;
        }
        self.sections().to_writer(&mut page)?;
        Ok(page)
    }

    fn sections(&self) -> Roff {
        let mut roff = Roff::new();
        roff.control("SH", ["EXAMPLES"]);
        for (command, meaning) in self.examples {
            entry(&mut roff, command, meaning);
        }
        roff.control("SH", ["FILES"]);
        for (path, meaning) in self.files {
            entry(&mut roff, path, meaning);
        }
        roff.control("SH", ["EXIT STATUS"]);
        for (code, meaning) in self.exit {
            entry(&mut roff, &code.to_string(), meaning);
        }
        roff.control("SH", ["SEE ALSO"]);
        roff.text([roman(self.see_also.join(", "))]);
        roff
    }
}

fn entry(roff: &mut Roff, name: &str, meaning: &str) {
    roff.control("TP", []);
    roff.text([bold(name)]);
    roff.text([roman(meaning)]);
}

/// diskvitals.toml(5), from the commented example: comments are text, settings are shown as they are
/// written.
pub fn configuration_page(example: &str) -> io::Result<Vec<u8>> {
    let mut roff = Roff::new();
    let source = format!("diskvitals {}", env!("CARGO_PKG_VERSION"));
    roff.control("TH", ["diskvitals.toml", "5", "", &source, "diskvitals"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("diskvitals.toml - configuration of diskvitalsd")]);
    roff.control("SH", ["DESCRIPTION"]);
    let mut is_literal = false;
    let mut literal = |roff: &mut Roff, on: bool| {
        if std::mem::replace(&mut is_literal, on) != on {
            roff.control(if on { "EX" } else { "EE" }, []);
            if !on {
                roff.control("PP", []);
            }
        }
    };
    for line in example.lines() {
        let setting = line.strip_prefix("#: ").or_else(|| line.strip_prefix("#     "));
        if let Some(setting) = setting {
            literal(&mut roff, true);
            roff.text([bold(setting)]);
            continue;
        }
        literal(&mut roff, false);
        if line.starts_with('[') {
            roff.control("SH", [line]);
        } else if line.is_empty() {
            roff.control("PP", []);
        } else {
            roff.text([roman(line.trim_start_matches(['#', ' ']))]);
        }
    }
    literal(&mut roff, false);
    roff.control("SH", ["EXAMPLES"]);
    let examples = ["[drives]", "maintenance = [\"sda\"]", "", "[checks]", "interval = \"30d\""];
    roff.control("EX", []);
    for line in examples {
        roff.text([bold(line)]);
    }
    roff.control("EE", []);
    roff.control("SH", ["FILES"]);
    let read = "read at start, on SIGHUP and when it changes";
    entry(&mut roff, "/etc/diskvitals/diskvitals.toml", read);
    roff.control("SH", ["EXIT STATUS"]);
    roff.text([roman(
        "diskvitalsd --check-config exits with 2 if the file is refused. A daemon that is started with such a file uses the defaults, and diskvitals status shows the line, until a good one is read.",
    )]);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("diskvitalsd(8), diskvitals(1), diskvitals-csi(8)")]);
    let mut page = Vec::new();
    roff.to_writer(&mut page)?;
    Ok(page)
}
