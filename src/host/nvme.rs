//! NVMe's Asynchronous Event Configuration (NVM Express Base 2.0, 5.27.1.8, feature 0Bh): makes a
//! controller announce health events.
//!
//! In: the name of a controller. Out: whether its setting was changed. Linux enables notices only
//! (nvme_enable_aen(), drivers/nvme/host/core.c), and reports all other events as NVME_AEN in
//! uevents. A reset of the controller clears the setting.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use crate::root::HostRoot;
use crate::sys::{self, NvmeAdmin};

const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0a;
const ASYNC_EVENT_CONFIGURATION: u32 = 0x0b;
/// Bits 4:0: spare, temperature, reliability, read-only, volatile memory backup. Bit 5 (persistent
/// memory region) is reserved in older controllers, which reject the command if it is set.
const HEALTH: u32 = 0x1f;
const TIMEOUT_MS: u32 = 5000;

#[derive(Debug, thiserror::Error)]
pub enum NvmeError {
    #[error("`{0}` is no NVMe controller's name")]
    Name(String),
    #[error("opening /dev/{name}")]
    Open {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("{operation} the event configuration of {name}")]
    Command {
        operation: &'static str,
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("{name} refuses {operation} its event configuration (status {status:#x})")]
    Refused { operation: &'static str, name: String, status: u16 },
}

/// Sets the bits of health events if they are not set, and keeps the others. May block while the
/// controller is being reset.
pub fn enable_health_events(root: &HostRoot, name: &str) -> Result<bool, NvmeError> {
    let number = name
        .strip_prefix("nvme")
        .filter(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()));
    if number.is_none() {
        return Err(NvmeError::Name(name.to_owned()));
    }
    let device = File::open(root.at(format!("/dev/{name}")))
        .map_err(|source| NvmeError::Open { name: name.to_owned(), source })?;
    let send = |operation, opcode, value| {
        let mut command = NvmeAdmin::new(opcode, ASYNC_EVENT_CONFIGURATION, value, TIMEOUT_MS);
        match sys::nvme_admin(device.as_fd(), &mut command) {
            Ok(0) => Ok(command.result),
            Ok(status) => Err(NvmeError::Refused { operation, name: name.to_owned(), status }),
            Err(source) => Err(NvmeError::Command { operation, name: name.to_owned(), source }),
        }
    };
    let now = send("reading", GET_FEATURES, 0)?;
    if now & HEALTH == HEALTH {
        return Ok(false);
    }
    send("setting", SET_FEATURES, now | HEALTH)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_has_the_kernels_size() {
        assert_eq!(size_of::<NvmeAdmin>(), 72);
    }

    #[test]
    fn nothing_but_a_controllers_name_is_opened() {
        let root = HostRoot::new("/nonexistent");
        for name in ["", "nvme", "nvme0n1", "../sda", "nvme0/../sda"] {
            assert!(matches!(enable_health_events(&root, name), Err(NvmeError::Name(_))), "{name}");
        }
        assert!(matches!(enable_health_events(&root, "nvme0"), Err(NvmeError::Open { .. })));
    }
}
