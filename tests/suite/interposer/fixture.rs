//! An upstream with configured answers, a fake daemon with configured health, and a caller.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use diskvitals_csi::interposer::health_source::{
    HealthSource, HealthSourceError, HealthStatus, LifecycleEvent, ListedVolume, Usage,
    VolumeHealth,
};
use diskvitals_csi::interposer::method::EnabledHealthApis;
use diskvitals_csi::interposer::{Interposer, Settings};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

pub const BOTH: EnabledHealthApis = EnabledHealthApis { condition: true, health: true };
pub const CONDITION: EnabledHealthApis = EnabledHealthApis { condition: true, health: false };
pub const HEALTH: EnabledHealthApis = EnabledHealthApis { condition: false, health: true };
/// For a loaded machine; a passing test never waits this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The reason why the upstream ends a stream.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the caller's body")]
    Body(#[from] hyper::Error),
    #[error("reset")]
    Reset(#[from] h2::Error),
    #[error("the request")]
    Request(#[from] prost::DecodeError),
}

pub type Body = UnsyncBoxBody<Bytes, Error>;
type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send>>;
type Handler = Arc<dyn Fn(Request<Incoming>) -> Answer + Send + Sync>;

/// A body with these frames, without a content length.
pub fn body(chunks: Vec<Bytes>, trailers: Option<HeaderMap>) -> Body {
    let frames = chunks.into_iter().map(Frame::data).chain(trailers.map(Frame::trailers));
    StreamBody::new(tokio_stream::iter(frames.map(Ok::<_, Error>))).boxed_unsync()
}

/// A body that is sent as the channel receives it.
pub fn channel() -> (mpsc::Sender<Result<Frame<Bytes>, Error>>, Body) {
    let (sender, receiver) = mpsc::channel(1);
    (sender, StreamBody::new(ReceiverStream::new(receiver)).boxed_unsync())
}

pub fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("short enough").to_be_bytes();
    [&[0][..], &length, message].concat().into()
}

pub fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| {
            (http::HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"))
        })
        .collect()
}

/// An upstream driver; dropping it also closes its connections.
pub struct Upstream {
    pub connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Upstream {
    pub fn start(path: &Path, handler: Handler) -> Upstream {
        let listener = UnixListener::bind(path).expect("binds");
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            let mut served = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let handler = Arc::clone(&handler);
                served.spawn(async move {
                    let mut builder =
                        hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    builder.auto_date_header(false).max_header_list_size(1 << 20);
                    let _ = builder
                        .serve_connection(
                            TokioIo::new(stream),
                            service_fn(move |request| handler(request)),
                        )
                        .await;
                });
            }
        });
        Upstream { connections, task }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub fn handler<F: Future<Output = Result<Response<Body>, Error>> + Send + 'static>(
    answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
) -> Handler {
    Arc::new(move |request| Box::pin(answer(request)))
}

