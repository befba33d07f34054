//! Commands as a person types them, and what they print: the transcripts in the documentation come
//! from here. Written to the file in `DISKVITALS_TRANSCRIPT`, if it is set.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use crate::cluster::{command, kubectl_program, output};
use crate::programs::built_program;

pub struct Transcript {
    file: Option<File>,
}

impl Transcript {
    pub fn new() -> Transcript {
        let file = std::env::var_os("DISKVITALS_TRANSCRIPT")
            .map(|path| File::create(path).expect("the transcript's file"));
        Transcript { file }
    }

    /// What happened, as a sentence between the commands.
    pub fn note(&mut self, text: &str) {
        self.write(&format!("# {text}\n"));
    }

    /// Runs a command line with kubectl, its plugin and the node's own program; it must succeed.
    pub fn run(&mut self, line: &str) -> String {
        let (is_ok, text) = shell(line);
        assert!(is_ok, "{line}: {text}");
        self.write(&format!("$ {line}\n{text}\n"));
        text
    }

    fn write(&mut self, text: &str) {
        println!("{text}");
        if let Some(file) = &mut self.file {
            // A trailing space is no difference to a reader.
            for line in text.lines() {
                writeln!(file, "{}", line.trim_end()).expect("the transcript");
            }
        }
    }
}

/// Whether a command line with kubectl and its plugin succeeded, its output, and its error output.
pub fn shell(line: &str) -> (bool, String) {
    let mut shell = command("/bin/sh");
    let programs = [kubectl_program(), built_program("kubectl-diskvitals").into()];
    let mut path: Vec<_> =
        programs.iter().filter_map(|program| program.parent().map(Path::to_owned)).collect();
    path.push("/usr/bin".into());
    path.push("/bin".into());
    shell.args(["-c", line]).env("PATH", std::env::join_paths(path).expect("a search path"));
    let output = output(shell, "");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.success(), text)
}
