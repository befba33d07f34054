//! Where a key stands in a file, for messages: the types do not keep it.

/// The line, from 1, that sets `key` (`smart.limits.pending_bad`), or the table that it is in.
pub(super) fn line_of(text: &str, key: &str) -> Option<usize> {
    let (mut table, mut around) = (String::new(), None);
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        let name = if let Some(header) = line.strip_prefix('[') {
            let name = header.trim_start_matches('[').split(']').next();
            name.unwrap_or_default().trim().clone_into(&mut table);
            table.clone()
        } else if let Some((name, _)) = line.split_once('=')
            && !line.starts_with('#')
        {
            match table.as_str() {
                "" => name.trim().to_owned(),
                table => format!("{table}.{}", name.trim()),
            }
        } else {
            continue;
        };
        if name == key {
            return Some(number);
        }
        if key.strip_prefix(&name).is_some_and(|rest| rest.starts_with('.')) {
            around = Some(number);
        }
    }
    around
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_each_form_of_a_table() {
        let text = "# smart.command = 1\n[smart]\ncommand = \"x\"\nlimits.pending_bad = 5\n\n[smart.limits]\nwear = 1\n[checks]\ntools = { lvm = \"y\" }\n";
        let lines = [
            ("smart.command", Some(3)),
            ("smart.limits.pending_bad", Some(4)),
            ("smart.limits.wear", Some(7)),
            ("smart.limits.other", Some(6)),
            ("checks.tools.lvm", Some(9)),
            ("checks", Some(8)),
            ("space.raise_percent", None),
        ];
        for (key, line) in lines {
            assert_eq!(line_of(text, key), line, "{key}");
        }
    }
}
