//! Mail over SMTP: STARTTLS, TLS from the first byte, or clear text: to this host, or to a relay that
//! the configuration calls insecure.
//!
//! Each mail has a connection of its own. The server's answer to the end of DATA decides; what
//! becomes of the connection afterwards does not.

use std::path::PathBuf;
use std::time::Duration;

use lettre::message::Mailbox;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, Certificate, CertificateStore, TlsParameters,
};
use lettre::transport::smtp::extension::ClientId;

use crate::message::clean;
use crate::outgoing::Outgoing;
use crate::secret::SecretFile;
use crate::targets::{DeliveryError, mail, tls};
use diskvitals_text::causes::with_causes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    /// Clear text, to this host only.
    None,
    /// Clear text to any host, and never with a password.
    Insecure,
    Starttls,
    Implicit,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SmtpTarget {
    pub host: String,
    pub port: u16,
    pub tls: Tls,
    pub ca_file: Option<PathBuf>,
    pub from: Mailbox,
    pub to: Vec<Mailbox>,
    pub credentials: Option<(String, SecretFile)>,
}

impl SmtpTarget {
    pub(crate) async fn send(
        &self,
        notification: &Outgoing,
        timeout: Duration,
    ) -> Result<String, DeliveryError> {
        let mail = mail::message(notification, &self.from, &self.to)?;
        let mut connection = self.connect(timeout).await?;
        let sent = connection.send(mail.envelope(), &mail.formatted()).await;
        match sent {
            Ok(answer) => {
                let lines: Vec<&str> = answer.message().collect();
                let answer = clean(&format!("{} {}", answer.code(), lines.join(" ")));
                // The mail is accepted, whatever comes of the farewell.
                let _ = tokio::time::timeout(Duration::from_secs(2), connection.quit()).await;
                Ok(answer)
            }
            Err(error) => {
                let why = self.describe("refuses the mail", &error);
                // 530, 534, 535 and 538 are about the credentials (RFC 4954, 6).
                let about_login = error.status().is_some_and(|code| {
                    ["530", "534", "535", "538"].contains(&code.to_string().as_str())
                });
                match error.is_permanent() && !about_login {
                    true => Err(DeliveryError::refused(why)),
                    false => Err(DeliveryError::unavailable(why)),
                }
            }
        }
    }

    /// Connects and logs in.
    pub(crate) async fn probe(&self, timeout: Duration) -> Result<String, DeliveryError> {
        let mut connection = self.connect(timeout).await?;
        let answers = connection.test_connected().await;
        let _ = tokio::time::timeout(Duration::from_secs(2), connection.quit()).await;
        match answers {
            true => Ok(format!(
                "{}:{} accepts connections{}",
                self.host,
                self.port,
                match (self.tls, &self.credentials) {
                    (Tls::Insecure, _) => "; mail goes there in clear text",
                    (_, Some(_)) => " and the login",
                    (_, None) => "",
                }
            )),
            false => Err(DeliveryError::unavailable(format!(
                "{}:{} accepts a connection and then no command",
                self.host, self.port
            ))),
        }
    }

    async fn connect(&self, timeout: Duration) -> Result<AsyncSmtpConnection, DeliveryError> {
        let hello = ClientId::Domain(self.hello_name());
        let tls = match self.tls {
            Tls::None | Tls::Insecure => None,
            Tls::Starttls | Tls::Implicit => Some(self.tls_parameters().await?),
        };
        let (implicit, starttls) = match self.tls {
            Tls::Implicit => (tls, None),
            _ => (None, tls),
        };
        let mut connection = AsyncSmtpConnection::connect_tokio1(
            (self.host.as_str(), self.port),
            Some(timeout),
            &hello,
            implicit,
            None,
        )
        .await
        .map_err(|error| DeliveryError::unavailable(self.describe("cannot be used", &error)))?;
        if let Some(tls) = starttls {
            if !connection.can_starttls() {
                return Err(DeliveryError::unavailable(format!(
                    "{}:{} does not offer STARTTLS: nothing is sent in clear text",
                    self.host, self.port
                )));
            }
            connection.starttls(tls, &hello).await.map_err(|error| {
                DeliveryError::unavailable(self.describe("fails at STARTTLS", &error))
            })?;
        }
        // The configuration refuses credentials for an insecure relay as well.
        let credentials = self.credentials.as_ref();
        if let Some((name, file)) = credentials.filter(|_| self.tls != Tls::Insecure) {
            let secret = file.read().await;
            let secret = secret.map_err(|error| DeliveryError::unavailable(with_causes(&error)))?;
            let credentials = Credentials::new(name.clone(), secret.expose().to_owned());
            connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await.map_err(
                |error| DeliveryError::unavailable(self.describe("refuses the login", &error)),
            )?;
        }
        Ok(connection)
    }

    /// A domain that looks like one to the server: the sender's.
    fn hello_name(&self) -> String {
        self.from.email.domain().to_owned()
    }

    async fn tls_parameters(&self) -> Result<TlsParameters, DeliveryError> {
        let failed = |error: &dyn std::error::Error| {
            DeliveryError::unavailable(format!(
                "TLS to {}:{}: {}",
                self.host,
                self.port,
                with_causes(error)
            ))
        };
        let authorities =
            tls::authorities(self.ca_file.as_deref()).await.map_err(|error| failed(&error))?;
        let mut builder =
            TlsParameters::builder(self.host.clone()).certificate_store(CertificateStore::None);
        for authority in authorities {
            // The system may have some that cannot be used.
            let usable = rustls::RootCertStore::empty().add(authority.clone()).is_ok();
            if let Some(certificate) =
                Certificate::from_der(authority.to_vec()).ok().filter(|_| usable)
            {
                builder = builder.add_root_certificate(certificate);
            }
        }
        builder.build().map_err(|error| failed(&error))
    }

    fn describe(&self, what: &str, error: &Error) -> String {
        format!("{}:{} {what}: {}", self.host, self.port, with_causes(error))
    }
}
