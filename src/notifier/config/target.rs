//! One `[[target]]`: all keys as they are written → the target of its type, or the key that is
//! wrong.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::config::level;
use crate::message::Level;
use crate::secret::SecretFile;
use crate::targets::exec::{ExecTarget, Input};
use crate::targets::heartbeat::HeartbeatTarget;
use crate::targets::http::{Headers, HttpUrl, UrlSource};
use crate::targets::smtp::{SmtpTarget, Tls};
use crate::targets::webhook::{Preset, WebhookTarget};
use crate::targets::{Target, TargetKind};
use crate::template::Template;
use diskvitals_text::duration;
use diskvitals_text::echo::echo;

#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("another target has this name")]
    Duplicate,
    #[error("name: 1 to 64 letters, digits, `-`, `_` and `.`")]
    Name,
    #[error("type: `{0}` is none: write smtp, webhook, exec or heartbeat")]
    Type(String),
    #[error("{key}: type {kind} needs it")]
    Missing { key: &'static str, kind: &'static str },
    #[error("{key}: type {kind} has no such key")]
    Unused { key: &'static str, kind: &'static str },
    #[error("{key}: {problem}")]
    Value { key: &'static str, problem: String },
}

/// All keys of all types.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawTarget {
    pub name: String,
    r#type: String,
    min_severity: Option<String>,
    digest: Option<bool>,
    timeout: Option<String>,
    server: Option<String>,
    tls: Option<String>,
    ca_file: Option<PathBuf>,
    from: Option<String>,
    to: Option<Vec<String>>,
    username: Option<String>,
    password_file: Option<PathBuf>,
    url: Option<String>,
    url_file: Option<PathBuf>,
    preset: Option<String>,
    method: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    header_files: Option<BTreeMap<String, PathBuf>>,
    token_file: Option<PathBuf>,
    content_type: Option<String>,
    body: Option<String>,
    command: Option<Vec<String>>,
    input: Option<String>,
    interval: Option<String>,
}

fn wrong(key: &'static str) -> impl Fn(String) -> TargetError {
    move |problem| TargetError::Value { key, problem }
}

impl RawTarget {
    fn given(&self) -> [(&'static str, bool); 19] {
        [
            ("server", self.server.is_some()),
            ("tls", self.tls.is_some()),
            ("ca_file", self.ca_file.is_some()),
            ("from", self.from.is_some()),
            ("to", self.to.is_some()),
            ("username", self.username.is_some()),
            ("password_file", self.password_file.is_some()),
            ("url", self.url.is_some()),
            ("url_file", self.url_file.is_some()),
            ("preset", self.preset.is_some()),
            ("method", self.method.is_some()),
            ("headers", self.headers.is_some()),
            ("header_files", self.header_files.is_some()),
            ("token_file", self.token_file.is_some()),
            ("content_type", self.content_type.is_some()),
            ("body", self.body.is_some()),
            ("command", self.command.is_some()),
            ("input", self.input.is_some()),
            ("interval", self.interval.is_some()),
        ]
    }

    pub(crate) fn into_target(mut self, folder: &Path) -> Result<Target, TargetError> {
        let named = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(named) {
            return Err(TargetError::Name);
        }
        let (kind, keys): (&'static str, &[&str]) = match self.r#type.as_str() {
            "smtp" => {
                ("smtp", &["server", "tls", "ca_file", "from", "to", "username", "password_file"])
            }
            "webhook" => (
                "webhook",
                &[
                    "url",
                    "url_file",
                    "preset",
                    "method",
                    "headers",
                    "header_files",
                    "token_file",
                    "content_type",
                    "body",
                    "ca_file",
                ],
            ),
            "exec" => ("exec", &["command", "input", "from", "to"]),
            "heartbeat" => (
                "heartbeat",
                &[
                    "url",
                    "url_file",
                    "method",
                    "headers",
                    "header_files",
                    "token_file",
                    "ca_file",
                    "interval",
                ],
            ),
            other => return Err(TargetError::Type(echo(other))),
        };
        if let Some((key, _)) =
            self.given().into_iter().find(|(key, given)| *given && !keys.contains(key))
        {
            return Err(TargetError::Unused { key, kind });
        }
        let min_severity = match &self.min_severity {
            Some(text) => level(text).map_err(wrong("min_severity"))?,
            None => Level::Info,
        };
        let timeout = span("timeout", self.timeout.as_deref(), Duration::from_secs(30))?;
        if timeout < Duration::from_secs(1) || timeout > Duration::from_secs(600) {
            return Err(wrong("timeout")("1s to 10min".to_owned()));
        }
        let target = match kind {
            "smtp" => TargetKind::Smtp(self.smtp(folder)?),
            "webhook" => TargetKind::Webhook(self.webhook(folder)?),
            "exec" => TargetKind::Exec(self.exec()?),
            _ => TargetKind::Heartbeat(self.heartbeat(folder)?),
        };
        Ok(Target {
            name: self.name,
            min_severity,
            digest: self.digest.unwrap_or(true),
            timeout,
            kind: target,
        })
    }

    fn mail(
        &mut self,
        kind: &'static str,
    ) -> Result<(lettre::message::Mailbox, Vec<lettre::message::Mailbox>), TargetError> {
        let from = self.from.take().ok_or(TargetError::Missing { key: "from", kind })?;
        let to = self.to.take().filter(|to| !to.is_empty());
        let to = to.ok_or(TargetError::Missing { key: "to", kind })?;
        let address = |key: &'static str, text: &str| {
            let problem = |error| {
                let shown = echo(text);
                format!(
                    "`{shown}` is no mail address ({error}): write NAME@HOST; a user of this host is NAME@localhost"
                )
            };
            text.parse::<lettre::message::Mailbox>().map_err(|error| wrong(key)(problem(error)))
        };
        Ok((
            address("from", &from)?,
            to.iter().map(|to| address("to", to)).collect::<Result<_, _>>()?,
        ))
    }

