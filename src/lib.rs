//! diskvitals: one daemon per node that monitors the health of its drives, filesystems and volumes.
//!
//! The folders beside this file are the members of the workspace; ARCHITECTURE.md is their map. This package
//! has what is about all of them: `tests/`, `hwtests/` and `benches/`, and what packages contain. The six
//! programs are its dependencies, so that lists of what is linked begin here.
