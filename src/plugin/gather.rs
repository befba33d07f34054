//! Which objects a command reads. In: the client and names. Out: records, and for each list that
//! could not be read, why.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use futures_util::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{Api, ApiError, Kind, Select};
use crate::objects::actions::{ActionRecord, PolicyRecord};
use crate::objects::{
    AttachmentRecord, ClaimRecord, NodeRecord, PodRecord, StorageRecord, VolumeRecord, needs_attach,
};
use crate::view;
use crate::view::actions::Remediation;
use crate::view::attachments::Subject;
use crate::view::claims::{Named, is_claimable};
use crate::view::nodes::NodeView;
use crate::view::{Base, Read};

pub(crate) const STORAGES: &str = "/apis/diskvitals.io/v1alpha1/nodestorages";
pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(crate) const POLICIES: &str = "/apis/diskvitals.io/v1alpha1/storagepolicies";
const ALL_ACTIONS: &str = "/apis/diskvitals.io/v1alpha1/storageactions";
const PODS: &str = "/api/v1/pods";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
const DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";

/// The chart's role with all rights that this plugin's reading needs.
const READER: &str = "the ClusterRole diskvitals-reader permits it";

/// Up to so many objects are read one by one; more as a list.
const MAX_GETS: usize = 100;

pub(crate) fn in_namespace(namespace: &str, plural: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{plural}")
}

pub(crate) fn actions_path(namespace: &str) -> String {
    format!("/apis/diskvitals.io/v1alpha1/namespaces/{namespace}/storageactions")
}

/// A list of records. Objects of other fields than the plugin's are dropped page by page.
async fn records<T: DeserializeOwned, R: From<T>>(
    api: &Api,
    what: &str,
    path: &str,
    select: Select<'_>,
    mut keep: impl FnMut(&R) -> bool,
) -> Result<Vec<R>, ApiError> {
    let mut all = Vec::new();
    api.list_each::<T>(what, path, select, |page, restarted| {
        if restarted {
            all.clear();
        }
        all.extend(page.into_iter().map(R::from).filter(|record| keep(record)));
    })
    .await
    .map_err(with_role)?;
    Ok(all)
}

/// One object; None if there is none.
async fn one<T: DeserializeOwned>(
    api: &Api,
    what: &str,
    path: &str,
    name: &str,
) -> Read<Option<T>> {
    why(api.get::<T>(what, path, name).await.map_err(with_role))
}

/// A refusal says which role helps.
fn with_role(mut error: ApiError) -> ApiError {
    let advice = match (error.kind, error.what.as_str()) {
        (Kind::Forbidden, LISTING_STORAGES) => {
            &format!("{READER}, diskvitals-view the reports alone; in the whole cluster")
        }
        (Kind::Forbidden, _) => READER,
        (Kind::NotFound, LISTING_STORAGES) => {
            "the cluster has no NodeStorage: install the chart with the reporter's `storage`"
        }
        _ => return error,
    };
    error.why = format!("{}; {advice}", error.why);
    error
}

/// The reason of a refusal, without the object's names.
fn why<T>(read: Result<T, ApiError>) -> Read<T> {
    read.map_err(|error| error.why)
}

const LISTING_STORAGES: &str = "listing nodestorages";

