//! A program on a terminal of its own: what it draws, keys, sizes. Shared by tests.
//!
//! A frame is the text between two jumps to the first cell, complete when the rest of the screen is
//! cleared. Without colors it contains no other escape codes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use nix::pty::openpty;

use crate::child::Process;
use crate::programs::built_program;

const HOME: &str = "\x1b[H";
const END: &str = "\x1b[K\x1b[J";
const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Terminal {
    master: File,
    /// The program's side: open as long as the test, so that its settings can be read at the end.
    slave: PathBuf,
    _slave: File,
    output: Arc<(Mutex<String>, Condvar)>,
    process: Option<Process>,
}

impl Terminal {
    /// Starts the program with a terminal of this size, which is its controlling terminal.
    #[allow(clippy::disallowed_methods)] // A test starts the programs it tests.
    pub fn start(words: &[&str], columns: u16, lines: u16) -> Terminal {
        let pair = openpty(None, None).expect("a terminal");
        let slave = nix::unistd::ttyname(&pair.slave).expect("its name");
        let own = File::from(pair.slave);
        let input = || Stdio::from(own.try_clone().expect("a copy"));
        let mut terminal = Terminal {
            master: File::from(pair.master),
            slave,
            output: Arc::default(),
            process: None,
            _slave: own.try_clone().expect("a copy"),
        };
        terminal.resize(columns, lines);
        let child = Command::new("setsid")
            .args(["--ctty", "--wait", built_program("diskvitals")])
            .args(words)
            .env("NO_COLOR", "1")
            .env("TERM", "xterm")
            .env("TZ", "UTC")
            .stdin(input())
            .stdout(input())
            .stderr(input())
            .spawn()
            .expect("starts");
        terminal.process = Some(Process(child));
        let (output, mut reader) =
            (terminal.output.clone(), terminal.master.try_clone().expect("a copy"));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            let mut pending = Vec::new();
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                pending.extend_from_slice(&bytes[..count]);
                let whole = match std::str::from_utf8(&pending) {
                    Ok(text) => text.len(),
                    Err(error) => error.valid_up_to(),
                };
                let text: Vec<u8> = pending.drain(..whole).collect();
                let (all, changed) = &*output;
                all.lock().expect("a reader").push_str(&String::from_utf8(text).expect("valid"));
                changed.notify_all();
            }
        });
        terminal
    }

    /// Changes the size; the kernel sends SIGWINCH.
    #[allow(clippy::disallowed_methods)] // As above.
    pub fn resize(&self, columns: u16, lines: u16) {
        let done = Command::new("stty")
            .arg("-F")
            .arg(&self.slave)
            .args(["cols", &columns.to_string(), "rows", &lines.to_string()])
            .status();
        assert!(done.expect("stty").success());
    }

    /// The settings of the terminal, as stty shows them.
    #[allow(clippy::disallowed_methods)] // As above.
    pub fn settings(&self) -> String {
        let output = Command::new("stty").arg("-F").arg(&self.slave).arg("-a").output();
        String::from_utf8(output.expect("stty").stdout).expect("text")
    }

    pub fn type_keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("typed");
    }

    /// Waits for output that fits.
    pub fn await_output(&self, fits: impl Fn(&str) -> bool) -> String {
        let (output, changed) = &*self.output;
        let end = Instant::now() + TIMEOUT;
        let mut text = output.lock().expect("a reader");
        while !fits(&text) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no such output; so far:\n{text}");
            text = changed.wait_timeout(text, left).expect("a reader").0;
        }
        text.clone()
    }

    /// Waits until the newest complete frame fits.
    pub fn await_frame(&self, fits: impl Fn(&str) -> bool) -> String {
        let text = self.await_output(|text| last_frame(text).is_some_and(|it| fits(&it)));
        last_frame(&text).expect("it fits")
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        // setsid waits for its child, which is alone in the terminal's foreground group.
        let group = nix::unistd::tcgetpgrp(self.master.as_fd()).expect("a group");
        nix::sys::signal::killpg(group, signal).expect("it runs");
    }

    pub fn ended(&mut self) -> ExitStatus {
        let mut process = self.process.take().expect("it runs");
        process.0.wait().expect("it ends")
    }
}

fn last_frame(text: &str) -> Option<String> {
    let complete = &text[..text.rfind(END)?];
    let frame = &complete[complete.rfind(HOME)? + HOME.len()..];
    Some(frame.replace("\x1b[K\r\n", "\n"))
}
