//! What decides about its drives itself, out of our sight: RAID controllers and Ceph.

use crate::replacement::{Guide, Step, StepKind};

impl Guide<'_> {
    pub(super) fn outside(&self) -> Option<Step> {
        let location = &self.known.facts.location;
        if let Some(driver) = &location.array_driver {
            let text = format!(
                "It is an array of a RAID controller ({driver}): its drives are replaced with the vendor's tool."
            );
            return Some(Step::new(StepKind::NotKnown, text));
        }
        if let Some(controller) = &location.raid_controller {
            let text = format!(
                "{controller} replaces it: light its lamp with the vendor's tool, pull it, and put the new drive into the same slot. The rebuild starts by itself where that is set. A used drive with the configuration of another controller stays out of the array: take an empty one."
            );
            return Some(Step::new(StepKind::Insert, text));
        }
        self.ceph()
    }

    /// Ceph knows its copies on other nodes.
    fn ceph(&self) -> Option<Step> {
        let mut names = self.known.member_of.iter();
        let id =
            names.find_map(|it| it.split_whitespace().find_map(|it| it.strip_prefix("osd.")))?;
        let id: u32 = id.parse().ok()?;
        Some(match self.is_missing() {
            true => Step::type_in(
                format!(
                    "osd.{id} was on it. When Ceph says that it is safe to destroy, `ceph orch osd rm {id} --replace` keeps its id for the new drive. cephadm takes any free disk unless the service is unmanaged. With Rook, use its operator."
                ),
                [format!("ceph osd safe-to-destroy {id}")],
            ),
            false => Step::type_in(
                format!(
                    "osd.{id} is on it, and only Ceph knows its copies. If Ceph says yes: `ceph osd out {id}`, wait until `ceph osd safe-to-destroy {id}` says yes too, then `ceph orch osd rm {id} --replace`, which keeps its id. With Rook, use its operator."
                ),
                [format!("ceph osd ok-to-stop {id}")],
            ),
        })
    }
}
