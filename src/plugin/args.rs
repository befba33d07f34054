//! The arguments of the plugin. Help texts, completions and the man page are made from them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use diskvitals_cluster::node_storage::Health;
use diskvitals_program::manual::Page;
use diskvitals_text::duration;

/// kubectl-diskvitals(1).
pub(crate) const PLUGIN: Page = Page {
    section: "1",
    examples: &[
        (
            "kubectl diskvitals",
            "The cluster on one screen: nodes by health, drives to replace, claims affected, silent nodes",
        ),
        (
            "kubectl diskvitals attachments shop/data-orders-db-0",
            "Where a claim is mounted, and what keeps a second writer out",
        ),
        (
            "kubectl diskvitals explain pod/orders-db-0 -n shop",
            "Asks the daemon of the pod's node: the chain from drive to pod, with the evidence",
        ),
        (
            "kubectl diskvitals config node-1",
            "The settings of that node's daemon, with all defaults",
        ),
        (
            "kubectl diskvitals approve release-data-orders-db-0-00c0ffee00000001 -n shop",
            "Shows the evidence of an action, asks, and approves it for one hour",
        ),
        ("kubectl diskvitals --exit-code -o json", "For a monitoring system"),
    ],
    exit: &[
        (0, "done; with --exit-code: good"),
        (1, "failed: no cluster, no permission, no such thing; with --exit-code: warning"),
        (
            2,
            "wrong usage, also a question without a terminal and without --yes; with --exit-code: critical",
        ),
        (
            3,
            "with --exit-code: unknown, also without an answer of the API server and for wrong usage",
        ),
    ],
    files: &[("~/.kube/config", "the kubeconfig, unless KUBECONFIG or --kubeconfig names another")],
    see_also: &["kubectl(1)", "diskvitals(1)", "diskvitals-csi(8)"],
};

