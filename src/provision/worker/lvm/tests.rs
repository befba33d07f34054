use super::*;

/// As lvm 2.03.16 answers.
const LVS: &str = r#"
  {
      "report": [
          {
              "lv": [
                  {"lv_name":"root", "lv_size":"1073741824", "lv_tags":"", "lv_kernel_major":"254", "lv_kernel_minor":"0", "lv_device_open":"open"},
                  {"lv_name":"pvc-1", "lv_size":"4194304", "lv_tags":"diskvitals.unfinished,diskvitals.volume", "lv_kernel_major":"-1", "lv_kernel_minor":"-1", "lv_device_open":""}
              ]
          }
      ]
  }
"#;

#[test]
fn volumes_are_read_with_their_device_while_they_are_active() {
    let known = parse_volumes(LVS).unwrap();
    let root = LvState {
        name: "root".into(),
        size: 1 << 30,
        tags: Vec::new(),
        dev: Some(DevNo::new(254, 0)),
        open: true,
    };
    let tags = vec!["diskvitals.unfinished".to_owned(), "diskvitals.volume".to_owned()];
    let ours = LvState { name: "pvc-1".into(), size: 4 << 20, tags, dev: None, open: false };
    assert_eq!(known, [root, ours]);
    assert_eq!(parse_volumes(r#"{"report":[{"lv":[]}]}"#), Some(vec![]));
}

#[test]
fn an_unfinished_logical_volume_is_never_activated() {
    let known = parse_volumes(LVS).unwrap();
    assert_eq!(check_finished("vg", &known[0]).map_err(|failure| failure.kind), Ok(()));
    assert_eq!(
        check_finished("vg", &known[1]).map_err(|failure| failure.kind),
        Err(StepErrorKind::ForeignData)
    );
}

#[test]
fn an_answer_with_a_row_that_makes_no_sense_is_no_answer() {
    assert_eq!(parse_volumes(&LVS.replace("4194304", "4,00m")), None);
    assert_eq!(parse_volumes("{}"), None);
    assert_eq!(parse_capacity("WARNING: x"), None);
}

#[test]
fn capacity_is_read_in_bytes() {
    let text = r#"{"report":[{"vg":[
        {"vg_size":"1069547520", "vg_free":"536870912", "vg_extent_size":"4194304", "pv_name":"/dev/sdb"},
        {"vg_size":"1069547520", "vg_free":"536870912", "vg_extent_size":"4194304", "pv_name":"[unknown]"}]}]}"#;
    assert_eq!(
        parse_capacity(text),
        Some(PoolCapacity {
            total: 1_069_547_520,
            available: 536_870_912,
            unit: 4_194_304,
            physical_volumes: vec!["/dev/sdb".into(), "[unknown]".into()],
        })
    );
}

#[test]
fn names_that_lvm_could_take_for_something_else_are_refused() {
    for wrong in ["", "-f", "a/b", "a b", ".", "..", "@tag", "a,b", "a\nb"] {
        assert_eq!(check_name(wrong).unwrap_err().kind, StepErrorKind::InvalidPath, "{wrong:?}");
    }
    assert!(check_name("pvc-1_a.b").is_ok() && check_tag("diskvitals.size=1").is_ok());
    assert!(check_tag("--all").is_err() && check_tag("a,b").is_err());
}

#[test]
fn the_error_kind_is_read_from_lvms_messages() {
    let of = |said| error_kind(said);
    assert_eq!(
        of("Volume group \"x\" has insufficient free space (1 extents): 25 required."),
        StepErrorKind::NoSpace
    );
    assert_eq!(of("Logical volume vg/a contains a filesystem in use."), StepErrorKind::InUse);
    assert_eq!(of("Failed to find logical volume \"vg/a\""), StepErrorKind::NotFound);
    assert_eq!(of("Volume group \"vg\" not found"), StepErrorKind::NotFound);
    assert_eq!(
        of("Logical Volume \"a\" already exists in volume group \"vg\""),
        StepErrorKind::AlreadyExists
    );
    assert_eq!(of("device-mapper: reload ioctl failed"), StepErrorKind::Other);
}
