//! A program: gets the notification's JSON, or a mail, on its standard input. Exit status 0 is
//! success. It runs with the rights of this process, which its unit restricts.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use lettre::message::Mailbox;

use crate::message::clean;
use crate::outgoing::Outgoing;
use crate::targets::{DeliveryError, mail};
use diskvitals_host::exec::{self, Exec};
use diskvitals_host::trusted_file;
use diskvitals_text::causes::with_causes;

const MAX_OUTPUT: usize = 4096;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExecTarget {
    pub program: PathBuf,
    pub args: Vec<String>,
    pub input: Input,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Input {
    Json,
    /// As for `sendmail -t`.
    Mail {
        from: Box<Mailbox>,
        to: Vec<Mailbox>,
    },
}

impl ExecTarget {
    pub(crate) async fn run(
        &self,
        notification: &Outgoing,
        timeout: Duration,
    ) -> Result<String, DeliveryError> {
        let stdin = match &self.input {
            Input::Json => notification.json().to_string().into_bytes(),
            // A program on this host expects this host's line ends.
            Input::Mail { from, to } => {
                let mail = mail::message(notification, from, to)?.formatted();
                String::from_utf8_lossy(&mail).replace("\r\n", "\n").into_bytes()
            }
        };
        let command = Exec {
            program: self.program.clone(),
            args: self.args.clone(),
            stdin,
            timeout,
            max_output: MAX_OUTPUT,
        };
        let output = exec::run(&command)
            .await
            .map_err(|error| DeliveryError::unavailable(with_causes(&error)))?;
        let printed = match output.status {
            0 => String::from_utf8_lossy(&output.stdout).into_owned(),
            _ => String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        let said = clean(printed.trim());
        match (output.status & 0x7f, output.status >> 8 & 0xff) {
            (0, 0) => Ok(format!("exit 0 {said}").trim_end().to_owned()),
            (0, code) => Err(DeliveryError::unavailable(format!(
                "{} ended with exit {code}: {said}",
                self.program.display()
            ))),
            (signal, _) => Err(DeliveryError::unavailable(format!(
                "{} was ended by signal {signal}: {said}",
                self.program.display()
            ))),
        }
    }

    /// Whether there is a program that nobody else may change.
    pub(crate) fn probe(&self) -> Result<String, DeliveryError> {
        let path = self.program.display();
        if let Err(error) = trusted_file::check_program(&self.program)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(DeliveryError::unavailable(error.to_string()));
        }
        match std::fs::metadata(&self.program) {
            Ok(file) if file.is_file() && file.permissions().mode() & 0o111 != 0 => {
                Ok(format!("{path} is a program"))
            }
            Ok(_) => Err(DeliveryError::unavailable(format!("{path} is no program"))),
            Err(error) => Err(DeliveryError::unavailable(format!("{path}: {error}"))),
        }
    }
}
