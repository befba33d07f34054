//! Parsers for formats in sysfs: wwid strings, SCSI vital product data, device-mapper names, name
//! patterns. Pure.

/// The identifier in `device/wwid` (scsi_vpd_lun_id(), drivers/scsi/scsi_lib.c), in an NVMe
/// namespace's `wwid` or in udev's ID_WWN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wwid {
    Naa(String),
    Eui(String),
    Nguid(String),
    Uuid(String),
    /// Text that the vendor chose (`t10.…`, `nvme.…`, a SCSI name string): not a number from a
    /// registration authority.
    Text(String),
}

impl Wwid {
    /// `naa.…`, `eui.…`, `nguid.…`, `uuid.…`; None for a vendor's text.
    pub fn number(&self) -> Option<String> {
        match self {
            Wwid::Naa(digits) => Some(format!("naa.{digits}")),
            Wwid::Eui(digits) => Some(format!("eui.{digits}")),
            Wwid::Nguid(digits) => Some(format!("nguid.{digits}")),
            Wwid::Uuid(uuid) => Some(format!("uuid.{uuid}")),
            Wwid::Text(_) => None,
        }
    }
}

pub(crate) fn parse_wwid(text: &str) -> Option<Wwid> {
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    let hex = |digits: &str| -> Option<String> {
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        (matches!(digits.len(), 16 | 24 | 32) && digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .then(|| digits.to_owned())
    };
    if let Some(digits) =
        lower.strip_prefix("naa.").or_else(|| lower.starts_with("0x").then_some(lower.as_str()))
    {
        return hex(digits).map(Wwid::Naa);
    }
    if let Some(digits) = lower.strip_prefix("eui.") {
        return hex(digits).map(Wwid::Eui);
    }
    if let Some(uuid) = lower.strip_prefix("uuid.") {
        return (!uuid.is_empty()).then(|| Wwid::Uuid(uuid.to_owned()));
    }
    (!text.is_empty()).then(|| Wwid::Text(text.to_owned()))
}

/// An NVMe namespace's `nguid` (printed as a UUID) and `eui` (eight bytes with spaces between):
/// drivers/nvme/host/sysfs.c. All zeros means that the namespace has none.
pub(crate) fn parse_namespace_id(nguid: Option<&str>, eui: Option<&str>) -> Option<Wwid> {
    let digits = |text: &str| {
        text.chars().filter(char::is_ascii_hexdigit).collect::<String>().to_ascii_lowercase()
    };
    let set =
        |text: &String, length: usize| text.len() == length && text.bytes().any(|b| b != b'0');
    let nguid = nguid.map(digits).filter(|text| set(text, 32)).map(Wwid::Nguid);
    nguid.or_else(|| eui.map(digits).filter(|text| set(text, 16)).map(Wwid::Eui))
}

/// The unit serial number page (SPC-4, 7.8.15): four bytes of header, then ASCII padded with
/// spaces.
pub(crate) fn parse_vpd_serial(page: &[u8]) -> Option<String> {
    let [_, 0x80, high, low, rest @ ..] = page else {
        return None;
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    printable(rest.get(..length).unwrap_or(rest))
}

/// The contents of ATA IDENTIFY DEVICE, from the ATA information page (SAT-3, 12.4.2: vpd_pg89,
/// IDENTIFY data from byte 60). The SCSI inquiry cuts models to 16 characters; this does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtaIdentify {
    pub model: Option<String>,
    pub serial: Option<String>,
    pub firmware: Option<String>,
}

pub(crate) fn parse_vpd_ata(page: &[u8]) -> Option<AtaIdentify> {
    let (Some(0x89), Some(identify)) = (page.get(1), page.get(60..60 + 512)) else {
        return None;
    };
    // ATA strings have the bytes of each 16-bit word swapped (ACS-4, 3.4.9).
    let text = |words: std::ops::Range<usize>| {
        let bytes: Vec<u8> = identify[words.start * 2..words.end * 2]
            .chunks(2)
            .flat_map(|pair| [pair[1], pair[0]])
            .collect();
        printable(&bytes)
    };
    Some(AtaIdentify { serial: text(10..20), firmware: text(23..27), model: text(27..47) })
}

/// Trimmed text; None when nothing is left or when a byte is not printable ASCII.
fn printable(bytes: &[u8]) -> Option<String> {
    let text =
        std::str::from_utf8(bytes).ok()?.trim_matches(|c: char| c == ' ' || c == '\0').to_owned();
    (!text.is_empty() && text.chars().all(|c| c == ' ' || c.is_ascii_graphic())).then_some(text)
}

/// `vg--a-lv--b` is the volume `lv-b` of the group `vg-a`: LVM doubles hyphens inside names and
/// joins with a single one (dm_build_dm_name() of libdevmapper). The part after a second single
/// hyphen is LVM's layer (`real`, `cow`, `tpool`) and stays with the volume.
pub(crate) fn split_lvm_name(name: &str) -> Option<(String, String)> {
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'-' {
            at += 1;
        } else if bytes.get(at + 1) == Some(&b'-') {
            at += 2;
        } else {
            let (group, volume) =
                (name[..at].replace("--", "-"), name[at + 1..].replace("--", "-"));
            return (!group.is_empty() && !volume.is_empty()).then_some((group, volume));
        }
    }
    None
}

