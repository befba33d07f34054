//! The life of one run: start, read, hold back, end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use crate::checker::output::Sink;
use crate::checker::shown;
use crate::host::clock::now;
use crate::host::helper::Program;
use crate::host::jail::{self, Jailed, Plan, Scheduled};
use crate::model::check::ballot::ballot;
use crate::model::check::parse::Reader;
use crate::model::check::{Ballot, End, Filesystem, Mode, Run};

/// How often its reading is looked at where it is held back.
const TICK: Duration = Duration::from_millis(20);
/// How often its memory is looked at: at first, since it may be over soon, and later.
const FIRST_LOOKS: Duration = Duration::from_millis(5);
const LATER_LOOKS: Duration = Duration::from_millis(100);
const FIRST: Duration = Duration::from_millis(500);
const AT_THE_END: Duration = Duration::from_millis(1);
/// Of what it may read in a second so much is had at once, as a share of a second.
const BURST: f64 = 0.1;
/// While it becomes another program its counters are not shown.
const UNSEEN: Duration = Duration::from_secs(2);
/// A process that was killed has gone by then, or is held by the kernel.
const DYING: Duration = Duration::from_secs(1);
/// Phases are told no more often than this.
const PHASES: Duration = Duration::from_millis(250);

/// One run.
#[derive(Clone, Debug)]
pub struct Order {
    /// Our own binary, with the arguments that make it the jail.
    pub program: Program,
    pub filesystem: Filesystem,
    pub mode: Mode,
    /// Absolute.
    pub command: PathBuf,
    pub args: Vec<OsString>,
    pub plan: Plan,
    pub timeout: Duration,
    pub bytes_per_second: Option<u64>,
}

/// What is heard of it meanwhile, and asked when it is over.
pub struct Told<'a> {
    pub phase: &'a mut dyn FnMut(&str),
    /// Why its word does not count, for reasons that lie outside of it (the device is gone). Asked
    /// after a run that came to its end.
    pub void: &'a mut dyn FnMut() -> Option<String>,
}

#[derive(Debug)]
pub struct Done {
    pub run: Run,
    /// The checker, where it was killed and does not go.
    pub left: Option<Jailed>,
}

/// A run that did not begin.
pub fn not_started(mode: Mode, command: String, why: String) -> Run {
    Run {
        command,
        ..Run::failed(mode, now(), End::NotStarted(why.clone()), why)
    }
}

/// Until it has ended. `stop`: readable, or closed at its other end, when it is to be stopped.
pub fn run(order: &Order, stop: BorrowedFd<'_>, told: &mut Told<'_>) -> Done {
    let command = shown(&order.command, &order.args);
    let started = now();
    // From here on: whoever starts it may be kept from a processor while it runs already, and what
    // it did meanwhile is a part of it.
    let since = Instant::now();
    let jailed = match jail::start(&order.program, &order.plan, &order.command, &order.args) {
        Ok(jailed) => jailed,
        Err(error) => {
            let why = format!("starting {}: {error}", order.command.display());
            return Done {
                run: not_started(order.mode, command, why),
                left: None,
            };
        }
    };
    let mut watched = Watched::new(jailed, order, since);
    let (end, left) = watched.watch(order, stop, told);
    let duration = watched.since.elapsed();
    let active = watched.active(duration);
    let Watched {
        mut reader,
        sink,
        bytes_read,
        peak_memory,
        trouble,
        blind,
        ..
    } = watched;
    let output = sink.finish(&mut |line| reader.line(line));
    if let Some(why) = trouble {
        return Done {
            run: not_started(order.mode, command, why),
            left,
        };
    }
    let parsed = reader.finish();
    // Looked at only after a run that came to its end: the device may be what holds one that did
    // not, and would hold us as well.
    let void = if matches!(end, End::Exited(_)) {
        (told.void)()
    } else {
        None
    };
    let (ballot, why) = match void.or(blind) {
        Some(why) => (Ballot::Failed, why),
        None => ballot(order.filesystem, order.mode, &parsed, &end),
    };
    let run = Run {
        mode: order.mode,
        started,
        duration,
        active,
        held: None,
        end,
        ballot,
        why,
        failure: parsed.failure,
        flaws: parsed.flaws,
        more_flaws: parsed.more_flaws,
        pending_replay: parsed.pending_replay,
        bytes_read,
        peak_memory,
        command,
        output,
    };
    Done { run, left }
}

