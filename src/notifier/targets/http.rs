//! One HTTP request over a connection of its own, with or without TLS. Redirects are not followed:
//! a secret must not follow them.
//!
//! In: a request. Out: the status and the beginning of the answer.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::message::clean;
use crate::secret::SecretFile;
use crate::targets::{DeliveryError, tls};
use diskvitals_text::causes::with_causes;
use diskvitals_text::echo::echo;

/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 4096;
const USER_AGENT: &str = concat!("diskvitals-notify/", env!("CARGO_PKG_VERSION"));

/// An http or https address with a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpUrl(http::Uri);

impl FromStr for HttpUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<HttpUrl, String> {
        // The path may be a secret: it is not repeated.
        let wrong =
            |why: &str| format!("no address of a web server ({why}): write https://HOST/PATH");
        let uri: http::Uri = text.parse().map_err(|_| wrong("it is not a URL"))?;
        match (uri.scheme_str(), uri.authority()) {
            (Some("http" | "https"), Some(authority)) => match authority.as_str().contains('@') {
                true => Err(wrong("a user and password belong into header_files")),
                false => Ok(HttpUrl(uri)),
            },
            _ => Err(wrong("it does not begin with https://")),
        }
    }
}

impl HttpUrl {
    pub(crate) fn is_tls(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Without brackets.
    pub(crate) fn host(&self) -> &str {
        self.0.host().unwrap_or_default().trim_matches(['[', ']'])
    }

    fn port(&self) -> u16 {
        let default = if self.is_tls() { 443 } else { 80 };
        self.0.port_u16().unwrap_or(default)
    }

    pub(crate) fn path_and_query(&self) -> &str {
        self.0.path_and_query().map_or("/", |path| path.as_str())
    }

    /// The same server with another path.
    pub(crate) fn with_path(&self, path: &str) -> Result<HttpUrl, DeliveryError> {
        let mut parts = self.0.clone().into_parts();
        let path = path
            .parse()
            .map_err(|_| DeliveryError::unavailable("the address has no usable path"))?;
        parts.path_and_query = Some(path);
        http::Uri::from_parts(parts)
            .map(HttpUrl)
            .map_err(|_| DeliveryError::unavailable("the address has no usable path"))
    }

    /// Without the path, which may be a secret.
    pub(crate) fn server(&self) -> String {
        let scheme = self.0.scheme_str().unwrap_or_default();
        echo(&format!("{scheme}://{}:{}", self.host(), self.port()))
    }
}

/// A URL of the configuration, or the name of the file that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UrlSource {
    Known(HttpUrl),
    Secret(SecretFile),
}

impl UrlSource {
    pub(crate) async fn resolve(&self) -> Result<HttpUrl, DeliveryError> {
        match self {
            UrlSource::Known(url) => Ok(url.clone()),
            UrlSource::Secret(file) => {
                let text = read_secret(file).await?;
                text.parse()
                    .map_err(|why: String| DeliveryError::unavailable(format!("url_file: {why}")))
            }
        }
    }
}

pub(crate) async fn read_secret(file: &SecretFile) -> Result<String, DeliveryError> {
    let secret = file.read().await;
    let secret = secret.map_err(|error| DeliveryError::unavailable(with_causes(&error)))?;
    Ok(secret.expose().to_owned())
}

pub(crate) struct Request<'a> {
    pub url: &'a HttpUrl,
    pub method: http::Method,
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,
    pub body: Vec<u8>,
    pub ca_file: Option<&'a Path>,
}

/// The headers of a target: as the configuration has them, and with values from files.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Headers {
    pub plain: Vec<(http::HeaderName, http::HeaderValue)>,
    pub files: Vec<(http::HeaderName, SecretFile)>,
}

impl Headers {
    pub(crate) async fn resolve(
        &self,
    ) -> Result<Vec<(http::HeaderName, http::HeaderValue)>, DeliveryError> {
        let mut headers = self.plain.clone();
        for (name, file) in &self.files {
            headers.push((name.clone(), secret_value(&read_secret(file).await?, "")?));
        }
        Ok(headers)
    }
}

