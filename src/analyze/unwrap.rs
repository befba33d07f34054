//! Lines of a record that a mail client or a narrow terminal has broken.
//!
//! In: a record of several lines, and its text as the file's column says that it was. Out: the text
//! that has a meaning. This adds nothing that a name in the record can do: it can contain blanks as
//! well.

use diskvitals_kernel_log::rules;

/// A record of the kernel is broken into few lines.
const MAX_BREAKS: usize = 6;

/// `may_be_broken`: by the lengths of the lines.
pub(crate) fn unwrap_lines(text: String, unwrapped: Option<String>, may_be_broken: bool) -> String {
    let has_meaning = |text: &str| rules::table().knows(text);
    if let Some(whole) = unwrapped.as_ref().filter(|whole| has_meaning(whole)) {
        return whole.clone();
    }
    if !may_be_broken || !text.contains('\n') {
        return text;
    }
    let mut joined = candidates(&text);
    // A record that has a meaning as it is was broken between words, if at all.
    if has_meaning(&text) {
        joined.truncate(1);
        joined.push(text.clone());
    }
    joined.into_iter().find(|joined| has_meaning(joined)).or(unwrapped).unwrap_or(text)
}

/// The lines joined with blanks, then in every combination of a blank and nothing.
fn candidates(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.split('\n').collect();
    let breaks = lines.len() - 1;
    if breaks > MAX_BREAKS {
        return vec![text.replace('\n', " ")];
    }
    (0..1_u32 << breaks)
        .map(|without_blank| {
            let mut joined = lines[0].to_owned();
            for (at, line) in lines[1..].iter().enumerate() {
                if without_blank & 1 << at == 0 {
                    joined.push(' ');
                }
                joined.push_str(line);
            }
            joined
        })
        .collect()
}
