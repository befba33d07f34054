//! The configuration file: what is refused, and the commented example.

mod advisories;

use super::*;
use diskvitals_text::causes::with_causes;

fn error(text: &str) -> String {
    parse(Path::new("/etc/x.toml"), text).expect_err("refused").to_string()
}

#[test]
fn an_unknown_key_is_an_error_that_names_file_line_and_key() {
    let message = error("[drives]\nadmit = []\nadmitt = [\"loop*\"]\n");
    assert!(
        message.contains("/etc/x.toml") && message.contains("line 3") && message.contains("admitt"),
        "{message}"
    );
}

#[test]
fn a_refused_file_is_one_line_with_the_line_of_the_file() {
    let refused = |text: &str| {
        let error = parse(Path::new("/etc/x.toml"), text).expect_err("refused");
        let line = error.in_one_line();
        assert!(!line.contains('\n'), "{line}");
        line
    };
    assert!(
        refused("[drives]\nadmitt = []\n").starts_with("/etc/x.toml:2: unknown field `admitt`")
    );
    assert!(refused("[drives]\n\nadmit = [\n").starts_with("/etc/x.toml:"));
    assert!(refused("[probes]\n\ninterval = \"soon\"\n").starts_with("/etc/x.toml:3: "));
    assert_eq!(
        refused("[log]\n[smart]\n\ntimeout = \"3601s\"\n"),
        "/etc/x.toml:4: smart.timeout: 3601s is too long: at most 3600s"
    );
    assert!(
        refused("[space]\nraise_percent = 10\nclear_percent = 5\n")
            .starts_with("/etc/x.toml:3: space.clear_percent")
    );
}

#[test]
fn a_program_that_the_file_sets_must_exist_and_a_default_need_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("x.toml");
    let checked = |text: &str| {
        std::fs::write(&path, text).expect("written");
        let config = parse(&path, text).expect("good");
        check_programs(Some(&path), &[], &config, |_, program| program == Path::new("/there"))
            .map_err(|error| error.to_string())
    };
    assert_eq!(checked(""), Ok(()), "no smartctl by default");
    assert_eq!(checked("[smart]\ncommand = \"/there\"\n"), Ok(()));
    let keys = [
        ("smart.command", "[smart]\ncommand = \"/usr/sbin/smartctl\"\n"),
        ("checks.tools.btrfs", "[checks.tools]\nbtrfs = \"/x\"\n"),
        ("checks.tools.lvm", "[checks]\ntools.lvm = \"/x\"\n"),
    ];
    for (key, text) in keys {
        let error = checked(text).expect_err(key);
        assert!(
            error.starts_with(&format!("{}:2: {key}: there is no program", path.display())),
            "{error}"
        );
    }
}

#[test]
fn durations_are_written_as_people_write_them() {
    let config =
        parse(Path::new("x"), "[probes]\ninterval = \"2min\"\ntimeout = 5\n").expect("good");
    assert_eq!(
        (config.probes.interval, config.probes.timeout),
        (Duration::from_secs(120), Duration::from_secs(5))
    );
    assert!(error("[probes]\ninterval = \"soon\"\n").contains("`soon` is not a duration"));
}

#[test]
fn sizes_are_written_as_people_write_them() {
    let config = parse(
        Path::new("x"),
        "[space]\nraise_bytes = \"50GiB\"\n[[space.limit]]\nfilesystems = [\"xfs\"]\nraise_bytes = \"1 TB\"\n[checks]\nmemory_bytes = 2147483648\nread_bytes_per_second = \"20MB\"\n",
    )
    .expect("good");
    assert_eq!(config.space.raise_bytes, 50 << 30);
    assert_eq!(config.space.limits[0].raise_bytes, Some(1_000_000_000_000));
    assert_eq!(config.checks.memory_bytes, 2 << 30);
    assert_eq!(config.checks.read_bytes_per_second, 20_000_000);
    assert!(error("[space]\nraise_bytes = \"much\"\n").contains("`much` is not a size"));
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    assert!(
        error("[space]\nraise_percent = 10\nclear_percent = 5\n").contains("space.clear_percent")
    );
    assert!(error("[thin_pool]\nbad_percent = 50\n").contains("thin_pool"));
    for percent in [0, 101] {
        let error = error(&format!("[storage_failed]\nunreachable_percent = {percent}\n"));
        assert!(error.contains("storage_failed.unreachable_percent"), "{error}");
    }
    assert!(error("[kernel_log]\npath = \"kmsg\"\n").contains("absolute"));
    assert!(
        error("[metrics]\nlisten = \"0.0.0.0:9961\"\n")
            .contains("metrics.listen: `0.0.0.0:9961` means every address")
    );
    assert!(
        error("[smart.limits]\npending_bad = 5\npending_suspect = 6\n")
            .contains("smart.limits.pending_bad")
    );
    assert!(
        error("[[smart.override]]\nmodel = \"X*\"\nlimits = { pending_suspect = 101 }\n")
            .contains("smart.limits.pending_bad")
    );
    assert!(error("[space]\nraise_percent = 101\nclear_percent = 102\n").contains("more than 100"));
}

