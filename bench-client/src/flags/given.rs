//! Flags together with which of them were given.

use std::ops::Deref;

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, Id, parser::ValueSource};

/// Flags, and the names of those that stood on the command line, whether or not they say what the default says.
#[derive(Clone, Debug)]
pub struct Given<T> {
    flags: T,
    names: Vec<String>,
}

impl<T> Given<T> {
    /// The flags that were given, such as `--request-rate`, in the order of the help.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

impl<T> Deref for Given<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.flags
    }
}

impl<T: Args> FromArgMatches for Given<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self { flags: T::from_arg_matches(matches)?, names: names::<T>(matches) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.names = names::<T>(matches);
        self.flags.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Given<T> {
    fn group_id() -> Option<Id> {
        T::group_id()
    }

    fn augment_args(command: Command) -> Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

fn names<T: Args>(matches: &ArgMatches) -> Vec<String> {
    let command = T::augment_args(Command::new(""));
    let given = |arg: &&Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let names = command.get_arguments().filter(given).filter_map(Arg::get_long);
    names.map(|name| format!("--{name}")).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::flags::load::LoadFlags;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        load: Given<LoadFlags>,
    }

    #[test]
    fn what_was_given_is_told_from_what_is_a_default() {
        let load = Alone::parse_from(["a", "--max-new-tokens", "64", "--unique-prompts"]).load;
        assert_eq!(load.names(), ["--unique-prompts", "--max-new-tokens"]);
        assert_eq!((load.max_new_tokens, load.unique_prompts), (64, true));
        assert!(Alone::parse_from(["a"]).load.names().is_empty());
    }
}
