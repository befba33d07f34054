//! The programs under test, which are packages of their own: beside the test itself, in `target/PROFILE`.

use std::path::Path;
use std::time::SystemTime;

/// The path of a program that `cargo build --workspace --bins` has built.
///
/// # Panics
///
/// If it is missing, or older than one of its sources, which its dependency file lists.
pub fn built_program(name: &str) -> &'static str {
    const ADVICE: &str = "`cargo build --workspace --bins` builds the programs";
    let own = std::env::current_exe().expect("this test's path");
    // target/PROFILE/deps/TEST, and target/PROFILE/examples/BENCH.
    let folder = own.ancestors().nth(2).expect("target/PROFILE");
    let path = folder.join(name);
    let changed = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified());
    let built = changed(&path).unwrap_or_else(|error| panic!("{path:?}: {error}; {ADVICE}"));
    let listed = folder.join(format!("{name}.d"));
    let listed = std::fs::read_to_string(&listed)
        .unwrap_or_else(|error| panic!("{listed:?}: {error}; {ADVICE}"));
    let sources = listed.split_once(": ").expect("PROGRAM: SOURCE …").1.trim_end();
    for source in sources.split(' ') {
        // One that was deleted since is not in the program that is built next.
        let newest = changed(Path::new(source)).unwrap_or(SystemTime::UNIX_EPOCH);
        assert!(newest <= built, "{path:?} is older than {source}; {ADVICE}");
    }
    path.into_os_string().into_string().expect("a path in UTF-8").leak()
}
