//! What of the screen is shown: the beginning with everything counted that does not fit, the whole of
//! it scrolled, or one cause in full. Pure.

use diskvitals_host::terminal::Key;
use diskvitals_wire as wire;

/// Lines of the last page that stay on the screen.
const OVERLAP: usize = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The id of the cause that Enter shows.
    pub selected: Option<String>,
    /// Whether it is shown in full.
    pub is_open: bool,
    /// First line that is shown, of the whole screen or of the cause.
    pub offset: usize,
    /// Of the whole screen, while a cause is open.
    offset_below: usize,
    /// The selected cause is moved into view.
    pub follows_selected: bool,
}

impl Position {
    /// Neither scrolled nor selected.
    pub(crate) fn is_start(&self) -> bool {
        *self == Position::default()
    }

    /// `page`: lines that scroll at a time. Beyond the end is for `clamp`.
    pub fn apply(&mut self, key: Key, causes: &[wire::Cause], page: usize) {
        let page = page.saturating_sub(OVERLAP).max(1);
        match key {
            Key::Up if !self.is_open && self.selected.is_some() => self.select(causes, false),
            Key::Down if !self.is_open && self.offset == 0 && self.selected.is_none() => {
                self.select(causes, true);
            }
            Key::Down if !self.is_open && self.selected.is_some() => self.select(causes, true),
            Key::Up => self.scroll_to(self.offset.saturating_sub(1)),
            Key::Down => self.scroll_to(self.offset.saturating_add(1)),
            Key::PageUp => self.scroll_to(self.offset.saturating_sub(page)),
            Key::PageDown => self.scroll_to(self.offset.saturating_add(page)),
            Key::Home if self.is_open => self.scroll_to(0),
            Key::Home => *self = Position::default(),
            Key::End => self.scroll_to(usize::MAX),
            Key::Enter if self.is_open => self.close(),
            Key::Enter => self.open(causes),
            Key::Back if self.is_open => self.close(),
            Key::Back => *self = Position::default(),
            Key::Quit | Key::Redraw | Key::Other => {}
        }
    }

    /// The shown lines, of so many: also when there are fewer than before.
    pub fn clamp(&mut self, lines: usize, room: usize) -> std::ops::Range<usize> {
        self.offset = self.offset.min(lines.saturating_sub(room));
        self.offset..lines.min(self.offset + room)
    }

    /// Shows these lines of the selected cause, as many as fit.
    pub(crate) fn reveal(&mut self, lines: std::ops::Range<usize>, room: usize) {
        if !self.follows_selected {
            return;
        }
        if lines.end > self.offset + room {
            self.offset = lines.end - room;
        }
        self.offset = self.offset.min(lines.start);
    }

    /// The cause that is open; closes it if it is over.
    pub fn opened<'a>(&mut self, causes: &'a [wire::Cause]) -> Option<&'a wire::Cause> {
        let selected = self.selected.as_ref().filter(|_| self.is_open)?;
        let open = causes.iter().find(|cause| cause.id == *selected);
        if open.is_none() {
            self.close();
            self.selected = None;
        }
        open
    }

    fn scroll_to(&mut self, offset: usize) {
        self.offset = offset;
        self.follows_selected = false;
    }

    /// The next cause or the previous one; beyond the last one the screen scrolls.
    fn select(&mut self, causes: &[wire::Cause], next: bool) {
        let now = self.selected.as_ref();
        let at = now.and_then(|id| causes.iter().position(|cause| cause.id == *id));
        let wanted = match (at, next) {
            (None, _) => Some(0),
            (Some(at), true) => Some(at + 1),
            (Some(at), false) => at.checked_sub(1),
        };
        match wanted.and_then(|at| causes.get(at)) {
            Some(cause) => {
                self.selected = Some(cause.id.clone());
                self.follows_selected = true;
            }
            None if next => self.scroll_to(self.offset.saturating_add(1)),
            // Above the first one nothing is selected.
            None => *self = Position::default(),
        }
    }

    fn open(&mut self, causes: &[wire::Cause]) {
        let known = |id: &String| causes.iter().any(|cause| cause.id == *id);
        let selected = self.selected.take().filter(known);
        self.selected = selected.or_else(|| Some(causes.first()?.id.clone()));
        self.is_open = self.selected.is_some();
        if self.is_open {
            self.offset_below = std::mem::take(&mut self.offset);
        }
    }

    fn close(&mut self) {
        self.is_open = false;
        self.offset = self.offset_below;
        self.follows_selected = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn causes(names: &[&str]) -> Vec<wire::Cause> {
        let cause = |name: &&str| wire::Cause { id: (*name).to_owned(), ..Default::default() };
        names.iter().map(cause).collect()
    }

    #[test]
    fn arrows_select_causes_and_enter_opens_one() {
        let all = causes(&["a", "b"]);
        let mut position = Position::default();
        let mut after = |key| {
            position.apply(key, &all, 10);
            (position.selected.clone(), position.is_open)
        };
        let of = |name: &str| Some(name.to_owned());
        assert_eq!(after(Key::Down), (of("a"), false));
        assert_eq!(after(Key::Down), (of("b"), false));
        assert_eq!(after(Key::Enter), (of("b"), true));
        assert_eq!(after(Key::Down), (of("b"), true));
        assert_eq!(after(Key::Back), (of("b"), false));
        assert_eq!(after(Key::Up), (of("a"), false));
        assert_eq!(after(Key::Up), (None, false));
        // Without a selection it is the worst.
        assert_eq!(after(Key::Enter), (of("a"), true));
    }

    #[test]
    fn nothing_opens_without_causes_and_what_is_over_closes() {
        let mut position = Position::default();
        position.apply(Key::Enter, &[], 10);
        assert!(position.is_start());
        let all = causes(&["a"]);
        position.apply(Key::Enter, &all, 10);
        assert!(position.opened(&all).is_some());
        assert!(position.opened(&[]).is_none() && !position.is_open);
    }

    #[test]
    fn pages_end_at_the_last_line() {
        let mut position = Position::default();
        for _ in 0..9 {
            position.apply(Key::PageDown, &[], 10);
            position.clamp(30, 10);
        }
        assert_eq!(position.clamp(30, 10), 20..30);
        position.apply(Key::PageUp, &[], 10);
        assert_eq!(position.clamp(30, 10), 12..22);
        assert_eq!(position.clamp(5, 10), 0..5);
        position.apply(Key::End, &[], 10);
        assert_eq!(position.clamp(30, 10), 20..30);
        position.apply(Key::Home, &[], 10);
        assert!(position.is_start());
    }

    #[test]
    fn the_selected_cause_is_moved_into_view() {
        let all = causes(&["a", "b", "c"]);
        let mut position = Position::default();
        for _ in 0..3 {
            position.apply(Key::Down, &all, 4);
        }
        position.reveal(10..14, 5);
        assert_eq!(position.clamp(30, 5), 9..14);
        // Scrolling leaves it.
        position.apply(Key::PageUp, &all, 5);
        position.reveal(10..14, 5);
        assert_eq!(position.clamp(30, 5), 6..11);
    }
}
