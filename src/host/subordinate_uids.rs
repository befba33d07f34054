//! Subordinate uids: ranges of uids that /etc/subuid gives to users (subuid(5)). With one, a user can be
//! thousands of uids.
//!
//! In: the host's root. Out: of whose ranges a uid is. The file is read again when it has changed.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::blocking::BlockingLane;
use crate::root::HostRoot;
use crate::timer_grid::TimerGrid;

const PATH: &str = "/etc/subuid";
const INTERVAL: Duration = Duration::from_secs(60);
/// Of some thirty thousand users.
const MAX_BYTES: u64 = 1 << 20;
static FILE: BlockingLane = BlockingLane::new();

/// Each range, with the first uid of its owner. Those of root are of many users, whom root chose.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SubordinateUids(Vec<(Range<u64>, u32)>);

impl SubordinateUids {
    pub fn parse(text: &str) -> SubordinateUids {
        let mut first: HashMap<&str, u32> = HashMap::new();
        let mut ranges = Vec::new();
        for line in text.lines() {
            let owner = line.split(':').next().unwrap_or_default();
            let Some(ids) = range(line).filter(|ids| !ids.is_empty()) else {
                continue;
            };
            if let Ok(start) = u32::try_from(ids.start)
                && !matches!(owner, "root" | "0")
            {
                ranges.push((ids, *first.entry(owner).or_insert(start)));
            }
        }
        SubordinateUids(ranges)
    }

    /// The first subordinate uid of the user who has this one, as which all of them count. Of several
    /// ranges the longest.
    pub fn first_of_owner(&self, uid: u32) -> Option<u32> {
        let with_it = self.0.iter().filter(|(ids, _)| uid != 0 && ids.contains(&u64::from(uid)));
        with_it.max_by_key(|(ids, _)| ids.end - ids.start).map(|(_, first)| *first)
    }
}

/// `name:100000:65536`, also of /etc/subgid.
pub fn range(line: &str) -> Option<Range<u64>> {
    let mut fields = line.split(':').skip(1).map_while(|field| field.trim().parse::<u64>().ok());
    let (start, count) = (fields.next()?, fields.next()?);
    Some(start..start.saturating_add(count))
}

/// What shows that the file has changed.
type Version = Option<(u64, u64, i64, i64)>;

pub async fn run(
    root: HostRoot,
    uids: watch::Sender<Arc<SubordinateUids>>,
    grid: TimerGrid,
) -> Infallible {
    let mut known: Version = None;
    loop {
        let path = root.at(PATH);
        match FILE.run(move || read_changed(&path, known)).await {
            Ok(Ok(Some((version, read)))) => {
                known = version;
                uids.send_replace(Arc::new(read));
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "reading {PATH}"),
            Err(error) => tracing::debug!(%error, "reading {PATH}"),
        }
        tokio::time::sleep_until(grid.after(INTERVAL)).await;
    }
}

/// None: it is as known.
fn read_changed(path: &Path, known: Version) -> io::Result<Option<(Version, SubordinateUids)>> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(known.map(|_| (None, SubordinateUids::default())));
        }
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    let version = Some((found.ino(), found.size(), found.ctime(), found.ctime_nsec()));
    if version == known {
        return Ok(None);
    }
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(Some((version, SubordinateUids::parse(&String::from_utf8_lossy(&text)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_subordinate_uids_of_a_user_count_as_the_first() {
        let uids = SubordinateUids::parse(
            "alice:100000:65536\n1001:165536:65536\nalice:300000:10\nodd\nnone:9:0\nroot:0:5\nroot:1000:1\nlxd:400000:1000\nbob:400100:10\ncarol:400000:1\n",
        );
        for (uid, first) in [
            (0, None),
            (1000, None),
            (99_999, None),
            (100_000, Some(100_000)),
            (165_535, Some(100_000)),
            (165_536, Some(165_536)),
            (231_072, None),
            (300_009, Some(100_000)),
            (300_010, None),
            (400_000, Some(400_000)),
            (400_105, Some(400_000)),
            (400_500, Some(400_000)),
            (u32::MAX, None),
        ] {
            assert_eq!(uids.first_of_owner(uid), first, "{uid}");
        }
        let all = SubordinateUids::parse("huge:100000:99999999999\n");
        assert_eq!(all.first_of_owner(u32::MAX), Some(100_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_counts_within_a_minute_and_one_that_is_gone_no_more() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        let file = dir.path().join("etc/subuid");
        let (sender, mut uids) = watch::channel(Arc::default());
        let task = tokio::spawn(run(HostRoot::new(dir.path()), sender, TimerGrid::start()));
        for (text, first) in [("a:100000:9\n", Some(100_000)), ("a:100001:99\n", Some(100_001))] {
            std::fs::write(&file, text).unwrap();
            uids.changed().await.unwrap();
            assert_eq!(uids.borrow_and_update().first_of_owner(100_005), first);
        }
        std::fs::remove_file(&file).unwrap();
        uids.changed().await.unwrap();
        assert_eq!(**uids.borrow(), SubordinateUids::default());
        task.abort();
    }
}
