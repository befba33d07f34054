//! The QEMU lab: the daemon as shipped, under systemd, in a guest whose drives really fail. Start
//! with `hwtests/lab/README.md`.
//!
//! All scenarios share one guest. Each has drives of its own, and after each every other drive must
//! be GOOD.

use std::process::ExitCode;
use std::time::Duration;

use lab::drives;
use lab::scenario::Scenario;

#[path = "support/csi_calls.rs"]
#[allow(dead_code, reason = "the tests on this machine's kernel use the rest of it")]
mod csi_calls;
#[path = "../tests/support/programs.rs"]
mod programs;
#[path = "support/receiver.rs"]
mod receiver;

mod lab {
    pub mod agent;
    pub mod care;
    pub mod checks;
    pub mod clock;
    pub mod context;
    pub mod csi;
    pub mod csi_client;
    pub mod daemon;
    pub mod device_mapper;
    pub mod drives;
    pub mod faults;
    pub mod guest;
    pub mod hotplug;
    pub mod json_socket;
    pub mod kernel_log;
    pub mod line_stream;
    pub mod logical_volumes;
    pub mod lvm_raid;
    pub mod medium_errors;
    pub mod notifications;
    pub mod packages;
    pub mod qmp;
    pub mod quiet_period;
    pub mod raid;
    pub mod replacement;
    pub mod rest;
    pub mod restart;
    pub mod scenario;
    pub mod scsi_debug;
    pub mod smart;
    pub mod timeouts;
    pub mod zfs;
    pub mod zfs_pools;

    /// Between two polls of a state that sends no notification.
    #[expect(
        clippy::disallowed_methods,
        reason = "a sleep of milliseconds between two questions; what waits long waits for lines"
    )]
    pub fn pause(time: std::time::Duration) {
        std::thread::sleep(time);
    }
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "an_nvme_drive_pulled_while_mounted_is_missing_and_recognized_when_it_returns",
        breaks: &[drives::NVME_PULLED],
        limit: Duration::from_secs(120),
        run: lab::hotplug::nvme,
    },
    Scenario {
        name: "a_scsi_disk_pulled_while_mounted_is_missing_and_recognized_when_it_returns",
        breaks: &[drives::SCSI_PULLED],
        limit: Duration::from_secs(120),
        run: lab::hotplug::scsi,
    },
    Scenario {
        name: "an_idle_usb_drive_that_is_pulled_is_worth_knowing_and_no_more",
        breaks: &[drives::USB_PULLED],
        limit: Duration::from_secs(90),
        run: lab::hotplug::usb,
    },
    Scenario {
        name: "an_array_that_loses_a_member_is_degraded_until_the_member_is_back",
        breaks: &[drives::RAID_LEG_A, drives::RAID_LEG_B],
        limit: Duration::from_secs(180),
        run: lab::raid::member_failed_and_pulled,
    },
    Scenario {
        name: "a_btrfs_whose_half_is_pulled_has_no_redundancy_left_until_a_scrub_has_read_it",
        breaks: &[drives::BTRFS_HALF_A, drives::BTRFS_HALF_B],
        limit: Duration::from_secs(180),
        run: lab::raid::half_of_a_btrfs_pulled,
    },
    Scenario {
        name: "an_unreadable_sector_of_an_nvme_drive_is_suspect_and_bad_when_it_fails_again",
        breaks: &[drives::NVME_MEDIUM],
        limit: Duration::from_secs(120),
        run: lab::medium_errors::nvme,
    },
    Scenario {
        name: "three_unreadable_sectors_of_a_scsi_disk_are_bad",
        breaks: &[drives::SCSI_MEDIUM],
        limit: Duration::from_secs(120),
        run: lab::medium_errors::scsi,
    },
    Scenario {
        name: "metadata_that_ext4_cannot_read_is_attributed_to_the_volume_and_the_drive",
        breaks: &[drives::SATA_METADATA],
        limit: Duration::from_secs(150),
        run: lab::medium_errors::metadata_of_ext4,
    },
    Scenario {
        name: "an_nvme_drive_that_is_too_slow_has_timed_out_and_was_reset",
        breaks: &[drives::NVME_SLOW],
        limit: Duration::from_secs(120),
        run: lab::timeouts::nvme,
    },
    Scenario {
        name: "ext4_on_a_failing_mapping_becomes_read_only_and_the_drive_below_has_no_finding",
        breaks: &[],
        limit: Duration::from_secs(120),
        run: lab::device_mapper::ext4_goes_read_only,
    },
    Scenario {
        name: "a_thin_pool_that_fills_up_is_full_until_it_is_extended",
        breaks: &[],
        limit: Duration::from_secs(150),
        run: lab::device_mapper::thin_pool_fills_up,
    },
    Scenario {
        name: "a_medium_error_a_bad_link_and_a_silent_disk_are_distinguished",
        breaks: &[],
        limit: Duration::from_secs(180),
        run: lab::scsi_debug::three_kinds_of_error,
    },
    Scenario {
        name: "smart_data_of_every_kind_of_drive_is_read_under_the_shipped_unit",
        breaks: &[],
        limit: Duration::from_secs(150),
        run: lab::smart::under_the_shipped_unit,
    },
    Scenario {
        name: "smart_a_critical_warning_of_an_nvme_drive_is_found_when_it_is_announced",
        breaks: &[drives::NVME_WARNS],
        limit: Duration::from_secs(240),
        run: lab::smart::critical_warnings,
    },
    Scenario {
        name: "check_of_a_disk_live_and_unmounted_has_its_rights_under_the_shipped_unit",
        breaks: &[drives::CHECKED_DISK],
        limit: Duration::from_secs(1200),
        run: lab::checks::under_the_shipped_unit,
    },
    Scenario {
        name: "csi_volumes_of_a_volume_group_have_the_findings_of_their_drive",
        breaks: &[drives::NVME_POOL],
        limit: Duration::from_secs(600),
        run: lab::csi::a_pool_of_logical_volumes,
    },
];

