//! Tests may run beside each other in lanes, each a process (`scripts/test`): a lane has loop
//! devices, and by default also mounts and processes, that the daemons of other lanes do not
//! examine. Without a lane, tests share the machine and run one after the other.

use std::ops::Range;

/// The number of the lane, from 1. `+host`: its mounts and processes are those of the host.
const VARIABLE: &str = "DISKVITALS_HW_LANE";

#[derive(Clone, Copy, Debug)]
pub struct Lane {
    number: Option<i32>,
    on_the_host: bool,
}

impl Lane {
    pub fn of_this_process() -> Lane {
        let Ok(text) = std::env::var(VARIABLE) else {
            return Lane { number: None, on_the_host: true };
        };
        let number = text.trim_end_matches("+host").parse().ok();
        assert!(number.is_some_and(|number| (1..10).contains(&number)), "{VARIABLE}={text}");
        Lane { number, on_the_host: text.ends_with("+host") }
    }

    /// What the names of the testbeds' folders begin with.
    pub fn folders(&self) -> String {
        match self.number {
            Some(number) => format!("dvhw-lane{number}-"),
            None => "dvhw-".to_owned(),
        }
    }

    /// Process numbers mean nothing in another run of the same lane, which has ended.
    pub fn has_processes_of_its_own(&self) -> bool {
        !self.on_the_host
    }

    pub fn loop_numbers(&self) -> Range<i32> {
        match self.number {
            Some(number) => number * 1000..(number + 1) * 1000,
            None => 0..1000,
        }
    }

    /// As a pattern of the configuration.
    pub fn loop_names(&self) -> String {
        match self.number {
            Some(number) => format!("loop{number}???"),
            None => "loop*".to_owned(),
        }
    }
}
