//! What is asked. Pure. Unique prompts differ at the *start*: a prefix cache serves everything up to
//! the first difference, so prompts that differ at the end are not new work after a warm-up.

use super::dataset::Dataset;
use crate::target::{Ask, Prompt};

/// Where prompts come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompts {
    /// What every request asks.
    pub source: Source,
    /// Put a number of its own before each prompt.
    pub unique: bool,
    /// Tokens to generate where the source does not say.
    pub max_new_tokens: u32,
    /// Ids below this may be made up.
    pub vocab_size: u32,
}

/// The requests of one pass over the load.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// One prompt for all.
    Same(Prompt),
    /// Row by row, counted round.
    Dataset(Dataset),
}

impl Prompts {
    /// The request `index` of pass `pass`; warm-ups and repeats are passes of `per_pass` requests.
    pub fn ask(&self, pass: usize, index: usize, per_pass: usize) -> Ask {
        let mut ask = match &self.source {
            Source::Same(prompt) => Ask::new(prompt.clone(), self.max_new_tokens),
            Source::Dataset(rows) => rows.ask(pass, index, self.vocab_size, self.max_new_tokens),
        };
        if self.unique {
            let serial = pass * per_pass + index;
            match &mut ask.prompt {
                Prompt::Text(text) => *text = format!("{serial} {text}"),
                Prompt::Ids(ids) => {
                    ids.splice(0..0, digits(serial, self.vocab_size));
                }
            }
        }
        ask
    }
}

/// The number in two token ids, so that prompts have equal lengths.
fn digits(serial: usize, vocab_size: u32) -> [u32; 2] {
    let base = vocab_size.clamp(2, 30_000) as usize;
    [(serial % base) as u32, (serial / base % base) as u32]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn prompts(prompt: Prompt) -> Prompts {
        Prompts { source: Source::Same(prompt), unique: true, max_new_tokens: 4, vocab_size: 100 }
    }

    #[test]
    fn unique_prompts_differ_at_the_start_over_all_passes() {
        let text = prompts(Prompt::Text("Hello".into()));
        let asks = (0..10).flat_map(|pass| (0..100).map(move |i| (pass, i)));
        let first_words: HashSet<String> = asks
            .map(|(pass, i)| match text.ask(pass, i, 100).prompt {
                Prompt::Text(t) => t.split(' ').next().unwrap().to_owned(),
                Prompt::Ids(_) => unreachable!("text stays text"),
            })
            .collect();
        assert_eq!(first_words.len(), 1000);
    }

    #[test]
    fn unique_prompts_of_ids_have_one_length_and_known_ids() {
        let prompts = prompts(Prompt::Ids(vec![7, 8, 9]));
        let mut seen = HashSet::new();
        for i in 0..5000 {
            let Prompt::Ids(ids) = prompts.ask(0, i, 5000).prompt else { unreachable!("ids stay ids") };
            assert_eq!(ids.len(), 5);
            assert!(ids.iter().all(|&id| id < 100));
            assert!(seen.insert(ids));
        }
    }

    #[test]
    fn prompts_that_need_not_be_unique_are_the_same() {
        let same = Prompts { unique: false, ..prompts(Prompt::Text("Hello".into())) };
        assert_eq!(same.ask(0, 1, 9), same.ask(3, 2, 9));
    }
}
