//! The chart's copies of the custom resource definitions. `DISKVITALS_WRITE_CRDS=1 cargo test --test
//! suite crds` writes them anew from the types; read the difference before committing it.

use std::path::Path;

use diskvitals_cluster::definitions;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

#[test]
fn the_charts_definitions_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("helm/diskvitals/files/crds");
    let is_writing = std::env::var_os("DISKVITALS_WRITE_CRDS").is_some();
    let mut names = Vec::new();
    for definition in definitions() {
        let name = format!("{}.json", definition.spec.names.plural);
        let path = folder.join(&name);
        names.push(name);
        let json = serde_json::to_string_pretty(&definition).expect("plain data") + "\n";
        if is_writing {
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(&path, &json).expect("written");
        }
        let copy = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            copy == json,
            "{} is not what the types say: DISKVITALS_WRITE_CRDS=1 cargo test --test suite crds",
            path.display()
        );
    }
    let entries = std::fs::read_dir(&folder).expect("the chart's folder");
    let mut files: Vec<String> = entries
        .map(|entry| entry.expect("readable").file_name().into_string().expect("text"))
        .collect();
    files.sort();
    names.sort();
    assert_eq!(files, names, "a definition without a type");
}

fn status_properties(definition: &CustomResourceDefinition) -> serde_json::Value {
    let schema = serde_json::to_value(&definition.spec.versions[0].schema).expect("plain data");
    schema["openAPIV3Schema"]["properties"]["status"]["properties"].clone()
}

#[test]
fn an_uninstallation_keeps_the_objects_and_each_list_has_a_limit() {
    let lists = [
        (
            "NodeStorage",
            &[
                "driveIDs",
                "models",
                "drives",
                "volumes",
                "stale",
                "unreachableDrivers",
                "reachedDrivers",
                "remaining",
                "conditions",
            ][..],
        ),
        ("StorageAction", &["evidence", "steps", "conditions"]),
        ("StoragePolicy", &["blocked", "conditions"]),
    ];
    let definitions = definitions();
    assert_eq!(definitions.len(), lists.len());
    for (definition, (kind, lists)) in definitions.iter().zip(lists) {
        assert_eq!(definition.spec.names.kind, kind);
        let annotations = definition.metadata.annotations.as_ref();
        assert_eq!(annotations.expect("annotations")["helm.sh/resource-policy"], "keep");
        let subresources = definition.spec.versions[0].subresources.as_ref();
        assert!(subresources.is_some_and(|it| it.status.is_some()));
        let status = status_properties(definition);
        for list in lists {
            assert!(status[list]["maxItems"].is_number(), "{kind} {list}: {}", status[list]);
        }
    }
    let fields = definitions[0].spec.versions[0].selectable_fields.as_ref();
    assert_eq!(fields.expect("selectable")[0].json_path, ".status.health");
}

#[test]
fn each_field_of_an_action_but_the_approval_is_immutable() {
    let definitions = definitions();
    let action =
        definitions.iter().find(|it| it.spec.names.kind == "StorageAction").expect("defined");
    let schema = serde_json::to_value(&action.spec.versions[0].schema).expect("plain data");
    let spec = &schema["openAPIV3Schema"]["properties"]["spec"];
    let required = spec["required"].as_array().expect("required fields");
    for (name, field) in spec["properties"].as_object().expect("fields") {
        let rules = &field["x-kubernetes-validations"];
        let is_immutable = rules[0]["rule"] == "self == oldSelf";
        let is_approval = name.starts_with("approv");
        assert!(is_immutable != is_approval, "{name}: {rules}");
        // A rule that compares holds for a field only that is there before and after.
        let is_present = required.contains(&name.as_str().into()) || field["default"].is_array();
        assert!(is_present || is_approval, "{name} can be added and removed");
    }
}

#[test]
fn every_format_is_one_that_the_api_server_knows_and_no_count_is_negative() {
    fn walk(value: &serde_json::Value, found: &mut Vec<String>) {
        if let Some(format) = value["format"].as_str() {
            found.push(format.to_owned());
        }
        let below: Box<dyn Iterator<Item = &serde_json::Value>> = match value {
            serde_json::Value::Object(fields) => Box::new(fields.values()),
            serde_json::Value::Array(items) => Box::new(items.iter()),
            _ => Box::new(std::iter::empty()),
        };
        for value in below {
            walk(value, found);
        }
    }
    for definition in definitions() {
        let schema = serde_json::to_value(&definition.spec.versions[0].schema).expect("plain data");
        let mut formats = Vec::new();
        walk(&schema, &mut formats);
        formats.retain(|format| !["date-time", "int64", "int32"].contains(&format.as_str()));
        assert!(formats.is_empty(), "{formats:?}");
        let status = &schema["openAPIV3Schema"]["properties"]["status"]["properties"];
        let Some(counts) = status["counts"]["properties"].as_object() else {
            assert_ne!(definition.spec.names.kind, "NodeStorage");
            continue;
        };
        for (name, count) in counts {
            assert_eq!(count["minimum"], 0.0, "{name}");
        }
    }
}
