//! Prompts → token ids. A long prompt takes milliseconds: it runs off the async threads, and no more of
//! them at once than leaves a core for everyone else.

use std::sync::Arc;

use firstlight_proto::error::Failure;
use tokio::sync::Semaphore;

use super::validate::Prompt;
use crate::text::{Pieces, Tokenizer};

/// Texts up to this length are tokenized in place, in about as long as handing them over would take.
const SHORT_BYTES: usize = 512;

/// Tokenizes prompts with the served model's tokenizer, if there is one.
#[derive(Clone)]
pub struct Prompts {
    tokenizer: Option<Arc<Tokenizer>>,
    long: Arc<Semaphore>,
}

impl Prompts {
    /// Leaves at least one of the machine's cores to others, where it has more than one.
    pub fn new(tokenizer: Option<Arc<Tokenizer>>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { tokenizer, long: Arc::new(Semaphore::new((cores - 1).max(1))) }
    }

    /// Size of our vocabulary.
    pub fn vocab_size(&self) -> Option<usize> {
        self.tokenizer.as_ref().map(|tokenizer| tokenizer.vocab_size())
    }

    /// What its tokens stand for.
    pub fn pieces(&self) -> Option<Arc<Pieces>> {
        self.tokenizer.as_ref().map(|tokenizer| tokenizer.pieces().clone())
    }

    /// Token ids of a prompt, at least one.
    ///
    /// # Errors
    /// When the text has no tokens.
    pub async fn ids(&self, prompt: Prompt) -> Result<Vec<u32>, Failure> {
        let text = match prompt {
            Prompt::Ids(ids) => return Ok(ids),
            Prompt::Text(text) => text,
        };
        let invalid = |reason| Failure::Invalid { field: "text", reason };
        let tokenizer = self.tokenizer.clone().ok_or_else(|| invalid("no tokenizer here".into()))?;
        let ids = if text.len() <= SHORT_BYTES {
            tokenizer.encode(&text)
        } else {
            let turn = self.long.clone().acquire_owned().await.expect("never closed");
            let encode = move || {
                let ids = tokenizer.encode(&text);
                drop(turn);
                ids
            };
            tokio::task::spawn_blocking(encode).await.unwrap_or_else(|panic| Err(panic.to_string()))
        };
        let ids = ids.map_err(|reason| invalid(format!("cannot be tokenized: {reason}")))?;
        if ids.is_empty() {
            return Err(invalid("has no tokens in this vocabulary".into()));
        }
        Ok(ids)
    }
}
