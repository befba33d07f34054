//! The members of ZFS pools, as `zpool status` shows them.
//!
//! In: a pool and the state that the module gives it. Out: its `PoolStatus`. Every `zpool` takes a lock
//! of the module that serves all pools, and with a suspended pool it waits for ever and cannot be killed
//! (openzfs/zfs#18446): none is started while a pool is suspended, is imported or exported, or an earlier
//! `zpool` has not ended. One runs at a time; after one that hung, none for an hour.

mod json;
mod text;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::program;
use diskvitals_host::clock::now;
use diskvitals_host::exec::{Exec, UnkillableChild};
use diskvitals_host::root::HostRoot;
use diskvitals_model::stack::{PoolState, PoolStatus, ZfsPool};
use diskvitals_text::causes::with_causes;

pub(crate) const PROGRAMS: [&str; 3] = ["/usr/sbin/zpool", "/sbin/zpool", "/usr/local/sbin/zpool"];
const TIMEOUT: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_secs(300);
/// After a request by hand.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(30);
const AFTER_HANG: Duration = Duration::from_secs(3600);
/// A pool of 200 members has 200 KiB.
const MAX_OUTPUT: usize = 8 << 20;
const MAX_VDEVS: usize = 4096;
/// The states of all pools are read every 30 s. What has not been read for so long is exported.
const STATE_IS_OLD: Duration = Duration::from_secs(120);
/// zpool's exit status for options that it does not know.
const USAGE: i32 = 2;

