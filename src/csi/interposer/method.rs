//! The CSI calls that the interposer changes, answers or tracks. All other calls, defined by CSI or
//! not, are forwarded without decoding.

/// A call that the interposer extends, answers, or reports to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CsiMethod {
    NodeGetCapabilities,
    ControllerGetCapabilities,
    NodeGetVolumeStats,
    NodeGetVolumeHealth,
    NodeGetStorageHealth,
    ControllerGetVolumeHealth,
    ControllerListVolumeHealth,
    ListVolumes,
    ControllerGetVolume,
    NodeStageVolume,
    NodeUnstageVolume,
    NodePublishVolume,
    NodeUnpublishVolume,
    CreateVolume,
}

/// Enabled health APIs: `--health-api`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnabledHealthApis {
    /// CSI ≤ 1.12: VolumeCondition.
    pub condition: bool,
    /// CSI 1.13: the health calls.
    pub health: bool,
}

/// The service that announces a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Node,
    Controller,
}

/// NodeServiceCapability.RPC.Type and ControllerServiceCapability.RPC.Type (CSI_WIRE, section 2).
pub(crate) const NODE_GET_VOLUME_STATS: i32 = 2;
pub(crate) const NODE_VOLUME_CONDITION: i32 = 4;
pub(crate) const NODE_GET_VOLUME_HEALTH: i32 = 7;
pub(crate) const NODE_GET_STORAGE_HEALTH: i32 = 8;
pub(crate) const CONTROLLER_LIST_VOLUMES: i32 = 3;
pub(crate) const CONTROLLER_VOLUME_CONDITION: i32 = 11;
pub(crate) const CONTROLLER_GET_VOLUME: i32 = 12;
pub(crate) const CONTROLLER_GET_VOLUME_HEALTH: i32 = 16;
pub(crate) const CONTROLLER_LIST_VOLUME_HEALTH: i32 = 17;

pub(crate) const GET_PLUGIN_INFO: &str = "/csi.v1.Identity/GetPluginInfo";
pub const LIST_VOLUME_HEALTH: &str = "/csi.v1.Controller/ControllerListVolumeHealth";

impl CsiMethod {
    pub(crate) fn from_path(path: &str) -> Option<CsiMethod> {
        Some(match path.strip_prefix("/csi.v1.")? {
            "Node/NodeGetCapabilities" => CsiMethod::NodeGetCapabilities,
            "Controller/ControllerGetCapabilities" => CsiMethod::ControllerGetCapabilities,
            "Node/NodeGetVolumeStats" => CsiMethod::NodeGetVolumeStats,
            "Node/NodeGetVolumeHealth" => CsiMethod::NodeGetVolumeHealth,
            "Node/NodeGetStorageHealth" => CsiMethod::NodeGetStorageHealth,
            "Controller/ControllerGetVolumeHealth" => CsiMethod::ControllerGetVolumeHealth,
            "Controller/ControllerListVolumeHealth" => CsiMethod::ControllerListVolumeHealth,
            "Controller/ListVolumes" => CsiMethod::ListVolumes,
            "Controller/ControllerGetVolume" => CsiMethod::ControllerGetVolume,
            "Node/NodeStageVolume" => CsiMethod::NodeStageVolume,
            "Node/NodeUnstageVolume" => CsiMethod::NodeUnstageVolume,
            "Node/NodePublishVolume" => CsiMethod::NodePublishVolume,
            "Node/NodeUnpublishVolume" => CsiMethod::NodeUnpublishVolume,
            "Controller/CreateVolume" => CsiMethod::CreateVolume,
            _ => return None,
        })
    }

    /// Whether the call is forwarded without decoding with these health APIs.
    pub(crate) fn is_passthrough(self, health_apis: EnabledHealthApis) -> bool {
        match self {
            CsiMethod::NodeGetVolumeHealth
            | CsiMethod::NodeGetStorageHealth
            | CsiMethod::ControllerGetVolumeHealth
            | CsiMethod::ControllerListVolumeHealth => !health_apis.health,
            CsiMethod::ListVolumes | CsiMethod::ControllerGetVolume => !health_apis.condition,
            _ => false,
        }
    }

    /// The capability that announces the call, if the interposer announces it for an upstream
    /// without it.
    pub(crate) fn capability(self) -> Option<(Service, i32)> {
        match self {
            CsiMethod::NodeGetVolumeStats => Some((Service::Node, NODE_GET_VOLUME_STATS)),
            CsiMethod::NodeGetVolumeHealth => Some((Service::Node, NODE_GET_VOLUME_HEALTH)),
            CsiMethod::NodeGetStorageHealth => Some((Service::Node, NODE_GET_STORAGE_HEALTH)),
            CsiMethod::ControllerGetVolumeHealth => {
                Some((Service::Controller, CONTROLLER_GET_VOLUME_HEALTH))
            }
            CsiMethod::ControllerListVolumeHealth => {
                Some((Service::Controller, CONTROLLER_LIST_VOLUME_HEALTH))
            }
            _ => None,
        }
    }
}

impl Service {
    pub(crate) fn capabilities_call(self) -> &'static str {
        match self {
            Service::Node => "/csi.v1.Node/NodeGetCapabilities",
            Service::Controller => "/csi.v1.Controller/ControllerGetCapabilities",
        }
    }

    /// Capabilities that the interposer adds to the upstream's. VOLUME_CONDITION is useless without
    /// a call whose answer contains a condition.
    pub(crate) fn added_capabilities(
        self,
        dialects: EnabledHealthApis,
        upstreams: &[i32],
    ) -> Vec<i32> {
        let mut add = Vec::new();
        match self {
            Service::Node => {
                add.push(NODE_GET_VOLUME_STATS);
                if dialects.condition {
                    add.push(NODE_VOLUME_CONDITION);
                }
                if dialects.health {
                    add.extend([NODE_GET_VOLUME_HEALTH, NODE_GET_STORAGE_HEALTH]);
                }
            }
            Service::Controller => {
                let carried = upstreams.iter().any(|number| {
                    [CONTROLLER_LIST_VOLUMES, CONTROLLER_GET_VOLUME].contains(number)
                });
                if dialects.condition && carried {
                    add.push(CONTROLLER_VOLUME_CONDITION);
                }
                if dialects.health {
                    add.extend([CONTROLLER_GET_VOLUME_HEALTH, CONTROLLER_LIST_VOLUME_HEALTH]);
                }
            }
        }
        add
    }
}
