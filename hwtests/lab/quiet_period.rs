//! A suspect drive recovers with time: the finding clears after `[errors] quiet_after` without a
//! new event.

use crate::lab::context::Context;
use crate::lab::drives;

/// Uses the state that earlier scenarios left: the slow drives work again.
pub fn slow_drives_become_good(context: &mut Context) {
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
        let found = context
            .guest
            .ask(&format!("drive {}", drive.id))
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(found["health"], "HEALTH_GOOD", "{found:#}");
    }
}
