//! Permissions to format, one line each.

use diskvitals_terminal::screen::{Screen, escape_control};
use diskvitals_wire as wire;

pub fn one(authorization: &wire::FormatAuthorization, screen: &Screen) -> String {
    let handle = escape_control(&authorization.handle);
    match &authorization.expires {
        None => format!("volume {handle} may no longer be formatted\n"),
        Some(_) => format!(
            "volume {handle} may be formatted once, until {}: {}\n",
            screen.date_time(authorization.expires.as_ref()),
            escape_control(&authorization.device)
        ),
    }
}

pub fn list(authorizations: &[wire::FormatAuthorization], screen: &Screen) -> String {
    if authorizations.is_empty() {
        return "no volume may be formatted by permission\n".to_owned();
    }
    authorizations.iter().map(|it| one(it, screen)).collect()
}
