//! A budget: so much at once, and so much per second afterwards.

use tokio::time::Instant;

#[derive(Clone, Debug)]
pub(super) struct TokenBucket {
    tokens: f64,
    burst: f64,
    per_second: f64,
    filled: Instant,
}

impl TokenBucket {
    pub(super) fn new(burst: u32, per_second: u32, now: Instant) -> TokenBucket {
        TokenBucket {
            tokens: burst.into(),
            burst: burst.into(),
            per_second: per_second.into(),
            filled: now,
        }
    }

    /// False when the budget is used up.
    pub(super) fn take(&mut self, tokens: f64, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = now;
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.burst);
        let is_enough = self.tokens >= tokens;
        if is_enough {
            self.tokens -= tokens;
        }
        is_enough
    }

    pub(super) fn add(&mut self, tokens: f64) {
        self.tokens = (self.tokens + tokens).min(self.burst);
    }

    /// Nothing has been taken for so long that it is as new.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens + elapsed * self.per_second >= self.burst
    }
}
