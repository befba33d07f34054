//! Time heals what was suspect once: after `[errors] quiet_after` without a new event the finding
//! clears.

use crate::lab::context::Context;
use crate::lab::drives;

/// Uses what earlier scenarios left: the slow drives are well since.
pub fn what_was_slow_is_good_again(context: &mut Context) {
    let suspects = [
        (drives::NVME_SLOW.id, "IoTimeouts"),
        (drives::NVME_SLOW.id, "ControllerResets"),
        (drives::SATA_SLOW.id, "IoTimeouts"),
    ];
    context.guest.quiet_soon();
    for (drive, reason) in suspects {
        // Alone, this scenario finds nothing to clear.
        if context.active(drive, reason).is_some() {
            context.expect_cleared(drive, reason);
        }
    }
    for drive in [drives::NVME_SLOW, drives::SATA_SLOW] {
        let seen = context
            .guest
            .ask(&format!("drive {}", drive.id))
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(seen["health"], "HEALTH_GOOD", "{seen:#}");
    }
}
