//! Silences: what makes a drive's times say nothing about the drive, and how much of its load they hid.

/// Why a window is not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// A virtual, remote or removable device, or one whose I/O the kernel does not count.
    Kind,
    /// An array or filesystem on it is rebuilt, checked or scrubbed.
    Checked,
    SelfTest,
    /// We check a filesystem on it.
    FilesystemCheck,
    /// It slept, or wakes.
    Waking,
    /// The kernel reset it, or it did not answer in time: other reasons say that.
    Reset,
    /// It was too hot: another reason says that.
    Overheated,
    /// It wrote too much, and is flash or shingled (`Medium`).
    Writes,
    /// The node had no processor time or memory to serve it.
    StarvedNode,
}

impl Silence {
    pub const ALL: [Silence; 9] = [
        Silence::Kind,
        Silence::Checked,
        Silence::SelfTest,
        Silence::FilesystemCheck,
        Silence::Waking,
        Silence::Reset,
        Silence::Overheated,
        Silence::Writes,
        Silence::StarvedNode,
    ];

    /// What follows "not judged: ".
    pub fn words(self) -> &'static str {
        match self {
            Silence::Kind => "its times are not those of a local drive",
            Silence::Checked => "an array or filesystem on it was rebuilt, checked or scrubbed",
            Silence::SelfTest => "a self-test ran",
            Silence::FilesystemCheck => "a filesystem on it was checked",
            Silence::Waking => "it slept",
            Silence::Reset => "it was reset or did not answer in time",
            Silence::Overheated => "it was too hot",
            Silence::Writes => "flash and shingled drives are not judged beside many writes",
            Silence::StarvedNode => "the node was short of processor time or memory",
        }
    }
}

const DAYS: usize = 7;
/// Of less load a share says nothing.
const MIN_WINDOWS: u32 = 60;

/// The windows with load of the last seven days with load.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    days: [[u16; Silence::ALL.len() + 1]; DAYS],
    day: u32,
}

impl Tally {
    /// A window with load on that day (hours / 24): judged, or silent.
    pub(crate) fn count(&mut self, day: u32, silence: Option<Silence>) {
        if day != self.day {
            self.day = day;
            self.days.rotate_right(1);
            self.days[0] = Default::default();
        }
        let count = &mut self.days[0][silence.map_or(0, |silence| silence as usize + 1)];
        *count = count.saturating_add(1);
    }

    fn sum(&self, index: usize) -> u32 {
        self.days.iter().map(|day| u32::from(day[index])).sum()
    }

    pub fn judged(&self) -> u32 {
        self.sum(0)
    }

    /// Windows that were not judged, by cause.
    pub fn silenced(&self) -> impl Iterator<Item = (Silence, u32)> {
        Silence::ALL
            .into_iter()
            .map(|silence| (silence, self.sum(silence as usize + 1)))
            .filter(|(_, windows)| *windows > 0)
    }

    /// Whether silences hid more than half of the load: a slow drive would not be found.
    pub fn is_hidden(&self) -> bool {
        let silenced: u32 = self.silenced().map(|(_, windows)| windows).sum();
        silenced + self.judged() >= MIN_WINDOWS && silenced > self.judged()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_drive_that_is_silenced_for_most_of_its_load_says_so_until_a_week_has_passed() {
        let mut tally = Tally::default();
        for _ in 0..100 {
            tally.count(1, Some(Silence::Checked));
            tally.count(1, Some(Silence::SelfTest));
            tally.count(1, None);
        }
        assert!(tally.is_hidden());
        let causes: Vec<_> = tally.silenced().collect();
        assert_eq!(causes, [(Silence::Checked, 100), (Silence::SelfTest, 100)]);
        (2..=8).for_each(|day| tally.count(day, None));
        assert_eq!((tally.judged(), tally.is_hidden()), (7, false));
    }

    proptest! {
        #[test]
        fn every_silence_is_counted_under_its_own_name(which in 0usize..9, windows in 1u32..1000) {
            let silence = Silence::ALL[which];
            let mut tally = Tally::default();
            (0..windows).for_each(|_| tally.count(3, Some(silence)));
            prop_assert_eq!(tally.silenced().collect::<Vec<_>>(), [(silence, windows)]);
            prop_assert_eq!(tally.is_hidden(), windows >= 60);
        }
    }
}