/// A driver's result for a call: a message or a status.
pub type Said = Result<Vec<u8>, Code>;
/// Received calls and messages, in order.
pub type Asked = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A driver that answers each call from the table, and all others with UNIMPLEMENTED. It records
/// the calls.
pub fn driver(said: &[(&'static str, Said)]) -> (Handler, Asked) {
    let mut table: HashMap<&'static str, Said> = said.iter().cloned().collect();
    let name = [&[0x0a, 11][..], b"example.com"].concat();
    table.entry("Identity/GetPluginInfo").or_insert(Ok(name));
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    let handler = handler(move |request| {
        let call = request.uri().path().trim_start_matches("/csi.v1.").to_owned();
        let said = table.get(call.as_str()).cloned().unwrap_or(Err(Code::Unimplemented));
        let log = Arc::clone(&log);
        async move {
            let message = request.into_body().collect().await?.to_bytes();
            log.lock().expect("whole").push((call, message[5..].to_vec()));
            Ok(answer(&said))
        }
    });
    (handler, asked)
}

pub fn answer(said: &Said) -> Response<Body> {
    let content_type = ("content-type", "application/grpc");
    let (headers, body) = match said {
        Ok(message) => (
            headers(&[content_type]),
            body(vec![framed(message)], Some(headers(&[("grpc-status", "0")]))),
        ),
        Err(code) => {
            let code = i32::from(*code).to_string();
            (
                headers(&[
                    content_type,
                    ("grpc-status", &code),
                    ("grpc-message", "the driver says so"),
                ]),
                body(Vec::new(), None),
            )
        }
    };
    let mut response = Response::new(body);
    *response.headers_mut() = headers;
    response
}

/// The daemon's configured answers.
#[derive(Default)]
pub struct Known {
    pub volumes: HashMap<String, VolumeHealth>,
    pub usage: HashMap<String, Usage>,
    pub storage: Vec<HealthStatus>,
    pub listed: Vec<ListedVolume>,
    pub away: bool,
    pub hangs: bool,
}

pub struct Fake {
    pub known: Mutex<Known>,
    pub told: watch::Sender<Vec<(String, LifecycleEvent)>>,
    /// The number of requests for the list.
    pub looks: watch::Sender<usize>,
}

impl Fake {
    async fn answer<T>(
        &self,
        of: impl FnOnce(&Known) -> Result<T, HealthSourceError>,
    ) -> Result<T, HealthSourceError> {
        if self.known.lock().expect("whole").hangs {
            std::future::pending::<Infallible>().await;
        }
        let known = self.known.lock().expect("whole");
        if known.away {
            Err(HealthSourceError::Unavailable("no socket".into()))
        } else {
            of(&known)
        }
    }
}

impl HealthSource for Fake {
    async fn health(&self, driver: &str, handle: &str) -> Result<VolumeHealth, HealthSourceError> {
        assert_eq!(driver, "example.com");
        self.answer(|known| {
            known
                .volumes
                .get(handle)
                .cloned()
                .ok_or_else(|| HealthSourceError::NotFound(format!("no volume {handle}")))
        })
        .await
    }

    async fn usage(&self, _: &str, handle: &str, _: &str) -> Result<Usage, HealthSourceError> {
        self.answer(|known| {
            known
                .usage
                .get(handle)
                .cloned()
                .ok_or_else(|| HealthSourceError::NotFound(format!("no volume {handle}")))
        })
        .await
    }

    async fn storage_health(&self, _: &str) -> Result<Vec<HealthStatus>, HealthSourceError> {
        self.answer(|known| Ok(known.storage.clone())).await
    }

    async fn volumes(&self, _: &str) -> Result<Vec<ListedVolume>, HealthSourceError> {
        let listed = self.answer(|known| Ok(known.listed.clone())).await;
        self.looks.send_modify(|looks| *looks += 1);
        listed
    }

    async fn notify(
        &self,
        driver: &str,
        passing: &LifecycleEvent,
    ) -> Result<(), HealthSourceError> {
        self.answer(|_| Ok(())).await?;
        self.told.send_modify(|told| told.push((driver.to_owned(), passing.clone())));
        Ok(())
    }
}

/// The interposer, and its connections.
pub struct Setup {
    pub witness: Arc<Fake>,
    connections: mpsc::Sender<io::Result<UnixStream>>,
    dir: tempfile::TempDir,
    task: JoinHandle<()>,
}

impl Setup {
    pub fn new(dialects: EnabledHealthApis) -> Setup {
        Setup::looking(dialects, Duration::from_secs(3600))
    }

    pub fn looking(dialects: EnabledHealthApis, look: Duration) -> Setup {
        let dir = tempfile::tempdir().expect("dir");
        let witness = Arc::new(Fake {
            known: Mutex::default(),
            told: watch::Sender::default(),
            looks: watch::Sender::default(),
        });
        let (connections, accepted) = mpsc::channel(1);
        let mut settings = Settings::new(dir.path().join("upstream.sock"), dialects);
        settings.bypass_check_interval = look;
        let interposer = Interposer::new(settings, Arc::clone(&witness));
        let task =
            tokio::spawn(interposer.serve(ReceiverStream::new(accepted), std::future::pending()));
        Setup { witness, connections, dir, task }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("upstream.sock")
    }

    pub fn upstream(&self, handler: Handler) -> Upstream {
        Upstream::start(&self.socket(), handler)
    }

    pub async fn caller(&self) -> Caller {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        self.connections.send(Ok(theirs)).await.expect("serves");
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder
            .max_header_list_size(1 << 20)
            .handshake(TokioIo::new(ours))
            .await
            .expect("shakes hands");
        tokio::spawn(connection);
        Caller { sender }
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
pub struct Caller {
    sender: SendRequest<Body>,
}

impl Caller {
    pub async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        self.sender.send_request(request).await
    }

    /// A unary call: one of CSI's, or a whole path.
    pub async fn call(&mut self, call: &str, message: &[u8]) -> Result<Vec<u8>, (Code, String)> {
        let mut request = Request::new(body(vec![framed(message)], None));
        *request.method_mut() = http::Method::POST;
        let path = match call.starts_with('/') {
            true => call.to_owned(),
            false => format!("/csi.v1.{call}"),
        };
        *request.uri_mut() = format!("http://localhost{path}").parse().expect("a path");
        *request.headers_mut() =
            headers(&[("content-type", "application/grpc"), ("te", "trailers")]);
        let answer = self.send(request).await.expect("an answer");
        let (head, body) = answer.into_parts();
        let collected = body.collect().await.expect("a whole answer");
        let trailers = collected.trailers().cloned().unwrap_or(head.headers);
        let code = Code::from_bytes(trailers["grpc-status"].as_bytes());
        if code != Code::Ok {
            let message =
                trailers.get("grpc-message").map(|text| text.to_str().expect("text").to_owned());
            return Err((code, message.unwrap_or_default()));
        }
        Ok(collected.to_bytes()[5..].to_vec())
    }

    pub async fn ask<T: prost::Message + Default>(
        &mut self,
        call: &str,
        request: &impl prost::Message,
    ) -> Result<T, (Code, String)> {
        let answer = self.call(call, &request.encode_to_vec()).await?;
        Ok(T::decode(answer.as_slice()).expect("reads"))
    }
}
