//! A SATA link that the kernel has slowed down.

use super::plain;
use crate::fixture::TestHost;
use diskvitals_finding::reason::Reason;

fn limited(host: &mut TestHost, limit: Option<&str>, second: i64) -> Vec<String> {
    let drive = &mut host.inventory.drives[0];
    drive.location.ata_port = Some(3);
    drive.lowered_link_speed = limit.map(str::to_owned);
    host.scan(second);
    host.raised(second + 1)
}

#[test]
fn a_link_that_was_slowed_down_is_suspect_until_its_limit_is_gone() {
    let mut host = plain();
    assert_eq!(limited(&mut host, None, 10), [""; 0]);
    assert_eq!(limited(&mut host, Some("1.5 Gbps"), 20), ["A LinkDowngraded Suspect Degraded"]);
    let raised = host.raised_for(Reason::LinkDowngraded, 22).unwrap();
    assert_eq!(
        raised.message,
        "The kernel has limited the SATA link of drive A (sda) to 1.5 Gbps after errors"
    );
    assert_eq!(raised.evidence[0].source, "/sys/class/ata_link/link3/sata_spd_limit");
    assert_eq!(limited(&mut host, None, 30), [""; 0]);
    assert!(host.active.is_empty());
}
