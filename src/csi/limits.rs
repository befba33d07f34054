//! Limits of the Kubernetes API for health (CSI_WIRE, docs/csi.md), applied to local and to
//! upstream statuses. If one entry exceeds a limit, the kubelet cannot write the pod's status and
//! therefore cannot delete the pod.
//!
//! In: any text. Out: text that every caller can store; valid text is returned unchanged. No I/O.

use std::borrow::Cow;

use diskvitals_text::echo::truncate;

/// Maximum number of entries for one volume, or for the storage of one driver.
pub(crate) const MAX_STATUSES: usize = 16;
/// Longest reason, in bytes.
pub(crate) const MAX_REASON_LEN: usize = 256;
/// Longest message, in bytes. It also applies to conditions, whose message a caller may store as a
/// status message.
pub(crate) const MAX_MESSAGE_LEN: usize = 1024;
/// Replaces a reason that has no valid first character.
const UNSPECIFIED_REASON: &str = "Unspecified";

/// Returns `[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?` of at most [`MAX_REASON_LEN`] bytes. Other
/// characters become `_`.
pub(crate) fn conform_reason(text: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_,:".contains(c);
    let begun = text.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    let ended = |text: &str| text.trim_end_matches([',', ':']).len();
    if begun.is_empty() {
        return Cow::Borrowed(UNSPECIFIED_REASON);
    }
    if begun.len() <= MAX_REASON_LEN && begun.chars().all(fits) {
        return Cow::Borrowed(&begun[..ended(begun)]);
    }
    let mut reason: String =
        begun.chars().map(|c| if fits(c) { c } else { '_' }).take(MAX_REASON_LEN).collect();
    reason.truncate(ended(&reason));
    Cow::Owned(reason)
}

/// The text, or the part of it that fits, ended by `…`.
pub(crate) fn truncate_message(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_MESSAGE_LEN {
        return Cow::Borrowed(text);
    }
    Cow::Owned(truncate(text, MAX_MESSAGE_LEN))
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
            ("", UNSPECIFIED_REASON),
            ("äöü 7", UNSPECIFIED_REASON),
            ("A", "A"),
        ] {
            assert_eq!(conform_reason(given), fit, "{given}");
        }
    }

    proptest! {
        #[test]
        fn every_reason_becomes_valid_and_stays_valid(text in prop_oneof!["\\PC{0,400}", "[A-Za-z,:]{250,300}"]) {
            let fit = conform_reason(&text);
            prop_assert!(!fit.is_empty() && fit.len() <= MAX_REASON_LEN);
            prop_assert!(fit.starts_with(|c: char| c.is_ascii_alphabetic()));
            prop_assert!(fit.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'));
            prop_assert_eq!(conform_reason(&fit), fit.as_ref());
        }

        #[test]
        fn a_short_message_is_unchanged_and_a_long_one_is_truncated(text in prop_oneof!["\\PC{0,300}", "[aä…🙂]{300,1500}"]) {
            let cut = truncate_message(&text);
            if text.len() <= MAX_MESSAGE_LEN {
                prop_assert_eq!(cut.as_ref(), text.as_str());
            } else {
                // Only a word at the cut is left out as a whole.
                let left_out = if text.contains(' ') { 40 } else { 8 };
                prop_assert!(cut.len() <= MAX_MESSAGE_LEN && cut.len() > MAX_MESSAGE_LEN - left_out);
                prop_assert!(text.starts_with(cut.strip_suffix('…').expect("marked")));
                prop_assert_eq!(truncate_message(&cut), cut.as_ref());
            }
        }
    }
}
