//! The pictures of the documentation that show a rule. `DISKVITALS_WRITE_PICTURES=1 cargo test --test
//! suite pictures` draws them anew from the rule; look at them before committing them.

use std::fmt::Write;
use std::path::Path;

use diskvitals_model::policy::Policy;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Both axes are logarithmic: powers of two, from and to.
const SIZES: (f64, f64) = (28.0, 45.0);
const SPACE: (f64, f64) = (17.0, 40.0);

fn x(size: u64) -> f64 {
    100.0 + ((size as f64).log2() - SIZES.0) / (SIZES.1 - SIZES.0) * 540.0
}

fn y(space: u64) -> f64 {
    let power = (space as f64).log2().clamp(SPACE.0, SPACE.1);
    350.0 - (power - SPACE.0) / (SPACE.1 - SPACE.0) * 320.0
}

/// A line over all sizes, from left to right.
fn line(limit: impl Fn(u64) -> u64) -> Vec<(f64, f64)> {
    let steps = ((SIZES.1 - SIZES.0) * 8.0) as u32;
    let size = |step| 2_f64.powf(SIZES.0 + f64::from(step) / 8.0) as u64;
    (0..=steps).map(|step| (x(size(step)), y(limit(size(step))))).collect()
}

/// The area between two lines.
fn area(svg: &mut String, class: &str, upper: &[(f64, f64)], lower: &[(f64, f64)]) {
    let points: Vec<String> =
        upper.iter().chain(lower.iter().rev()).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(svg, "<polygon class=\"{class}\" points=\"{}\"/>", points.join(" "));
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

/// How much of a volume may be left, over its size.
fn space() -> String {
    let rule = Policy::default().space;
    let top = line(|_| u64::MAX);
    let bottom = line(|_| 1);
    let short = line(|size| rule.short_below(size));
    let full = line(|size| rule.full_below(size));
    let mut svg = String::from(concat!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 680 400\" role=\"img\">\n",
        "<title>Available space at which a volume is SUSPECT or BAD, by its size</title>\n",
        "<style>text{font:13px sans-serif;fill:#222}.good{fill:#d9efdc}.suspect{fill:#f8e3b0}",
        ".bad{fill:#eeb4ac}.grid{stroke:#888;stroke-width:.5}circle{fill:#222}</style>\n",
        "<rect width=\"680\" height=\"400\" fill=\"#fff\"/>\n",
    ));
    area(&mut svg, "good", &top, &short);
    area(&mut svg, "suspect", &short, &full);
    area(&mut svg, "bad", &full, &bottom);
    for (size, name) in [
        (GIB, "1 GiB"),
        (10 * GIB, "10 GiB"),
        (100 * GIB, "100 GiB"),
        (TIB, "1 TiB"),
        (20 * TIB, "20 TiB"),
    ] {
        let at = x(size);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"30\" y2=\"350\"/>"
        );
        text(&mut svg, (at, 368.0), "middle", name);
    }
    for (space, name) in [
        (MIB, "1 MiB"),
        (64 * MIB, "64 MiB"),
        (GIB, "1 GiB"),
        (5 * GIB, "5 GiB"),
        (50 * GIB, "50 GiB"),
    ] {
        let at = y(space);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"100\" x2=\"640\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
        );
        text(&mut svg, (94.0, at + 4.0), "end", name);
    }
    for (size, left) in [
        (TIB, 6 * GIB),
        (TIB, 60 * GIB),
        (100 * GIB, 4 * GIB),
        (20 * TIB, 500 * GIB),
        (20 * TIB, 30 * GIB),
        (GIB, 150 * MIB),
        (GIB, 30 * MIB),
    ] {
        let _ = writeln!(svg, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>", x(size), y(left));
    }
    text(&mut svg, (250.0, 80.0), "middle", "GOOD");
    text(&mut svg, (400.0, 210.0), "middle", "SUSPECT: less than 5 % or 50 GiB");
    text(&mut svg, (440.0, 320.0), "middle", "BAD: less than 0.1 % or 64 MiB");
    text(&mut svg, (370.0, 390.0), "middle", "size of the volume");
    text(&mut svg, (100.0, 20.0), "middle", "available");
    svg.push_str("</svg>\n");
    svg
}

#[test]
fn the_picture_of_the_space_rule_is_that_of_the_rule() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures/space.svg");
    let drawn = space();
    if std::env::var_os("DISKVITALS_WRITE_PICTURES").is_some() {
        std::fs::write(&path, &drawn).expect("written");
    }
    let copy = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        copy == drawn,
        "{} is not what the rule says: DISKVITALS_WRITE_PICTURES=1 cargo test --test suite pictures",
        path.display()
    );
}
