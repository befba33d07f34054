//! What the command line and the kubectl plugin share to write for people: the screen's width,
//! colors and times, tables, paragraphs, questions.
//!
//! In: text and values. Out: text for a terminal; `output` and `prompt` alone write and read.

pub(crate) mod layout;
pub(crate) mod output;
pub(crate) mod prompt;
pub(crate) mod screen;
pub(crate) mod table;
pub(crate) mod verdict;
pub(crate) mod width;
