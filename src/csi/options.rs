//! Command line of `diskvitals-csi`: text in, validated values out.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use diskvitals_program::ProgramOptions;
use diskvitals_program::manual::SHIM;
use diskvitals_text::naming;

/// sun_path has 108 bytes, including the terminating zero (unix(7)).
const MAX_SOCKET_PATH_LEN: usize = 107;

/// CSI, NodeGetInfoResponse.node_id, in bytes.
const MAX_NODE_ID_LEN: usize = 256;
/// A label's key (Kubernetes, Labels and Selectors): the longest prefix and the longest name.
const MAX_LABEL_PREFIX_LEN: usize = 253;
const MAX_LABEL_NAME_LEN: usize = 63;

/// The CSI shim of diskvitals: exposes volume health of this node to Kubernetes, and provides
/// volumes of this node.
///
/// It queries diskvitalsd on its agent socket and needs no privilege of its own. Each mode is one
/// process with its own socket:
///
/// driver: CSI's Identity, Controller and Node services for the volumes that diskvitalsd provides
/// (csi.diskvitals.io): static volumes and volumes of a pool. controller: Identity and Controller
/// only. interposer: forwards all calls to another driver (--upstream) and adds volume health to
/// its answers. registrar: registers the driver that serves --endpoint with the kubelet
/// (--registration-dir, --kubelet-registration-path).
///
/// --report publishes to the API server as well, in any mode. With --report and without --mode and
/// --endpoint the program does nothing else.
///
/// Probe returns ready=false until diskvitalsd has answered once on its agent socket, and
/// ready=true from then on, whatever becomes of diskvitalsd. Whether diskvitalsd answers now is
/// reported by grpc.health.v1 on the same socket, and by UNAVAILABLE from the health calls.
///
/// Signals: TERM and INT stop it, within 5 s.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "diskvitals-csi",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    after_long_help = SHIM.help()
)]
pub struct Options {
    /// Mode of this process [default: driver; with --report and no --endpoint: a reporter and
    /// nothing else]
    #[arg(long, value_enum, value_name = "MODE")]
    pub mode: Option<Mode>,

    /// Socket to serve CSI on: unix:///PATH; required in every mode. A stale socket is replaced.
    /// With --mode registrar: the socket of the driver
    #[arg(long, env = "CSI_ENDPOINT", value_name = "ENDPOINT")]
    pub endpoint: Option<Endpoint>,

    /// The agent socket of diskvitalsd (its --agent-socket)
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/diskvitals/csi/agent.sock",
        value_parser = PathBufValueParser::new().try_map(std::path::absolute::<PathBuf>)
    )]
    pub agent: PathBuf,

    /// Name of the CSI driver
    #[arg(long, value_name = "NAME", default_value = "csi.diskvitals.io", value_parser = driver_name)]
    pub driver_name: String,

    /// Id of this node; in Kubernetes spec.nodeName. It must stay the same as long as volumes live
    /// [default: the host name]
    #[arg(long, value_name = "ID", value_parser = node_id)]
    pub node_id: Option<String>,

    /// Topology label that names the node of a volume
    #[arg(long, value_name = "KEY", default_value = "topology.diskvitals.io/node", value_parser = label_key)]
    pub topology_key: String,

    /// Which CSI health API to expose: the VolumeCondition of CSI up to 1.12, the health calls of
    /// CSI 1.13, or both. Callers built on 1.12 may not accept the capabilities of 1.13
    #[arg(long, value_enum, default_value_t, value_name = "API")]
    pub health_api: HealthApi,

    /// Announce ControllerPublishVolume and ControllerExpandVolume, for a CSIDriver with
    /// attachRequired: true. They change nothing: a volume is where its node is
    #[arg(long)]
    pub controller_publish: bool,

    /// With --mode controller: ListVolumes lists nothing. For a health monitor that only watches
    /// nodes: each node's own monitor lists its volumes
    #[arg(long)]
    pub list_nothing: bool,

    /// With --mode interposer, required: the socket of the real driver
    #[arg(long, value_name = "ENDPOINT")]
    pub upstream: Option<Endpoint>,

    /// With --mode registrar, required: the kubelet's directory of registration sockets
    /// (/var/lib/kubelet/plugins_registry)
    #[arg(long, value_name = "DIR")]
    pub registration_dir: Option<PathBuf>,

    /// With --mode registrar, required: the path of the driver's socket as the kubelet sees it
    #[arg(long, value_name = "PATH", value_parser = socket_path)]
    pub kubelet_registration_path: Option<String>,

    /// Serve podmon's ValidateVolumeHostConnectivity on this socket too, beside --endpoint:
    /// unix:///PATH
    #[arg(long, value_name = "ENDPOINT")]
    pub podmon_endpoint: Option<Endpoint>,

    /// Publish to the API server: events on the node, pods and claims for every change of health;
    /// conditions: the node condition StorageHealthy; storage-failed: the node condition
    /// StorageFailed, which programs may act on (docs/kubernetes.md); storage: the object
    /// NodeStorage (docs/fleet.md). In a pod with its service account's token, elsewhere
    /// by KUBECONFIG; the node is --node-id. Separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub report: Vec<ReportKind>,

    /// With --report storage: answer the challenges in the NodeStorage object of this node with what
    /// diskvitalsd sees then (docs/fleet.md). The object is watched for it
    #[arg(long)]
    pub answer_challenges: bool,

    /// With --report storage: when the NodeStorage object of this node says that the node is in
    /// quarantine, order diskvitalsd to remove what is left of the pods in question, and say whether
    /// the node is clean (docs/fleet.md). The object is watched for it
    #[arg(long)]
    pub clean_stale: bool,

    /// Answer the health calls with empty lists, before the driver or the interposer is removed:
    /// the kubelet keeps the last health for ever once no driver answers. With --report: publish that
    /// health is no longer reported, remove the node conditions, empty the NodeStorage object, and
    /// publish nothing else
    #[arg(long)]
    pub withdraw: bool,

    #[command(flatten)]
    pub program: ProgramOptions,

    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    Withdraw(WithdrawOptions),
}

