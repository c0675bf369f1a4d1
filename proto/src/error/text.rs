//! How much text a status carries. It travels in headers, of which many clients take 8 KiB in all: one that holds more
//! breaks the stream, or the connection with everyone's streams. So what others sent is cut before it is sent back.

/// Most of a text in a status, bytes. It stands there up to three times: percent-encoded, which can make three bytes of
/// one, and twice in the details, in base64.
const MAX_TEXT: usize = 1024;
/// Most of an input that is quoted, characters; as long as the longest name.
const MAX_QUOTED: usize = 128;

/// What a caller sent, for a message: in quotes, and cut when it is long.
pub fn quoted(input: &str) -> String {
    match input.char_indices().nth(MAX_QUOTED) {
        None => format!("{input:?}"),
        Some((end, _)) => format!("{:?}… ({} bytes)", &input[..end], input.len()),
    }
}

/// As much of a text as a status may carry.
pub(super) fn bounded(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_is_whole_up_to_the_length_of_a_name() {
        assert_eq!(quoted("a\nb"), r#""a\nb""#);
        let name = "ä".repeat(MAX_QUOTED);
        assert_eq!(quoted(&name), format!("\"{name}\""));
        assert_eq!(quoted(&"ä".repeat(100_000)), format!("\"{name}\"… (200000 bytes)"));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let text = "x".to_owned() + &"ä".repeat(MAX_TEXT);
        let cut = bounded(text);
        assert!(cut.len() <= MAX_TEXT + '…'.len_utf8() && cut.ends_with("ä…"), "{cut}");
        assert_eq!(bounded("short".into()), "short");
    }
}
