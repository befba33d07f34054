//! What the firmware of MegaRAID controllers says of its arrays (virtual drives) in the kernel log.
//!
//! In: the text of a record. Out: the array's number, and its state. The firmware writes the text, and
//! megaraid_sas prints it (megasas_decode_evt(), drivers/scsi/megaraid/megaraid_sas_base.c): by default
//! only events of class CRIT and above, so that `OPTIMAL`, of class info, is usually missing
//! (`event_log_level`).

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayState {
    Optimal,
    /// It runs without redundancy, or with less.
    Degraded,
    /// More members are missing than it tolerates.
    Offline,
}

/// `VD 00/0 is now DEGRADED`: the number is the target's, which is in the SCSI address too. None inside:
/// the two numbers may differ, and which of them is the target's is not known.
pub(crate) fn parse(event: &str) -> Option<(Option<u32>, ArrayState)> {
    let (name, state) = event.strip_prefix("VD ")?.split_once(" is now ")?;
    let state = match state.split_ascii_whitespace().next()? {
        "OPTIMAL" => ArrayState::Optimal,
        "DEGRADED" | "PARTIALLY" => ArrayState::Degraded,
        "OFFLINE" => ArrayState::Offline,
        _ => return None,
    };
    let (first, second) = name.split_once('/')?;
    let number: u32 = second.parse().ok()?;
    // Whether the first is hexadecimal is not documented.
    let differs_as_decimal = first.parse().is_ok_and(|first: u32| first != number);
    let is_same = u32::from_str_radix(first, 16) == Ok(number) && !differs_as_decimal;
    Some((is_same.then_some(number), state))
}

/// The state in a whole record: `megaraid_sas 0000:01:00.0: 1235 (7s/0x0001/CRIT) - VD 00/0 is now DEGRADED`.
pub fn state_in(record: &str) -> Option<ArrayState> {
    Some(parse(record.split_once(") - ")?.1)?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_believed_when_all_readings_agree() {
        let of = |event| parse(event).map(|(number, _)| number);
        assert_eq!(of("VD 00/0 is now DEGRADED"), Some(Some(0)));
        assert_eq!(of("VD 0a/10 is now OFFLINE"), Some(Some(10)));
        assert_eq!(of("VD 10/10 is now OPTIMAL"), Some(None), "16 or 10");
        assert_eq!(of("VD 10/16 is now OPTIMAL"), Some(None), "10 or 16");
        assert_eq!(of("VD 00/1 is now DEGRADED"), Some(None));
        assert_eq!(of("VD 00/0 is now something"), None);
        assert_eq!(of("PD 00/0 is now OFFLINE"), None);
    }

    #[test]
    fn an_array_that_lacks_a_part_of_its_redundancy_is_degraded() {
        let record = |words| {
            format!("megaraid_sas 0000:01:00.0: 12 (7s/0x0001/CRIT) - VD 00/0 is now {words}")
        };
        assert_eq!(state_in(&record("PARTIALLY DEGRADED")), Some(ArrayState::Degraded));
        assert_eq!(state_in(&record("OFFLINE")), Some(ArrayState::Offline));
        assert_eq!(state_in(&record("OPTIMAL")), Some(ArrayState::Optimal));
        assert_eq!(state_in("VD 00/0 is now OFFLINE"), None);
    }
}