/// Shows the storage health of a cluster: drives, claims and mounts of all nodes.
///
/// It reads the NodeStorage objects that the reporter of each node writes, and joins them with
/// nodes, volumes, claims and pods. What it may not read, or cannot know, it says: such a thing is
/// never shown as healthy. It changes nothing, except for a person's decision: `approve`, `reject`
/// and `breaker reset`.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "kubectl-diskvitals",
    bin_name = "kubectl diskvitals",
    version,
    max_term_width = 100,
    after_long_help = PLUGIN.help()
)]
pub(crate) struct Options {
    #[command(flatten)]
    pub connection: Connection,
    /// Output format: tables, tables with every column, or JSON
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Print without colors; also the default when NO_COLOR is set or standard output is not a
    /// terminal
    #[arg(long, global = true)]
    pub no_color: bool,
    /// Without a command: exit with 0 good, 1 warning, 2 critical, 3 unknown, as a monitoring
    /// plugin does
    #[arg(long)]
    pub exit_code: bool,
    /// Print this program's man page and exit
    #[arg(long, hide = true)]
    pub man: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Connection {
    /// Namespace of claims and pods [default: that of the context]
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long, global = true, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// The kubeconfig [default: KUBECONFIG, ~/.kube/config, or in a pod its service account]
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Time limit for each answer of the API server: seconds, or a duration (500ms, 2min)
    #[arg(long, global = true, default_value = "30", value_name = "DURATION", value_parser = time_limit)]
    pub request_timeout: Duration,
    /// Only nodes with these labels, as `kubectl get nodes -l`; reports of deleted nodes are then
    /// left out
    #[arg(short = 'l', long, global = true, value_name = "LABELS")]
    pub selector: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Wide,
    Json,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// List drives that are not good, with node, slot, serial number and reason
    Drives(DrivesArgs),
    /// List claims whose volumes are not healthy, with pod, node and drive
    Claims,
    /// Show where a claim, volume or pod has mounts, which of them are stale, and what keeps a
    /// second writer out
    Attachments(AttachmentsArgs),
    /// List mounts of pods that no longer exist
    Stale {
        /// Only of this node
        #[arg(long, value_name = "NODE")]
        node: Option<String>,
    },
    /// List volumes that were kept when their claim was released or deleted, on drives that failed
    /// and on nodes that are gone; a person deletes them
    Retained,
    /// List proposals of the controller and what became of them, or show one with its evidence
    Actions(ActionsArgs),
    /// Approve an action, after showing its evidence
    Approve(DecisionArgs),
    /// Reject an action: the same finding of the claim is not proposed again
    Reject(DecisionArgs),
    /// Close the breaker of a policy
    Breaker {
        #[command(subcommand)]
        command: BreakerCommand,
    },
    /// Run `diskvitals explain` in the daemon's pod of the node that has the thing (needs the
    /// permission `create pods/exec`)
    Explain(ExplainArgs),
    /// Print the configuration that the daemon of a node runs with, by `diskvitals config` in its pod
    /// (needs the permission `create pods/exec`)
    Config(ConfigArgs),
    /// Count drives by model and firmware
    Models,
    /// Print shell completions, or with `kubectl` the script through which kubectl completes the
    /// plugin
    Completion {
        #[arg(value_enum)]
        shell: CompletionKind,
    },
    /// Print what completes a command line, for kubectl and the shells
    #[command(name = "__complete", hide = true)]
    Complete {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompletionKind {
    Bash,
    Zsh,
    Fish,
    Kubectl,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DrivesArgs {
    /// Only models that contain this text, in upper or lower case
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Only of this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Only drives of this health that count: acknowledged ones and those under maintenance are
    /// left out. The API server selects the nodes
    #[arg(long, value_enum, conflicts_with = "all")]
    pub health: Option<DriveHealth>,
    /// All drives; of good ones only the id is known
    #[arg(long)]
    pub all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DriveHealth {
    Bad,
    Suspect,
    Unknown,
}

impl DriveHealth {
    pub(crate) fn health(self) -> Health {
        match self {
            DriveHealth::Bad => Health::Bad,
            DriveHealth::Suspect => Health::Suspect,
            DriveHealth::Unknown => Health::Unknown,
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct AttachmentsArgs {
    /// A claim, PersistentVolume or pod: NAME, NAMESPACE/NAME, or with its kind pvc/NAME, pv/NAME,
    /// pod/NAME
    #[arg(value_name = "PVC|PV|POD")]
    pub name: String,
    /// The kubelet's directory on the nodes, for derived paths
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_root: String,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A pod, claim, PersistentVolume or drive: NAME, NAMESPACE/NAME, with its kind pod/NAME,
    /// pvc/NAME, pv/NAME, or the id or serial number of a drive
    #[arg(value_name = "POD|PVC|PV|DRIVE")]
    pub name: String,
    /// The node, for names that only it knows (sda, /srv/db)
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Namespace of the daemon's pods, if pods in several namespaces look like it
    #[arg(long, value_name = "NAMESPACE")]
    pub daemon_namespace: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ConfigArgs {
    /// The node
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Namespace of the daemon's pods, if pods in several namespaces look like it
    #[arg(long, value_name = "NAMESPACE")]
    pub daemon_namespace: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ActionsArgs {
    /// One action in full: NAME or NAMESPACE/NAME
    #[arg(value_name = "ACTION")]
    pub action: Option<String>,
    /// Also those that have ended: replaced, aborted, rejected
    #[arg(long)]
    pub all: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Consent {
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Let the API server check the change and store nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DecisionArgs {
    /// The action: NAME or NAMESPACE/NAME
    #[arg(value_name = "ACTION")]
    pub action: String,
    /// Why; kept with the action
    #[arg(long, value_name = "TEXT", value_parser = note)]
    pub note: Option<String>,
    #[command(flatten)]
    pub consent: Consent,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BreakerCommand {
    /// Close an open breaker, after showing what opened it
    Reset(ResetArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ResetArgs {
    /// The StoragePolicy [default: all whose breaker is open]
    #[arg(value_name = "POLICY")]
    pub policy: Option<String>,
    #[command(flatten)]
    pub consent: Consent,
}

/// Longest note, in bytes.
const MAX_NOTE_LEN: usize = 512;

fn note(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("an empty note".to_owned()),
        note if note.len() > MAX_NOTE_LEN => Err(format!("longer than {MAX_NOTE_LEN} bytes")),
        note => Ok(note.to_owned()),
    }
}

fn time_limit(text: &str) -> Result<Duration, String> {
    match duration::parse(text) {
        Ok(Duration::ZERO) => Err("a request without a time limit could hang for ever".to_owned()),
        Ok(limit) => Ok(limit),
        Err(error) => Err(error.to_string()),
    }
}
