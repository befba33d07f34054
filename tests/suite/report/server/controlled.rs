//! What the cluster's controller uses of the API server: watches, the health of claims, its Lease.

use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Asked, Chunk, State, Watcher, failure};

const CLAIMS: &str = "/api/v1/persistentvolumeclaims";
/// The server's clock stands still: each report is fresh.
const CLOCK: &str = "2026-01-01T00:00:00Z";
const MANAGER: &str = "diskvitals-fleet";

impl State {
    /// Creates or replaces an object of a list, as another client.
    pub fn set(&mut self, path: &'static str, mut object: Value) {
        self.stamp(&mut object);
        let objects = self.objects.entry(path).or_default();
        let name = object["metadata"]["name"].clone();
        let known = objects.iter_mut().find(|known| known["metadata"]["name"] == name);
        let kind = match known {
            Some(known) => {
                known.clone_from(&object);
                "MODIFIED"
            }
            None => {
                objects.push(object.clone());
                "ADDED"
            }
        };
        self.send(path, &json!({"type": kind, "object": object}));
    }

    /// Version and time of a write.
    fn stamp(&mut self, object: &mut Value) {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.version.to_string());
        metadata["managedFields"] =
            json!([{"manager": "test", "operation": "Update", "time": CLOCK}]);
    }

    /// The watches of these objects end with this error, in the stream.
    pub fn fail_watches(&mut self, path: &str, code: u16, reason: &str) {
        let error = json!({"type": "ERROR", "object": failure(code, reason)});
        self.send(path, &error);
        self.watches.retain(|watch| watch.path != path);
    }

    /// The connections of all watches break.
    pub fn break_watches(&mut self) {
        for watch in self.watches.drain(..) {
            // One whose client has gone needs no error.
            let _ = watch.changes.send(Err(std::io::Error::other("broken off")));
        }
    }

    fn send(&mut self, path: &str, change: &Value) {
        let line = Bytes::from(format!("{change}\n"));
        self.watches.retain(|watch| {
            watch.path != path || watch.changes.send(Ok(Frame::data(line.clone()))).is_ok()
        });
    }

    /// The changes from here on, if it is a watch.
    pub(super) fn watch(&mut self, asked: &Asked) -> Option<mpsc::UnboundedReceiver<Chunk>> {
        let is_watch = asked.query.split('&').any(|pair| pair == "watch=true");
        is_watch.then(|| {
            let (changes, receiver) = mpsc::unbounded_channel();
            self.watches.push(Watcher { path: asked.path.clone(), changes });
            receiver
        })
    }

    /// Server-side apply of `status.healthStatus`: what is applied no longer is removed.
    pub(super) fn claim_health(
        &mut self,
        namespace: &str,
        name: &str,
        asked: &Asked,
    ) -> (u16, Value) {
        let manager = format!("fieldManager={MANAGER}");
        let is_apply = asked.kind == "application/apply-patch+yaml"
            && asked.query.split('&').any(|pair| pair == manager)
            && !asked.query.contains("force=true");
        if !is_apply {
            return (415, failure(415, "UnsupportedMediaType"));
        }
        let claims = self.objects.entry(CLAIMS).or_default();
        let is_meant = |claim: &&mut Value| {
            claim["metadata"]["namespace"] == namespace && claim["metadata"]["name"] == name
        };
        let Some(claim) = claims.iter_mut().find(is_meant) else {
            return (404, failure(404, "NotFound"));
        };
        if claim["metadata"]["uid"] != asked.body["metadata"]["uid"] {
            return (409, failure(409, "uid mismatch"));
        }
        let health = asked.body["status"]["healthStatus"].clone();
        if health.is_null() {
            claim["status"] = json!({});
            claim["metadata"]["managedFields"] = json!([]);
        } else {
            claim["status"] = json!({"healthStatus": health});
            claim["metadata"]["managedFields"] =
                json!([{"manager": MANAGER, "operation": "Apply", "subresource": "status"}]);
        }
        (200, claim.clone())
    }

    /// Of a Lease: read, created, or replaced at the version that was read.
    pub(super) fn lease(&mut self, method: &str, asked: &Asked) -> (u16, Value) {
        let name = match method {
            "POST" => asked.body["metadata"]["name"].as_str().unwrap_or_default(),
            _ => asked.path.rsplit('/').next().unwrap_or_default(),
        };
        let known = self.leases.get(name).cloned();
        match (method, known) {
            ("GET", Some(lease)) => (200, lease),
            ("GET" | "PUT", None) => (404, failure(404, "NotFound")),
            ("POST", Some(_)) => (409, failure(409, "AlreadyExists")),
            ("PUT", Some(lease))
                if lease["metadata"]["resourceVersion"]
                    != asked.body["metadata"]["resourceVersion"] =>
            {
                (409, failure(409, "Conflict"))
            }
            ("POST" | "PUT", _) => (200, self.set_lease(asked.body.clone())),
            _ => (405, failure(405, "MethodNotAllowed")),
        }
    }

    pub fn set_lease(&mut self, mut lease: Value) -> Value {
        self.stamp(&mut lease);
        let name = lease["metadata"]["name"].as_str().expect("a name");
        self.leases.insert(name.to_owned(), lease.clone());
        lease
    }
}