/// A header's value that is not logged.
pub(crate) fn secret_value(secret: &str, prefix: &str) -> Result<http::HeaderValue, DeliveryError> {
    let mut value = http::HeaderValue::from_str(&format!("{prefix}{secret}")).map_err(|_| {
        DeliveryError::unavailable("a secret has characters that a header cannot have")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send> Stream for T {}

async fn connect(url: &HttpUrl, ca_file: Option<&Path>) -> Result<Box<dyn Stream>, DeliveryError> {
    let failed = |what: &str, error: &dyn std::error::Error| {
        DeliveryError::unavailable(format!("{what} {}: {}", url.server(), with_causes(error)))
    };
    let stream = TcpStream::connect((url.host(), url.port()))
        .await
        .map_err(|error| failed("connecting to", &error))?;
    if !url.is_tls() {
        return Ok(Box::new(stream));
    }
    let config = tls::client_config(ca_file).await.map_err(|error| failed("TLS to", &error))?;
    let name =
        ServerName::try_from(url.host().to_owned()).map_err(|error| failed("TLS to", &error))?;
    let stream = TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(|error| failed("TLS to", &error))?;
    Ok(Box::new(stream))
}

/// Connects, with TLS where the address asks for it, and sends nothing.
pub(crate) async fn probe(url: &HttpUrl, ca_file: Option<&Path>) -> Result<String, DeliveryError> {
    connect(url, ca_file).await?;
    Ok(format!("{} accepts connections", url.server()))
}

/// Any answer between 200 and 299 is success.
pub(crate) async fn send(request: Request<'_>) -> Result<String, DeliveryError> {
    let url = request.url;
    let failed = |what: &str, error: &dyn std::error::Error| {
        DeliveryError::unavailable(format!("{what} {}: {}", url.server(), with_causes(error)))
    };
    let stream = connect(url, request.ca_file).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed("speaking HTTP to", &error))?;
    let authority = url.0.authority().map_or("", |authority| authority.as_str());
    let mut built = http::Request::builder()
        .method(request.method)
        .uri(url.path_and_query())
        .header(http::header::HOST, authority)
        .header(http::header::USER_AGENT, USER_AGENT)
        .header(http::header::CONNECTION, "close");
    for (name, value) in request.headers {
        built = built.header(name, value);
    }
    let built = built
        .body(Full::new(Bytes::from(request.body)))
        .map_err(|error| failed("a request to", &error))?;
    let answer = async {
        let answer =
            sender.send_request(built).await.map_err(|error| failed("no answer from", &error))?;
        let (head, mut body) = answer.into_parts();
        let mut text = Vec::new();
        while text.len() < MAX_ANSWER {
            match body.frame().await {
                Some(Ok(frame)) => text.extend(frame.into_data().unwrap_or_default()),
                // The status is the answer; its text is for people.
                Some(Err(_)) | None => break,
            }
        }
        text.truncate(MAX_ANSWER);
        Ok((head, String::from_utf8_lossy(&text).trim().to_owned()))
    };
    tokio::pin!(answer);
    let (head, text) = tokio::select! {
        answer = &mut answer => answer?,
        // It ends when the answer is complete, or with an error, which the answer then has.
        _ = connection => answer.await?,
    };
    judge(url, &head, &text)
}

fn judge(url: &HttpUrl, head: &http::response::Parts, text: &str) -> Result<String, DeliveryError> {
    let said = clean(format!("HTTP {} {text}", head.status).trim_end());
    let from = url.server();
    let header = |name| head.headers.get(name)?.to_str().ok();
    match head.status.as_u16() {
        200..=299 => Ok(said),
        300..=399 => Err(DeliveryError::unavailable(format!(
            "{from} answers {said}: redirects are not followed; write the address that it leads to"
        ))),
        // The message's fault. All others concern the address, the secret or the server.
        400 | 406 | 409 | 411 | 413 | 415 | 422 => {
            Err(DeliveryError::refused(format!("{from} answers {said}")))
        }
        _ => Err(DeliveryError::Unavailable {
            why: clean(&format!("{from} answers {said}")),
            retry_after: header(http::header::RETRY_AFTER)
                .and_then(|seconds| seconds.parse().ok())
                .map(Duration::from_secs),
        }),
    }
}
