//! Where the services are, and how they are reached.

use std::path::PathBuf;

use clap::Args;
use firstlight_proto::serve::tls::{Dialer, Identity, TlsError};

use crate::target::https::Trust;

/// Addresses.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
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
    /// TLS to the scheduler, to engines and to other servers.
    #[command(flatten)]
    pub tls: TlsFlags,
}

/// TLS; the admin listener is reached in the clear, on loopback.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFlags {
    /// Reach scheduler and engines over TLS and trust what this authority signed (PEM). With --openai https://… it
    /// stands in for the system's authorities.
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Certificate chain to show to servers that ask for one (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Name that scheduler's and engines' certificates must hold; by default the host that is dialled.
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub tls_name: Option<String>,
}

impl TlsFlags {
    /// What dials scheduler and engines over TLS; `None` without an authority: in the clear.
    ///
    /// # Errors
    /// When the files cannot be used.
    pub fn dialer(&self) -> Result<Option<Dialer>, TlsError> {
        let Some(ca) = self.tls_ca.clone() else { return Ok(None) };
        Dialer::new(ca, self.identity(), self.tls_name.clone()).map(Some)
    }

    /// Whom to trust among servers that are not ours.
    pub fn trust(&self) -> Trust {
        Trust { ca: self.tls_ca.clone(), identity: self.identity() }
    }

    /// What is shown to servers that ask for a certificate.
    pub fn identity(&self) -> Option<Identity> {
        let (cert, key) = self.tls_cert.clone().zip(self.tls_key.clone())?;
        Some(Identity { cert, key })
    }
}
