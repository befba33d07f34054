//! A minimal API server: it stores events, one node's conditions, PersistentVolumes and the objects
//! of a test, records its requests, and fails as configured. It listens on a port, or answers in the
//! test's own runtime, whose time may be paused.

mod controlled;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;

pub const NODE: &str = "worker-1";

/// The result of a request instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Status {
        code: u16,
        reason: &'static str,
        retry_after_seconds: Option<u32>,
    },
    /// A 503 from a proxy in front of the API server, in its own JSON format.
    Stranger,
    /// Never answers, and does nothing.
    Silence,
    /// Does it, and never answers.
    AnswerLost,
    /// Does it after this time.
    Slow(Duration),
    /// The connection ends in the middle of the answer.
    Break,
}

#[derive(Clone, Debug)]
pub struct Asked {
    pub at: Instant,
    pub method: String,
    pub path: String,
    pub query: String,
    pub kind: String,
    pub body: Value,
    pub code: u16,
}

#[derive(Default)]
pub struct State {
    pub asked: Vec<Asked>,
    /// The events by namespace and name, in order of creation.
    pub events: BTreeMap<(String, String), Value>,
    pub conditions: Vec<Value>,
    /// The types of the conditions that each field manager has applied.
    owned: BTreeMap<String, Vec<Value>>,
    /// The NodeStorage object; None: there is none.
    pub storage: Option<Value>,
    /// uid of the Node object.
    pub node_uid: &'static str,
    /// The namespace of each claim, by name.
    pub claims: BTreeMap<String, String>,
    /// Faults for the next requests; the field below is for all requests.
    pub faults: VecDeque<Fault>,
    pub always: Option<Fault>,
    /// The fault for all paths that contain this text.
    pub of_path: Option<(&'static str, Fault)>,
    /// What a GET of a path answers: the objects of a list, or of one name.
    pub objects: BTreeMap<&'static str, Vec<Value>>,
    /// Paths whose lists and objects the caller may not read.
    pub forbidden: Vec<&'static str>,
    /// So many pages of lists are answered with 410 Gone when they are continued.
    pub expire: usize,
    /// The answer to "may I".
    pub may: bool,
    /// An expired list can be continued at the present version.
    pub offers_token: bool,
    /// The longest page of a list.
    pub page_size: Option<usize>,
    /// The fault for all pages of lists but the first.
    pub fault_of_continuation: Option<Fault>,
    /// resourceVersion of the last change.
    version: u64,
    watches: Vec<Watcher>,
    pub leases: BTreeMap<String, Value>,
}

type Chunk = Result<Frame<Bytes>, std::io::Error>;

struct Watcher {
    path: String,
    changes: mpsc::UnboundedSender<Chunk>,
}

pub struct Server {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Server {
    pub fn start() -> Server {
        let mut server = Server {
            state: Arc::default(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            runtime: None,
        };
        server.state().node_uid = "uid-of-worker-1";
        server.come();
        server
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops the server: connections are refused from here on.
    pub fn go(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Starts the server again at the same address.
    pub fn come(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = runtime.block_on(async {
            let end = Instant::now() + Duration::from_secs(10);
            loop {
                match TcpListener::bind(self.address).await {
                    Ok(listener) => break listener,
                    // The old listener may still be closing.
                    Err(error) => assert!(Instant::now() < end, "{error}"),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        self.address = listener.local_addr().expect("an address");
        let state = self.state.clone();
        runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let state = state.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| answer(state.clone(), request));
                    // The test ends the connection.
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        self.runtime = Some(runtime);
    }

    /// The events, sorted: kind and name of their object, type, reason.
    pub fn told(&self) -> Vec<String> {
        let line = |event: &Value| {
            let regarding = &event["regarding"];
            let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
            let name = match regarding["namespace"].as_str() {
                Some(namespace) => format!("{namespace}/{}", word(&regarding["name"])),
                None => word(&regarding["name"]),
            };
            format!(
                "{} {name} {} {}",
                word(&regarding["kind"]),
                word(&event["type"]),
                word(&event["reason"])
            )
        };
        let mut told: Vec<String> = self.state().events.values().map(line).collect();
        told.sort();
        told
    }

    /// The current condition.
    pub fn condition(&self) -> Option<Value> {
        self.condition_of("StorageHealthy")
    }

    pub fn condition_of(&self, name: &str) -> Option<Value> {
        self.state().conditions.iter().find(|condition| condition["type"] == name).cloned()
    }

    /// The status of the NodeStorage object.
    pub fn storage(&self) -> Option<Value> {
        self.state().storage.as_ref()?.get("status").cloned()
    }

    /// Writes of the NodeStorage object's status that were answered with this code.
    pub fn storage_writes(&self, code: u16) -> usize {
        let state = self.state();
        let writes = state.asked.iter().filter(|asked| {
            asked.method == "PATCH" && asked.path.contains("nodestorages") && asked.code == code
        });
        writes.count()
    }

    pub fn status(&self) -> Option<String> {
        Some(self.condition()?["status"].as_str()?.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.go();
    }
}

/// Answers one request: a list, an object, or the changes of a watch.
pub async fn answer<B>(
    state: Arc<Mutex<State>>,
    request: Request<B>,
) -> Result<Response<BoxBody<Bytes, std::io::Error>>, std::io::Error>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let body =
        body.collect().await.map_err(|error| std::io::Error::other(error.into()))?.to_bytes();
    let kind = head
        .headers
        .get("content-type")
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let mut asked = Asked {
        at: Instant::now(),
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        kind,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        code: 0,
    };
    let fault = {
        let mut state = state.lock().expect("no panic");
        let of_path =
            state.of_path.filter(|(part, _)| asked.path.contains(part)).map(|(_, fault)| fault);
        let of_page = state.fault_of_continuation.filter(|_| asked.query.contains("continue="));
        let next = state.faults.pop_front();
        next.or(of_page).or(of_path).or(state.always)
    };
    let (code, answer) = match fault {
        Some(Fault::Silence) => {
            state.lock().expect("no panic").asked.push(asked);
            match std::future::pending::<Infallible>().await {}
        }
        Some(Fault::Break) => {
            state.lock().expect("no panic").asked.push(asked);
            return Err(std::io::Error::other("broken off"));
        }
        Some(Fault::AnswerLost) => {
            {
                let mut state = state.lock().expect("no panic");
                asked.code = state.answer(&asked).0;
                state.asked.push(asked);
            }
            match std::future::pending::<Infallible>().await {}
        }
        Some(Fault::Stranger) => (503, json!({"message": "no healthy upstream"})),
        Some(Fault::Status { code, reason, retry_after_seconds: Some(seconds) }) => {
            asked.code = code;
            state.lock().expect("no panic").asked.push(asked);
            // As API priority and fairness rejects: plain text.
            return Response::builder()
                .status(code)
                .header("retry-after", seconds)
                .body(whole(reason.to_owned()))
                .map_err(std::io::Error::other);
        }
        Some(Fault::Status { code, reason, .. }) => (code, failure(code, reason)),
        None if is_watch_of_one(&asked) => watch(&state, &asked).await,
        Some(Fault::Slow(_)) | None => {
            if let Some(Fault::Slow(delay)) = fault {
                tokio::time::sleep(delay).await;
            }
            let mut state = state.lock().expect("no panic");
            if let Some(changes) = state.watch(&asked) {
                asked.code = 200;
                state.asked.push(asked);
                let body = StreamBody::new(UnboundedReceiverStream::new(changes));
                return Ok(Response::new(BodyExt::boxed(body)));
            }
            state.answer(&asked)
        }
    };
    asked.code = code;
    state.lock().expect("no panic").asked.push(asked);
    // The end of a watch is no event.
    let body = match answer {
        Value::Null => String::new(),
        answer => format!("{answer}\n"),
    };
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(whole(body))
        .map_err(std::io::Error::other)
}

fn whole(text: String) -> BoxBody<Bytes, std::io::Error> {
    let body = Full::new(Bytes::from(text));
    body.map_err(|never: Infallible| match never {}).boxed()
}

fn failure(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason, "reason": reason, "code": code})
}

impl State {
    fn answer(&mut self, asked: &Asked) -> (u16, Value) {
        let parts: Vec<&str> = asked.path.trim_matches('/').split('/').collect();
        match (asked.method.as_str(), parts.as_slice()) {
            ("POST", ["apis", "events.k8s.io", "v1", "namespaces", namespace, "events"]) => {
                self.event(namespace, &asked.body)
            }
            ("PATCH", ["api", "v1", "nodes", NODE, "status"]) => self.node(asked),
            ("GET", ["api", "v1", "persistentvolumes", name]) => match self.claims.get(*name) {
                Some(namespace) => (200, volume(name, namespace)),
                None => self.read(asked),
            },
            (method, ["apis", "diskvitals.io", "v1alpha1", "nodestorages", rest @ ..]) => {
                self.node_storage(method, rest, asked)
            }
            (
                "PATCH",
                ["api", "v1", "namespaces", namespace, "persistentvolumeclaims", name, "status"],
            ) => self.claim_health(namespace, name, asked),
            (method, ["apis", "coordination.k8s.io", ..]) => self.lease(method, asked),
            ("POST", ["apis", "authorization.k8s.io", ..]) => {
                (201, json!({"status": {"allowed": self.may}}))
            }
            ("GET", ["version"]) => (200, json!({"major": "1"})),
            ("GET", _) => self.read(asked),
            _ => (404, failure(404, "NotFound")),
        }
    }

    /// The same as long as the object is the same.
    fn storage_version(&self) -> String {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", self.storage).hash(&mut hasher);
        hasher.finish().to_string()
    }

    /// As the API server treats a custom resource with a status: its creation drops the status, and
    /// a patch of the status changes nothing else.
    fn node_storage(&mut self, method: &str, path: &[&str], asked: &Asked) -> (u16, Value) {
        match (method, path) {
            ("POST", []) if self.storage.is_some() => (409, failure(409, "AlreadyExists")),
            ("POST", []) => {
                if asked.body["metadata"] != json!({"name": NODE})
                    || asked.body["spec"] != json!({})
                {
                    return (422, failure(422, "Invalid"));
                }
                let mut object = asked.body.clone();
                object.as_object_mut().expect("an object").remove("status");
                self.storage = Some(object.clone());
                (201, object)
            }
            ("GET", [])
                if asked.query.contains(&format!("fieldSelector=metadata.name%3D{NODE}")) =>
            {
                let version = self.storage_version();
                let items: Vec<&Value> = self.storage.iter().collect();
                (
                    200,
                    json!({"kind": "NodeStorageList", "apiVersion": "diskvitals.io/v1alpha1", "metadata": {"resourceVersion": version}, "items": items}),
                )
            }
            ("GET", path) => match &self.storage {
                Some(object) if path == [NODE] => (200, object.clone()),
                _ => self.read(asked),
            },
            ("PATCH", [NODE, "status"]) if asked.kind == "application/merge-patch+json" => {
                let Some(object) = &mut self.storage else {
                    return (404, failure(404, "NotFound"));
                };
                let keys = asked.body.as_object().expect("a patch").keys();
                assert_eq!(keys.collect::<Vec<_>>(), ["status"]);
                let object = object.as_object_mut().expect("an object");
                let old = object.remove("status").unwrap_or_default();
                object.insert("status".into(), merge(old, &asked.body["status"]));
                (200, Value::Object(object.clone()))
            }
            _ => (405, failure(405, "MethodNotAllowed")),
        }
    }

    /// Lists in pages of the requested size, and single objects.
    fn read(&mut self, asked: &Asked) -> (u16, Value) {
        let query: BTreeMap<&str, &str> =
            asked.query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        if self.forbidden.iter().any(|path| asked.path.starts_with(path)) {
            return (403, failure(403, "Forbidden"));
        }
        let Some(objects) = self.objects.get(asked.path.as_str()) else {
            let (path, name) = asked.path.rsplit_once('/').unwrap_or_default();
            let all = self.objects.get(path).into_iter().flatten();
            let found = all.into_iter().find(|it| it["metadata"]["name"] == name);
            return match found {
                Some(object) => (200, object.clone()),
                None => (404, failure(404, "NotFound")),
            };
        };
        let start: usize = query.get("continue").map_or(0, |it| it.parse().expect("ours"));
        if start > 0 && self.expire > 0 {
            self.expire -= 1;
            let mut gone = failure(410, "Expired");
            if self.offers_token {
                gone["metadata"]["continue"] = json!(start.to_string());
            }
            return (410, gone);
        }
        let limit: usize =
            query.get("limit").map_or(usize::MAX, |it| it.parse().expect("a number"));
        let limit = limit.min(self.page_size.unwrap_or(limit));
        let end = start.saturating_add(limit).min(objects.len());
        let more = if end < objects.len() { end.to_string() } else { String::new() };
        let page = &objects[start..end];
        (
            200,
            json!({"kind": "List", "apiVersion": "v1", "metadata": {"continue": more, "resourceVersion": self.version.to_string()}, "items": page}),
        )
    }

    fn event(&mut self, namespace: &str, event: &Value) -> (u16, Value) {
        // The same checks as in the API server (pkg/apis/core/validation/events.go).
        let missing =
            ["reportingController", "reportingInstance", "action", "reason", "type", "eventTime"]
                .into_iter()
                .find(|field| event[*field].as_str().is_none_or(str::is_empty));
        let of = event["regarding"]["namespace"].as_str().unwrap_or("default");
        let name = event["metadata"]["name"].as_str().unwrap_or_default();
        if missing.is_some()
            || of != namespace
            || name.is_empty()
            || event["note"].as_str().is_none_or(|note| note.len() > 1024)
        {
            return (422, failure(422, "Invalid"));
        }
        let key = (namespace.to_owned(), name.to_owned());
        if self.events.contains_key(&key) {
            return (409, failure(409, "AlreadyExists"));
        }
        self.events.insert(key, event.clone());
        (201, event.clone())
    }

    fn node(&mut self, asked: &Asked) -> (u16, Value) {
        match asked.kind.as_str() {
            "application/merge-patch+json" if asked.body == json!({}) => {}
            "application/apply-patch+yaml"
                if asked.query.contains("fieldManager=diskvitals-report")
                    && asked.query.contains("force=true") =>
            {
                // What the manager applied before and no longer applies is removed.
                let manager = asked.query.split('&').find(|it| it.starts_with("fieldManager="));
                let owned = self.owned.entry(manager.unwrap_or_default().to_owned());
                let owned = owned.or_default();
                self.conditions.retain(|condition| !owned.contains(&condition["type"]));
                let applied = asked.body["status"]["conditions"].as_array();
                let applied: Vec<Value> = applied.into_iter().flatten().cloned().collect();
                *owned = applied.iter().map(|it| it["type"].clone()).collect();
                self.conditions.retain(|condition| !owned.contains(&condition["type"]));
                self.conditions.extend(applied);
            }
            _ => return (415, failure(415, "UnsupportedMediaType")),
        }
        let status = json!({"conditions": self.conditions});
        (
            200,
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "uid": self.node_uid}, "status": status}),
        )
    }
}

/// The reporter's watch of the object of its node.
fn is_watch_of_one(asked: &Asked) -> bool {
    asked.query.contains("watch=") && asked.query.contains("fieldSelector=metadata.name")
}

/// A watch of the NodeStorage object that ends with its first event, or without one after a while,
/// which is shorter than the reporter's time limit for the begin of an answer.
async fn watch(state: &Arc<Mutex<State>>, asked: &Asked) -> (u16, Value) {
    let known = asked.query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
    for _ in 0..40 {
        {
            let state = state.lock().expect("no panic");
            let version = state.storage_version();
            if known != Some(&version) {
                let deleted = json!({"metadata": {"name": NODE}});
                let mut object = state.storage.clone().unwrap_or(deleted);
                object["metadata"]["resourceVersion"] = json!(version);
                let kind = match state.storage {
                    Some(_) => "MODIFIED",
                    None => "DELETED",
                };
                object["kind"] = json!("NodeStorage");
                object["apiVersion"] = json!("diskvitals.io/v1alpha1");
                return (200, json!({"type": kind, "object": object}));
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (200, Value::Null)
}

/// RFC 7386.
fn merge(target: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut target = target.as_object().cloned().unwrap_or_default();
    for (key, value) in patch {
        let old = target.remove(key).unwrap_or_default();
        if !value.is_null() {
            target.insert(key.clone(), merge(old, value));
        }
    }
    Value::Object(target)
}

fn volume(name: &str, namespace: &str) -> Value {
    let claim = json!({"kind": "PersistentVolumeClaim", "namespace": namespace, "name": format!("claim-of-{name}"), "uid": format!("uid-of-{name}")});
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {"claimRef": claim}})
}
