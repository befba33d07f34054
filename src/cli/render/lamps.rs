//! Locate lamps: where one is, and until when it is lit.

use diskvitals_terminal::screen::{Screen, escape_control};
use diskvitals_wire as wire;

/// `slot 3 of enclosure 0x500304801a2b3c7f, until 2026-11-30 14:00:00`.
pub(crate) fn words(lamp: &wire::Lamp, screen: &Screen) -> String {
    format!("{}, until {}", escape_control(&lamp.place), screen.date_time(lamp.until.as_ref()))
}

/// After a command.
pub(crate) fn switched(lamp: &wire::Lamp, on: bool, screen: &Screen) -> String {
    match on {
        true => format!(
            "the locate lamp is on: {}\nIf none blinks, this slot has none: compare the serial on the label.\n",
            words(lamp, screen)
        ),
        false => format!("the locate lamp is off: {}\n", escape_control(&lamp.place)),
    }
}

/// One line for each that is lit; empty without one.
pub(crate) fn lit(drives: &[wire::Drive], screen: &Screen) -> String {
    let lit = drives.iter().filter_map(|drive| Some((drive, drive.lamp.as_ref()?)));
    lit.map(|(drive, lamp)| {
        let (name, lamp) = (escape_control(&drive.name), words(lamp, screen));
        format!("LOCATE {name} is lit: {lamp}\n")
    })
    .collect()
}
