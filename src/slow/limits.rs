//! The limits of the judgement, with the values that docs/slow-drives.md measures.

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Milliseconds of a window, of which an hour has 60. One that is a fifth longer or shorter is not used.
    pub window: u64,
    /// With peers and a baseline, a sample is slow from this multiple of the peers' median …
    pub peers: f32,
    /// … and from this multiple of the drive's own 95th percentile.
    pub own: f32,
    /// Without peers: the multiple of its own 95th percentile.
    pub own_only: f32,
    /// Without a baseline: the multiple of the peers' median.
    pub peers_only: f32,
    /// Slow samples of one direction that make an hour a slow one; at least half of the judged ones.
    pub slow_samples: u16,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            window: 60_000,
            peers: 3.0,
            own: 2.5,
            own_only: 5.0,
            peers_only: 6.0,
            slow_samples: 30,
        }
    }
}