    fn smtp(&mut self, folder: &Path) -> Result<SmtpTarget, TargetError> {
        let kind = "smtp";
        let server = self.server.take().ok_or(TargetError::Missing { key: "server", kind })?;
        let tls = match self.tls.as_deref() {
            Some("none") => Tls::None,
            Some("insecure") => Tls::Insecure,
            Some("starttls") => Tls::Starttls,
            Some("tls") => Tls::Implicit,
            Some(other) => {
                let problem =
                    format!("`{}` is none: write starttls, tls, none or insecure", echo(other));
                return Err(wrong("tls")(problem));
            }
            None => return Err(TargetError::Missing { key: "tls", kind }),
        };
        let default_port = match tls {
            Tls::None | Tls::Insecure => 25,
            Tls::Starttls => 587,
            Tls::Implicit => 465,
        };
        let (host, port) = host_and_port(&server, default_port).map_err(wrong("server"))?;
        if tls == Tls::None && !is_loopback(&host) {
            return Err(wrong("tls")(format!(
                "none sends mail in clear text, which is allowed to this host only (localhost, 127.0.0.1, [::1]), not to {host}: write starttls or tls; insecure if {host} is a relay without TLS in a network that you trust"
            )));
        }
        if tls == Tls::Insecure && (self.username.is_some() || self.password_file.is_some()) {
            return Err(wrong("tls")(
                "insecure sends mail in clear text, and no password goes with it: leave username and password_file out, or write starttls or tls"
                    .to_owned(),
            ));
        }
        let credentials = match (self.username.take(), self.password_file.take()) {
            (Some(name), Some(file)) => Some((name, SecretFile::new(file, folder))),
            (None, None) => None,
            (Some(_), None) => {
                return Err(TargetError::Missing {
                    key: "password_file",
                    kind: "smtp with username",
                });
            }
            (None, Some(_)) => {
                return Err(TargetError::Missing {
                    key: "username",
                    kind: "smtp with password_file",
                });
            }
        };
        let (from, to) = self.mail(kind)?;
        Ok(SmtpTarget { host, port, tls, ca_file: self.authorities(folder), from, to, credentials })
    }

    /// The file with further certificates of authorities.
    fn authorities(&mut self, folder: &Path) -> Option<PathBuf> {
        let file = self.ca_file.take()?;
        Some(SecretFile::new(file, folder).path().to_owned())
    }

    fn url(&mut self, kind: &'static str, folder: &Path) -> Result<UrlSource, TargetError> {
        match (self.url.take(), self.url_file.take()) {
            (Some(url), None) => {
                let url: HttpUrl = url.parse().map_err(wrong("url"))?;
                Ok(UrlSource::Known(url))
            }
            (None, Some(file)) => Ok(UrlSource::Secret(SecretFile::new(file, folder))),
            (Some(_), Some(_)) => {
                Err(wrong("url")("url_file is given too: write one of them".to_owned()))
            }
            (None, None) => Err(TargetError::Missing { key: "url", kind }),
        }
    }

