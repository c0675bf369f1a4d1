//! Where the services are.

use clap::Args;

/// Addresses.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct ServerFlags {
    /// scheduler-svc.
    #[arg(long, default_value = "127.0.0.1:7070", value_name = "HOST:PORT")]
    pub target: String,
    /// The scheduler's admin listener, for budget flags and explain.
    #[arg(long, default_value = "127.0.0.1:7072", value_name = "HOST:PORT")]
    pub admin: String,
    /// An engine's address as seen from here, where it differs from the one the scheduler dials.
    #[arg(long, value_name = "HOST:PORT")]
    pub engine: Vec<String>,
}
