//! Command line of `diskvitals-fleet`: text in, validated values out.

use clap::{Parser, Subcommand};

use crate::duties::DUTIES;
use crate::duty::DutyName;
use diskvitals_cluster::naming::is_dns_subdomain;
use diskvitals_host::listen_address::Address;
use diskvitals_program::ProgramOptions;
use diskvitals_program::manual::{Page, SHIM_EXIT};

/// diskvitals-fleet(8).
pub(crate) const FLEET: Page = Page {
    section: "8",
    examples: &[
        (
            "diskvitals-fleet --duties claims,shared-drives --listen 127.0.0.1:9963",
            "Writes the health of claims, and says which drives several nodes have",
        ),
        (
            "diskvitals-fleet crds | kubectl apply -f -",
            "Installs the custom resource definitions without the chart",
        ),
    ],
    exit: SHIM_EXIT,
    files: &[(
        "/var/run/secrets/kubernetes.io/serviceaccount",
        "token and certificates of the API server, in a pod; elsewhere KUBECONFIG",
    )],
    see_also: &["diskvitals-csi(8)", "diskvitalsd(8)", "kubectl(1)"],
};

/// The cluster's controller of diskvitals: acts on the NodeStorage objects that the nodes' reporters
/// write.
///
/// It runs once in the cluster, in two replicas of which one leads. It has no access to any node.
/// Always: the NodeStorage of a node that was deleted is removed 30 days after it was last written.
/// Further duties by --duties:
///
/// claims: status.healthStatus of PersistentVolumeClaims whose volume is tied to one node
/// (Kubernetes 1.37 with the feature gate CSIVolumeHealth). shared-drives: events on nodes that list
/// the same drive at the same time. release: claims on dead drives are counted, and proposed for
/// release as StoragePolicy objects say. What a person has approved is carried out in the namespaces
/// of --carry-out-in; elsewhere nothing is deleted, and the commands are shown (docs/remediation.md).
/// quarantine: a node that was away has a taint until it has proven that nothing of its deleted pods
/// is left on it (docs/fleet.md). unreachable: a node that does not reach the storage of a CSI
/// driver has a taint until it has reached it for ten minutes, unless it is away for too many nodes;
/// with --evict-unreachable its pods move one after the other (docs/fleet.md). lost-nodes: the node
/// condition StorageHealthy of a node that is not Ready, and whose reporter is silent, does not stay
/// True.
///
/// Signals: TERM and INT stop it, within 5 s; the lease is released.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "diskvitals-fleet",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    after_long_help = FLEET.help()
)]
pub struct Options {
    /// What it does: claims, shared-drives, release, quarantine, unreachable, lost-nodes; separated by
    /// commas
    #[arg(long, value_delimiter = ',', value_name = "DUTIES", value_parser = duty, required_unless_present_any = ["man"])]
    pub duties: Vec<DutyName>,

    /// Carry out approved actions in these namespaces, separated by commas: the claim is deleted, its
    /// volume kept, its pod evicted [default: in none]
    #[arg(long, value_delimiter = ',', value_name = "NAMESPACES", value_parser = name)]
    pub carry_out_in: Vec<String>,

    /// Key of the taint of a node in quarantine
    #[arg(long, value_name = "KEY", default_value = "diskvitals.io/unclean", value_parser = taint_key)]
    pub unclean_taint: String,

    /// Key of the taint of a node that does not reach storage. Its value is the driver
    #[arg(long, value_name = "KEY", default_value = "diskvitals.io/storage-unreachable", value_parser = taint_key)]
    pub unreachable_taint: String,

    /// Evict pods from nodes that do not reach their storage, one at a time in the whole cluster
    #[arg(long)]
    pub evict_unreachable: bool,

    /// Serve /healthz, /readyz and /metrics on this address: 127.0.0.1:9963, a pod's own address, or
    /// unix:/PATH [default: nowhere]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<Address>,

    /// Namespace of the Lease that the replicas elect their leader by [default: the pod's, or the
    /// kubeconfig's]
    #[arg(long, value_name = "NAMESPACE", value_parser = name)]
    pub lease_namespace: Option<String>,

    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "diskvitals-fleet", value_parser = name)]
    pub lease_name: String,

    #[command(flatten)]
    pub program: ProgramOptions,

    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Print the custom resource definitions as JSON, for kubectl apply -f -
    Crds,
}

fn duty(text: &str) -> Result<DutyName, String> {
    let mut names = DUTIES.iter().map(|(name, _)| *name);
    names.find(|name| *name == text).ok_or_else(|| {
        let names: Vec<_> = DUTIES.iter().map(|(name, _)| *name).collect();
        format!("this version has the duties {}", names.join(", "))
    })
}

/// `prefix/name`: without a prefix it could be another's.
fn taint_key(text: &str) -> Result<String, String> {
    let is_name = |name: &str| {
        let mut ends = [name.chars().next(), name.chars().last()].into_iter();
        let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        name.len() <= 63
            && name.chars().all(is_inner)
            && ends.all(|c| c.is_some_and(|c| c.is_ascii_alphanumeric()))
    };
    text.split_once('/')
        .filter(|(prefix, name)| is_dns_subdomain(prefix) && is_name(name))
        .map(|_| text.to_owned())
        .ok_or_else(|| "no key of a taint: PREFIX/NAME, as diskvitals.io/unclean".to_owned())
}

fn name(text: &str) -> Result<String, String> {
    is_dns_subdomain(text).then(|| text.to_owned()).ok_or_else(|| {
        "no name of a Kubernetes object: lower case letters, digits, - and .".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(format!("diskvitals-fleet {words}").split_whitespace())
    }

    #[test]
    fn a_duty_that_this_version_does_not_have_is_wrong_usage() {
        let options = parse("--duties claims,shared-drives").expect("right");
        assert_eq!(options.duties, ["claims", "shared-drives"]);
        assert!(options.carry_out_in.is_empty());
        let options = parse("--duties release --carry-out-in shop,bank").expect("right");
        assert_eq!(options.carry_out_in, ["shop", "bank"]);
        for wrong in [
            "",
            "--duties quarantine --unclean-taint unclean",
            "--duties quarantine --unclean-taint a/-b",
            "--duties claims,act",
            "--duties claims --listen 0.0.0.0:1",
            "--duties claims --lease-name A_b",
            "--duties release --carry-out-in *",
        ] {
            assert_eq!(parse(wrong).map_err(|error| error.exit_code()).err(), Some(2), "{wrong}");
        }
        assert!(parse("crds").is_ok_and(|options| options.command.is_some()));
    }
}
