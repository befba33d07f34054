//! What a support bundle consists of: the names of its files, its manifest, and the answers as JSON.

use std::collections::BTreeMap;

use prost_reflect::prost::Message;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::answers::Answers;
use crate::json::{self, JsonError};
use diskvitals_wire as wire;

/// Grows when a reader of the former version would misunderstand the new one.
pub const FORMAT: u32 = 1;
pub(crate) const MANIFEST: &str = "manifest.json";
pub const KERNEL_LOG: &str = "kernel-log.txt";
pub(crate) const SMARTCTL: &str = "smartctl/";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Manifest {
    /// Always "diskvitals-bundle".
    pub kind: String,
    pub format: u32,
    /// The version of the program that wrote it.
    pub diskvitals: String,
    pub time: String,
    pub host: String,
    pub redacted: bool,
    /// What is missing, and why.
    pub missing: Vec<String>,
    /// The files that the bundle should have, besides this one.
    pub files: Vec<String>,
}

pub const KIND: &str = "diskvitals-bundle";

/// One file with answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnswerFile {
    Node,
    Drives,
    Volumes,
    Findings,
    Causes,
    Checks,
    Attachments,
    Reasons,
    Histories,
    Explanations,
}

impl AnswerFile {
    pub const ALL: [AnswerFile; 10] = [
        AnswerFile::Node,
        AnswerFile::Causes,
        AnswerFile::Findings,
        AnswerFile::Drives,
        AnswerFile::Volumes,
        AnswerFile::Explanations,
        AnswerFile::Histories,
        AnswerFile::Checks,
        AnswerFile::Attachments,
        AnswerFile::Reasons,
    ];

    pub fn name(self) -> &'static str {
        match self {
            AnswerFile::Node => "node.json",
            AnswerFile::Drives => "drives.json",
            AnswerFile::Volumes => "volumes.json",
            AnswerFile::Findings => "findings.json",
            AnswerFile::Causes => "causes.json",
            AnswerFile::Checks => "checks.json",
            AnswerFile::Attachments => "attachments.json",
            AnswerFile::Reasons => "reasons.json",
            AnswerFile::Histories => "smart-histories.json",
            AnswerFile::Explanations => "explanations.json",
        }
    }

    /// As the reader of a report calls it.
    pub fn title(self) -> &'static str {
        match self {
            AnswerFile::Node => "the node",
            AnswerFile::Drives => "drives",
            AnswerFile::Volumes => "volumes",
            AnswerFile::Findings => "findings",
            AnswerFile::Causes => "causes",
            AnswerFile::Checks => "checks",
            AnswerFile::Attachments => "attachments",
            AnswerFile::Reasons => "reasons",
            AnswerFile::Histories => "SMART histories",
            AnswerFile::Explanations => "explanations",
        }
    }
}

/// All answers, in the order of the files. None: the daemon has no such answer.
pub(crate) fn to_json(answers: &Answers) -> Result<Vec<(AnswerFile, Value)>, JsonError> {
    let mut files = Vec::new();
    for file in AnswerFile::ALL {
        let value = match file {
            AnswerFile::Node => json::value("Node", &answers.node)?,
            AnswerFile::Drives => list("drives", "Drive", &answers.drives)?,
            AnswerFile::Volumes => list("volumes", "Volume", &answers.volumes)?,
            AnswerFile::Findings => list("findings", "Finding", &answers.findings)?,
            AnswerFile::Causes => match &answers.causes {
                Some(causes) => list("causes", "Cause", causes)?,
                None => continue,
            },
            AnswerFile::Checks => list("checks", "Check", &answers.checks)?,
            AnswerFile::Attachments => list("attachments", "Attachment", &answers.attachments)?,
            AnswerFile::Reasons => list("reasons", "ReasonText", &answers.reasons)?,
            AnswerFile::Histories => list("histories", "SmartHistory", &answers.histories)?,
            AnswerFile::Explanations => list("explanations", "Explanation", &answers.explanations)?,
        };
        files.push((file, value));
    }
    Ok(files)
}

fn list(name: &str, message: &str, items: &[impl Message]) -> Result<Value, JsonError> {
    let items: Result<Vec<Value>, JsonError> =
        items.iter().map(|item| json::value(message, item)).collect();
    Ok(serde_json::json!({ name: items? }))
}

/// Adds the answers of a file. The result: how many entries could not be read.
pub(crate) fn add_json(answers: &mut Answers, file: AnswerFile, value: Value) -> usize {
    fn read<M: Message + Default>(
        name: &str,
        message: &str,
        value: Value,
        into: &mut Vec<M>,
    ) -> usize {
        let items = match value {
            Value::Object(mut fields) => fields.remove(name),
            _ => None,
        };
        let Some(Value::Array(items)) = items else {
            return 1;
        };
        let all = items.len();
        into.extend(items.into_iter().filter_map(|item| json::parse(message, item).ok()));
        all - into.len()
    }
    match file {
        AnswerFile::Node => match json::parse::<wire::Node>("Node", value) {
            Ok(node) => {
                answers.node = node;
                0
            }
            Err(_) => 1,
        },
        AnswerFile::Drives => read("drives", "Drive", value, &mut answers.drives),
        AnswerFile::Volumes => read("volumes", "Volume", value, &mut answers.volumes),
        AnswerFile::Findings => read("findings", "Finding", value, &mut answers.findings),
        AnswerFile::Causes => {
            let causes = answers.causes.get_or_insert_default();
            read("causes", "Cause", value, causes)
        }
        AnswerFile::Checks => read("checks", "Check", value, &mut answers.checks),
        AnswerFile::Attachments => {
            read("attachments", "Attachment", value, &mut answers.attachments)
        }
        AnswerFile::Reasons => read("reasons", "ReasonText", value, &mut answers.reasons),
        AnswerFile::Histories => read("histories", "SmartHistory", value, &mut answers.histories),
        AnswerFile::Explanations => {
            read("explanations", "Explanation", value, &mut answers.explanations)
        }
    }
}

/// A file's name below `smartctl/` for each drive: its kernel name, made unique.
pub(crate) fn drive_file_names(drives: &[wire::Drive]) -> Vec<String> {
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    drives
        .iter()
        .map(|drive| {
            let mut name: String = drive
                .name
                .chars()
                .filter(|c| c.is_ascii_alphanumeric() || "_-".contains(*c))
                .take(64)
                .collect();
            if name.is_empty() {
                name = "drive".to_owned();
            }
            let count = used.entry(name.clone()).or_default();
            *count += 1;
            match *count {
                1 => format!("{SMARTCTL}{name}.json"),
                // A kernel name has no `+`: no other drive has this file.
                count => format!("{SMARTCTL}{name}+{count}.json"),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_have_a_file_each_whatever_their_names_are() {
        let names = ["sda", "../../etc/passwd", "", "sda", "\u{202e}"];
        let drives = names.map(|name| wire::Drive { name: name.to_owned(), ..Default::default() });
        assert_eq!(
            drive_file_names(&drives),
            [
                "smartctl/sda.json",
                "smartctl/etcpasswd.json",
                "smartctl/drive.json",
                "smartctl/sda+2.json",
                "smartctl/drive+2.json"
            ]
        );
    }
}
