//! Sizes as people write them: `5GiB`, `500 MB`, `1.5T`, or bytes. Pure.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a size: write 5GiB, 500MB or a number of bytes")]
pub struct SizeError(String);

const BINARY: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// `KiB` and `K` are 1024 bytes (systemd.syntax(7) and LVM have the letter alone so too), `kB` and
/// `KB` are 1000. The case does not matter.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let wrong = || SizeError(crate::echo::echo(text));
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let factor = factor(unit.trim()).ok_or_else(wrong)?;
    // Whole numbers are exact.
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(wrong);
    }
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * factor as f64;
    match bytes.is_finite() && bytes < u64::MAX as f64 && factor > 1 {
        true => Ok(bytes.round() as u64),
        false => Err(wrong()),
    }
}

fn factor(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let letters = ["k", "m", "g", "t", "p", "e"];
    let power = |letter: &str| letters.iter().position(|it| *it == letter);
    if unit.is_empty() || unit == "b" {
        return Some(1);
    }
    if let Some(power) = power(unit.strip_suffix("ib").unwrap_or(&unit)) {
        return Some(1 << (10 * (power + 1)));
    }
    let power = power(unit.strip_suffix('b')?)?;
    Some(1000u64.pow(u32::try_from(power).ok()? + 1))
}

/// As `parse` reads it, in the largest unit that is exact.
pub fn text(bytes: u64) -> String {
    let exact = BINARY.iter().enumerate().rev().find_map(|(power, unit)| {
        let factor = 1u64 << (10 * (power + 1));
        (bytes > 0 && bytes.is_multiple_of(factor)).then(|| format!("{}{unit}", bytes / factor))
    });
    exact.unwrap_or_else(|| bytes.to_string())
}

/// `1.5 GiB`: binary, one decimal.
pub fn format_bytes(amount: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if amount < 1024 {
        return format!("{amount} B");
    }
    let mut scaled = amount as f64 / 1024.0;
    let mut unit = 0;
    // 1023.96 would read 1024.0.
    while scaled >= 1023.95 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_have_any_unit_and_bytes_have_none() {
        for (text, bytes) in [
            ("0", 0),
            ("5368709120", 5 << 30),
            ("5GiB", 5 << 30),
            ("5 GiB", 5 << 30),
            ("5gib", 5 << 30),
            ("5G", 5 << 30),
            ("1.5GiB", 3 << 29),
            ("500MB", 500_000_000),
            ("20 kB", 20_000),
            ("2TB", 2_000_000_000_000),
            ("64MiB", 64 << 20),
            ("7B", 7),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "GiB", "5X", "-5GiB", "1.5", "5 Gi B", "5%", "99EiB", "1..5G", "5iB"] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("is not a size: write 5GiB"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn every_size_is_read_back(bytes: u64) {
            prop_assert_eq!(parse(&text(bytes)), Ok(bytes));
            prop_assert_eq!(parse(&text(bytes >> 40 << 40)), Ok(bytes >> 40 << 40));
        }
    }

    #[test]
    fn byte_amounts_are_human_readable() {
        assert_eq!(
            (format_bytes(1023), format_bytes(1536), format_bytes(1 << 40)),
            ("1023 B".to_owned(), "1.5 KiB".to_owned(), "1.0 TiB".to_owned())
        );
        // One sector less than a power of two.
        for power in [20, 30, 40, 50, 60] {
            let text = format_bytes((1u64 << power) - 512);
            assert!(text.starts_with("1.0 ") || text.starts_with("1023.5"), "{text}");
        }
        assert_eq!(format_bytes((1 << 40) - 512), "1.0 TiB");
    }
}
