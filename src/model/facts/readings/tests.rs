use super::*;
use crate::fixture::*;
use crate::source_update::SourceUpdate;

fn host() -> TestHost {
    let mut host = TestHost::default()
        .disk("sda", "8:0", "A")
        .mounted("8:0", "/", "/data", "ext4", "/dev/sda");
    host.read_all(0);
    host
}

fn is_outstanding(reading: &Reading) -> bool {
    matches!(reading, Reading::Outstanding(_))
}

#[test]
fn a_reading_from_before_the_request_does_not_answer_it() {
    let mut host = host();
    let path = HostPath::from("/data");
    host.probe("/data", healthy_probe(usage(GIB, GIB)), 9);
    assert!(is_outstanding(&host.facts.scan_since(at(10))));
    assert!(is_outstanding(&host.facts.probe_since(&path, at(10))));
    host.scan(10);
    host.probe("/data", healthy_probe(usage(GIB, GIB)), 10);
    assert_eq!(host.facts.scan_since(at(10)), Reading::Made);
    assert_eq!(host.facts.probe_since(&path, at(10)), Reading::Made);
}

#[test]
fn a_failed_reading_is_an_answer_that_says_why() {
    let mut host = host();
    let path = HostPath::from("/data");
    host.apply(SourceUpdate::Inventory(Observation::failed(at(11), "no sysfs")), 11);
    let scan = host.facts.scan_since(at(10));
    assert!(matches!(&scan, Reading::Impossible(why) if why.contains("no sysfs")));
    host.apply(
        SourceUpdate::Probe {
            path: path.clone(),
            result: Observation::failed(at(11), "no worker"),
            duration: std::time::Duration::ZERO,
        },
        11,
    );
    let probe = host.facts.probe_since(&path, at(10));
    assert!(matches!(&probe, Reading::Impossible(why) if why.contains("no worker")));
}

#[test]
fn a_probe_that_hangs_is_an_observation_and_an_unmounted_path_needs_none() {
    let mut host = host();
    host.stuck("/data", 5);
    let hung = host.facts.probe_since(&HostPath::from("/data"), at(10));
    assert_eq!(hung, Reading::Made);
    let gone = host.facts.probe_since(&HostPath::from("/gone"), at(10));
    assert_eq!(gone, Reading::Made);
}
