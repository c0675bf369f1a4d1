//! Health over gRPC (grpc.health.v1): the `healthcheck` subcommand, and reflection of the contract.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, bail};
use clap::Args;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::{
    HealthCheckRequest,
    health_check_response::ServingStatus,
    health_client::HealthClient,
    health_server::{Health, HealthServer},
};

/// Health service name that tells whether the process works at all; overload never turns it off.
pub const LIVE: &str = "live";
/// Health service name that tells whether new requests are welcome; also under "".
pub const READY: &str = "ready";
/// Health service name that is SERVING while the process drains.
pub const DRAINING: &str = "draining";

/// Asks a running service for its health and exits 0 when it is SERVING.
#[derive(Args, Clone, Debug)]
pub struct Healthcheck {
    /// Address of the service's gRPC listener.
    #[arg(value_name = "HOST:PORT")]
    pub addr: String,
    /// Which health to ask for: live, ready or draining.
    #[arg(long, default_value = READY)]
    pub service: String,
    /// Keep asking for this many seconds until it is SERVING.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub wait: f64,
}

impl Healthcheck {
    /// Runs the check.
    ///
    /// # Errors
    /// Names the address and the last answer when the service was not SERVING in time.
    pub async fn run(&self) -> anyhow::Result<()> {
        let clock = crate::clock::Clock::new();
        let until = clock.now() + Duration::try_from_secs_f64(self.wait).context("--wait")?;
        loop {
            let answer = self.ask().await;
            match answer {
                Ok(ServingStatus::Serving) => return Ok(()),
                _ if clock.now() < until => tokio::time::sleep(Duration::from_millis(50)).await,
                Ok(status) => bail!("{} at {} is {}", self.service, self.addr, status.as_str_name()),
                Err(e) => return Err(e),
            }
        }
    }

    async fn ask(&self) -> anyhow::Result<ServingStatus> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.addr))
            .with_context(|| format!("{} is no HOST:PORT", self.addr))?
            .connect_timeout(Duration::from_secs(2))
            .timeout(Duration::from_secs(2));
        let channel = endpoint.connect().await.with_context(|| format!("no answer from {}", self.addr))?;
        let request = HealthCheckRequest { service: self.service.clone() };
        let response = HealthClient::new(channel).check(request).await;
        let response = response.with_context(|| format!("health of {:?} at {}", self.service, self.addr))?;
        Ok(response.into_inner().status())
    }
}

/// Flag of a listener for health alone.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct HealthListen {
    /// Answer health here too, in the clear: for probes that cannot speak TLS, such as the kubelet's.
    #[arg(long, value_name = "HOST:PORT", env = "FIRSTLIGHT_HEALTH_LISTEN")]
    pub health_listen: Option<SocketAddr>,
}

impl HealthListen {
    /// Serves `health` there until `stop`; does nothing without the flag.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn serve(
        self,
        health: HealthServer<impl Health>,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let Some(addr) = self.health_listen else { return Ok(()) };
        let listener = tokio::net::TcpListener::bind(addr)
            .await
            .with_context(|| format!("--health-listen {addr}: cannot listen"))?;
        let server = Server::builder().add_service(health);
        tokio::spawn(async move {
            let serving = server.serve_with_incoming(super::listen::incoming(listener, None));
            if let Some(Err(error)) = stop.run_until_cancelled(serving).await {
                tracing::error!(%error, "health listener ended");
            }
        });
        Ok(())
    }
}

/// Adds gRPC reflection, in both versions that clients speak, to a server's routes.
///
/// # Errors
/// When the descriptor set is broken (it is compiled in).
pub fn add_reflection(routes: &mut tonic::service::RoutesBuilder) -> anyhow::Result<()> {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(crate::DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    routes.add_service(builder().build_v1()?).add_service(builder().build_v1alpha()?);
    Ok(())
}
