//! Stop strings across token boundaries: text that may be the beginning of a match is held back until it
//! is known not to be.

/// The stop strings of one stream, and the text held back for them.
#[derive(Debug)]
pub struct StopStrings {
    strings: Vec<String>,
    held: String,
}

impl StopStrings {
    /// No string is empty. An empty list holds nothing back.
    pub fn new(strings: Vec<String>) -> Self {
        debug_assert!(strings.iter().all(|s| !s.is_empty()));
        Self { strings, held: String::new() }
    }

    /// Takes text that became final; appends what may be shown to `shown`. Whether a stop string is
    /// complete: then all text before its first occurrence is shown, and the rest is dropped.
    pub fn push(&mut self, text: &str, shown: &mut String) -> bool {
        if self.strings.is_empty() {
            shown.push_str(text);
            return false;
        }
        self.held.push_str(text);
        if let Some(start) = self.strings.iter().filter_map(|s| self.held.find(s.as_str())).min() {
            shown.push_str(&self.held[..start]);
            self.held.clear();
            return true;
        }
        let keep = self.possible_beginning();
        let show = self.held.len() - keep;
        shown.push_str(&self.held[..show]);
        self.held.drain(..show);
        false
    }

    /// Ends the stream: what was held back is no match and is shown.
    pub fn finish(&mut self, shown: &mut String) {
        shown.push_str(&self.held);
        self.held.clear();
    }

    /// Length of the longest suffix of the held text that begins a stop string.
    fn possible_beginning(&self) -> usize {
        let longest = |stop: &String| {
            let most = self.held.len().min(stop.len() - 1);
            (1..=most)
                .rev()
                .find(|n| self.held.as_bytes()[self.held.len() - n..] == stop.as_bytes()[..*n])
                .unwrap_or(0)
        };
        self.strings.iter().map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(stops: &[&str], parts: &[&str]) -> (String, bool) {
        let mut stop = StopStrings::new(stops.iter().map(|s| (*s).to_owned()).collect());
        let mut shown = String::new();
        let matched = parts.iter().any(|part| stop.push(part, &mut shown));
        if !matched {
            stop.finish(&mut shown);
        }
        (shown, matched)
    }

    #[test]
    fn a_match_over_token_boundaries_is_never_shown() {
        assert_eq!(run(&["\n\nUser:"], &["hi", "\n", "\nUs", "er", ": x"]), ("hi".into(), true));
    }

    #[test]
    fn text_that_only_looked_like_a_match_is_shown_in_full() {
        assert_eq!(run(&["END"], &["E", "N", "O", " EN"]), ("ENO EN".into(), false));
    }

    #[test]
    fn the_earliest_match_wins() {
        assert_eq!(run(&["cd", "bcde"], &["abcdef"]), ("a".into(), true));
    }

    #[test]
    fn text_is_held_back_no_longer_than_it_could_match() {
        let mut stop = StopStrings::new(vec!["aab".into()]);
        let mut shown = String::new();
        assert!(!stop.push("aaa", &mut shown));
        assert_eq!(shown, "a");
        assert!(stop.push("b", &mut shown));
        assert_eq!(shown, "a");
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_text_before_the_first_match_is_shown(
            text in "[ab\u{e9}]{0,24}",
            stops in prop::collection::vec("[ab\u{e9}]{1,4}", 1..3),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let ends: Vec<usize> = text.char_indices().map(|(i, _)| i).chain([text.len()]).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|i| ends[i.index(ends.len())]).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let parts: Vec<&str> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let (shown, matched) = run(&stops, &parts);
            let first = stops.iter().filter_map(|s| text.find(s)).min();
            prop_assert_eq!(matched, first.is_some());
            // A longer match may begin earlier than the one that completes first.
            match first {
                Some(start) => prop_assert!(text[..start].len() <= shown.len() && text.starts_with(&shown)),
                None => prop_assert_eq!(shown, text),
            }
        }
    }
}
