//! The bytes each token stands for, in one arena.
//!
//! Byte-level vocabularies (GPT-2, SmolLM2, Llama 3, Qwen) write a byte that is no printable character as
//! a stand-in character; see "Language Models are Unsupervised Multitask Learners", §2.2.

/// The bytes of every token of a vocabulary, by id.
#[derive(Debug, Default)]
pub struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Pieces {
    /// Pieces of byte-level token strings in the order of their ids; `None` is a token without text
    /// (special tokens, unused ids).
    pub fn from_byte_level<'a>(tokens: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        let mut pieces = Self::default();
        for token in tokens {
            let token = token.unwrap_or_default();
            let start = pieces.bytes.len();
            let all_mapped = token.chars().all(|c| match byte_of(c) {
                Some(byte) => {
                    pieces.bytes.push(byte);
                    true
                }
                None => false,
            });
            // A token with a character outside the alphabet was added as plain text.
            if !all_mapped {
                pieces.bytes.truncate(start);
                pieces.bytes.extend_from_slice(token.as_bytes());
            }
            pieces.ends.push(u32::try_from(pieces.bytes.len()).expect("a vocabulary is below 4 GiB"));
        }
        pieces
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the vocabulary is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of one token; empty for ids outside the vocabulary.
    pub fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(end) = self.ends.get(id) else { return &[] };
        let start = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..*end as usize]
    }
}

/// The byte that a character of the byte-level alphabet stands for.
fn byte_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => Some(code as u8),
        // The 68 other bytes, in order, are written as the characters from 256 on.
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_names_every_byte_once() {
        let alphabet = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        let bytes: std::collections::BTreeSet<_> = alphabet.iter().filter_map(|c| byte_of(*c)).collect();
        assert_eq!((alphabet.len(), bytes.len()), (256, 256));
    }

    #[test]
    fn pieces_are_the_bytes_of_their_tokens() {
        let pieces = Pieces::from_byte_level([Some("Ġthe"), None, Some("âĤ¬"), Some("<|文|>")]);
        assert_eq!(pieces.get(0), b" the");
        assert_eq!(pieces.get(1), b"");
        assert_eq!(pieces.get(2), "€".as_bytes());
        assert_eq!(pieces.get(3), "<|文|>".as_bytes());
        assert_eq!(pieces.get(4), b"");
    }
}
