//! Structured logs on stderr. They carry request ids and never prompt or output text.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// One line of text per event.
    Text,
    /// One JSON object per event.
    Json,
}

/// Starts logging. `filter` is a `tracing` filter such as `info` or `engine_svc=debug,warn`.
///
/// # Errors
/// When `filter` does not parse.
pub fn init(format: LogFormat, filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|e| anyhow::anyhow!("--log {filter:?}: {e}; for example --log info"))?;
    let to_terminal = std::io::stderr().is_terminal();
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(to_terminal);
    let as_text = format == LogFormat::Text || (format == LogFormat::Auto && to_terminal);
    if as_text {
        builder.compact().init();
    } else {
        builder.json().flatten_event(true).init();
    }
    Ok(())
}
