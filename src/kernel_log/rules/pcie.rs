//! Rules for PCIe Advanced Error Reporting: errors of a storage controller's own link or of its
//! packets. Corrected ones are no errors, and the record of a root port does not say what is behind
//! it.

use crate::event::Blame::*;
use crate::event::Class::*;
use crate::rule::RuleAction::*;
use crate::rule::{DRIVE, rules};

rules! {
    in "drivers/pci/pcie/";
    "pcie-uncorrected": DRIVE.with_prefix("<nvme|ahci> <pci>: {AER: }"),
        "PCIe Bus Error: severity=<Uncorrected|Uncorrectable> (<Non-Fatal|Fatal>), type="
        => Cause(Transport, Unclear), "aer.c aer_print_error(): `Uncorrected` up to 6.8; 3.10-6.18";
}
