//! What is asked. Pure. Unique prompts differ at the *start*: a prefix cache serves everything up to
//! the first difference, so prompts that differ at the end are not new work after a warm-up.

use crate::target::{Ask, Prompt};

/// Where prompts come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompts {
    /// The base of every prompt.
    pub base: Prompt,
    /// Put a number of its own before each prompt.
    pub unique: bool,
    /// Tokens to generate.
    pub max_new_tokens: u32,
    /// Ids below this may stand for the number, for prompts of token ids.
    pub vocab_size: u32,
}

impl Prompts {
    /// The `serial`-th prompt of this process's life: warm-up, run and repeats count on.
    pub fn ask(&self, serial: usize) -> Ask {
        let prompt = match &self.base {
            base if !self.unique => base.clone(),
            Prompt::Text(text) => Prompt::Text(format!("{serial} {text}")),
            Prompt::Ids(ids) => {
                let mut all = digits(serial, self.vocab_size);
                all.extend(ids);
                Prompt::Ids(all)
            }
        };
        Ask { prompt, max_new_tokens: self.max_new_tokens }
    }
}

/// The number in two token ids, so that prompts have equal lengths.
fn digits(serial: usize, vocab_size: u32) -> Vec<u32> {
    let base = vocab_size.clamp(2, 30_000) as usize;
    vec![(serial % base) as u32, (serial / base % base) as u32]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn prompts(base: Prompt) -> Prompts {
        Prompts { base, unique: true, max_new_tokens: 4, vocab_size: 100 }
    }

    #[test]
    fn unique_prompts_differ_at_the_start() {
        let text = prompts(Prompt::Text("Hello".into()));
        let first_words: HashSet<String> = (0..1000)
            .map(|i| match text.ask(i).prompt {
                Prompt::Text(t) => t.split(' ').next().unwrap().to_owned(),
                Prompt::Ids(_) => unreachable!("text stays text"),
            })
            .collect();
        assert_eq!(first_words.len(), 1000);
    }

    #[test]
    fn unique_prompts_of_ids_have_one_length_and_known_ids() {
        let ids = prompts(Prompt::Ids(vec![7, 8, 9]));
        let mut seen = HashSet::new();
        for i in 0..5000 {
            let Prompt::Ids(ids) = ids.ask(i).prompt else { unreachable!("ids stay ids") };
            assert_eq!(ids.len(), 5);
            assert!(ids.iter().all(|&id| id < 100));
            assert!(seen.insert(ids));
        }
    }

    #[test]
    fn prompts_that_need_not_be_unique_are_the_same() {
        let same = Prompts { unique: false, ..prompts(Prompt::Text("Hello".into())) };
        assert_eq!(same.ask(1), same.ask(2));
    }
}
