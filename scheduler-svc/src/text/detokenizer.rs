//! Ids → text as they arrive. A character whose bytes are spread over tokens is held back until it is
//! whole; bytes that can never become one turn into U+FFFD at once, so nothing is decoded twice.

use std::{str, sync::Arc};

use super::Pieces;

/// Text of one stream, in progress.
#[derive(Debug)]
pub struct Detokenizer {
    pieces: Arc<Pieces>,
    /// The first bytes of a character that is not whole yet.
    held: Vec<u8>,
}

impl Detokenizer {
    /// A detokenizer at the start of a stream.
    pub fn new(pieces: Arc<Pieces>) -> Self {
        Self { pieces, held: Vec::new() }
    }

    /// Takes the next token; appends the text that became final.
    pub fn push(&mut self, id: u32, text: &mut String) {
        let piece = self.pieces.get(id);
        if self.held.is_empty()
            && let Ok(whole) = str::from_utf8(piece)
        {
            text.push_str(whole);
            return;
        }
        self.held.extend_from_slice(piece);
        let mut rest = &self.held[..];
        let kept = loop {
            match str::from_utf8(rest) {
                Ok(whole) => {
                    text.push_str(whole);
                    break 0;
                }
                Err(error) => {
                    let (whole, tail) = rest.split_at(error.valid_up_to());
                    text.push_str(str::from_utf8(whole).expect("valid up to here"));
                    let Some(broken) = error.error_len() else { break tail.len() };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &tail[broken..];
                }
            }
        };
        self.held.drain(..self.held.len() - kept);
    }

    /// Ends the stream; a character that never became whole is U+FFFD.
    pub fn finish(&mut self, text: &mut String) {
        if !self.held.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            self.held.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytewise() -> Arc<Pieces> {
        let mut tokens = vec![String::new(); 256];
        for c in tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet() {
            let one = c.to_string();
            let byte = Pieces::from_byte_level([Some(one.as_str())]).get(0)[0];
            tokens[usize::from(byte)] = one;
        }
        Arc::new(Pieces::from_byte_level(tokens.iter().map(|t| Some(t.as_str()))))
    }

    fn stream(bytes: &[u8]) -> (Vec<String>, String) {
        let mut detokenizer = Detokenizer::new(bytewise());
        let mut parts: Vec<String> = Vec::new();
        for byte in bytes {
            let mut part = String::new();
            detokenizer.push(u32::from(*byte), &mut part);
            parts.push(part);
        }
        let mut last = String::new();
        detokenizer.finish(&mut last);
        (parts, last)
    }

    #[test]
    fn a_split_emoji_appears_once_and_whole() {
        let (parts, last) = stream("a🦀b".as_bytes());
        assert_eq!(parts, ["a", "", "", "", "🦀", "b"]);
        assert_eq!(last, "");
    }

    #[test]
    fn a_character_cut_off_at_the_end_is_one_replacement() {
        let (parts, last) = stream(&"é".as_bytes()[..1]);
        assert_eq!((parts.concat().as_str(), last.as_str()), ("", "\u{fffd}"));
    }

    #[test]
    fn a_long_run_of_lone_bytes_is_held_back_never_more_than_a_character() {
        let (parts, _) = stream(&[0x80; 10_000]);
        assert!(parts.iter().all(|part| part == "\u{fffd}"));
    }

    proptest! {
        #[test]
        fn streamed_text_equals_decoding_all_bytes_at_once(bytes: Vec<u8>) {
            let (parts, last) = stream(&bytes);
            prop_assert_eq!(parts.concat() + &last, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}
