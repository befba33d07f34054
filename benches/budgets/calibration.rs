//! How fast this machine is now: a fixed loop, beside each figure of processor time. Such a figure says
//! as much about the machine and its other guests as about the program; divided by this, less.

use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Context;
use nix::time::{ClockId, clock_gettime};

/// Processor time of the loop on the machine on which the goals were set: two processors of an AMD EPYC,
/// Linux 6.18.
const REFERENCE: Duration = Duration::from_millis(100);
const PARSED: usize = 600;
const SENT: usize = 12_000;

/// How many times as long as on that machine the loop takes: above one, this machine is slower. As an idle
/// daemon, it parses JSON and makes system calls.
pub fn slowness() -> anyhow::Result<f64> {
    let document = document();
    let (mut left, mut right) = UnixStream::pair().context("a pair of sockets")?;
    let mut message = [0; 64];
    let started = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("reading the clock")?;
    for _ in 0..PARSED {
        let parsed: serde_json::Value = serde_json::from_str(black_box(&document))?;
        black_box(parsed);
    }
    for _ in 0..SENT {
        left.write_all(&message).context("writing into a socket")?;
        right.read_exact(&mut message).context("reading from a socket")?;
    }
    let ended = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("reading the clock")?;
    let took = Duration::from(ended).saturating_sub(Duration::from(started));
    Ok(took.as_secs_f64() / REFERENCE.as_secs_f64())
}

fn document() -> String {
    let drive = |at: usize| serde_json::json!({"id": format!("naa.5000c500{at:08x}"), "values": [at, at * 7, at * 11]});
    serde_json::Value::from((0..100).map(drive).collect::<Vec<_>>()).to_string()
}
