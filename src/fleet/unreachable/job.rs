//! The calls that the duty makes, one at a time.
//!
//! In: a job. Out: what became of it.

use crate::calls::Caller;
use crate::model::release::evidence::Reading;
use crate::model::unreachable::eviction::{EvictionReadings, PodReading};
use crate::release::job::Acted;
use diskvitals_cluster::node_storage::PodEviction;
use diskvitals_kubernetes::api_error::ApiError;

#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// Of the Node with this uid; without a value, the taint is removed.
    Taint {
        node: String,
        uid: String,
        key: String,
        value: Option<String>,
    },
    ListPods {
        node: String,
        driver: String,
        key: String,
    },
    /// Whether the pod's eviction would be allowed.
    Ask(String, Box<PodEviction>),
    /// Writes down which pod of the node is evicted, or that none is now.
    Record(String, Option<Box<PodEviction>>),
    Look(String, Box<PodEviction>),
    Evict(String, Box<PodEviction>),
}

pub(crate) enum Done {
    /// `wrote`: false if there was nothing to write, or the Node was changed meanwhile.
    Tainted {
        node: String,
        value: Option<String>,
        wrote: Result<bool, ApiError>,
    },
    Listed {
        node: String,
        driver: String,
        pods: Reading<Vec<PodReading>>,
    },
    Asked(String, Box<PodEviction>, Result<Acted, ApiError>),
    /// False: the object was changed meanwhile, or names another pod.
    Recorded(String, Option<Box<PodEviction>>, Result<bool, ApiError>),
    Looked(String, Box<PodEviction>, Box<EvictionReadings>),
    Evicted(String, Box<PodEviction>, Result<Acted, ApiError>),
}

impl Job {
    pub(crate) async fn run(self, caller: Caller) -> Done {
        let (api, leads) = (&caller.api, caller.leads());
        match self {
            Job::Taint { node, uid, key, value } => {
                let wrote = match leads {
                    true => api.set_taint(&node, &uid, &key, value.as_deref()).await,
                    false => Ok(false),
                };
                Done::Tainted { node, value, wrote }
            }
            Job::ListPods { node, driver, key } => {
                let pods = api.pods_to_evict(&node, &key).await;
                Done::Listed { node, driver, pods }
            }
            Job::Ask(node, eviction) => {
                let answer = api.ask_eviction(&eviction).await;
                Done::Asked(node, eviction, answer)
            }
            Job::Record(node, eviction) => {
                let written = match leads {
                    true => api.record_eviction(&node, eviction.as_deref()).await,
                    false => Ok(false),
                };
                Done::Recorded(node, eviction, written)
            }
            Job::Look(node, eviction) => {
                let readings = api.read_eviction(&eviction).await;
                Done::Looked(node, eviction, Box::new(readings))
            }
            Job::Evict(node, eviction) => {
                let acted = match leads {
                    true => api.evict_noted(&eviction).await,
                    false => Ok(Acted::Changed),
                };
                Done::Evicted(node, eviction, acted)
            }
        }
    }
}
