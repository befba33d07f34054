//! Bounds on what clients of our servers may use: places for connections (`places`), rates
//! (`token_bucket`), and the frames of an HTTP/2 connection besides its calls (`frame_budget`). What is
//! refused is counted (`refusals`).
//!
//! Depends on no protocol but HTTP/2's frame headers, and on no caller's rights.

#![warn(unreachable_pub)]

pub mod frame_budget;
pub mod places;
pub mod refusals;
pub mod token_bucket;
