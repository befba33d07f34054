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

use crate::async_fd;
use diskvitals_text::echo::Shown;

/// Alternate screen, no wrapping, hidden cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?7l\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?7h\x1b[?1049l";

/// Whether the terminal must be restored.
static ACTIVE: AtomicBool = AtomicBool::new(false);
static PANIC_HOOK: Once = Once::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// q, Ctrl-C, or the end of the input.
    Quit,
    Redraw,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    /// Escape, backspace or the left arrow.
    Back,
    Other,
}

/// Columns and lines; None: unknown.
pub fn size() -> Option<(u16, u16)> {
    let size = crossterm::terminal::size().ok();
    size.filter(|(columns, lines)| *columns > 0 && *lines > 0)
}

/// Whether the other end of standard output has been closed: nothing more can be written.
pub fn is_output_closed() -> bool {
    let out = io::stdout();
    let mut waited = [PollFd::new(out.as_fd(), PollFlags::empty())];
    poll(&mut waited, PollTimeout::ZERO).is_ok()
        && waited[0]
            .revents()
            .is_some_and(|events| events.intersects(PollFlags::POLLERR | PollFlags::POLLHUP))
}

pub struct FullScreen {
    /// None without a terminal for keys: then Ctrl-C is a signal.
    keys: Option<AsyncFd<Arc<OwnedFd>>>,
}

impl FullScreen {
    pub fn enter() -> io::Result<FullScreen> {
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
            true => Some(async_fd::register(stdin.as_fd().try_clone_to_owned()?.into())?),
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
    pub fn draw(&self, lines: &[Shown]) -> io::Result<()> {
        let lines: Vec<&str> = lines.iter().map(Shown::as_str).collect();
        let text = lines.join("\x1b[K\r\n");
        write(&format!("\x1b[H{text}\x1b[K\x1b[J"))
    }

    /// The next keys, at least one.
    pub async fn keys(&self) -> Vec<Key> {
        let Some(keys) = &self.keys else {
            return pending().await;
        };
        loop {
            let Ok(mut ready) = keys.readable().await else {
                return vec![Key::Quit];
            };
            ready.clear_ready();
            if !has_input(keys.get_ref()) {
                continue;
            }
            let mut typed = [0; 256];
            match nix::unistd::read(keys.get_ref(), &mut typed) {
                Ok(0) => return vec![Key::Quit],
                Ok(count) => return parsed(&typed[..count]),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                // The terminal is gone.
                Err(_) => return vec![Key::Quit],
            }
        }
    }
}

/// The descriptor blocks, so that it is read only if there is something.
fn has_input(fd: &OwnedFd) -> bool {
    let mut waited = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut waited, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Keys may be typed ahead; arrow and page keys are sequences (ECMA-48, xterm's control sequences).
fn parsed(typed: &[u8]) -> Vec<Key> {
    const ESCAPE: u8 = 0x1b;
    let mut keys = Vec::new();
    let mut rest = typed;
    while let [first, tail @ ..] = rest {
        let (key, after) = match (first, tail) {
            (&ESCAPE, [b'[', sequence @ ..]) => {
                let is_end = |byte: &u8| (0x40..=0x7e).contains(byte);
                match sequence.iter().position(is_end) {
                    Some(end) => {
                        (of_sequence(&sequence[..end], sequence[end]), &sequence[end + 1..])
                    }
                    None => (Key::Other, &[][..]),
                }
            }
            (&ESCAPE, [b'O', end, after @ ..]) => (of_sequence(b"", *end), after),
            (&ESCAPE, [_, after @ ..]) => (Key::Other, after),
            (&ESCAPE, []) => (Key::Back, tail),
            (byte, _) => (of_byte(*byte), tail),
        };
        keys.push(key);
        rest = after;
    }
    keys
}

fn of_sequence(parameters: &[u8], end: u8) -> Key {
    match (end, parameters) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::Enter,
        (b'D', _) => Key::Back,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        _ => Key::Other,
    }
}

/// Letters as in less(1).
fn of_byte(byte: u8) -> Key {
    const CTRL_C: u8 = 0x03;
    const CTRL_L: u8 = 0x0c;
    const BACKSPACE: u8 = 0x7f;
    match byte {
        b'q' | b'Q' | CTRL_C => Key::Quit,
        CTRL_L => Key::Redraw,
        b'k' => Key::Up,
        b'j' => Key::Down,
        b'b' => Key::PageUp,
        b' ' | b'f' => Key::PageDown,
        b'g' => Key::Home,
        b'G' => Key::End,
        b'\r' | b'\n' => Key::Enter,
        BACKSPACE => Key::Back,
        _ => Key::Other,
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
    fn keys_and_sequences_are_read_one_by_one() {
        use Key::{Back, Down, End, Enter, Home, Other, PageDown, PageUp, Quit, Redraw, Up};
        for (typed, keys) in [
            (&b"q"[..], &[Quit][..]),
            (b"Q", &[Quit]),
            (b"xq", &[Other, Quit]),
            (b"\x1bOq", &[Other]),
            (b"\x03", &[Quit]),
            (b"\x0c", &[Redraw]),
            (b"\x1b[A\x1b[B", &[Up, Down]),
            (b"\x1bOA\x1bOB", &[Up, Down]),
            (b"\x1b[5~\x1b[6~", &[PageUp, PageDown]),
            (b"\x1b[H\x1b[F\x1b[1~\x1b[4~", &[Home, End, Home, End]),
            (b"\x1b[1;5A", &[Up]),
            (b"\r\x1b", &[Enter, Back]),
            (b"\x1b[12", &[Other]),
            (b"\x1bq", &[Other]),
            (b"jk gG\x7f", &[Down, Up, PageDown, Home, End, Back]),
        ] {
            assert_eq!(parsed(typed), keys, "{typed:?}");
        }
    }
}
