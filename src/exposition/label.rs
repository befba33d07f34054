//! Values of labels.

use std::borrow::Cow;

use crate::model::assess::truncate;
use crate::model::echo::is_deceptive;

/// Kubernetes' names fit (253 bytes); longer external names are cut to this.
pub(crate) const MAX_LABEL_BYTES: usize = 256;

/// External text as a label value: bounded, and without control characters.
pub(crate) fn label(text: &str) -> Cow<'_, str> {
    let harmless = text.len() <= MAX_LABEL_BYTES && !text.chars().any(is_deceptive);
    if harmless {
        return Cow::Borrowed(text);
    }
    let visible: String = text
        .chars()
        .map(|c| if is_deceptive(c) { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    Cow::Owned(truncate(&visible, MAX_LABEL_BYTES))
}
