//! The composition root: settings, then sockets and locks, then tasks, then waiting for the end.

pub mod node;
pub mod options;
pub mod reload;

pub fn main(_: options::Options) -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
