//! A writer of HTML and SVG: text and attribute values are escaped by it, and by nothing else. Tags and
//! names of attributes are part of the program.

use diskvitals_terminal::screen::{Tone, escape_control};

#[derive(Debug, Default)]
pub(super) struct Html {
    out: String,
}

/// Attributes: names of the program, values of any origin.
pub(super) type Attributes<'a> = &'a [(&'static str, &'a str)];

impl Html {
    /// A whole page. `style` is part of the program too.
    pub(super) fn page(
        title: &str,
        style: &'static str,
        policy: &'static str,
        body: impl FnOnce(&mut Html),
    ) -> String {
        let mut html = Html { out: "<!DOCTYPE html>\n".to_owned() };
        html.element("html", &[("lang", "en")], |html| {
            html.element("head", &[], |html| {
                html.void("meta", &[("charset", "utf-8")]);
                html.void(
                    "meta",
                    &[("http-equiv", "Content-Security-Policy"), ("content", policy)],
                );
                html.void(
                    "meta",
                    &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")],
                );
                html.void("meta", &[("name", "color-scheme"), ("content", "light dark")]);
                html.element("title", &[], |html| html.text(title));
                html.out.push_str("<style>");
                html.out.push_str(style);
                html.out.push_str("</style>");
            });
            html.out.push('\n');
            html.element("body", &[], body);
        });
        html.out.push('\n');
        html.out
    }

    pub(super) fn element(
        &mut self,
        tag: &'static str,
        attributes: Attributes,
        content: impl FnOnce(&mut Html),
    ) {
        self.void(tag, attributes);
        content(self);
        self.out.push_str("</");
        self.out.push_str(tag);
        self.out.push('>');
        if is_block(tag) {
            self.out.push('\n');
        }
    }

    /// An element with text only.
    pub(super) fn text_in(&mut self, tag: &'static str, attributes: Attributes, text: &str) {
        self.element(tag, attributes, |html| html.text(text));
    }

    /// The start tag: all of an element that has no end.
    pub(super) fn void(&mut self, tag: &'static str, attributes: Attributes) {
        self.out.push('<');
        self.out.push_str(tag);
        for (name, value) in attributes {
            self.out.push(' ');
            self.out.push_str(name);
            self.out.push_str("=\"");
            self.text(value);
            self.out.push('"');
        }
        self.out.push('>');
    }

    pub(super) fn text(&mut self, text: &str) {
        for c in escape_control(text).chars() {
            match c {
                '&' => self.out.push_str("&amp;"),
                '<' => self.out.push_str("&lt;"),
                '>' => self.out.push_str("&gt;"),
                '"' => self.out.push_str("&quot;"),
                '\'' => self.out.push_str("&#39;"),
                // No characters in HTML (13.2.3.5).
                c if is_noncharacter(c) => self.out.extend(c.escape_default()),
                c => self.out.push(c),
            }
        }
    }

    /// Verbatim text of several lines, in a `pre`.
    pub(super) fn lines(&mut self, text: &str) {
        for (n, line) in text.lines().enumerate() {
            if n > 0 {
                self.out.push('\n');
            }
            self.text(line);
        }
    }
}

fn is_noncharacter(c: char) -> bool {
    let code = u32::from(c);
    (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
}

/// Elements after which a line break makes the source readable.
fn is_block(tag: &str) -> bool {
    matches!(
        tag,
        "p" | "tr" | "li" | "section" | "h2" | "h3" | "article" | "table" | "thead" | "svg" | "g"
    )
}

pub(super) fn section(
    html: &mut Html,
    id: &'static str,
    title: &'static str,
    content: impl FnOnce(&mut Html),
) {
    let heading = format!("{id}-title");
    html.element("section", &[("aria-labelledby", heading.as_str())], |html| {
        html.text_in("h2", &[("id", heading.as_str())], title);
        content(html);
    });
}

pub(super) fn badge(html: &mut Html, word: &str, class: &str) {
    html.text_in("span", &[("class", &format!("badge {class}"))], word);
}

pub(super) fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Warning => "suspect",
        Tone::Critical => "bad",
        Tone::Plain | Tone::Strong | Tone::Faint => "none",
    }
}

pub(super) fn table(
    html: &mut Html,
    caption: &str,
    columns: &[&str],
    rows: impl FnOnce(&mut Html),
) {
    let region =
        [("class", "scroll"), ("role", "region"), ("aria-label", caption), ("tabindex", "0")];
    html.element("div", &region, |html| {
        html.element("table", &[], |html| {
            html.text_in("caption", &[], caption);
            html.element("thead", &[], |html| {
                html.element("tr", &[], |html| {
                    for column in columns {
                        html.text_in("th", &[("scope", "col")], column);
                    }
                });
            });
            html.element("tbody", &[], rows);
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_values_are_escaped() {
        let mut html = Html::default();
        html.element("p", &[("title", "a\"b'<c>&")], |html| {
            html.text("<script>alert(1)</script>\u{202e}\u{1b}[31m\u{200b}\u{fffe} ä盘");
        });
        assert_eq!(
            html.out,
            "<p title=\"a&quot;b&#39;&lt;c&gt;&amp;\">&lt;script&gt;alert(1)&lt;/script&gt;\\u{202e}\\u{1b}[31m\\u{200b}\\u{fffe} ä盘</p>\n"
        );
    }

    #[test]
    fn lines_stay_lines_and_other_control_characters_do_not() {
        let mut html = Html::default();
        html.lines("a\tb\r\nc\u{2028}d\n");
        assert_eq!(html.out, "a\\tb\nc\\u{2028}d");
    }
}
