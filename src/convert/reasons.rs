//! The table of reasons → wire. The command line also uses it, without a daemon.

use crate::severity;
use diskvitals_finding::reason::{Reason, ReasonScope};
use diskvitals_wire as wire;

pub fn all() -> wire::ListReasonsResponse {
    wire::ListReasonsResponse { reasons: Reason::ALL.iter().copied().map(reason_text).collect() }
}

fn reason_text(reason: Reason) -> wire::ReasonText {
    let about = match reason.scope() {
        ReasonScope::Drive => "drive",
        ReasonScope::Volume => "volume",
        ReasonScope::Both => "drive, volume",
        ReasonScope::Source => "source",
    };
    let levels = reason.levels().iter();
    wire::ReasonText {
        name: reason.name().to_owned(),
        about: about.to_owned(),
        meaning: reason.meaning().to_owned(),
        action: reason.action().to_owned(),
        data: reason.data().to_owned(),
        levels: levels.map(|level| severity(*level).into()).collect(),
        clears_when: reason.clears().to_owned(),
    }
}