/// Reports, Nodes and the reporters' pods.
pub(crate) async fn base(
    api: &Api,
    selector: Option<&str>,
    node: Option<&str>,
) -> (Base, Result<(), ApiError>) {
    let of_node = node.map(|node| format!("metadata.name={node}"));
    let on_node = node.map(|node| format!("spec.nodeName={node}"));
    let storages = Select { labels: None, fields: of_node.as_deref() };
    let nodes = Select { labels: selector, fields: of_node.as_deref() };
    let pods =
        Select { labels: Some("app.kubernetes.io/component=report"), fields: on_node.as_deref() };
    let is_reporter = |pod: &PodRecord| {
        let mut containers = pod.containers.iter();
        containers.any(|it| it.command.ends_with("diskvitals-csi"))
    };
    let (time, storages, nodes, reporters) = tokio::join!(
        api.server_time(),
        records::<Value, StorageRecord>(api, LISTING_STORAGES, STORAGES, storages, |_| true),
        records::<Node, NodeRecord>(api, "listing nodes", NODES, nodes, |_| true),
        records::<Pod, PodRecord>(api, "listing pods", PODS, pods, is_reporter),
    );
    let (storages, read) = match storages {
        Ok(storages) => (storages, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    };
    let nodes = why(nodes).map(|nodes| {
        let by_name = nodes.into_iter().map(|node| (node.name.clone(), node));
        by_name.collect()
    });
    let base = Base {
        now: time.unwrap_or_else(diskvitals_host::clock::wall_now),
        storages,
        nodes,
        reporters: why(reporters),
        is_selected: selector.is_some(),
    };
    (base, read)
}

/// What the nodes' volumes name; of one namespace, or of all.
pub(crate) async fn named(api: &Api, nodes: &[NodeView<'_>], namespace: Option<&str>) -> Named {
    let (mut names, mut handles) = (BTreeSet::new(), BTreeSet::new());
    for status in nodes.iter().filter_map(|node| node.status) {
        let volumes = status.volumes.iter().filter(|it| is_claimable(it));
        let volumes = volumes.map(|it| (&it.driver, &it.handle, &it.persistent_volume));
        let stale = status.stale.iter();
        let stale = stale.map(|it| (&it.driver, &it.handle, &it.persistent_volume));
        for (driver, handle, name) in volumes.chain(stale) {
            match name.as_str() {
                "" if driver.is_empty() => {}
                "" => drop(handles.insert((driver.clone(), handle.clone()))),
                name => drop(names.insert(name.to_owned())),
            }
        }
        names.extend(status.remaining.iter().flat_map(|it| it.persistent_volumes.clone()));
    }
    let volumes = volumes(api, &names, &handles).await;
    let is_asked = |of: &str| namespace.is_none_or(|namespace| namespace == of);
    let mut references = BTreeSet::new();
    for volume in volumes.iter().flat_map(BTreeMap::values) {
        if let Some(claim) = volume.claim.as_ref().filter(|it| is_asked(&it.namespace)) {
            references.insert((claim.namespace.clone(), claim.name.clone()));
        }
    }
    let namespaces: BTreeSet<String> = references.iter().map(|(of, _)| of.clone()).collect();
    let (claims, pods) = tokio::join!(
        claims(api, &references),
        each(namespaces.into_iter().collect(), |namespace| async move {
            let pods = pods_with_claims(api, &namespace).await;
            (namespace, pods)
        })
    );
    Named { volumes, claims, pods: pods.into_iter().collect() }
}

async fn pods_with_claims(api: &Api, namespace: &str) -> Read<Vec<PodRecord>> {
    let path = in_namespace(namespace, "pods");
    let has_claims = |pod: &PodRecord| !pod.claims.is_empty();
    why(records::<Pod, _>(api, "listing pods", &path, Select::default(), has_claims).await)
}

async fn volumes(
    api: &Api,
    names: &BTreeSet<String>,
    handles: &BTreeSet<(String, String)>,
) -> Read<BTreeMap<String, VolumeRecord>> {
    if names.len() <= MAX_GETS && handles.is_empty() {
        let found = each(names.iter().cloned().collect(), |name| async move {
            let what = "reading PersistentVolumes";
            one::<PersistentVolume>(api, what, VOLUMES, &name).await
        });
        let found: Read<Vec<Option<PersistentVolume>>> = found.await.into_iter().collect();
        let records = found?.into_iter().flatten().map(VolumeRecord::from);
        return Ok(records.map(|it| (it.name.clone(), it)).collect());
    }
    let is_wanted = |it: &VolumeRecord| {
        names.contains(&it.name) || handles.contains(&(it.driver.clone(), it.handle.clone()))
    };
    let what = "listing PersistentVolumes";
    let all = records::<PersistentVolume, _>(api, what, VOLUMES, Select::default(), is_wanted);
    Ok(why(all.await)?.into_iter().map(|it| (it.name.clone(), it)).collect())
}

type Claims = BTreeMap<(String, String), Read<Option<ClaimRecord>>>;

async fn claims(api: &Api, references: &BTreeSet<(String, String)>) -> Claims {
    if references.len() <= MAX_GETS {
        let all = each(references.iter().cloned().collect(), |(namespace, name)| async move {
            let found = claim(api, &namespace, &name).await;
            ((namespace, name), found)
        });
        return all.await.into_iter().collect();
    }
    let path = "/api/v1/persistentvolumeclaims";
    let is_wanted =
        |it: &ClaimRecord| references.contains(&(it.namespace.clone(), it.name.clone()));
    let all = records::<PersistentVolumeClaim, ClaimRecord>(
        api,
        "listing claims",
        path,
        Select::default(),
        is_wanted,
    );
    match why(all.await) {
        Ok(all) => {
            let mut found: BTreeMap<_, _> =
                all.into_iter().map(|it| ((it.namespace.clone(), it.name.clone()), it)).collect();
            let pairs = references.iter().map(|key| (key.clone(), Ok(found.remove(key))));
            pairs.collect()
        }
        Err(why) => references.iter().map(|key| (key.clone(), Err(why.clone()))).collect(),
    }
}

pub(crate) async fn claim(api: &Api, namespace: &str, name: &str) -> Read<Option<ClaimRecord>> {
    let path = in_namespace(namespace, "persistentvolumeclaims");
    let found = one::<PersistentVolumeClaim>(api, "reading the claim", &path, name);
    Ok(found.await?.map(ClaimRecord::from))
}

pub(crate) async fn pod(api: &Api, namespace: &str, name: &str) -> Read<Option<PodRecord>> {
    let path = in_namespace(namespace, "pods");
    Ok(one::<Pod>(api, "reading the pod", &path, name).await?.map(PodRecord::from))
}

pub(crate) async fn volume(api: &Api, name: &str) -> Read<Option<VolumeRecord>> {
    let found = one::<PersistentVolume>(api, "reading the PersistentVolume", VOLUMES, name);
    Ok(found.await?.map(VolumeRecord::from))
}

/// Everything about one volume. `storages`: whether the reports were read.
pub(crate) async fn subject(
    api: &Api,
    volume_name: &str,
    claim_given: Option<ClaimRecord>,
    storages: &Result<(), ApiError>,
) -> Subject {
    let record = match volume(api, volume_name).await {
        Ok(Some(record)) => Ok(record),
        Ok(None) => Err("it does not exist".to_owned()),
        Err(why) => Err(why),
    };
    let reference = record.as_ref().ok().and_then(|it| it.claim.clone());
    let claim = match (claim_given, reference) {
        (Some(claim), _) => Ok(Some(claim)),
        (None, Some(reference)) => claim(api, &reference.namespace, &reference.name).await,
        (None, None) => match &record {
            Ok(_) => Ok(None),
            Err(why) => Err(why.clone()),
        },
    };
    let namespace = match &claim {
        Ok(Some(claim)) => Some(claim.namespace.clone()),
        _ => None,
    };
    let driver = record.as_ref().map(|it| it.driver.clone()).unwrap_or_default();
    let is_of_it = |it: &AttachmentRecord| it.volume == volume_name;
    let what = "listing volumeattachments";
    let (attachments, needs_attach, pods) = tokio::join!(
        records::<VolumeAttachment, _>(api, what, ATTACHMENTS, Select::default(), is_of_it),
        async {
            let driver = one::<CSIDriver>(api, "reading the CSIDriver", DRIVERS, &driver);
            Ok(driver.await?.map(|driver| needs_attach(&driver)))
        },
        async {
            match &namespace {
                Some(namespace) => pods_with_claims(api, namespace).await,
                None => match &claim {
                    Err(why) => Err(why.clone()),
                    Ok(_) => Ok(Vec::new()),
                },
            }
        }
    );
    Subject {
        volume: record,
        claim,
        volume_name: volume_name.to_owned(),
        pods,
        attachments: why(attachments),
        needs_attach,
        storages: storages.as_ref().copied().map_err(|error| error.why.clone()),
    }
}

/// Of one namespace, or of all.
pub(crate) async fn actions(
    api: &Api,
    namespace: Option<&str>,
) -> Result<Vec<ActionRecord>, ApiError> {
    let path = namespace.map_or_else(|| ALL_ACTIONS.to_owned(), actions_path);
    let what = "listing storageactions";
    records::<Value, _>(api, what, &path, Select::default(), |_| true).await
}

pub(crate) async fn policies(api: &Api) -> Result<Vec<PolicyRecord>, ApiError> {
    let what = "listing storagepolicies";
    records::<Value, _>(api, what, POLICIES, Select::default(), |_| true).await
}

/// What the controller proposes. A cluster without the definitions has no such objects.
pub(crate) async fn remediation(api: &Api, namespace: Option<&str>, now: Timestamp) -> Remediation {
    fn some<T>(read: Result<Vec<T>, ApiError>) -> Read<Vec<T>> {
        match read {
            Err(error) if error.kind == Kind::NotFound => Ok(Vec::new()),
            read => why(read),
        }
    }
    let (actions, policies) = tokio::join!(actions(api, namespace), policies(api));
    Remediation {
        actions: some(actions).map(|records| view::actions::actions(&records, now)),
        policies: some(policies).map(|records| records.iter().map(view::actions::policy).collect()),
    }
}

/// Why actions and policies cannot be read, and what to do.
pub(crate) fn no_remediation(error: &ApiError) -> crate::Error {
    let advice = match error.kind {
        Kind::Forbidden => ", in one namespace diskvitals-view or diskvitals-approver",
        Kind::NotFound => {
            "; the cluster has no StorageAction and no StoragePolicy: install the chart with fleet.enabled"
        }
        Kind::Unauthenticated | Kind::Conflict | Kind::Refused | Kind::Failed => "",
    };
    crate::Error::Target(format!("{error}{advice}"))
}

/// Pods that are being deleted, on nodes that do not reach the storage of a driver.
pub(crate) async fn terminating(api: &Api, nodes: &[NodeView<'_>]) -> Read<Vec<PodRecord>> {
    let is_cut_off = |node: &&NodeView<'_>| {
        let listed = node.status.and_then(|it| it.unreachable_drivers.as_ref());
        node.report.is_of_a_node() && listed.is_some_and(|it| !it.is_empty())
    };
    let names: Vec<&str> = nodes.iter().filter(is_cut_off).map(|it| it.name).collect();
    let is_deleted = |pod: &PodRecord| pod.deleting.is_some();
    if names.len() > MAX_GETS {
        let what = "listing pods";
        let pods = records::<Pod, _>(api, what, PODS, Select::default(), |pod: &PodRecord| {
            is_deleted(pod) && names.contains(&pod.node.as_str())
        });
        return why(pods.await);
    }
    let read = each(names, async |node| {
        let fields = format!("spec.nodeName={node}");
        let select = Select { labels: None, fields: Some(&fields) };
        let what = "listing the pods of a node";
        why(records::<Pod, _>(api, what, PODS, select, is_deleted).await)
    });
    let read: Read<Vec<Vec<PodRecord>>> = read.await.into_iter().collect();
    read.map(|pods| pods.into_iter().flatten().collect())
}

/// PersistentVolumes that no claim still has.
pub(crate) async fn released_volumes(api: &Api) -> Result<Vec<VolumeRecord>, ApiError> {
    let is_released = |it: &VolumeRecord| matches!(it.phase.as_str(), "Released" | "Failed");
    let what = "listing PersistentVolumes";
    let all = records::<PersistentVolume, _>(api, what, VOLUMES, Select::default(), is_released);
    all.await
}

/// The daemon's pods on a node: those of a privileged container of ours. Only who is root on the
/// nodes anyway can start such a pod: a tenant cannot lure somebody's exec into his own.
pub(crate) async fn daemons(api: &Api, node: &str) -> Result<Vec<PodRecord>, ApiError> {
    let fields = format!("spec.nodeName={node}");
    let select =
        Select { labels: Some("app.kubernetes.io/component=daemon"), fields: Some(&fields) };
    let is_daemon = |pod: &PodRecord| {
        let mut containers = pod.containers.iter();
        !pod.has_ended && containers.any(|it| it.name == DAEMON_CONTAINER && it.is_privileged)
    };
    records::<Pod, _>(api, "finding the daemon's pod", PODS, select, is_daemon).await
}

/// Name of the daemon's container in the chart.
pub(crate) const DAEMON_CONTAINER: &str = "diskvitalsd";

/// Some at a time, in order.
async fn each<I, T, F: Future<Output = T>>(items: Vec<I>, call: impl Fn(I) -> F) -> Vec<T> {
    const AT_ONCE: usize = 8;
    let calls = futures_util::stream::iter(items).map(call);
    calls.buffered(AT_ONCE).collect().await
}
