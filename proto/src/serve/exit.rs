//! How a program ends: with an exit code, and one line that says what went wrong.

use std::process::ExitCode;

/// The exit code of `done`; what went wrong goes to stderr as `PROGRAM: reason`, never as a backtrace.
pub fn exit(program: &str, done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("{program}: {}", in_words(&error));
        ExitCode::FAILURE
    })
}

/// The chain of causes in one line; a cause that its effect has told already is not repeated.
fn in_words(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| match told.as_str() {
        "" => cause,
        told if told.contains(&cause) => told.to_owned(),
        told => format!("{told}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn every_cause_is_told_once() {
        let error = anyhow!("no such file").context("model.gguf: no such file").context("cannot serve");
        assert_eq!(in_words(&error), "cannot serve: model.gguf: no such file");
    }
}
