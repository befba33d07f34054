//! Sources: each turns one external thing into `Report`s. Pure `parse` first, then a thin reader. A source reports observations, never opinions.
//!
//! May import `model` and `host`, nothing else.

pub mod events;
pub mod inventory;
pub mod jobs;
pub mod layers;
