//! ShareGPT's JSON: an array of conversations of `human` and `gpt` turns. Every human turn becomes a
//! request whose prompt is the conversation up to it.

use anyhow::Context as _;
use serde::Deserialize;

use super::{Input, Row};

#[derive(Deserialize)]
struct Conversation {
    #[serde(default)]
    conversations: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    from: String,
    value: String,
}

/// All requests of a file, conversation by conversation.
///
/// # Errors
/// When the text is not JSON of that shape.
pub fn rows(text: &str) -> anyhow::Result<Vec<Row>> {
    let all: Vec<Conversation> = serde_json::from_str(text).context("this is not ShareGPT JSON")?;
    let mut rows = Vec::new();
    for conversation in all {
        let mut so_far = String::new();
        for turn in conversation.conversations {
            let from_human = matches!(turn.from.as_str(), "human" | "user");
            if !so_far.is_empty() {
                so_far.push_str("\n\n");
            }
            so_far.push_str(&turn.value);
            if from_human && !so_far.trim().is_empty() {
                rows.push(Row::new(Input::Text(so_far.clone())));
            }
        }
    }
    Ok(rows)
}
