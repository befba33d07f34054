//! The identity and the temperature of the drive, which all protocols have.

use crate::parse::fields::Field;
use crate::report::Identity;

pub(crate) fn identity(root: Field<'_>) -> Identity {
    let device = root.get("device");
    let nvme = root.get("nvme_total_capacity").is_some()
        || root.get("nvme_smart_health_information_log").is_object();
    let protocol = device
        .get("protocol")
        .as_text()
        .unwrap_or_else(|| if nvme { "NVMe" } else { guess_protocol(root) }.to_owned());
    // 7.3 added the prefix `scsi_`; 7.0 to 7.2 have these names without it.
    let either = |new: &str, old: &str| root.get(new).as_text().or_else(|| root.get(old).as_text());
    let product = either("scsi_product", "product");
    let capacity = root.get("user_capacity").get_u64("bytes").filter(|bytes| *bytes > 0);
    Identity {
        device: device.get("name").as_text().unwrap_or_default(),
        device_type: device.get("type").as_text().unwrap_or_default(),
        protocol,
        vendor: either("scsi_vendor", "vendor"),
        // `model_name` of a SCSI drive contains the vendor and the product.
        model: product.or_else(|| either("model_name", "scsi_model_name")),
        family: root.get("model_family").as_text(),
        serial: root
            .get("serial_number")
            .as_text()
            .filter(|serial| serial.chars().any(char::is_alphanumeric)),
        firmware: either("firmware_version", "scsi_revision")
            .or_else(|| root.get("revision").as_text()),
        wwn: wwn(root),
        size_bytes: capacity
            .or_else(|| root.get_u64("nvme_total_capacity").filter(|bytes| *bytes > 0)),
        rotation_rate: root.get("rotation_rate").as_unsigned(),
        in_database: root.get("in_smartctl_database").as_bool(),
    }
}

/// Every version prints `device.protocol`; this function is for documents that other programs have
/// shortened.
fn guess_protocol(root: Field<'_>) -> &'static str {
    let has = |start: &str| root.entries().any(|(key, _)| key.starts_with(start));
    if has("ata_") {
        "ATA"
    } else if has("scsi_") {
        "SCSI"
    } else {
        ""
    }
}

/// ATA: the parts of a WWN; SCSI: the logical unit's designator; NVMe: the namespace's, if there is
/// one namespace. In the format of sysfs.
fn wwn(root: Field<'_>) -> Option<String> {
    let parts = root.get("wwn");
    if let (Some(naa), Some(oui), Some(id)) =
        (parts.get_u64("naa"), parts.get_u64("oui"), parts.get_u64("id"))
    {
        let fits = (1..=0xf).contains(&naa) && oui < 1 << 24 && id < 1 << 36 && (oui, id) != (0, 0);
        return fits.then(|| format!("naa.{naa:x}{oui:06x}{id:09x}"));
    }
    if let Some(unit) =
        root.get("logical_unit_id").as_text().and_then(|unit| parse_designator(&unit))
    {
        // SPC-6: an NAA designator begins with its format, 2, 3, 5 or 6; anything else here is an
        // EUI-64.
        let naa = matches!(unit.as_bytes().first(), Some(b'2' | b'3' | b'5' | b'6'));
        return Some(format!("{}.{unit}", if naa { "naa" } else { "eui" }));
    }
    let mut namespaces = root.get("nvme_namespaces").items();
    let (only, None) = (namespaces.next()?, namespaces.next()) else {
        return None;
    };
    if let Some(nguid) = only.get("nguid").as_text().and_then(|nguid| parse_designator(&nguid)) {
        return Some(format!("eui.{nguid}"));
    }
    let (oui, extension) =
        (only.get("eui64").get_u64("oui")?, only.get("eui64").get_u64("ext_id")?);
    let fits = oui < 1 << 24 && extension < 1 << 40 && (oui, extension) != (0, 0);
    fits.then(|| format!("eui.{oui:06x}{extension:010x}"))
}

/// 64 or 128 bits in hexadecimal digits that are not all zero, in lower case.
fn parse_designator(text: &str) -> Option<String> {
    let digits = text.strip_prefix("0x").unwrap_or(text).to_ascii_lowercase();
    let whole =
        matches!(digits.len(), 16 | 32) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    (whole && digits.bytes().any(|digit| digit != b'0')).then_some(digits)
}

/// Degrees Celsius. RAID controllers report 0 for their volumes, and so do drives without a sensor.
/// No sensor measures values outside this range.
pub(crate) fn temperature(root: Field<'_>) -> Option<i64> {
    let celsius = root.get("temperature").get("current").as_i64();
    let celsius = celsius
        .or_else(|| root.get("nvme_smart_health_information_log").get("temperature").as_i64());
    celsius.filter(|celsius| (-40..=150).contains(celsius) && *celsius != 0)
}

/// The temperature limit: the trip temperature of SCSI (7.3 moved it), the SCT over-limit of ATA,
/// the critical composite temperature of NVMe; otherwise the highest operating temperature.
pub(crate) fn temperature_limit(root: Field<'_>) -> Option<i64> {
    let temperature = root.get("temperature");
    let fields = [
        temperature.get("drive_trip"),
        root.get("scsi_temperature").get("drive_trip"),
        temperature.get("limit_max"),
        temperature.get("critical_limit_max"),
        root.get("nvme_composite_temperature_threshold").get("critical"),
        temperature.get("op_limit_max"),
        root.get("nvme_composite_temperature_threshold").get("warning"),
    ];
    fields.into_iter().filter_map(Field::as_i64).find(|celsius| (30..=150).contains(celsius))
}
