//! A question to the person at the terminal. In: the question. Out: whether the person agreed.

use std::io::{self, BufRead, IsTerminal, Write};

/// Whether somebody can be asked: input and standard error are a terminal.
pub fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Everything but `y` and `yes` is a no, also the end of the input.
pub async fn agrees(question: &str) -> io::Result<bool> {
    let mut error = io::stderr();
    // The error cannot be reported on an unwritable standard error.
    let _ = write!(error, "{question} [y/N] ");
    let _ = error.flush();
    // Connections stay alive during the wait.
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    let line = answer.await.map_err(io::Error::other)??;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
