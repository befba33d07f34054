//! A program that a test has started; it is killed at the end of the test, also after a failure.
//! Shared by tests.

use std::process::{Child, ExitStatus};

use nix::sys::signal::Signal;

pub struct Process(pub Child);

impl Process {
    pub fn end(mut self, signal: Signal) -> ExitStatus {
        let pid = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        nix::sys::signal::kill(pid, signal).expect("running");
        self.0.wait().expect("ends")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