/// Withdraw the health that a running shim has reported, before it is removed.
///
/// From now on the shim behind --endpoint answers the health calls of the kubelet with empty lists,
/// until its process ends (start it with --withdraw to keep it so). An empty list means healthy:
/// withdraw only what is removed next. The command ends when the kubelet has completed a round.
/// Then remove the driver, or point its registrar back.
///
/// Exit status: 0 withdrawn, and with a complete round unless --no-wait; 1 failed or no round in
/// time; 2 wrong usage.
#[derive(Args, Clone, Debug)]
pub struct WithdrawOptions {
    /// The socket of a shim in mode driver or interposer: unix:///PATH
    #[arg(long, env = "CSI_ENDPOINT", value_name = "ENDPOINT")]
    pub endpoint: Endpoint,

    /// How long to wait for a complete round of the kubelet, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub timeout: u64,

    /// Withdraw, and do not wait for the kubelet
    #[arg(long)]
    pub no_wait: bool,
}

/// Mode of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    Driver,
    Interposer,
    Controller,
    Registrar,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Driver => "driver",
            Mode::Interposer => "interposer",
            Mode::Controller => "controller",
            Mode::Registrar => "registrar",
        }
    }
}

/// What to publish to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportKind {
    Events,
    /// The node condition StorageHealthy.
    Conditions,
    /// The node condition StorageFailed.
    StorageFailed,
    /// The drives and volumes that are not healthy, as the object NodeStorage of this node
    Storage,
}

/// CSI health API to expose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HealthApi {
    #[default]
    Both,
    Condition,
    Health,
}

impl HealthApi {
    /// CSI up to 1.12.
    pub(crate) fn includes_condition(self) -> bool {
        self != HealthApi::Health
    }

    /// CSI 1.13.
    pub(crate) fn includes_health(self) -> bool {
        self != HealthApi::Condition
    }
}

/// Flags that contradict each other.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    #[error("--mode {mode} needs {flag}")]
    Missing { mode: &'static str, flag: &'static str },
    #[error("--mode {mode} has no use for {flag}")]
    Unused { mode: &'static str, flag: &'static str },
    #[error("--report without --mode and --endpoint does nothing else, and has no use for {0}")]
    UnusedByReporter(&'static str),
    #[error("--answer-challenges needs --report storage: the answer is a part of that object")]
    ChallengesWithoutStorage,
    #[error("--clean-stale needs --report storage: the quarantine is a part of that object")]
    CleanStaleWithoutStorage,
    #[error("--podmon-endpoint is the same as --endpoint, where podmon is served anyway")]
    SameEndpoint,
    #[error(
        "--upstream is the same as --endpoint: the driver must serve another socket than this program"
    )]
    UpstreamIsEndpoint,
}

impl Options {
    /// None: the process is only a reporter.
    pub fn mode(&self) -> Option<Mode> {
        let alone = self.endpoint.is_none() && !self.report.is_empty();
        self.mode.or((!alone).then_some(Mode::Driver))
    }

    /// The flags of single modes: whether the flag is given, the modes that use it, and whether
    /// these modes require it.
    fn mode_flags(&self) -> [(&'static str, bool, &'static [Mode], bool); 6] {
        use Mode::{Controller, Driver, Interposer, Registrar};
        [
            ("--registration-dir", self.registration_dir.is_some(), &[Registrar], true),
            (
                "--kubelet-registration-path",
                self.kubelet_registration_path.is_some(),
                &[Registrar],
                true,
            ),
            ("--upstream", self.upstream.is_some(), &[Interposer], true),
            ("--controller-publish", self.controller_publish, &[Driver, Controller], false),
            ("--list-nothing", self.list_nothing, &[Controller], false),
            ("--podmon-endpoint", self.podmon_endpoint.is_some(), &[Driver, Interposer], false),
        ]
    }

