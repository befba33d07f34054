//! Names that a mistyped one may have meant, by edit distance. Pure.

/// A longer name is no typing mistake; also bounds the work.
const MAX_CHARS: usize = 128;
const MAX_SUGGESTIONS: usize = 3;

/// The names closest to `mistyped`, the best first; upper and lower case are equal.
pub fn similar<'a>(mistyped: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let length = mistyped.chars().count();
    if length > MAX_CHARS {
        return Vec::new();
    }
    let limit = match length {
        0..=2 => 0,
        3..=5 => 1,
        6..=9 => 2,
        _ => 3,
    };
    let mistyped = mistyped.to_lowercase();
    let mut found: Vec<(usize, &str)> = names
        .into_iter()
        .filter(|name| name.chars().count().abs_diff(length) <= limit)
        .map(|name| (strsim::osa_distance(&mistyped, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    found.sort_unstable();
    found.dedup();
    let best = found.first().map(|(distance, _)| *distance);
    found
        .into_iter()
        .filter(|(distance, _)| Some(*distance) == best)
        .map(|(_, name)| name)
        .take(MAX_SUGGESTIONS)
        .collect()
}

/// `; did you mean a, b or c?`, or nothing. The names are in backquotes.
pub fn did_you_mean<T: AsRef<str>>(names: &[T]) -> String {
    let quoted: Vec<String> =
        names.iter().map(|name| format!("`{}`", crate::echo::echo(name.as_ref()))).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [first @ .., last] => format!("; did you mean {} or {last}?", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_mistake_finds_the_name_and_another_name_does_not() {
        let names = ["sda", "sdb", "nvme0n1", "/srv/bay0", "PHYF123400", "md0"];
        let hint = |name: &str| did_you_mean(&similar(name, names));
        assert_eq!(hint("sdaa"), "; did you mean `sda`?");
        assert_eq!(hint("nvme0n"), "; did you mean `nvme0n1`?");
        assert_eq!(hint("nmve0n1"), "; did you mean `nvme0n1`?");
        assert_eq!(hint("phyf123400"), "; did you mean `PHYF123400`?");
        assert_eq!(hint("/srv/bay1"), "; did you mean `/srv/bay0`?");
        assert_eq!(hint("sdc"), "; did you mean `sda` or `sdb`?");
        for other in ["", "zz", "no-such", "/home/db"] {
            assert_eq!(hint(other), "", "{other}");
        }
    }

    #[test]
    fn a_hostile_name_is_neither_repeated_raw_nor_slow() {
        let names = ["vol\u{202e}ume"];
        assert_eq!(did_you_mean(&similar("volume", names)), "; did you mean `vol\u{fffd}ume`?");
        let long = "x".repeat(1 << 20);
        assert!(similar(&long, [long.as_str()]).is_empty());
    }
}
