//! Which drives have become slow: judged by the block layer's counters, against the drive's own
//! past and against the drives of its model on the same node. docs/slow-drives.md has the method.
//!
//! In: growth of counters, with its length. Out: each hour, what was slow (`NodeHour`), and for each
//! drive its `Level`. Pure: seconds and hours come from the caller, whose timeline they count.
//!
//! `counters` → `window` → `sample` (a window's service time in a `cell`) → `drive` (the samples of
//! the hour, `baseline`, `history`, `silence`) → `node`, which closes the hour with `peers`.

#![warn(unreachable_pub)]

mod baseline;
mod cell;
mod counters;
mod drive;
mod histogram;
mod history;
mod limits;
mod node;
mod peers;
mod sample;
mod silence;
#[cfg(any(test, feature = "fixtures"))]
pub mod synthetic;
#[cfg(test)]
mod tests;
mod window;

pub use cell::{Cell, Direction, LoadClass, SizeClass};
pub use counters::{Counters, Traffic};
pub use drive::{CellNow, Drive, Kind};
pub use history::Level;
pub use limits::Limits;
pub use node::{DriveHour, Node, NodeHour, Outcome, SlowHour};
pub use sample::Medium;
pub use silence::{Silence, Tally};
pub use window::Piece;
