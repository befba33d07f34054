//! The reflection services: they describe our messages with their comments, and list the services.
//!
//! In: the names of the services. Out: a service for each version of the protocol, which is built
//! when it is called first: its descriptors have hundreds of KiB, and few nodes are ever asked.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;
use tonic_reflection::server::{Builder, Error};
use tower::Service;

use diskvitals_text::causes::with_causes;
use diskvitals_wire::DESCRIPTORS;

type Served = Result<Response<Body>, Infallible>;
type Answer = Pin<Box<dyn Future<Output = Served> + Send>>;

pub(crate) fn v1(
    services: &[&'static str],
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future = Answer>
+ NamedService
+ Clone
+ Send
+ Sync
+ use<> {
    OnDemand::new(services, |builder| builder.build_v1())
}

pub(crate) fn v1alpha(
    services: &[&'static str],
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future = Answer>
+ NamedService
+ Clone
+ Send
+ Sync
+ use<> {
    OnDemand::new(services, |builder| builder.build_v1alpha())
}

struct OnDemand<S>(Arc<Description<S>>);

struct Description<S> {
    services: Vec<&'static str>,
    build: fn(Builder<'static>) -> Result<S, Error>,
    built: OnceLock<Result<S, Error>>,
}

impl<S> OnDemand<S> {
    fn new(
        services: &[&'static str],
        build: fn(Builder<'static>) -> Result<S, Error>,
    ) -> OnDemand<S> {
        OnDemand(Arc::new(Description {
            services: services.to_vec(),
            build,
            built: OnceLock::new(),
        }))
    }
}

impl<S> Description<S> {
    fn builder(&self) -> Builder<'static> {
        let health = HealthServer::<HealthService>::NAME;
        self.services.iter().chain([&health]).fold(
            Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET),
            |builder, service| builder.with_service_name(*service),
        )
    }
}

impl<S> Clone for OnDemand<S> {
    fn clone(&self) -> Self {
        OnDemand(self.0.clone())
    }
}

impl<S: NamedService> NamedService for OnDemand<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for OnDemand<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answer {
        let description = &self.0;
        let built = description.built.get_or_init(|| (description.build)(description.builder()));
        match built {
            // A generated server is always ready.
            Ok(service) => Box::pin(service.clone().call(request)),
            Err(error) => {
                let status = Status::internal(format!(
                    "building the reflection service: {}",
                    with_causes(error)
                ));
                Box::pin(async move { Ok(status.into_http()) })
            }
        }
    }
}
