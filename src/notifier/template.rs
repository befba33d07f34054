//! Bodies of webhooks, as the configuration writes them: text with placeholders like `{{title}}`.
//!
//! In: the template, once, and notifications. Out: bodies. In JSON a placeholder is inside of quotes:
//! its value is escaped for a string; `{{json}}` is the whole notification, and stands without quotes.
//! Pure.

use serde_json::Value;

use crate::outgoing::Outgoing;
use diskvitals_text::echo::echo;

const NAMES: &[&str] = &["id", "kind", "severity", "host", "time", "title", "text", "json"];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error("`{{{{{0}}}}}` is no placeholder; known are {known}", known = NAMES.join(", "))]
    Unknown(String),
    #[error("`{{{{` without its `}}}}`")]
    Open,
    #[error(
        "it is not JSON once it is filled in ({0}): write placeholders inside of quotes, except {{{{json}}}}"
    )]
    NotJson(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// Text, then a placeholder, and so on; the last text has none.
    parts: Vec<(String, Option<&'static str>)>,
    is_json: bool,
}

impl Template {
    pub(crate) fn new(text: &str, is_json: bool) -> Result<Template, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, from)) = rest.split_once("{{") {
            let (name, after) = from.split_once("}}").ok_or(TemplateError::Open)?;
            let known = NAMES.iter().find(|known| **known == name.trim());
            let known = known.ok_or_else(|| TemplateError::Unknown(echo(name.trim())))?;
            parts.push((before.to_owned(), Some(*known)));
            rest = after;
        }
        parts.push((rest.to_owned(), None));
        let template = Template { parts, is_json };
        if is_json {
            // Quotes, backslashes and newlines, as a name may have them.
            let awkward = |name: &str| match name {
                "json" => "{\"a\":\"b\"}".to_owned(),
                _ => "a \"quoted\" \\ line\nand 'another'".to_owned(),
            };
            serde_json::from_str::<Value>(&template.fill(awkward))
                .map_err(|error| TemplateError::NotJson(error.to_string()))?;
        }
        Ok(template)
    }

    pub(crate) fn render(&self, notification: &Outgoing) -> String {
        let json = notification.json();
        self.fill(|name| match (name, &json[name]) {
            ("json", _) => json.to_string(),
            (_, Value::String(text)) => text.clone(),
            (_, other) => other.to_string(),
        })
    }

    fn fill(&self, value: impl Fn(&str) -> String) -> String {
        let mut body = String::new();
        for (text, name) in &self.parts {
            body.push_str(text);
            let Some(name) = name else { continue };
            let value = value(name);
            if self.is_json && *name != "json" {
                let quoted = Value::String(value).to_string();
                body.push_str(&quoted[1..quoted.len() - 1]);
            } else {
                body.push_str(&value);
            }
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests_support::sample;

    #[test]
    fn a_placeholder_is_escaped_for_json_and_plain_elsewhere() {
        let mut notification = sample();
        notification.title = "a \"quoted\" \\ name".to_owned();
        let outgoing = Outgoing::new(&notification).expect("JSON");
        let json =
            Template::new(r#"{"t": "{{ title }}", "n": {{json}}}"#, true).expect("a template");
        let value: Value = serde_json::from_str(&json.render(&outgoing)).expect("JSON");
        assert_eq!(value["t"], notification.title.as_str());
        assert_eq!(value["n"]["id"], notification.id.as_str());
        let plain = Template::new("{{severity}}: {{title}}", false).expect("a template");
        assert_eq!(plain.render(&outgoing), r#"bad: a "quoted" \ name"#);
    }

    #[test]
    fn a_wrong_template_names_the_placeholder_and_the_known_ones() {
        let error = |text: &str| Template::new(text, true).expect_err("refused").to_string();
        assert_eq!(
            error("{\"a\": \"{{titel}}\"}"),
            "`{{titel}}` is no placeholder; known are id, kind, severity, host, time, title, text, json"
        );
        assert_eq!(error("{\"a\": \"{{title\"}"), "`{{` without its `}}`");
        assert!(error("{\"a\": {{title}}}").contains("inside of quotes"));
    }
}