#[test]
fn smart_interval_and_timeout_have_upper_limits() {
    for key in
        ["interval", "suspect_interval", "shortest_interval", "slow_interval", "idle_interval"]
    {
        let with = |value: &str| format!("[smart]\n{key} = \"{value}\"\n");
        assert!(parse(Path::new("x"), &with("2592000s")).is_ok(), "{key}");
        let message = error(&with("2592001s"));
        assert!(
            message.contains(&format!("smart.{key}: 2592001s is too long: at most 2592000s")),
            "{message}"
        );
    }
    let message = error("[smart]\ntimeout = \"3601s\"\n");
    assert!(message.contains("smart.timeout: 3601s is too long: at most 3600s"), "{message}");
}

#[test]
fn the_commented_example_holds_every_key_with_its_default() {
    let example = include_str!("../../systemd/diskvitals.toml");
    let uncommented: String = example
        .lines()
        .filter_map(|line| line.strip_prefix("#: ").or((!line.starts_with('#')).then_some(line)))
        .fold(String::new(), |text, line| text + line + "\n");
    let config =
        parse(Path::new("systemd/diskvitals.toml"), &uncommented).expect("the example is valid");
    assert_eq!(config, Config::default());
    for line in toml::to_string(&Config::default())
        .expect("serialises")
        .lines()
        .filter_map(|line| line.split_once(" = "))
    {
        assert!(example.contains(&format!("#: {} = ", line.0)), "{} is not in the example", line.0);
    }
}

#[test]
fn every_example_is_accepted_when_it_is_uncommented() {
    let shipped = include_str!("../../systemd/diskvitals.toml");
    let example = |line: &'static str| line.strip_prefix("#     ").map(str::trim_start);
    let setting = |line: &'static str| {
        line.strip_prefix("#: ").or(example(line)).or((!line.starts_with('#')).then_some(line))
    };
    let all: String =
        shipped.lines().filter_map(setting).map(|line| line.to_owned() + "\n").collect();
    let config = parse(Path::new("systemd/diskvitals.toml"), &all).expect("all examples");
    assert_eq!(config.checks.interval, Some(Duration::from_secs(7 * 24 * 3600)));
    assert_eq!((config.statics.len(), config.smart.overrides.len()), (2, 1));
    assert_eq!(config.smart.advisories.len(), 1);
    // Each alone, in its section.
    let (mut section, mut tried) = (String::new(), 0);
    for line in shipped.lines() {
        if line.starts_with('[') {
            line.clone_into(&mut section);
        }
        let Some(text) = example(line).filter(|text| !text.is_empty()) else {
            continue;
        };
        // Several lines make a table of an array.
        if text.starts_with("[[") {
            text.clone_into(&mut section);
        }
        if section.starts_with("[[") {
            continue;
        }
        let alone = format!("{section}\n{text}\n");
        parse(Path::new("x"), &alone).unwrap_or_else(|error| panic!("{alone}{error}"));
        tried += 1;
    }
    assert!(tried >= 5, "{tried}");
}

#[test]
fn effective_settings_read_back_as_themselves() {
    let text = toml::to_string(&Config::default()).expect("serialises");
    assert_eq!(parse(Path::new("x"), &text).expect("reads back"), Config::default());
}

#[test]
fn a_file_without_end_is_refused_and_not_read_into_memory() {
    let refused = load(Some(Path::new("/dev/zero")), &[]).unwrap_err();
    let text = with_causes(&refused);
    assert!(text.contains("/dev/zero") && text.contains("larger than 1 MiB"), "{text}");
}

#[test]
fn a_program_of_the_former_section_notify_is_a_warning_and_no_error() {
    let warnings = |text: &str| parse(Path::new("x.toml"), text).expect("accepted").warnings();
    assert_eq!(warnings(""), [""; 0]);
    assert_eq!(warnings("[notify]\ntimeout = \"30s\"\n"), [""; 0]);
    let said = warnings("[notify]\nexec = \"/usr/local/sbin/on-finding\"\n");
    assert!(said.len() == 1 && said[0].contains("diskvitals-notify"), "{said:?}");
}

/// Of a file and those that are merged over it, in this order; None: the file does not exist.
fn load_texts(texts: &[Option<&str>]) -> Result<Config, String> {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |number: usize| dir.path().join(format!("{number}.toml"));
    for (number, text) in texts.iter().enumerate() {
        if let Some(text) = text {
            std::fs::write(path(number), text).expect("written");
        }
    }
    let overrides: Vec<PathBuf> = (1..texts.len()).map(path).collect();
    let loaded = load(Some(&path(0)), &overrides);
    loaded.map_err(|error| {
        let folder = format!("{}/", dir.path().display());
        error.in_one_line().replace(&folder, "")
    })
}

