use proptest::prelude::*;

use super::*;

#[test]
fn an_endpoint_is_the_path_of_a_unix_socket() {
    let parse = str::parse::<Endpoint>;
    assert_eq!(parse("unix:///csi/csi.sock").expect("right").path(), Path::new("/csi/csi.sock"));
    for text in ["tcp://127.0.0.1:1", "/csi/csi.sock", "", "UNIX:///csi.sock"] {
        assert_eq!(parse(text), Err(EndpointError::Scheme), "{text}");
    }
    // As gRPC names them: an absolute path, or one below the working directory.
    let here = std::env::current_dir().expect("a working directory");
    for (text, path) in [
        ("unix:/csi.sock", Path::new("/csi.sock").to_owned()),
        ("unix:csi.sock", here.join("csi.sock")),
    ] {
        assert_eq!(parse(text).expect("right").path(), path, "{text}");
    }
    assert_eq!(parse("unix://csi.sock"), Err(EndpointError::Relative));
    assert_eq!(parse("unix://"), Err(EndpointError::Relative));
    for text in ["unix:", "unix:///", "unix:///csi/", "unix:///csi/.."] {
        assert_eq!(parse(text), Err(EndpointError::NotAFile), "{text}");
    }
    assert!(parse(&format!("unix:///{}", "a".repeat(106))).is_ok());
    assert_eq!(parse(&format!("unix:///{}", "a".repeat(107))), Err(EndpointError::TooLong(108)));
}

fn usage(arguments: &str) -> Result<Options, UsageError> {
    let words = ["diskvitals-csi", "--endpoint", "unix:///csi/csi.sock"]
        .into_iter()
        .chain(arguments.split_whitespace());
    Options::try_parse_from(words).expect("parses").validated()
}

#[test]
fn each_mode_asks_for_its_own_flags_and_refuses_the_others() {
    use UsageError::{Missing, Unused};
    assert!(usage("").is_ok());
    assert!(usage("--mode controller --controller-publish").is_ok());
    assert!(usage("--mode interposer --upstream unix:///csi/real.sock").is_ok());
    assert!(
        usage("--mode registrar --registration-dir /r --kubelet-registration-path /k/csi.sock")
            .is_ok()
    );
    for (arguments, error) in [
        ("--mode interposer", Missing { mode: "interposer", flag: "--upstream" }),
        ("--mode registrar", Missing { mode: "registrar", flag: "--registration-dir" }),
        (
            "--mode registrar --registration-dir /r",
            Missing { mode: "registrar", flag: "--kubelet-registration-path" },
        ),
        ("--upstream unix:///a", Unused { mode: "driver", flag: "--upstream" }),
        ("--registration-dir /r", Unused { mode: "driver", flag: "--registration-dir" }),
        (
            "--mode interposer --upstream unix:///a --controller-publish",
            Unused { mode: "interposer", flag: "--controller-publish" },
        ),
        (
            "--mode registrar --registration-dir /r --kubelet-registration-path /k --withdraw",
            Unused { mode: "registrar", flag: "--withdraw" },
        ),
        (
            "--mode controller --podmon-endpoint unix:///a",
            Unused { mode: "controller", flag: "--podmon-endpoint" },
        ),
        ("--mode interposer --upstream unix:///csi/csi.sock", UsageError::UpstreamIsEndpoint),
        ("--podmon-endpoint unix:///csi/csi.sock", UsageError::SameEndpoint),
    ] {
        assert_eq!(usage(arguments).expect_err(arguments), error);
    }
}

#[test]
fn a_reporter_needs_no_endpoint_and_takes_no_flag_of_a_mode() {
    let parse = |arguments: &str| {
        Options::try_parse_from(
            std::iter::once("diskvitals-csi").chain(arguments.split_whitespace()),
        )
    };
    let usage = |arguments: &str| parse(arguments).expect("parses").validated();
    let alone = usage("--report events,conditions --node-id worker-1").expect("right");
    assert_eq!(
        (alone.mode(), alone.report),
        (None, vec![ReportKind::Events, ReportKind::Conditions])
    );
    for mode in ["", "--mode driver", "--mode controller", "--mode interposer --upstream unix:///b"]
    {
        let options =
            usage(&format!("--endpoint unix:///a {mode} --report events")).expect("right");
        assert!(options.mode().is_some() && options.report == [ReportKind::Events], "{mode}");
    }
    assert_eq!(
        usage("").expect_err("nothing"),
        UsageError::Missing { mode: "driver", flag: "--endpoint" }
    );
    assert_eq!(
        usage("--mode driver --report events").expect_err("no socket"),
        UsageError::Missing { mode: "driver", flag: "--endpoint" }
    );
    assert_eq!(
        usage("--report events --upstream unix:///b").expect_err("no mode"),
        UsageError::UnusedByReporter("--upstream")
    );
    for (flag, error) in [
        ("--answer-challenges", UsageError::ChallengesWithoutStorage),
        ("--clean-stale", UsageError::CleanStaleWithoutStorage),
    ] {
        assert_eq!(usage(&format!("--report events {flag}")).expect_err(flag), error);
        usage(&format!("--report storage {flag}")).expect("right");
    }
    assert!(parse("--report everything").is_err());
}

#[test]
fn each_health_api_option_enables_what_it_names() {
    let dialects = [HealthApi::Both, HealthApi::Condition, HealthApi::Health]
        .map(|api| (api.includes_condition(), api.includes_health()));
    assert_eq!(dialects, [(true, true), (true, false), (false, true)]);
}

#[test]
fn a_node_and_a_topology_key_have_the_form_that_kubernetes_takes() {
    for (text, good) in [
        ("worker-1.example", true),
        ("", false),
        ("a b", false),
        ("a\nb", false),
        (&"a".repeat(257), false),
    ] {
        assert_eq!(node_id(text).is_ok(), good, "{text:?}");
    }
    for (text, good) in [
        ("topology.diskvitals.io/node", true),
        ("a/b", true),
        ("node", false),
        ("a/b/c", false),
        ("/b", false),
        ("a/-b", false),
        ("a_b/c", false),
    ] {
        assert_eq!(label_key(text).is_ok(), good, "{text:?}");
    }
}

proptest! {
    #[test]
    fn an_endpoint_reads_as_it_was_written(text in "(unix://)?/?\\PC*") {
        if let Ok(endpoint) = text.parse::<Endpoint>() {
            prop_assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
        }
    }
}

#[test]
fn the_command_withdraw_takes_a_socket_and_no_flag_of_a_mode() {
    let parse = |words: &[&str]| {
        let words = std::iter::once("diskvitals-csi").chain(words.iter().copied());
        Options::try_parse_from(words)
    };
    let options = parse(&["withdraw", "--endpoint", "unix:///csi/csi.sock"]).expect("parses");
    let Some(Command::Withdraw(withdraw)) = options.validated().expect("valid").command else {
        panic!("a command");
    };
    assert_eq!((withdraw.timeout, withdraw.no_wait), (600, false));
    assert!(parse(&["--endpoint", "unix:///a", "withdraw"]).is_err());
    assert!(parse(&["withdraw", "--endpoint", "unix:///a", "--withdraw"]).is_err());
}
