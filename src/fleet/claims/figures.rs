//! The numbers that the metrics show. Pure.

use std::fmt;

use crate::claims::ledger::{ClaimLedger, Support};
use crate::duty::DutyFigures;
use crate::metrics::signed;
use diskvitals_exposition::families::Families;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figures {
    written: u64,
    waiting: u64,
    is_supported: Option<bool>,
}

impl DutyFigures for Figures {
    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        families
            .gauge(
                "diskvitals_fleet_claims",
                None,
                "Claims with health that this replica has written.",
            )?
            .unlabeled(signed(self.written))?;
        families
            .gauge(
                "diskvitals_fleet_claims_waiting",
                None,
                "Claims whose health is still to be written.",
            )?
            .unlabeled(signed(self.waiting))?;
        if let Some(supported) = self.is_supported {
            families
                .gauge(
                    "diskvitals_fleet_claim_health_supported",
                    None,
                    "Whether the API server keeps the health of self.",
                )?
                .unlabeled(supported.into())?;
        }
        Ok(())
    }
}

impl ClaimLedger {
    pub(super) fn figures(&self) -> Figures {
        Figures {
            written: self.written.len() as u64,
            waiting: self.backlog() as u64,
            is_supported: match self.support {
                Support::Unknown => None,
                Support::Present => Some(true),
                Support::Absent(_) => Some(false),
            },
        }
    }
}
