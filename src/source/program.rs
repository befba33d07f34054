//! One run of a program that may hang in the kernel.

use std::path::Path;

use diskvitals_host::exec::{self, Exec, ExecError, Output, UnkillableChild};
use diskvitals_text::causes::with_causes;

/// Why there is no output.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) why: String,
    pub(crate) has_timed_out: bool,
    /// It cannot be killed: none is started before it has ended.
    pub(crate) stuck: Option<UnkillableChild>,
}

/// `directory`: the program's working directory.
pub(crate) async fn run(exec: &Exec, directory: &Path) -> Result<Output, Failure> {
    exec::run_in(exec, directory).await.map_err(|error| match error {
        ExecError::Unkillable { program, child, .. } => {
            let waiting = child.waiting_in.clone().unwrap_or_else(|| "the kernel".to_owned());
            let why = format!("{} cannot be killed: it waits in {waiting}", program.display());
            Failure { why, has_timed_out: true, stuck: Some(child) }
        }
        error => Failure {
            has_timed_out: matches!(error, ExecError::TimedOut { .. }),
            why: with_causes(&error),
            stuck: None,
        },
    })
}