#[derive(Debug, thiserror::Error)]
enum ParseError {
    #[error("the answer is no JSON")]
    Json(#[source] serde_json::Error),
    #[error("the answer has no list of pools")]
    NoPools,
    #[error("the answer has no members")]
    NoVdevs,
    #[error("the answer has no count of data errors")]
    NoErrorCount,
    #[error("the answer has more than {MAX_VDEVS} members")]
    TooMany,
    #[error("this line makes no sense: {0:.80}")]
    Row(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Text,
}

pub struct ZpoolReader {
    /// Where `zpool` may be.
    programs: Vec<PathBuf>,
    timeout: Duration,
    one: Semaphore,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    pools: BTreeMap<String, KnownPool>,
    /// The form that this `zpool` has; None: JSON has not been tried.
    form: Option<Form>,
    stuck: Option<UnkillableChild>,
    /// When one hung.
    hung: Option<Instant>,
    /// Pools whose state could not be read, with the last attempt: they may be imported or exported now.
    unread: BTreeMap<String, Instant>,
}

struct KnownPool {
    pool: ZfsPool,
    state_at: Instant,
    /// When, and in which state of the pool, `zpool` was asked.
    asked: Option<(Instant, PoolState)>,
    /// Somebody asked for it by hand since.
    is_wanted: bool,
}

impl ZpoolReader {
    pub fn new() -> ZpoolReader {
        ZpoolReader {
            programs: PROGRAMS.map(PathBuf::from).to_vec(),
            timeout: TIMEOUT,
            one: Semaphore::new(1),
            known: Mutex::default(),
        }
    }

    /// Adds to the state of a pool what is known of its members, after asking for it if that is due.
    pub async fn complete(&self, root: &HostRoot, name: &str, state: PoolState) -> ZfsPool {
        if root.is_recorded() {
            let read = |form: &str| root.read(format!("/exec/zpool/{name}.{form}")).ok();
            let json = read("json").map(|bytes| parse(&bytes, Form::Json, name));
            let text = || read("txt").map(|bytes| parse(&bytes, Form::Text, name));
            let answer = json.or_else(text);
            return answer.map_or(ZfsPool { state, ..ZfsPool::default() }, |answer| {
                let mut pool = ZfsPool { state, ..ZfsPool::default() };
                pool.take(answer, now());
                pool
            });
        }
        self.note_state(name, state);
        // Never closed, and waits for one time-out at most: a program that hangs makes nothing due.
        if let Ok(_permit) = self.one.acquire().await
            && let Some(form) = self.due(name)
            && let Some(program) = self.programs.iter().find(|program| program.exists())
        {
            let begun = now();
            if let Some(answer) = self.ask(program, form, name).await
                && let Some(known) = self.known().pools.get_mut(name)
            {
                known.pool.take(answer, begun);
            }
        }
        let known = self.known();
        let pool = known.pools.get(name).map(|known| known.pool.clone());
        ZfsPool { state, ..pool.unwrap_or_default() }
    }

    /// The state of the pool could not be read: it holds back `zpool` for the others.
    pub fn hold(&self, name: &str) {
        self.known().unread.insert(name.to_owned(), Instant::now());
    }

    /// Asks for each pool in the next round in which that is not too often.
    pub(crate) fn make_due(&self) {
        self.known().pools.values_mut().for_each(|pool| pool.is_wanted = true);
    }

    /// No code panics while it holds the lock.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_state(&self, name: &str, state: PoolState) {
        let mut known = self.known();
        known.unread.remove(name);
        known.pools.retain(|_, pool| pool.state_at.elapsed() < STATE_IS_OLD);
        let entry = known.pools.entry(name.to_owned()).or_insert_with(|| KnownPool {
            pool: ZfsPool::default(),
            state_at: Instant::now(),
            asked: None,
            is_wanted: false,
        });
        (entry.pool.state, entry.state_at) = (state, Instant::now());
    }

    /// The form to ask in, if it is time to ask and nothing forbids it.
    fn due(&self, name: &str) -> Option<Form> {
        let mut known = self.known();
        if known.stuck.as_mut().is_some_and(|child| !child.has_exited()) {
            return None;
        }
        known.stuck = None;
        known.unread.retain(|_, at| at.elapsed() < STATE_IS_OLD);
        let has_hung = known.hung.is_some_and(|at| at.elapsed() < AFTER_HANG);
        if has_hung || !known.unread.is_empty() {
            return None;
        }
        if known.pools.values().any(|it| it.pool.state == PoolState::Suspended) {
            return None;
        }
        let form = known.form.unwrap_or(Form::Json);
        let entry = known.pools.get_mut(name)?;
        let state = entry.pool.state;
        let interval = if entry.is_wanted { SHORTEST_INTERVAL } else { INTERVAL };
        let is_current = |(at, of): &(Instant, PoolState)| *of == state && at.elapsed() < interval;
        if entry.asked.as_ref().is_some_and(is_current) {
            return None;
        }
        entry.asked = Some((Instant::now(), state));
        entry.is_wanted = false;
        Some(form)
    }

    /// None: this `zpool` has no JSON; the text is asked for in the next round.
    async fn ask(
        &self,
        program: &Path,
        form: Form,
        name: &str,
    ) -> Option<Result<PoolStatus, String>> {
        let options: &[&str] = match form {
            Form::Json => &["status", "-j", "--json-int", "-p", "-P"],
            Form::Text => &["status", "-p", "-P", "-s"],
        };
        let exec = Exec {
            program: PathBuf::from(program),
            args: options.iter().map(|it| (*it).to_owned()).chain([name.to_owned()]).collect(),
            stdin: Vec::new(),
            timeout: self.timeout,
            max_output: MAX_OUTPUT,
        };
        let output = match program::run(&exec, Path::new("/")).await {
            Ok(output) => output,
            Err(failure) => {
                let mut known = self.known();
                if failure.has_timed_out {
                    known.hung = Some(Instant::now());
                }
                known.stuck = failure.stuck;
                return Some(Err(failure.why));
            }
        };
        let status = ExitStatus::from_raw(output.status);
        if form == Form::Json && status.code() == Some(USAGE) {
            let mut known = self.known();
            known.form = Some(Form::Text);
            if let Some(entry) = known.pools.get_mut(name) {
                entry.asked = None;
            }
            return None;
        }
        if !status.success() || output.truncated {
            let text = String::from_utf8_lossy(&output.stderr);
            return Some(Err(format!("zpool status: {status}: {:.200}", text.trim())));
        }
        Some(parse(&output.stdout, form, name))
    }
}

fn parse(bytes: &[u8], form: Form, name: &str) -> Result<PoolStatus, String> {
    let parsed = match form {
        Form::Json => json::parse(bytes, name),
        Form::Text => text::parse(&String::from_utf8_lossy(bytes), name),
    };
    match parsed {
        Ok(Some(status)) => Ok(status),
        Ok(None) => Err(format!("zpool status has no pool {name}")),
        Err(error) => Err(format!("zpool status: {}", with_causes(&error))),
    }
}

#[cfg(test)]
mod tests;
