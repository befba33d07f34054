//! A heartbeat: a request at an interval while all is at work, to a service that raises an alarm
//! when it stops. It is not sent when the daemon does not answer, and never queued.

use std::path::PathBuf;
use std::time::Duration;

use crate::secret::SecretFile;
use crate::targets::DeliveryError;
use crate::targets::http::{self, Headers, Request, UrlSource};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeartbeatTarget {
    pub url: UrlSource,
    pub method: ::http::Method,
    pub headers: Headers,
    pub token: Option<SecretFile>,
    pub ca_file: Option<PathBuf>,
    pub interval: Duration,
}

impl HeartbeatTarget {
    pub(crate) async fn ping(&self) -> Result<String, DeliveryError> {
        let url = self.url.resolve().await?;
        let mut headers = self.headers.resolve().await?;
        if let Some(token) = &self.token {
            let value = http::secret_value(&http::read_secret(token).await?, "Bearer ")?;
            headers.push((::http::header::AUTHORIZATION, value));
        }
        http::send(Request {
            url: &url,
            method: self.method.clone(),
            headers,
            body: Vec::new(),
            ca_file: self.ca_file.as_deref(),
        })
        .await
    }

    pub(crate) async fn probe(&self) -> Result<String, DeliveryError> {
        http::probe(&self.url.resolve().await?, self.ca_file.as_deref()).await
    }
}
