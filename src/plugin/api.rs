//! Client of the API server for the plugin: any kubeconfig, lists in pages, single objects, the
//! server's time, who the caller is and what he may do. The plugin's only user of kube.
//!
//! In: paths and selectors. Out: objects, or why they cannot be read. `patch` alone changes
//! something on the server (reviews are questions and are not stored).

use std::future::Future;
use std::time::Duration;

use http::header::DATE;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::client::Body;
use kube::config::{Config, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::Request;
use kube::core::params::{
    GetParams, ListParams, Patch, PatchParams, PostParams, ValidationDirective,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::args::Connection;
use diskvitals_kubernetes::api_error::{CallError, with_timeout};
use diskvitals_kubernetes::pages::{ListError, OnExpiry, Page, read_pages};
use diskvitals_text::causes::with_causes;
use diskvitals_text::similar::{did_you_mean, similar};

/// Who has changed a field (`metadata.managedFields`).
const FIELD_MANAGER: &str = "kubectl-diskvitals";

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("reading the kubeconfig")]
    Kubeconfig(#[source] Box<KubeconfigError>),
    #[error("the kubeconfig has no context `{name}`{hint}")]
    NoContext { name: String, hint: String },
    #[error("finding a cluster: give --kubeconfig, or set KUBECONFIG ({kubeconfig})")]
    NoCluster {
        kubeconfig: String,
        #[source]
        in_cluster: Box<InClusterError>,
    },
    #[error("making a client of {server}")]
    Client {
        server: String,
        #[source]
        source: Box<kube::Error>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The API server does not know the caller.
    Unauthenticated,
    Forbidden,
    NotFound,
    /// The object is no longer the one that was read.
    Conflict,
    /// A rule of the schema or an admission policy.
    Refused,
    Failed,
}

/// Why an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct ApiError {
    pub what: String,
    pub kind: Kind,
    pub why: String,
}

/// What the API server selects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Select<'a> {
    pub labels: Option<&'a str>,
    pub fields: Option<&'a str>,
}

pub(crate) struct Api {
    client: kube::Client,
    /// Name of the context, or `in the pod`.
    pub context: String,
    pub server: String,
    pub namespace: String,
    timeout: Duration,
}

#[derive(Deserialize)]
struct ListOf<T> {
    kind: String,
    #[serde(default)]
    metadata: ListMeta,
    items: Option<Vec<T>>,
}

impl Api {
    pub(crate) async fn connect(connection: &Connection) -> Result<Api, ConnectError> {
        let (mut config, context) = config(connection).await?;
        config.connect_timeout = Some(connection.request_timeout);
        let server = config.cluster_url.to_string();
        let namespace = connection.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        let client = kube::Client::try_from(config).map_err(|source| ConnectError::Client {
            server: server.clone(),
            source: Box::new(source),
        })?;
        Ok(Api {
            client,
            context,
            server: server.trim_end_matches('/').to_owned(),
            namespace,
            timeout: connection.request_timeout,
        })
    }

    /// The server's clock: ages that this machine's clock gives may be wrong.
    pub(crate) async fn server_time(&self) -> Option<Timestamp> {
        let request = http::Request::get("/version").body(Body::empty()).ok()?;
        let call = async { self.client.send(request).await };
        let answer = tokio::time::timeout(self.timeout, call).await.ok()?.ok()?;
        let date = answer.headers().get(DATE)?.to_str().ok()?;
        let zoned = jiff::fmt::rfc2822::parse(date).ok()?;
        Some(zoned.timestamp())
    }

    /// Reads a list in pages. `each` gets every object once, or an object that changed meanwhile
    /// twice.
    pub(crate) async fn list<T: DeserializeOwned + Send>(
        &self,
        what: &str,
        path: &str,
        select: Select<'_>,
    ) -> Result<Vec<T>, ApiError> {
        let mut all = Vec::new();
        self.list_each(what, path, select, |item, restarted| {
            if restarted {
                all.clear();
            }
            all.extend(item);
        })
        .await?;
        Ok(all)
    }

    /// `keep` gets the objects of each page, and whether they are the first ones of a list that was
    /// begun anew.
    pub(crate) async fn list_each<T: DeserializeOwned>(
        &self,
        what: &str,
        path: &str,
        select: Select<'_>,
        mut keep: impl FnMut(Vec<T>, bool),
    ) -> Result<(), ApiError> {
        let selected = ListParams {
            label_selector: select.labels.map(str::to_owned),
            field_selector: select.fields.map(str::to_owned),
            ..ListParams::default()
        };
        let fetch = async |parameters: ListParams| {
            let request = Request::new(path).list(&parameters);
            let request = request.map_err(|error| ListError::Malformed(with_causes(&error)))?;
            let call = self.call(self.client.request::<ListOf<T>>(request));
            let list = call.await.map_err(ListError::Call)?;
            if !list.kind.ends_with("List") {
                return Err(ListError::Malformed("the answer is no list".to_owned()));
            }
            Ok(Page { metadata: list.metadata, items: list.items.unwrap_or_default() })
        };
        let each = |page: Page<T>, restarted| keep(page.items, restarted);
        read_pages(selected, OnExpiry::Continue, fetch, each).await.map_err(|error| match error {
            ListError::Call(other) => self::error(what, other),
            ListError::Malformed(why) => failed(what, why),
        })
    }

