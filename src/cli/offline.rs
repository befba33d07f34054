//! What needs no daemon: the table of reasons, completions, man pages.

use std::io;
use std::path::Path;

use clap::CommandFactory;

use crate::api::wire;
use crate::cli::args::Args;
use crate::model::reason::{About, Reason};

pub fn reasons() -> wire::ListReasonsResponse {
    let text = |reason: &Reason| wire::ReasonText {
        name: reason.name().to_owned(),
        about: match reason.about() {
            About::Drive => "drive",
            About::Volume => "volume",
            About::Both => "drive, volume",
        }
        .to_owned(),
        meaning: reason.meaning().to_owned(),
        action: reason.action().to_owned(),
    };
    wire::ListReasonsResponse { reasons: Reason::ALL.iter().map(text).collect() }
}

pub fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "diskvitals", &mut text);
    text
}

/// diskvitals(1) and one page for each command.
pub fn man(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Args::command(), dir)
}