    /// Checks that each mode has its own flags and no others.
    pub fn validated(self) -> Result<Options, UsageError> {
        if self.command.is_some() {
            return Ok(self);
        }
        if self.answer_challenges && !self.report.contains(&ReportKind::Storage) {
            return Err(UsageError::ChallengesWithoutStorage);
        }
        if self.clean_stale && !self.report.contains(&ReportKind::Storage) {
            return Err(UsageError::CleanStaleWithoutStorage);
        }
        let Some(this) = self.mode() else {
            let given = self.mode_flags().into_iter().find(|(_, given, ..)| *given);
            return match given {
                Some((flag, ..)) => Err(UsageError::UnusedByReporter(flag)),
                None => Ok(self),
            };
        };
        let mode = this.name();
        if self.endpoint.is_none() {
            let flag = "--endpoint";
            return Err(UsageError::Missing { mode, flag });
        }
        for (flag, given, users, needed) in self.mode_flags() {
            match (given, users.contains(&this)) {
                (false, true) if needed => return Err(UsageError::Missing { mode, flag }),
                (true, false) => return Err(UsageError::Unused { mode, flag }),
                _ => {}
            }
        }
        if self.withdraw && this == Mode::Registrar {
            let flag = "--withdraw";
            return Err(UsageError::Unused { mode, flag });
        }
        if self.upstream.is_some() && self.upstream == self.endpoint {
            return Err(UsageError::UpstreamIsEndpoint);
        }
        if self.podmon_endpoint.is_some() && self.podmon_endpoint == self.endpoint {
            return Err(UsageError::SameEndpoint);
        }
        Ok(self)
    }
}

/// The path of a unix socket that has a valid form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(PathBuf);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("only unix sockets are served: write unix:///PATH or unix:PATH")]
    Scheme,
    #[error("behind unix:// the path must be absolute: write unix:///PATH, or unix:PATH")]
    Relative,
    #[error("the path names no file")]
    NotAFile,
    #[error("the path has {0} bytes, at most {MAX_SOCKET_PATH_LEN} are possible for a unix socket")]
    TooLong(usize),
}

impl Endpoint {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let rest = text.strip_prefix("unix:").ok_or(EndpointError::Scheme)?;
        let path = match rest.strip_prefix("//") {
            Some(path) if !path.starts_with('/') => return Err(EndpointError::Relative),
            Some(path) => path,
            None => rest,
        };
        let absolute = std::path::absolute(path).map_err(|_| EndpointError::NotAFile)?;
        let path = absolute.as_path();
        let length = path.as_os_str().as_bytes().len();
        if length > MAX_SOCKET_PATH_LEN {
            return Err(EndpointError::TooLong(length));
        }
        if path.file_name().is_none() || text.ends_with('/') {
            return Err(EndpointError::NotAFile);
        }
        Ok(Endpoint(path.to_owned()))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

fn socket_path(text: &str) -> Result<String, EndpointError> {
    format!("unix://{text}").parse::<Endpoint>()?;
    Ok(text.to_owned())
}

/// A value that its flag does not accept.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ValueError {
    #[error("{0}")]
    DriverName(naming::NameError),
    #[error("a node id has 1 to {MAX_NODE_ID_LEN} bytes, this one {0}")]
    NodeIdLength(usize),
    #[error("a node id has no blanks and no control characters")]
    NodeIdCharacters,
    #[error("a topology key has a prefix: write PREFIX/NAME")]
    NoLabelPrefix,
    #[error("the prefix is a DNS name of at most {MAX_LABEL_PREFIX_LEN} characters")]
    LabelPrefix,
    #[error(
        "the name has at most {MAX_LABEL_NAME_LEN} characters, letters, digits, `-`, `_` and `.`, and begins and ends with a letter or digit"
    )]
    LabelName,
}

fn driver_name(text: &str) -> Result<String, ValueError> {
    naming::validate_driver(text).map_err(ValueError::DriverName)?;
    Ok(text.to_owned())
}

fn node_id(text: &str) -> Result<String, ValueError> {
    if text.is_empty() || text.len() > MAX_NODE_ID_LEN {
        return Err(ValueError::NodeIdLength(text.len()));
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(ValueError::NodeIdCharacters);
    }
    Ok(text.to_owned())
}

/// `PREFIX/NAME` or `NAME` (Kubernetes, Labels and Selectors). CSI requires the prefix.
fn label_key(text: &str) -> Result<String, ValueError> {
    let plain = |part: &str, more: &[u8]| {
        let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = part.as_bytes();
        ends(bytes.first())
            && ends(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || more.contains(byte))
    };
    let Some((prefix, name)) = text.split_once('/') else {
        return Err(ValueError::NoLabelPrefix);
    };
    if prefix.len() > MAX_LABEL_PREFIX_LEN || !plain(prefix, b"-.") {
        return Err(ValueError::LabelPrefix);
    }
    if name.len() > MAX_LABEL_NAME_LEN || !plain(name, b"-_.") {
        return Err(ValueError::LabelName);
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
