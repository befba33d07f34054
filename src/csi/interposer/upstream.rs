//! One HTTP/2 connection to the upstream driver's socket. All calls share it, and it is replaced
//! after it has ended.
//!
//! In: requests as they arrived. Out: the driver's answers as they arrive, or an error. The module
//! does not depend on CSI.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tonic::{Code, Status};

use crate::interposer::body::{Body, BufferedBody};
use crate::interposer::upstream_error::UpstreamError;
use crate::interposer::{body, grpc};
use diskvitals_text::causes::with_causes;

/// Time limit for a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for answers to the interposer's own calls.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest answer to one of these calls, in bytes.
const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// Flow control, in bytes: one unread answer must not block the others.
pub(crate) const STREAM_WINDOW: u32 = 512 << 10;
pub(crate) const CONNECTION_WINDOW: u32 = 64 << 20;
/// Limit for headers and trailers, in bytes. h2's default of 16 KiB is less than gRPC in Go
/// permits.
pub(crate) const MAX_HEADER_LIST_BYTES: u32 = 1 << 20;

pub(crate) struct Upstream {
    path: PathBuf,
    current: Mutex<Option<SendRequest<Body>>>,
    /// One caller connects; the others wait for its connection.
    dial_permit: Semaphore,
    /// Counts the connections: another connection may reach another version of the driver.
    generation: AtomicU64,
    is_down: AtomicBool,
}

impl Upstream {
    pub(crate) fn new(path: PathBuf) -> Upstream {
        Upstream {
            path,
            current: Mutex::new(None),
            dial_permit: Semaphore::new(1),
            generation: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Forwards a request, and waits for the headers of its answer. There is no time-out: the
    /// caller has one (`grpc-timeout` is forwarded). Dropping the future cancels the call at the
    /// upstream.
    pub(crate) async fn send(
        &self,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        complete_uri(request.uri_mut());
        let mut again = true;
        loop {
            let mut sender = self.connection().await?;
            match sender.try_send_request(request).await {
                Ok(answer) => return Ok(answer),
                // The connection ended before any part of the request was sent.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if again => {
                        again = false;
                        request = unsent;
                        self.drop_connection();
                    }
                    _ => {
                        return Err(UpstreamError::from_call(
                            self.path.clone(),
                            error.into_error(),
                        ));
                    }
                },
            }
        }
    }

    /// A unary call of the interposer itself.
    pub(crate) async fn call(&self, method: &'static str, message: &[u8]) -> Result<Bytes, Status> {
        let data = grpc::frame_message(message)
            .ok_or_else(|| Status::resource_exhausted("the request is too large"))?;
        let mut request = Request::new(Body::full(data, None));
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = http::Version::HTTP_2;
        *request.uri_mut() = Uri::from_static(method);
        for (name, value) in [
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("user-agent", "diskvitals-csi"),
            ("grpc-timeout", "2S"),
        ] {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        let answered = async {
            let answer = self
                .send(request)
                .await
                .map_err(|failure| Status::unavailable(with_causes(&failure)))?;
            let (head, incoming) = answer.into_parts();
            let BufferedBody::Complete(data, trailers) =
                body::buffer_response(incoming, MAX_RESPONSE_BYTES).await
            else {
                return Err(Status::unavailable("the answer broke off"));
            };
            match trailers
                .as_ref()
                .and_then(grpc::grpc_status)
                .or_else(|| grpc::grpc_status(&head.headers))
            {
                Some(Code::Ok) => grpc::only_message(&data, &head.headers)
                    .ok_or_else(|| Status::internal("the answer is no message")),
                Some(code) => Err(Status::new(code, "refused")),
                None => Err(Status::internal("the answer has no status")),
            }
        };
        tokio::time::timeout(CALL_TIMEOUT, answered)
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")))
    }

    async fn connection(&self) -> Result<SendRequest<Body>, UpstreamError> {
        if let Some(sender) = self.open_sender() {
            return Ok(sender);
        }
        // The semaphore is never closed.
        let _permit = self.dial_permit.acquire().await;
        match self.open_sender() {
            Some(sender) => Ok(sender),
            None => self.dial().await,
        }
    }

    fn open_sender(&self) -> Option<SendRequest<Body>> {
        self.lock().as_ref().filter(|sender| !sender.is_closed()).cloned()
    }

    fn drop_connection(&self) {
        *self.lock() = None;
    }

    async fn dial(&self) -> Result<SendRequest<Body>, UpstreamError> {
        let begun = async {
            let stream = UnixStream::connect(&self.path).await?;
            let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
            // There are no keep-alive pings: gRPC servers in Go close connections with more than
            // one ping in five minutes, and a unix socket reports its own end.
            builder
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .max_header_list_size(MAX_HEADER_LIST_BYTES);
            Ok(builder.handshake(TokioIo::new(stream)).await?)
        };
        let begun: Result<_, Box<dyn std::error::Error + Send + Sync>> =
            match tokio::time::timeout(CONNECT_TIMEOUT, begun).await {
                Ok(begun) => begun,
                Err(_) => {
                    Err(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs()).into())
                }
            };
        match begun {
            Ok((sender, connection)) => {
                tokio::spawn(async move {
                    // The calls in progress report the error of the connection.
                    let _ = connection.await;
                });
                self.generation.fetch_add(1, Ordering::AcqRel);
                if self.is_down.swap(false, Ordering::AcqRel) {
                    tracing::info!(upstream = %self.path.display(), "the upstream driver can be reached again");
                }
                *self.lock() = Some(sender.clone());
                Ok(sender)
            }
            Err(source) => {
                if !self.is_down.swap(true, Ordering::AcqRel) {
                    tracing::warn!(upstream = %self.path.display(), %source, "the upstream driver cannot be reached: its callers get UNAVAILABLE");
                }
                Err(UpstreamError::Connect { path: self.path.clone(), source })
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<SendRequest<Body>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// HTTP/2 to the upstream needs an authority; callers over unix sockets may omit it.
fn complete_uri(uri: &mut Uri) {
    if uri.authority().is_some() && uri.scheme().is_some() {
        return;
    }
    let mut parts = std::mem::take(uri).into_parts();
    parts.authority.get_or_insert_with(|| Authority::from_static("localhost"));
    parts.scheme.get_or_insert(Scheme::HTTP);
    parts.path_and_query.get_or_insert_with(|| http::uri::PathAndQuery::from_static("/"));
    // All three parts are set, so this cannot fail.
    *uri = Uri::from_parts(parts).unwrap_or_default();
}
