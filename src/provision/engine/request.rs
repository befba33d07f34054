//! Requests to the engine and its responses: the arguments and results of `Engine`'s methods.

use crate::engine::view::VolumeView;
use crate::rules::sizes::CapacityRange;
use diskvitals_finding::provision::{BackingKind, PodRef, VolumeAccess};

#[derive(Clone, Debug)]
pub struct CreateRequest {
    pub name: String,
    pub range: CapacityRange,
    /// None means an image in the pool's folder.
    pub kind: Option<BackingKind>,
    pub accesses: Vec<VolumeAccess>,
    pub mkfs_options: String,
}

#[derive(Clone, Debug)]
pub struct ExpandRequest {
    pub handle: String,
    pub range: CapacityRange,
    /// The path at which the caller believes the volume to be staged or published.
    pub volume_path: Option<String>,
    pub device_only: bool,
}

#[derive(Clone, Debug)]
pub struct StageRequest {
    pub handle: String,
    pub staging_path: String,
    pub access: VolumeAccess,
}

#[derive(Clone, Debug)]
pub struct PublishRequest {
    pub handle: String,
    /// None: the volume is mounted at the target itself.
    pub staging_path: Option<String>,
    pub target_path: String,
    pub access: VolumeAccess,
    pub read_only: bool,
    pub pod: Option<PodRef>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpandResponse {
    pub size: u64,
    /// The filesystem on the volume must still be grown.
    pub node_expansion_required: bool,
}

pub enum Response {
    Volume(Box<VolumeView>),
    Expanded(ExpandResponse),
    Done,
}
