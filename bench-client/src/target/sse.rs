//! Server-sent events (WHATWG HTML, "Server-sent events"), as far as streams of completions use them.

/// Cuts a byte stream into the data of its events.
#[derive(Debug, Default)]
pub struct SseParser {
    pending: Vec<u8>,
    data: Option<String>,
}

impl SseParser {
    /// Takes in bytes as they arrive and returns the data of all events they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        self.pending.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.pending.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                events.extend(self.data.take());
            } else if let Some(value) = line.strip_prefix("data:") {
                let value = value.strip_prefix(' ').unwrap_or(value);
                match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => self.data = Some(value.to_owned()),
                }
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STREAM: &str =
        ": hello\r\ndata: {\"a\":\"é\"}\r\n\r\nevent: x\ndata: two\ndata:lines\n\ndata: [DONE]\n\n";

    proptest! {
        #[test]
        fn events_do_not_depend_on_how_the_bytes_were_cut(cuts in prop::collection::vec(1_usize..9, 1..80)) {
            let mut parser = SseParser::default();
            let (mut events, mut rest) = (Vec::new(), STREAM.as_bytes());
            for cut in cuts.into_iter().chain(std::iter::once(usize::MAX)) {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                events.extend(parser.push(now));
                rest = later;
            }
            prop_assert_eq!(events, ["{\"a\":\"é\"}", "two\nlines", "[DONE]"]);
        }
    }
}
