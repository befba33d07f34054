//! Values of labels.

use std::borrow::Cow;

use diskvitals_text::echo::Shown;

/// Kubernetes' names fit (253 bytes); longer external names are cut to this.
pub const MAX_LABEL_BYTES: usize = 256;

/// Any text as the value of a label: bounded and escaped.
pub fn label(text: &str) -> Cow<'_, str> {
    let is_harmless =
        text.len() <= MAX_LABEL_BYTES && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    match is_harmless {
        true => Cow::Borrowed(text),
        false => {
            Shown::value(text, char::REPLACEMENT_CHARACTER, MAX_LABEL_BYTES).to_string().into()
        }
    }
}
