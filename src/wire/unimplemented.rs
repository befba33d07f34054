//! What every gRPC server of ours adds to tonic's: a call of a method that is not served is answered
//! with a message. In: the answers of a router. Out: the same, except that UNIMPLEMENTED without a
//! message names the method.

use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::{Code, Status};
use tower::{Layer, Service};

const GRPC_STATUS: &str = "grpc-status";
const GRPC_MESSAGE: &str = "grpc-message";
/// Characters of a path that the message repeats.
const MAX_PATH_CHARS: usize = 200;

/// Names the method in UNIMPLEMENTED (tonic leaves the message empty).
#[derive(Clone, Copy, Debug, Default)]
pub struct NameUnimplemented;

impl<S> Layer<S> for NameUnimplemented {
    type Service = NamingService<S>;

    fn layer(&self, inner: S) -> NamingService<S> {
        NamingService { inner }
    }
}

#[derive(Clone, Debug)]
pub struct NamingService<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for NamingService<S>
where
    S: Service<Request<B>, Response = Response<tonic::body::Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let path = request.uri().path().to_owned();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(match lacks_message(answer.headers()) {
                true => not_served(&path).into_http(),
                false => answer,
            })
        })
    }
}

/// Whether the answer is UNIMPLEMENTED and says nothing else. The headers then are all of it.
fn lacks_message(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.as_bytes());
    let unimplemented = Code::Unimplemented as i32;
    text(GRPC_STATUS) == Some(unimplemented.to_string().as_bytes())
        && text(GRPC_MESSAGE).is_none_or(<[u8]>::is_empty)
}

fn not_served(path: &str) -> Status {
    let method: String = path.trim_start_matches('/').chars().take(MAX_PATH_CHARS).collect();
    Status::unimplemented(format!("this socket does not serve `{method}`"))
}
