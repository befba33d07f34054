//! The duty `claims`: the health of claims whose volume is tied to one node.
//!
//! In: what should stand in claims (`model::claims`). Out: one write after the other.

pub(crate) mod ledger;
