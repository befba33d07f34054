//! Whether the kernel or a person made a filesystem read-only.

use crate::assess::errors::log_evidence;
use crate::assess::filesystem::{own_proof, tally};
use crate::assess::input::VolumeInput;
use crate::assess::mounted::{mount_evidence, mount_line_of};
use crate::assess::text::{MOUNTINFO, evidence, raised, unknown};
use crate::facts::{Facts, KnownVolume};
use crate::volume::VolumeMount;
use diskvitals_finding::severity::Severity;
use diskvitals_finding::{Status, Verdict, WitnessKind};
use diskvitals_kernel_log::event::Class;

/// The filesystem (its superblock) is read-only although this was not requested. Source:
/// mountinfo's two sets of options. BAD, degraded: `emergency_ro`, and the log's own record of it,
/// always come from the kernel. `ro` while the mount's own option is `rw` comes from an error handler
/// (ext4's errors=remount-ro), or from a remount of the superblock alone (`remount,ro=fs`, sysrq): mount(8)
/// usually sets both. It is SUSPECT if the log is complete since the mount and has no error of the filesystem. Not raised when fstab contains `ro`, when a mount became `ro` together with
/// the filesystem, or when the whole filesystem was mounted `ro` initially; a read-only bind mount
/// is no evidence of this if it existed while the filesystem was writable. Network filesystems are
/// not judged. The log's record (an aborted journal, `Remounting filesystem read-only`) counts if
/// the superblock does not show it, until the filesystem is mounted again or remounted; it is SUSPECT where
/// ext4 has counted no error (`counters::proof`). Clears when
/// the filesystem is writable or is not mounted.
pub(crate) fn read_only(input: &VolumeInput) -> Option<Verdict> {
    let (facts, known) = (input.context.facts, input.known);
    let volume = &known.facts;
    if volume.block || volume.remote && volume.device.is_none() {
        return None;
    }
    if let Some(error) = facts.mounts.error() {
        return unknown(error);
    }
    let at = facts.mounts.value().and(facts.mounts.at())?;
    let with = |option: &str| volume.mounts.iter().find(|mount| mount.has_super_option(option));
    if with("shutdown").is_some() {
        // Reported by FilesystemShutdown.
        return Some(Verdict::Clear);
    }
    let logged = tally(input, Class::ReadOnly);
    let (emergency, plain) = (with("emergency_ro"), with("ro"));
    let first = || volume.mounts.first().filter(|_| logged.is_some());
    let Some(mount) = emergency.or(plain).or_else(first) else {
        return Some(Verdict::Clear);
    };
    let certain = emergency.is_some() || logged.is_some();
    if !certain && input.active.is_none() && is_requested(facts, known) {
        return Some(Verdict::Clear);
    }
    let mut proof = logged.map(log_evidence).unwrap_or_default();
    let mounted = mount_evidence(facts, known);
    if mounted.is_empty() {
        proof.extend(
            mount_line_of(facts, &mount.path)
                .map(|line| evidence(WitnessKind::MountTable, MOUNTINFO, at, line)),
        );
    }
    proof.extend(mounted);

    let errors = [Class::FsError, Class::FsCorruption, Class::FsShutdown];
    let had_errors = errors.into_iter().any(|class| tally(input, class).is_some());
    // Records that are lost later change nothing.
    let was_without_cause = input.active == Some(Severity::Suspect);
    let is_without_cause =
        !certain && !had_errors && (was_without_cause || is_log_complete(facts, known));
    let how = match (emergency, plain) {
        (Some(_), _) => "refuses writes after an error (emergency_ro)".to_owned(),
        (None, Some(_)) if logged.is_some() => "has been made read-only by the kernel".to_owned(),
        (None, Some(mount)) => {
            let own = if mount.is_read_only() { "ro" } else { "rw" };
            let log = match (had_errors, is_without_cause) {
                (true, _) => "and it had errors",
                (false, true) => "and the kernel log has no error of it",
                (false, false) => "and whether the kernel logged an error is not known",
            };
            format!("is read-only: its superblock is `ro`, the mount is `{own}`, {log}")
        }
        // ext4 keeps showing `rw`: after an aborted journal until the next write, and in some
        // kernels permanently (ext4_handle_error(), fs/ext4/super.c).
        (None, None) => "refuses writes: the kernel has made it read-only".to_owned(),
    };
    let shown = emergency.or(plain).is_some();
    let support = logged.filter(|_| !shown).map(|tally| own_proof(input, Class::ReadOnly, tally));
    let (severity, note) = match support {
        Some(support) => support.limit(Severity::Bad),
        None if is_without_cause => (Severity::Suspect, String::new()),
        None => (Severity::Bad, String::new()),
    };
    let (kind, device) = (volume.filesystem_name(), volume.device_name());
    let message = format!("the {kind} on {device} mounted at {} {how}{note}", mount.path);
    let clears = "the filesystem is writable again, or is no longer mounted";
    let since = logged.map(|tally| tally.first.time);
    let mut verdict = raised((severity, Status::Degraded), message, proof, clears, since);
    if let Some(Verdict::Raised(details)) = &mut verdict
        && is_without_cause
    {
        details.advice = Some(format!(
            "Find out who remounted it. If nobody did, check the filesystem while it is unmounted; otherwise `mount -o remount,rw {}`.",
            mount.path
        ));
    }
    verdict
}

/// Every record since the mount has been read.
fn is_log_complete(facts: &Facts, known: &KnownVolume) -> bool {
    let mounted = known.in_use_since();
    facts.kernel.progress.cursor.is_some() && facts.kernel.quiet_since(mounted) == Some(mounted)
}

/// A person requested the read-only state.
fn is_requested(facts: &Facts, known: &KnownVolume) -> bool {
    let fstab = facts.mount_table().map_or(&[][..], |table| &table.fstab);
    let in_fstab = |mount: &VolumeMount| {
        let is_ro = |option: &String| option == "ro";
        fstab.iter().any(|entry| entry.mount_point == mount.path && entry.options.iter().any(is_ro))
    };
    // The primary mount: a whole mount comes before a bind mount of one of its folders, and the
    // shortest path before the longer ones.
    let primary = known.facts.mounts.iter().min_by_key(|mount| {
        (mount.root.as_bytes() != b"/", mount.role, mount.path.as_bytes().len())
    });
    primary.is_some_and(|mount| {
        mount.is_read_only() && !known.read_only_by_choice.contains(&mount.path)
    }) || known.facts.mounts.iter().any(|mount| {
        mount.is_read_only() && known.seen_writable.contains(&mount.path) || in_fstab(mount)
    })
}
