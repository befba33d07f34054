//! The interposer in this process, between a caller and an upstream that are both bare HTTP/2, so
//! that every byte can be seen.

mod fixture;
mod health;
mod listing;
mod passing;
mod telling;
