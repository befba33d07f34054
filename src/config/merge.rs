//! Several files as one: what a later one sets takes precedence.

use toml::{Table, Value};

/// The only list whose entries have names.
const STATIC: &str = "static";
/// No other table has this key.
const ADVISORY: &str = "advisory";

/// Tables key by key, `[[static]]` by name, any other value as a whole; rows of `[[smart.advisory]]` are
/// added. A static volume of `over` is expected on this node, unless its entry says otherwise.
pub(super) fn merge(table: &mut Table, mut over: Table) {
    let statics = over.remove(STATIC);
    merge_tables(table, over);
    let Some(Value::Array(statics)) = statics else { return };
    let mut entries = match table.remove(STATIC) {
        Some(Value::Array(entries)) => entries,
        _ => Vec::new(),
    };
    for mut entry in statics {
        if let Some(entry) = entry.as_table_mut() {
            entry.entry("expected").or_insert(Value::Boolean(true));
        }
        entries.retain(|other| other.get("name") != entry.get("name"));
        entries.push(entry);
    }
    table.insert(STATIC.to_owned(), Value::Array(entries));
}

fn merge_tables(table: &mut Table, over: Table) {
    for (key, value) in over {
        let merged = match (table.remove(&key), value) {
            (Some(Value::Table(mut below)), Value::Table(above)) => {
                merge_tables(&mut below, above);
                Value::Table(below)
            }
            (Some(Value::Array(mut below)), Value::Array(above)) if key == ADVISORY => {
                below.extend(above);
                Value::Array(below)
            }
            (_, value) => value,
        };
        table.insert(key, merged);
    }
}