/// Run when named, and by `scripts/test full`: minutes each, or the same on another bus or filesystem.
const LONG: &[Scenario] = &[
    Scenario {
        name: "an_md_member_is_replaced_by_the_guide_and_the_wrong_drive_goes_back_first",
        breaks: &[drives::REPLACED, drives::REPLACED_OTHER, drives::REPLACED_NEW],
        limit: Duration::from_secs(240),
        run: lab::replacement::of_an_md_member,
    },
    Scenario {
        name: "smart_a_scsi_disk_that_predicts_its_failure_is_bad",
        breaks: &[],
        limit: Duration::from_secs(150),
        run: lab::smart::a_disk_that_predicts_its_failure,
    },
    Scenario {
        name: "rest_a_rotating_drive_that_does_nothing_is_sent_no_command",
        breaks: &[],
        limit: Duration::from_secs(480),
        run: lab::rest::a_drive_that_does_nothing_is_left_alone,
    },
    Scenario {
        name: "a_daemon_that_is_killed_keeps_its_findings_and_counts_every_record_once",
        breaks: &[drives::SCSI_RESTART],
        limit: Duration::from_secs(180),
        run: lab::restart::killed_between_errors,
    },
    Scenario {
        name: "a_step_of_the_clock_clears_nothing_and_is_shown",
        breaks: &[drives::SCSI_RESTART],
        limit: Duration::from_secs(240),
        run: lab::clock::stepped_forward_and_back,
    },
    Scenario {
        name: "a_volume_whose_drive_is_gone_is_the_same_volume_after_a_restart",
        breaks: &[drives::SCSI_FORGOTTEN],
        limit: Duration::from_secs(120),
        run: lab::restart::a_volume_without_its_device,
    },
    Scenario {
        name: "check_in_control_groups_v2_has_all_bounds_and_leaves_no_group",
        breaks: &[drives::CHECKED_A],
        limit: Duration::from_secs(1200),
        run: lab::checks::a_control_group_bounds_each_run,
    },
    Scenario {
        name: "lvm_raid_repairs_what_its_checksums_find_and_is_degraded_until_its_leg_is_back",
        breaks: &[drives::LVM_LEG_A, drives::LVM_LEG_B],
        limit: Duration::from_secs(240),
        run: lab::lvm_raid::integrity_and_a_leg_pulled,
    },
    Scenario {
        name: "a_drive_that_was_slow_once_is_good_after_a_quiet_time",
        breaks: &[],
        limit: Duration::from_secs(150),
        run: lab::quiet_period::slow_drives_become_good,
    },
    Scenario {
        name: "a_sata_disk_that_the_kernel_lets_go_is_missed_until_a_rescan_finds_it",
        breaks: &[drives::SATA_PULLED],
        limit: Duration::from_secs(90),
        run: lab::hotplug::sata,
    },
    Scenario {
        name: "an_unreadable_sector_of_a_sata_disk_is_an_io_error_on_that_disk",
        breaks: &[drives::SATA_MEDIUM],
        limit: Duration::from_secs(120),
        run: lab::medium_errors::sata,
    },
    Scenario {
        name: "three_unreadable_sectors_behind_a_raid_controller_are_bad",
        breaks: &[drives::MEGARAID_MEDIUM],
        limit: Duration::from_secs(120),
        run: lab::medium_errors::megaraid,
    },
    Scenario {
        name: "an_unreadable_sector_behind_a_sas_adapter_is_bad_when_it_fails_again",
        breaks: &[drives::SAS_MEDIUM],
        limit: Duration::from_secs(120),
        run: lab::medium_errors::sas,
    },
    Scenario {
        name: "an_unreadable_sector_of_a_usb_drive_is_bad_when_it_fails_again",
        breaks: &[drives::USB_MEDIUM],
        limit: Duration::from_secs(120),
        run: lab::medium_errors::usb,
    },
    Scenario {
        name: "metadata_that_xfs_cannot_read_is_attributed_to_the_volume_and_the_drive",
        breaks: &[drives::NVME_METADATA],
        limit: Duration::from_secs(120),
        run: lab::medium_errors::metadata_of_xfs,
    },
    Scenario {
        name: "a_sata_disk_that_is_too_slow_has_timed_out",
        breaks: &[drives::SATA_SLOW],
        limit: Duration::from_secs(150),
        run: lab::timeouts::sata,
    },
    Scenario {
        name: "xfs_on_a_failing_mapping_shuts_down_and_the_drive_below_has_no_finding",
        breaks: &[],
        limit: Duration::from_secs(120),
        run: lab::device_mapper::xfs_shuts_down,
    },
    Scenario {
        name: "smart_a_drive_unplugged_during_a_query_is_only_missing",
        breaks: &[drives::NVME_TORN],
        limit: Duration::from_secs(150),
        run: lab::smart::unplugged_during_a_query,
    },
    Scenario {
        name: "smart_a_smartctl_that_hangs_floods_tears_or_dies_harms_nobody",
        breaks: &[drives::NVME_HANGS, drives::NVME_FLOODS, drives::NVME_HALF, drives::NVME_DIES],
        limit: Duration::from_secs(300),
        run: lab::smart::a_broken_smartctl,
    },
    Scenario {
        name: "check_of_a_thin_snapshot_is_right_under_load_and_leaves_none_behind",
        breaks: &[drives::CHECKED_A, drives::CHECKED_B],
        limit: Duration::from_secs(1200),
        run: lab::checks::a_thin_snapshot,
    },
    Scenario {
        name: "check_of_a_frozen_disk_under_the_shipped_unit_leaves_no_writer_held_after_any_kill",
        breaks: &[drives::CHECKED_FROZEN],
        limit: Duration::from_secs(1200),
        run: lab::checks::frozen_under_the_shipped_unit,
    },
    Scenario {
        name: "steps_on_logical_volumes_make_them_blank_and_leave_nothing_of_them",
        breaks: &[drives::CHECKED_A, drives::CHECKED_B],
        limit: Duration::from_secs(600),
        run: lab::logical_volumes::steps_on_logical_volumes,
    },
    Scenario {
        name: "check_of_a_classic_snapshot_is_right_under_load_and_leaves_none_behind",
        breaks: &[drives::CHECKED_A, drives::CHECKED_B],
        limit: Duration::from_secs(1200),
        run: lab::checks::a_classic_snapshot,
    },
    Scenario {
        name: "check_killed_in_the_middle_of_snapshots_leaves_no_volume_suspended",
        breaks: &[drives::CHECKED_A, drives::CHECKED_B],
        limit: Duration::from_secs(1200),
        run: lab::checks::killed_in_the_middle_of_snapshots,
    },
    Scenario {
        name: "a_mail_and_a_webhook_arrive_soon_and_once_and_with_the_same_id_after_a_crash",
        breaks: &[],
        limit: Duration::from_secs(300),
        run: lab::notifications::mail_and_webhook,
    },
    Scenario {
        name: "a_mail_goes_to_a_setgid_sendmail_with_the_documented_drop_in_and_not_without",
        breaks: &[],
        limit: Duration::from_secs(300),
        run: lab::notifications::sendmail,
    },
    Scenario {
        name: "the_debian_package_installs_upgrades_and_leaves_what_it_should",
        breaks: &[],
        limit: Duration::from_secs(900),
        run: lab::packages::debian,
    },
    Scenario {
        name: "the_rpm_package_installs_upgrades_and_leaves_what_it_should",
        breaks: &[],
        limit: Duration::from_secs(900),
        run: lab::packages::rpm,
    },
    Scenario {
        name: "zfs_and_md_are_scrubbed_by_a_schedule_one_after_the_other",
        breaks: &[
            drives::RAID_LEG_A,
            drives::RAID_LEG_B,
            drives::ZFS_PULLED_A,
            drives::ZFS_PULLED_B,
        ],
        limit: Duration::from_secs(600),
        run: lab::care::an_array_and_a_pool,
    },
    Scenario {
        name: "zfs_a_mirror_that_loses_a_member_is_degraded_until_the_member_is_back",
        breaks: &[drives::ZFS_PULLED_A, drives::ZFS_PULLED_B],
        limit: Duration::from_secs(300),
        run: lab::zfs::member_pulled,
    },
    Scenario {
        name: "zfs_a_member_that_cannot_be_read_is_bad_and_its_pool_is_degraded",
        breaks: &[drives::ZFS_UNREADABLE_A, drives::ZFS_UNREADABLE_B],
        limit: Duration::from_secs(300),
        run: lab::zfs::member_unreadable,
    },
    Scenario {
        name: "zfs_blocks_with_wrong_checksums_are_counted_and_repaired",
        breaks: &[drives::ZFS_CHECKSUM_A, drives::ZFS_CHECKSUM_B],
        limit: Duration::from_secs(300),
        run: lab::zfs::checksum_errors,
    },
    Scenario {
        name: "zfs_a_spare_steps_in_for_a_lost_member_and_is_free_again",
        breaks: &[drives::ZFS_SPARED_A, drives::ZFS_SPARED_B, drives::ZFS_SPARE],
        limit: Duration::from_secs(300),
        run: lab::zfs::spare,
    },
    Scenario {
        name: "zfs_a_full_pool_is_one_finding_of_its_volume_until_there_is_space",
        breaks: &[drives::ZFS_FULL_A, drives::ZFS_FULL_B],
        limit: Duration::from_secs(300),
        run: lab::zfs::full,
    },
    Scenario {
        name: "zfs_a_suspended_pool_is_bad_and_nothing_waits_for_it",
        breaks: &[drives::ZFS_SUSPENDED_A, drives::ZFS_SUSPENDED_B],
        limit: Duration::from_secs(300),
        run: lab::zfs::suspended,
    },
    Scenario {
        name: "zfs_an_exported_pool_is_no_fault_and_is_recognized_when_imported",
        breaks: &[drives::ZFS_EXPORTED_A, drives::ZFS_EXPORTED_B],
        limit: Duration::from_secs(300),
        run: lab::zfs::exported,
    },
    Scenario {
        name: "zfs_ext4_on_a_volume_of_blocks_has_the_drives_of_the_pool_below_it",
        breaks: &[drives::ZFS_ZVOL_A, drives::ZFS_ZVOL_B],
        limit: Duration::from_secs(300),
        run: lab::zfs::volume_of_blocks,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let of_guest = arguments.split_first().map(|(first, rest)| (first.as_str(), rest));
    match of_guest {
        Some(("csi-client", call)) => return lab::csi_client::main(call),
        Some(("receiver", rest)) => return receiver::main(rest),
        _ => {}
    }
    lab::scenario::main(SCENARIOS, LONG)
}
