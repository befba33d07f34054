//! What the Kubernetes API stores of health (CSI_WIRE, docs/interposer.md), for what we say and for
//! what passes by: one entry that breaks a limit makes the kubelet unable to write the pod's
//! status, and so to delete the pod.
//!
//! In: any text. Out: one that every caller can store; what fits already is returned as it is.
//! Pure.

use std::borrow::Cow;

/// Entries for one volume, or for the storage of one driver.
pub const MOST: usize = 16;
/// Longest reason, in bytes.
pub const REASON: usize = 256;
/// Longest message, in bytes; of a condition as well, which may end up where that of a status does.
pub const MESSAGE: usize = 1024;
/// For a reason that has no character with which one may begin.
const NAMELESS: &str = "Unspecified";
const CUT: &str = "…";

/// `[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?`, at most [`REASON`] bytes. What does not fit becomes
/// `_`.
pub fn reason(text: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_,:".contains(c);
    let begun = text.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    let ended = |text: &str| text.trim_end_matches([',', ':']).len();
    if begun.is_empty() {
        return Cow::Borrowed(NAMELESS);
    }
    if begun.len() <= REASON && begun.chars().all(fits) {
        return Cow::Borrowed(&begun[..ended(begun)]);
    }
    let mut reason: String = begun
        .chars()
        .map(|c| if fits(c) { c } else { '_' })
        .take(REASON)
        .collect();
    reason.truncate(ended(&reason));
    Cow::Owned(reason)
}

/// Cut at a character, with `…` where something was cut off.
pub fn message(text: &str) -> Cow<'_, str> {
    if text.len() <= MESSAGE {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(MESSAGE - CUT.len());
    Cow::Owned(format!("{}{CUT}", &text[..end]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reason_keeps_what_kubernetes_allows() {
        for (given, fit) in [
            ("DriveFailing", "DriveFailing"),
            ("drive failing!", "drive_failing_"),
            ("42Reasons", "Reasons"),
            ("_A,b:", "A,b"),
            ("", NAMELESS),
            ("äöü 7", NAMELESS),
            ("A", "A"),
        ] {
            assert_eq!(reason(given), fit, "{given}");
        }
    }

    proptest! {
        #[test]
        fn every_reason_becomes_a_lawful_one_and_stays_it(text in prop_oneof!["\\PC{0,400}", "[A-Za-z,:]{250,300}"]) {
            let fit = reason(&text);
            prop_assert!(!fit.is_empty() && fit.len() <= REASON);
            prop_assert!(fit.starts_with(|c: char| c.is_ascii_alphabetic()));
            prop_assert!(fit.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'));
            prop_assert_eq!(reason(&fit), fit.as_ref());
        }

        #[test]
        fn a_short_message_is_unchanged_and_a_long_one_is_a_beginning_of_itself(text in prop_oneof!["\\PC{0,300}", "[aä…🙂]{300,1500}"]) {
            let cut = message(&text);
            if text.len() <= MESSAGE {
                prop_assert_eq!(cut.as_ref(), text.as_str());
            } else {
                prop_assert!(cut.len() <= MESSAGE && cut.len() > MESSAGE - 8);
                prop_assert!(text.starts_with(cut.strip_suffix('…').expect("marked")));
                prop_assert_eq!(message(&cut), cut.as_ref());
            }
        }
    }
}