/// Matches a shell-like pattern with `*` (any text) and `?` (one character) against kernel names.
pub(crate) fn matches_pattern(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            // The last star matches one more character.
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

pub fn matches_any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| matches_pattern(pattern, name))
}

/// `6.0 Gbps` as 60. None for `<unknown>` (sata_spd_string(), drivers/ata/libata-core.c).
pub(crate) fn parse_sata_speed(text: &str) -> Option<u32> {
    let (whole, tenths) = text.strip_suffix(" Gbps")?.split_once('.')?;
    Some(whole.parse::<u32>().ok()? * 10 + tenths.parse::<u32>().ok()?)
}

/// An eMMC's codes in hexadecimal, with or without `0x` (`0x02 0x01`).
pub(crate) fn parse_codes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let code = |word: &str| u8::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok();
    let codes: Option<Vec<u8>> = text.split_whitespace().map(code).collect();
    codes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wwids_of_every_kind() {
        assert_eq!(
            parse_wwid("naa.5000C500A1B2C3D4\n"),
            Some(Wwid::Naa("5000c500a1b2c3d4".into()))
        );
        assert_eq!(parse_wwid("0x5000c500a1b2c3d4"), Some(Wwid::Naa("5000c500a1b2c3d4".into())));
        assert_eq!(parse_wwid("eui.0025385b01234567"), Some(Wwid::Eui("0025385b01234567".into())));
        assert_eq!(parse_wwid("t10.ATA     Model"), Some(Wwid::Text("t10.ATA     Model".into())));
        assert_eq!(parse_wwid("naa.123"), None);
        assert_eq!(parse_wwid(" \n"), None);
    }

    #[test]
    fn a_namespace_id_of_zeros_is_none() {
        assert_eq!(
            parse_namespace_id(
                Some("00000000-0000-0000-0000-000000000000"),
                Some("00 00 00 00 00 00 00 00")
            ),
            None
        );
        assert_eq!(
            parse_namespace_id(None, Some("00 25 38 5b 01 23 45 67")),
            Some(Wwid::Eui("0025385b01234567".into()))
        );
        let nguid = parse_namespace_id(Some("36483331-4e70-0225-0025-385300000001"), None);
        assert_eq!(nguid, Some(Wwid::Nguid("364833314e7002250025385300000001".into())));
    }

    #[test]
    fn vital_product_data_gives_the_serial() {
        assert_eq!(parse_vpd_serial(b"\x00\x80\x00\x08  S3R14L"), Some("S3R14L".into()));
        assert_eq!(parse_vpd_serial(b"\x00\x80\x00\x08        "), None);
        assert_eq!(parse_vpd_serial(b"\x00\x83\x00\x01x"), None);
        assert_eq!(parse_vpd_serial(b""), None);
    }

    #[test]
    fn a_speed_of_sata_is_in_tenths() {
        let speeds = ["1.5 Gbps", "3.0 Gbps", "6.0 Gbps", "<unknown>"].map(parse_sata_speed);
        assert_eq!(speeds, [Some(15), Some(30), Some(60), None]);
    }

    #[test]
    fn codes_of_an_emmc_are_hexadecimal_with_or_without_a_prefix() {
        assert_eq!(parse_codes("0x02 0x0b"), Some([2, 11]));
        assert_eq!(parse_codes("02 0b"), Some([2, 11]));
        assert_eq!(parse_codes("0x01"), Some([1]));
        assert_eq!(parse_codes::<2>("0x01"), None);
        assert_eq!(parse_codes::<1>("urgent"), None);
    }

    #[test]
    fn ata_identify_gives_the_full_model() {
        let mut page = vec![0; 60 + 512];
        page[1] = 0x89;
        let mut put = |word: usize, length: usize, text: &str| {
            let padded = format!("{text:length$}");
            for (at, pair) in padded.as_bytes().chunks(2).enumerate() {
                page[60 + (word + at) * 2] = pair[1];
                page[60 + (word + at) * 2 + 1] = pair[0];
            }
        };
        put(10, 20, "  WD-WX11A00000");
        put(23, 8, "82.00A82");
        put(27, 40, "WDC WD40EFRX-68N32N0");
        let identify = AtaIdentify {
            model: Some("WDC WD40EFRX-68N32N0".into()),
            serial: Some("WD-WX11A00000".into()),
            firmware: Some("82.00A82".into()),
        };
        assert_eq!(parse_vpd_ata(&page), Some(identify));
        assert_eq!(parse_vpd_ata(&page[..300]), None);
    }

    #[test]
    fn lvm_names_are_split_at_the_single_hyphen() {
        let split = |name| split_lvm_name(name).map(|(group, volume)| format!("{group} {volume}"));
        assert_eq!(split("vg0-data").as_deref(), Some("vg0 data"));
        assert_eq!(split("vg--a-lv--b").as_deref(), Some("vg-a lv-b"));
        assert_eq!(split("ubuntu--vg-ubuntu--lv").as_deref(), Some("ubuntu-vg ubuntu-lv"));
        assert_eq!(split("vg-pool-tpool").as_deref(), Some("vg pool-tpool"));
        assert_eq!(split("nohyphen"), None);
        assert_eq!(split("-x"), None);
        assert_eq!(split("vg--only"), None);
    }

    #[test]
    fn patterns_match_as_a_shell_would() {
        assert!(matches_pattern("loop*", "loop12"));
        assert!(matches_pattern("sd?", "sda"));
        assert!(!matches_pattern("sd?", "sdaa"));
        assert!(matches_pattern("*a*b", "xxaxxbxb"));
        assert!(!matches_pattern("", "sda"));
        assert!(matches_pattern("*", ""));
    }

    proptest! {
        #[test]
        fn lvm_names_survive_joining_and_splitting(group in "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", volume in "[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?") {
            let name = format!("{}-{}", group.replace('-', "--"), volume.replace('-', "--"));
            prop_assert_eq!(split_lvm_name(&name), Some((group, volume)));
        }

        #[test]
        fn no_bytes_make_the_parsers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700), text in "\\PC{0,60}") {
            let _page = (parse_vpd_serial(&bytes), parse_vpd_ata(&bytes));
            let _text = (parse_wwid(&text), split_lvm_name(&text), parse_namespace_id(Some(&text), Some(&text)), matches_pattern(&text, &text));
        }

        #[test]
        fn a_name_matches_itself_and_its_prefix_with_a_star(name in "[a-z0-9]{1,12}", cut in 0usize..12) {
            prop_assert!(matches_pattern(&name, &name));
            let prefix = &name[..cut.min(name.len())];
            let pattern = format!("{prefix}*");
            prop_assert!(matches_pattern(&pattern, &name));
        }
    }
}
