//! Converts OpenMetrics to Prometheus' older text format (version 0.0.4), for clients that do not
//! accept the newer one. Pure.
//!
//! The formats differ little: in the older one a counter's family has `_total` in its name, and
//! there are no units and no end mark.

/// `openmetrics`: the whole text of `view::render`. A label's value never contains a line break.
pub fn plain(openmetrics: &str) -> String {
    let mut plain = String::with_capacity(openmetrics.len());
    let mut help: Option<(&str, &str)> = None;
    let line = |into: &mut String, parts: &[&str]| {
        parts.iter().for_each(|part| into.push_str(part));
        into.push('\n');
    };
    for text in openmetrics.lines() {
        let Some(comment) = text.strip_prefix("# ") else {
            line(&mut plain, &[text]);
            continue;
        };
        // The help line comes before the type line, and the type decides the name in both.
        if let Some(text) = comment.strip_prefix("HELP ") {
            help = text.split_once(' ');
        } else if let Some((name, kind)) =
            comment.strip_prefix("TYPE ").and_then(|text| text.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, text)) = help.take().filter(|(of, _)| *of == name) {
                line(&mut plain, &["# HELP ", name, suffix, " ", text]);
            }
            line(&mut plain, &["# TYPE ", name, suffix, " ", kind]);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_named_as_its_samples_are_and_nothing_newer_is_left() {
        let newer = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{x=\"# TYPE \"} 4\n\
                     # HELP b Bees.\n# TYPE b gauge\nb 1\n# EOF\n";
        let older = "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\na_seconds_total{x=\"# TYPE \"} 4\n# HELP b Bees.\n# TYPE b gauge\nb 1\n";
        assert_eq!(plain(newer), older);
    }
}
