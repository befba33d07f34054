//! The interposer in this process, between a caller and an upstream that both use plain HTTP/2, so
//! that every byte is visible.

mod fixture;
mod health;
mod listing;
mod passing;
mod telling;
