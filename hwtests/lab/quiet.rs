//! Time heals what was suspect once: after `[errors] quiet_after` without a new event the finding
//! clears.

use crate::lab::bench::Bench;
use crate::lab::drives;

/// Uses what earlier scenarios left: the slow drives are well since.
pub fn what_was_slow_is_good_again(bench: &mut Bench) {
    let suspects = [
        (drives::NVME_SLOW.id, "IoTimeouts"),
        (drives::NVME_SLOW.id, "ControllerResets"),
        (drives::SATA_SLOW.id, "IoTimeouts"),
    ];
    bench.guest.quiet_soon();
    for (drive, reason) in suspects {
        // Alone, this scenario finds nothing to clear.
        if bench.active(drive, reason).is_some() {
            bench.expect_cleared(drive, reason);
        }
    }
    for drive in [drives::NVME_SLOW, drives::SATA_SLOW] {
        let seen = bench
            .guest
            .ask(&format!("drive {}", drive.id))
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(seen["health"], "HEALTH_GOOD", "{seen:#}");
    }
}