#[test]
fn what_an_override_sets_takes_precedence_and_the_rest_stays() {
    let base = "[probes]\ninterval = \"30s\"\ntimeout = \"5s\"\n[drives]\nadmit = [\"loop*\"]\nignore = [\"sdz\"]\n[smart.limits]\npending_bad = 5\n[checks]\ntools.lvm = \"/x\"\n";
    let of_label = "[probes]\ntimeout = \"6s\"\n[drives]\nadmit = [\"nvme9*\"]\n";
    let of_node = "[probes]\ntimeout = \"7s\"\n[smart.limits]\nwear_suspect_percent = 70\n";
    let config = load_texts(&[Some(base), Some(of_label), None, Some(of_node)]).expect("good");
    let expected = "[probes]\ninterval = \"30s\"\ntimeout = \"7s\"\n[drives]\nadmit = [\"nvme9*\"]\nignore = [\"sdz\"]\n[smart.limits]\npending_bad = 5\nwear_suspect_percent = 70\n[checks.tools]\nlvm = \"/x\"\n";
    assert_eq!(config, parse(Path::new("x"), expected).expect("good"));
    let alone = load_texts(&[Some(base), None]).expect("an override may be missing");
    assert_eq!(alone, parse(Path::new("x"), base).expect("good"));
    let missing = load_texts(&[None, Some(of_node)]).expect_err("the file itself may not");
    assert!(missing.contains("0.toml"), "{missing}");
}

#[test]
fn a_start_leaves_out_the_files_that_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    for (name, text) in [
        ("base.toml", "[probes]\nintervall = \"30s\"\n"),
        ("chart.toml", "[csi]\nallow_uids = [65532]\n"),
        ("label.toml", "[smart]\ntimeout = \"0s\"\n"),
        ("node.toml", "[probes]\ntimeout = \"7s\"\n"),
    ] {
        std::fs::write(path(name), text).expect("written");
    }
    let overrides = ["chart.toml", "label.toml", "node.toml"].map(path);
    let (config, refused) = load_without_refused(Some(&path("base.toml")), &overrides);
    let good = "[csi]\nallow_uids = [65532]\n[probes]\ntimeout = \"7s\"\n";
    assert_eq!(config, parse(Path::new("x"), good).expect("good"));
    let names: Vec<_> = refused.iter().map(|error| error.path().to_owned()).collect();
    assert_eq!(names, [path("base.toml"), path("label.toml")]);

    let (config, refused) = load_without_refused(Some(&path("missing.toml")), &overrides);
    assert_eq!((config, refused.len()), (Config::default(), 1));
}

#[test]
fn static_volumes_are_merged_by_name_and_those_of_an_override_are_expected() {
    let entry = |name: &str, device: &str, more: &str| {
        format!("[[static]]\nname = \"{name}\"\ndevice = \"/dev/{device}\"\n{more}\n")
    };
    let base = entry("a", "x", "") + &entry("b", "y", "");
    let over = entry("b", "z", "") + &entry("c", "w", "") + &entry("d", "v", "expected = false");
    let config = load_texts(&[Some(&base), Some(&over)]).expect("good");
    let shown = |entry: &StaticEntry| (entry.name.clone(), entry.expected, entry.source.clone());
    let device = |path: &str| crate::provision::StaticSource::Device(path.into());
    assert_eq!(
        config.statics.iter().map(shown).collect::<Vec<_>>(),
        [
            ("a".to_owned(), false, device("/dev/x")),
            ("b".to_owned(), true, device("/dev/z")),
            ("c".to_owned(), true, device("/dev/w")),
            ("d".to_owned(), false, device("/dev/v")),
        ]
    );
    let empty = load_texts(&[Some(""), Some(&entry("a", "x", ""))]).expect("good");
    assert!(empty.statics[0].expected);
}

#[test]
fn an_error_names_the_file_and_line_that_a_person_has_to_change() {
    let base = "[space]\nclear_percent = 7\n";
    for (over, error) in [
        ("[probes]\nintervall = \"1s\"\n", "1.toml:2: unknown field `intervall`"),
        ("[[static]]\nname = \"a\"\n", "1.toml:1: `a` needs either a device or a directory"),
        ("[smart]\n\ntimeout = \"0s\"\n", "1.toml:3: smart.timeout: 0s is too short"),
        // The first file sets it, and the second one contradicts it.
        ("[space]\nraise_percent = 10\n", "1.toml:1: space.clear_percent"),
        ("[probes]\ninterval = \"1s\"\n[csi]\ndriver_name = \"-\"\n", "1.toml:4: driver_name"),
    ] {
        let refused = load_texts(&[Some(base), Some(over)]).expect_err(over);
        assert!(refused.starts_with(error), "{over}: {refused}");
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (path, over) = (dir.path().join("x.toml"), dir.path().join("over.toml"));
    std::fs::write(&path, "[checks.tools]\nlvm = \"/there\"\n").expect("written");
    std::fs::write(&over, "[checks.tools]\nbtrfs = \"/gone\"\n").expect("written");
    let overrides = [over];
    let config = load(Some(&path), &overrides).expect("good");
    let is_there = |_: &str, program: &Path| program == Path::new("/there");
    let error = check_programs(Some(&path), &overrides, &config, is_there).expect_err("gone");
    assert!(error.to_string().contains("over.toml:2: checks.tools.btrfs"), "{error}");
}
