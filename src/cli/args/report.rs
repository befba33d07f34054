//! The arguments of `report` and `bundle`.

use std::path::PathBuf;

pub(crate) const REPORT_HELP: &str = "Prints a report of the node: its causes of trouble with their evidence, drives, filesystems, checks, and what could not be observed.

With --html, the report is one self-contained page: no script, no request to anywhere. With --from, it is made from a support bundle, without a daemon.

A report contains serial numbers and names of pods and mount points. A report of a redacted bundle (diskvitals bundle --redact) contains no serial numbers.";

pub(crate) const BUNDLE_HELP: &str = "Writes a support bundle: a .tar.gz with all answers of the daemon as JSON, the storage lines of the kernel log, and smartctl's last output of each drive.

With --redact, serial numbers, WWNs and the host name are replaced by placeholders. Mount points, names of pods and volumes, labels and UUIDs of filesystems remain.

`diskvitals report --from FILE` makes a report of it. What could not be read is stated in the bundle's manifest.json and in the report.";

#[derive(Clone, Debug, clap::Args)]
pub struct ReportArgs {
    /// Write one self-contained page to this file, replacing it; `-` writes to standard output
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub html: Option<PathBuf>,
    /// Print plain text; the default
    #[arg(long)]
    pub text: bool,
    /// Make the report from a support bundle; needs no daemon
    #[arg(long, value_name = "BUNDLE")]
    pub from: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
pub struct BundleArgs {
    /// The file to write, readable by its owner only; `-` writes to standard output
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Replace serial numbers, WWNs and the host name by placeholders
    #[arg(long)]
    pub redact: bool,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
}