    fn headers(&mut self, folder: &Path) -> Result<Headers, TargetError> {
        let name = |key: &'static str, name: &str| {
            name.parse::<http::HeaderName>()
                .map_err(|_| wrong(key)(format!("`{}` is no name of a header", echo(name))))
        };
        let mut plain = Vec::new();
        for (header, value) in self.headers.take().unwrap_or_default() {
            let value = value.parse::<http::HeaderValue>().map_err(|_| {
                wrong("headers")(format!(
                    "the value of {} has characters that a header cannot have",
                    echo(&header)
                ))
            })?;
            plain.push((name("headers", &header)?, value));
        }
        let mut files = Vec::new();
        for (header, file) in self.header_files.take().unwrap_or_default() {
            files.push((name("header_files", &header)?, SecretFile::new(file, folder)));
        }
        Ok(Headers { plain, files })
    }

    fn method(&mut self, default: http::Method) -> Result<http::Method, TargetError> {
        match self.method.take().as_deref() {
            None => Ok(default),
            Some("GET") => Ok(http::Method::GET),
            Some("POST") => Ok(http::Method::POST),
            Some("PUT") => Ok(http::Method::PUT),
            Some("HEAD") if default == http::Method::GET => Ok(http::Method::HEAD),
            Some(other) => Err(wrong("method")(format!("`{}` is not possible here", echo(other)))),
        }
    }

    fn webhook(&mut self, folder: &Path) -> Result<WebhookTarget, TargetError> {
        let preset = match self.preset.take().as_deref() {
            None | Some("json") => Preset::Json,
            Some("slack") => Preset::Slack,
            Some("teams") => Preset::Teams,
            Some("discord") => Preset::Discord,
            Some("ntfy") => Preset::Ntfy,
            Some("gotify") => Preset::Gotify,
            Some(other) => {
                let problem = format!(
                    "`{}` is none: write json, slack, teams, discord, ntfy or gotify",
                    echo(other)
                );
                return Err(wrong("preset")(problem));
            }
        };
        let content_type =
            self.content_type.take().unwrap_or_else(|| "application/json".to_owned());
        let content_type = content_type.parse::<http::HeaderValue>().map_err(|_| {
            wrong("content_type")("it has characters that a header cannot have".to_owned())
        })?;
        let body = match self.body.take() {
            None => None,
            Some(_) if preset != Preset::Json => {
                return Err(wrong("body")(
                    "the preset has a body of its own: leave one of them out".to_owned(),
                ));
            }
            Some(text) => {
                let is_json = content_type.to_str().is_ok_and(|text| text.contains("json"));
                Some(
                    Template::new(&text, is_json)
                        .map_err(|error| wrong("body")(error.to_string()))?,
                )
            }
        };
        let token = self.token_file.take().map(|file| SecretFile::new(file, folder));
        if preset == Preset::Gotify && token.is_none() {
            return Err(TargetError::Missing {
                key: "token_file",
                kind: "webhook with preset gotify",
            });
        }
        let headers = self.headers(folder)?;
        Ok(WebhookTarget {
            url: self.url("webhook", folder)?,
            preset,
            method: self.method(http::Method::POST)?,
            headers,
            token,
            content_type,
            body,
            ca_file: self.authorities(folder),
        })
    }

    fn heartbeat(&mut self, folder: &Path) -> Result<HeartbeatTarget, TargetError> {
        let interval = span("interval", self.interval.as_deref(), Duration::from_secs(60))?;
        if interval < Duration::from_secs(1) {
            return Err(wrong("interval")("1s is the shortest".to_owned()));
        }
        let headers = self.headers(folder)?;
        Ok(HeartbeatTarget {
            url: self.url("heartbeat", folder)?,
            method: self.method(http::Method::GET)?,
            headers,
            token: self.token_file.take().map(|file| SecretFile::new(file, folder)),
            ca_file: self.authorities(folder),
            interval,
        })
    }

    fn exec(&mut self) -> Result<ExecTarget, TargetError> {
        let kind = "exec";
        let command = self.command.take().filter(|command| !command.is_empty());
        let mut command = command.ok_or(TargetError::Missing { key: "command", kind })?;
        let program = PathBuf::from(command.remove(0));
        if !program.is_absolute() {
            return Err(wrong("command")("the program's path must be absolute".to_owned()));
        }
        let input = match self.input.take().as_deref() {
            None | Some("json") => {
                if self.from.is_some() || self.to.is_some() {
                    return Err(wrong("from")("only input = \"mail\" uses from and to".to_owned()));
                }
                Input::Json
            }
            Some("mail") => {
                let (from, to) = self.mail("exec with input mail")?;
                Input::Mail { from: Box::new(from), to }
            }
            Some(other) => {
                return Err(wrong("input")(format!(
                    "`{}` is none: write json or mail",
                    echo(other)
                )));
            }
        };
        Ok(ExecTarget { program, args: command, input })
    }
}

fn span(key: &'static str, text: Option<&str>, default: Duration) -> Result<Duration, TargetError> {
    text.map_or(Ok(default), |text| {
        duration::parse(text).map_err(|error| wrong(key)(error.to_string()))
    })
}

/// `mail.example.com`, `127.0.0.1:2525`, `[::1]:25`.
fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), String> {
    let wrong = || format!("`{}` is no server: write HOST or HOST:PORT", echo(text));
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
            (host, rest.strip_prefix(':'))
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if host.is_empty() || !host.chars().all(plain) {
        return Err(wrong());
    }
    let port = match port {
        Some(port) => port.parse().map_err(|_| wrong())?,
        None => default_port,
    };
    Ok((host.to_owned(), port))
}

pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