struct Watched {
    jailed: Option<Jailed>,
    reader: Reader,
    sink: Sink,
    since: Instant,
    /// Held back since, and for how long before that.
    held_since: Option<Instant>,
    held: Duration,
    /// What its threads had of the processors at the last look, and for how long none of them had
    /// one although one was wanted: its low priority.
    scheduled: BTreeMap<u32, Scheduled>,
    behind: Duration,
    bytes_read: u64,
    /// When that was seen last.
    seen: Instant,
    peak_memory: u64,
    trouble: Option<String>,
    /// Why it could not be held back.
    blind: Option<String>,
    phase: Option<(Instant, String)>,
}

impl Watched {
    fn new(jailed: Jailed, order: &Order, since: Instant) -> Watched {
        Watched {
            jailed: Some(jailed),
            reader: Reader::new(order.filesystem),
            sink: Sink::new(),
            since,
            held_since: None,
            held: Duration::ZERO,
            scheduled: BTreeMap::new(),
            behind: Duration::ZERO,
            bytes_read: 0,
            seen: Instant::now(),
            peak_memory: 0,
            trouble: None,
            blind: None,
            phase: None,
        }
    }

    /// Of `duration`, until now: without what it was held back, and stood behind others.
    fn active(&self, duration: Duration) -> Duration {
        let held = self.held
            + self
                .held_since
                .map_or(Duration::ZERO, |since| since.elapsed());
        duration.saturating_sub(held).saturating_sub(self.behind)
    }

    fn watch(
        &mut self,
        order: &Order,
        stop: BorrowedFd<'_>,
        told: &mut Told<'_>,
    ) -> (End, Option<Jailed>) {
        let Some(mut jailed) = self.jailed.take() else {
            return (End::Stopped, None);
        };
        let mut buffer = vec![0; 64 * 1024];
        let mut readable = true;
        loop {
            self.look(&jailed);
            if order.plan.modest {
                self.stand_behind(jailed.scheduled());
            }
            let left = order.timeout.saturating_sub(self.since.elapsed());
            if left.is_zero() {
                return self.kill(jailed, End::TimedOut, &mut buffer);
            }
            if let Some(rate) = order.bytes_per_second {
                self.hold_back(&jailed, rate);
                if self.blind.is_some() {
                    return self.kill(jailed, End::Stopped, &mut buffer);
                }
            }
            let usual = if self.since.elapsed() < FIRST {
                FIRST_LOOKS
            } else {
                LATER_LOOKS
            };
            let tick = match order.bytes_per_second {
                // Its output has ended, so it is about to: writers may be waiting.
                _ if !readable => AT_THE_END,
                Some(_) => usual.min(TICK),
                None => usual,
            };
            // Whatever cannot be waited for is stopped.
            let stopped = wait(
                readable.then(|| jailed.output()),
                Some(stop),
                tick.min(left),
            )
            .unwrap_or(true);
            if stopped {
                return self.kill(jailed, End::Stopped, &mut buffer);
            }
            readable = readable && self.drain(&mut jailed, &mut buffer);
            self.tell_phase(told);
            match jailed.ended(|jailed| self.look(jailed)) {
                Ok(None) => {}
                Ok(Some(status)) => {
                    self.drain(&mut jailed, &mut buffer);
                    self.trouble = jailed.trouble();
                    return (end(status), None);
                }
                // It is not our child, or is reaped already: nothing is known of its end.
                Err(_) => return self.kill(jailed, End::Stopped, &mut buffer),
            }
        }
    }

    /// All that is there. Whether more may come.
    fn drain(&mut self, jailed: &mut Jailed, buffer: &mut [u8]) -> bool {
        // A flood must not keep us from everything else.
        for _ in 0..64 {
            match jailed.read(buffer) {
                Ok(None) => return true,
                Ok(Some([])) | Err(_) => return false,
                Ok(Some(bytes)) => self.sink.take(bytes, &mut |line| self.reader.line(line)),
            }
        }
        true
    }

    /// What /proc says of it as long as it is there.
    fn look(&mut self, jailed: &Jailed) {
        if let Some(bytes) = jailed.bytes_read() {
            self.bytes_read = bytes.max(self.bytes_read);
            self.seen = Instant::now();
        }
        // Not the largest of all: before it was the checker it was our own binary.
        if let Some(peak @ 1..) = jailed.peak_memory() {
            self.peak_memory = peak;
        }
    }

    /// Adds the time since the last look in which it stood behind others, as a frozen run will not.
    fn stand_behind(&mut self, scheduled: BTreeMap<u32, Scheduled>) {
        // What is held back is not counted twice.
        if self.held_since.is_none() {
            self.behind += behind(&self.scheduled, &scheduled);
        }
        self.scheduled = scheduled;
    }