    /// One object; None if there is none.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        what: &str,
        path: &str,
        name: &str,
    ) -> Result<Option<T>, ApiError> {
        // A name is one segment of the path, whatever a node wrote.
        if name.is_empty() || name.len() > 253 || name.contains(['/', '?', '#', '%']) {
            return Ok(None);
        }
        let request = Request::new(path).get(name, &GetParams::default());
        let request = request.map_err(|error| failed(what, with_causes(&error)))?;
        match self.call(self.client.request::<T>(request)).await {
            Ok(object) => Ok(Some(object)),
            Err(CallError::Kube(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Err(other) => Err(error(what, other)),
        }
    }

    /// Changes one object: a merge patch. With its `metadata.resourceVersion` only if the object is
    /// still the one that was read.
    pub(crate) async fn patch(
        &self,
        what: &str,
        path: &str,
        name: &str,
        change: &Value,
        dry_run: bool,
    ) -> Result<Value, ApiError> {
        let parameters = PatchParams {
            dry_run,
            force: false,
            field_manager: Some(FIELD_MANAGER.to_owned()),
            // A field that the API server does not know would be dropped in silence.
            field_validation: Some(ValidationDirective::Strict),
        };
        let request = Request::new(path).patch(name, &parameters, &Patch::Merge(change));
        let request = request.map_err(|error| failed(what, with_causes(&error)))?;
        let answer = self.call(self.client.request(request)).await;
        answer.map_err(|other| error(what, other))
    }

    /// The caller's name, as admission policies know it.
    pub(crate) async fn user_name(&self) -> Result<String, ApiError> {
        let what = "asking the API server for your user name";
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let answer = self.review(what, path, &review).await?;
        match answer["status"]["userInfo"]["username"].as_str() {
            Some(name) if !name.is_empty() => Ok(name.to_owned()),
            _ => Err(failed(what, "the answer has no name".to_owned())),
        }
    }

    /// Whether the caller may do this, by the API server's own answer.
    pub(crate) async fn may_exec(&self, namespace: &str, pod: &str) -> Result<bool, ApiError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"namespace": namespace, "name": pod, "verb": "create", "resource": "pods", "subresource": "exec"}},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = self.review("asking for the permission", path, &review).await?;
        Ok(answer["status"]["allowed"] == true)
    }

    async fn review(&self, what: &str, path: &str, review: &Value) -> Result<Value, ApiError> {
        let request = Request::new(path).create(&PostParams::default(), review.to_string().into());
        let request = request.map_err(|error| failed(what, with_causes(&error)))?;
        let answer = self.call(self.client.request(request)).await;
        answer.map_err(|other| error(what, other))
    }

    async fn call<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
        with_timeout(self.timeout, call).await
    }
}

fn failed(what: &str, why: String) -> ApiError {
    ApiError { what: what.to_owned(), kind: Kind::Failed, why }
}

fn error(what: &str, error: CallError) -> ApiError {
    let (kind, why) = match error {
        CallError::TimedOut(limit) => {
            (Kind::Failed, format!("no answer within {} s", limit.as_secs_f32()))
        }
        CallError::Kube(kube::Error::Api(status)) => match status.code {
            401 => (
                Kind::Unauthenticated,
                "401 Unauthorized: the API server does not accept the credentials".to_owned(),
            ),
            403 => (Kind::Forbidden, format!("403 {}", status.message)),
            404 => (Kind::NotFound, format!("404 {}", status.message)),
            409 => (Kind::Conflict, format!("409 {}", status.message)),
            422 => (Kind::Refused, format!("422 {}", status.message)),
            code => (Kind::Failed, format!("{code} {}: {}", status.reason, status.message)),
        },
        CallError::Kube(error) => (Kind::Failed, with_causes(&error)),
    };
    ApiError { what: what.to_owned(), kind, why }
}

/// The names of the kubeconfig's contexts, for completions; none without one.
pub(crate) fn contexts(connection: &Connection) -> Vec<String> {
    let kubeconfig = read(connection).unwrap_or_default();
    let contexts = kubeconfig.contexts.into_iter();
    contexts.map(|context| context.name).collect()
}

fn read(connection: &Connection) -> Result<Kubeconfig, KubeconfigError> {
    match &connection.kubeconfig {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    }
}

async fn config(connection: &Connection) -> Result<(Config, String), ConnectError> {
    let kubeconfig = match read(connection) {
        Ok(kubeconfig) => kubeconfig,
        // In a pod, and without an explicit choice.
        Err(error)
            if connection.kubeconfig.is_none()
                && connection.context.is_none()
                && std::env::var_os("KUBECONFIG").is_none() =>
        {
            return match Config::incluster() {
                Ok(config) => Ok((config, "in the pod".to_owned())),
                Err(in_cluster) => Err(ConnectError::NoCluster {
                    kubeconfig: with_causes(&error),
                    in_cluster: Box::new(in_cluster),
                }),
            };
        }
        Err(error) => return Err(ConnectError::Kubeconfig(Box::new(error))),
    };
    if let Some(name) = &connection.context {
        let names: Vec<&str> = kubeconfig.contexts.iter().map(|it| it.name.as_str()).collect();
        if !names.contains(&name.as_str()) {
            return Err(ConnectError::NoContext {
                name: diskvitals_text::echo::echo(name),
                hint: did_you_mean(&similar(name, names)),
            });
        }
    }
    let context = connection.context.clone();
    let name = context.clone().or_else(|| kubeconfig.current_context.clone());
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let config = config.map_err(|error| ConnectError::Kubeconfig(Box::new(error)))?;
    Ok((config, name.unwrap_or_default()))
}
