//! The terminal as one screen: the alternate screen without line wrapping, keys as they are pressed.
//! It is restored in every case, also after a panic.
//!
//! In: lines. Out: keys, the size. Knows nothing of what the lines say.

use std::future::pending;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::unix::AsyncFd;

use crate::host::async_fd;

/// Alternate screen, no wrapping, hidden cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?7l\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?7h\x1b[?1049l";

/// Whether the terminal must be restored.
static ACTIVE: AtomicBool = AtomicBool::new(false);
static PANIC_HOOK: Once = Once::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// q, Ctrl-C, or the end of the input.
    Quit,
    Redraw,
    Other,
}

/// Columns and lines; None: unknown.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = crossterm::terminal::size().ok();
    size.filter(|(columns, lines)| *columns > 0 && *lines > 0)
}

/// Whether the other end of standard output has been closed: nothing more can be written.
pub(crate) fn is_output_closed() -> bool {
    let out = io::stdout();
    let mut waited = [PollFd::new(out.as_fd(), PollFlags::empty())];
    poll(&mut waited, PollTimeout::ZERO).is_ok()
        && waited[0]
            .revents()
            .is_some_and(|events| events.intersects(PollFlags::POLLERR | PollFlags::POLLHUP))
}

pub(crate) struct FullScreen {
    /// None without a terminal for keys: then Ctrl-C is a signal.
    keys: Option<AsyncFd<Arc<OwnedFd>>>,
}

impl FullScreen {
    pub(crate) fn enter() -> io::Result<FullScreen> {
        PANIC_HOOK.call_once(|| {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                previous(panic);
            }));
        });
        let stdin = io::stdin();
        let keys = match stdin.is_terminal() {
            // The flags of the descriptor are shared with the shell: it stays a blocking one.
            true => Some(async_fd::register(
                stdin.as_fd().try_clone_to_owned()?.into(),
            )?),
            false => None,
        };
        ACTIVE.store(true, Ordering::SeqCst);
        let screen = FullScreen { keys };
        if screen.keys.is_some() {
            crossterm::terminal::enable_raw_mode()?;
        }
        write(ENTER)?;
        Ok(screen)
    }

    /// Replaces the whole screen, in one write. No line is wider than the terminal.
    pub(crate) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let text = lines.join("\x1b[K\r\n");
        write(&format!("\x1b[H{text}\x1b[K\x1b[J"))
    }

    /// The next key.
    pub(crate) async fn key(&self) -> Key {
        let Some(keys) = &self.keys else {
            return pending().await;
        };
        loop {
            let Ok(mut ready) = keys.readable().await else {
                return Key::Quit;
            };
            ready.clear_ready();
            if !has_input(keys.get_ref()) {
                continue;
            }
            let mut typed = [0; 64];
            match nix::unistd::read(keys.get_ref(), &mut typed) {
                Ok(0) => return Key::Quit,
                Ok(count) => return meaning(&typed[..count]),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                // The terminal is gone.
                Err(_) => return Key::Quit,
            }
        }
    }
}

/// The descriptor blocks, so that it is read only if there is something.
fn has_input(fd: &OwnedFd) -> bool {
    let mut waited = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut waited, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

fn meaning(typed: &[u8]) -> Key {
    const CTRL_C: u8 = 0x03;
    const CTRL_L: u8 = 0x0c;
    const ESCAPE: u8 = 0x1b;
    // Keys may be typed ahead; an arrow key is a sequence.
    let mut keys = typed
        .split(|byte| *byte == ESCAPE)
        .next()
        .unwrap_or(&[])
        .iter();
    if keys
        .clone()
        .any(|key| matches!(key, b'q' | b'Q') || *key == CTRL_C)
    {
        return Key::Quit;
    }
    match keys.any(|key| *key == CTRL_L) {
        true => Key::Redraw,
        false => Key::Other,
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        restore();
    }
}

/// Idempotent. Errors cannot be reported: the terminal may be gone.
fn restore() {
    if ACTIVE.swap(false, Ordering::SeqCst) {
        let _ = write(LEAVE);
        let _ = crossterm::terminal::disable_raw_mode();
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_and_ctrl_c_end_and_arrow_keys_do_not() {
        for (typed, key) in [
            (&b"q"[..], Key::Quit),
            (b"Q", Key::Quit),
            (b"xq", Key::Quit),
            (b"\x1bOq", Key::Other),
            (b"\x03", Key::Quit),
            (b"\x0c", Key::Redraw),
            (b"\x1b[A", Key::Other),
            (b"\x1b", Key::Other),
        ] {
            assert_eq!(meaning(typed), key, "{typed:?}");
        }
    }
}