    /// Stops it while it has read more than its share.
    fn hold_back(&mut self, jailed: &Jailed, rate: u64) {
        if self.seen.elapsed() > UNSEEN {
            self.blind = Some(
                "what it reads cannot be seen, so it cannot be held back to spare the drive"
                    .to_owned(),
            );
            return;
        }
        #[allow(clippy::cast_precision_loss)] // Bytes beyond 2^53 are not read.
        let due =
            Duration::from_secs_f64((self.bytes_read as f64 / rate.max(1) as f64 - BURST).max(0.0));
        let ahead = due > self.since.elapsed();
        match self.held_since {
            None if ahead => {
                jailed.signal(Signal::SIGSTOP);
                self.held_since = Some(Instant::now());
            }
            Some(since) if !ahead => {
                jailed.signal(Signal::SIGCONT);
                self.held += since.elapsed();
                self.held_since = None;
            }
            _ => {}
        }
    }

    fn tell_phase(&mut self, told: &mut Told<'_>) {
        let Some(phase) = self.reader.phase() else {
            return;
        };
        if self
            .phase
            .as_ref()
            .is_some_and(|(at, last)| last == phase || at.elapsed() < PHASES)
        {
            return;
        }
        self.phase = Some((Instant::now(), phase.to_owned()));
        (told.phase)(phase);
    }

    fn kill(&mut self, mut jailed: Jailed, why: End, buffer: &mut [u8]) -> (End, Option<Jailed>) {
        self.look(&jailed);
        jailed.signal(Signal::SIGKILL);
        let killed = Instant::now();
        loop {
            self.drain(&mut jailed, buffer);
            match jailed.ended(|jailed| self.look(jailed)) {
                Ok(Some(_)) | Err(_) => {
                    self.drain(&mut jailed, buffer);
                    return (why, None);
                }
                Ok(None) if killed.elapsed() >= DYING => {
                    return (End::Stuck(jailed.waiting_in()), Some(jailed));
                }
                // Nothing but time to wait for.
                Ok(None) => drop(wait(None, None, Duration::from_millis(5))),
            }
        }
    }
}

/// For how long between two looks a thread waited for a processor while none of them had one: at
/// least, as what overlaps is not told.
fn behind(before: &BTreeMap<u32, Scheduled>, now: &BTreeMap<u32, Scheduled>) -> Duration {
    let since = |of: fn(&Scheduled) -> Duration| {
        let grown = |(number, now): (&u32, &Scheduled)| {
            of(now).saturating_sub(before.get(number).map(of).unwrap_or_default())
        };
        now.iter().map(grown).max().unwrap_or_default()
    };
    since(|thread| thread.waited).saturating_sub(since(|thread| thread.ran))
}

fn end(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code),
        (None, signal) => End::Signal(signal.unwrap_or_default()),
    }
}

/// Whether `stop` says so.
fn wait(
    output: Option<BorrowedFd<'_>>,
    stop: Option<BorrowedFd<'_>>,
    time: Duration,
) -> nix::Result<bool> {
    let mut fds: Vec<PollFd<'_>> = stop
        .into_iter()
        .chain(output)
        .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
        .collect();
    let time =
        PollTimeout::try_from(time.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, time) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno),
    }
    Ok(stop.is_some() && fds.first().and_then(PollFd::any).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(all: &[(u32, u64, u64)]) -> BTreeMap<u32, Scheduled> {
        let millis = Duration::from_millis;
        all.iter()
            .map(|(number, ran, waited)| {
                (
                    *number,
                    Scheduled {
                        ran: millis(*ran),
                        waited: millis(*waited),
                    },
                )
            })
            .collect()
    }

    #[test]
    fn it_stood_behind_others_while_none_of_its_threads_ran() {
        let before = threads(&[(1, 100, 50), (2, 10, 0)]);
        // Waited for a processor all the time; a thread that began since then has waited as well.
        assert_eq!(
            behind(&before, &threads(&[(1, 100, 70), (2, 10, 0)])),
            Duration::from_millis(20)
        );
        assert_eq!(
            behind(&before, &threads(&[(1, 100, 50), (2, 10, 0), (3, 2, 18)])),
            Duration::from_millis(16)
        );
        // One waited while another one worked.
        assert_eq!(
            behind(&before, &threads(&[(1, 120, 50), (2, 10, 20)])),
            Duration::ZERO
        );
        // Waited for the device, or was stopped.
        assert_eq!(behind(&before, &before), Duration::ZERO);
        assert_eq!(behind(&before, &threads(&[])), Duration::ZERO);
    }
}
