//! Connections over HTTP/1.1 to servers that are not ours, in the clear or over TLS.

use std::path::PathBuf;

use anyhow::Context as _;
use firstlight_proto::serve::tls::{Identity, client_config};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use tokio_rustls::rustls::{ClientConfig, crypto::ring};

/// Opens connections.
pub type Connector = HttpsConnector<HttpConnector>;

/// Whom to trust, and what to show.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The only authority trusted (PEM); without it, those of the system.
    pub ca: Option<PathBuf>,
    /// Shown to servers that ask for a certificate.
    pub identity: Option<Identity>,
}

/// A connector without Nagle's delay; with `tls`, of `https` addresses as well.
///
/// # Errors
/// When the files cannot be used, or the system has no authorities.
pub fn connector(tls: Option<&Trust>) -> anyhow::Result<Connector> {
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.enforce_http(false);
    let config = match tls {
        Some(trust) => config(trust)?,
        // Never used: an address without TLS does not ask for it.
        None => ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(tokio_rustls::rustls::RootCertStore::empty())
            .with_no_client_auth(),
    };
    let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
    Ok(builder.wrap_connector(http))
}

fn config(trust: &Trust) -> anyhow::Result<ClientConfig> {
    let Some(ca) = &trust.ca else {
        anyhow::ensure!(trust.identity.is_none(), "--tls-cert needs --tls-ca");
        return Ok(ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()?
            .with_native_roots()
            .context("the system's authorities")?
            .with_no_client_auth());
    };
    let mut config = client_config(ca, trust.identity.as_ref())?;
    // HTTP/1.1 alone: nothing to agree on.
    config.alpn_protocols.clear();
    Ok(config)
}
