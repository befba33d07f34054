//! Short file access that may block, outside the threads of the runtime. In: a closure. Out: its
//! result.
//!
//! Each user has its own lane, with at most one thread of the blocking pool: a dead disk that
//! blocks one lane leaves the pool to the others. The pool has one thread for each lane and one for
//! reading the configuration (`app`).

use tokio::sync::Semaphore;
use tokio::task::JoinError;

pub struct BlockingLane(Semaphore);

impl BlockingLane {
    #[allow(clippy::new_without_default)] // Used in statics only.
    pub const fn new() -> BlockingLane {
        BlockingLane(Semaphore::const_new(1))
    }

    /// Waits for earlier closures of the lane. A closure that has started occupies the lane until
    /// its end, even if the future is dropped.
    pub async fn run<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        // The semaphore is never closed.
        let permit = self.0.acquire().await.ok();
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_blocked_lane_leaves_the_pool_to_the_others() {
        static DEAD: BlockingLane = BlockingLane::new();
        static ALIVE: BlockingLane = BlockingLane::new();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .build()
            .unwrap();
        let (disk, answer) = mpsc::channel::<()>();
        runtime.block_on(async {
            let hangs = tokio::spawn(DEAD.run(move || answer.recv().is_ok()));
            let waits: Vec<_> = (0..8).map(|_| tokio::spawn(DEAD.run(|| ()))).collect();
            for number in 0..8 {
                assert_eq!(ALIVE.run(move || number).await.unwrap(), number);
            }
            assert!(!hangs.is_finished());
            disk.send(()).unwrap();
            assert!(hangs.await.unwrap().unwrap());
            for wait in waits {
                wait.await.unwrap().unwrap();
            }
        });
    }
}
