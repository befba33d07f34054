//! What the command line and the kubectl plugin share to write for people: the screen's width,
//! colors and times, tables, paragraphs, questions.
//!
//! In: text and values. Out: text for a terminal; `output` and `prompt` alone write and read.

#![warn(unreachable_pub)]

#[cfg(any(test, feature = "fixtures"))]
pub mod fixture;
pub mod layout;
pub mod output;
pub mod prompt;
pub mod screen;
pub mod table;
pub mod verdict;
pub mod width;
