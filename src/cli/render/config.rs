//! The daemon's configuration as a file that could be its own: TOML below a comment.

use diskvitals_wire as wire;

pub fn text(config: &wire::Config) -> String {
    let files = match config.files.as_slice() {
        [] => "the defaults".to_owned(),
        files => files.join(", "),
    };
    let warnings = config.warnings.iter().map(|warning| format!("# warning: {warning}\n"));
    format!("# in force: {files}\n{}\n{}", warnings.collect::<String>(), config.toml)
}
