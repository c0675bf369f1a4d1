//! The budget of a run. It is leased with a short time to live and renewed while the run goes on, so
//! it is restored at the end, on Ctrl-C, and also when this process is killed.

use std::time::Duration;

use anyhow::Context as _;
use firstlight_proto::v1::{
    Budget, BudgetState, GetBudgetRequest, LeaseBudgetRequest, ReleaseBudgetRequest,
    admin_client::AdminClient,
};
use tokio::task::JoinHandle;
use tonic::transport::Channel;

const TTL: Duration = Duration::from_secs(10);

/// A budget override in force; ends with [`Lease::release`], or by its time to live.
#[derive(Debug)]
pub struct Lease {
    id: String,
    admin: AdminClient<Channel>,
    renewal: JoinHandle<()>,
    state: BudgetState,
}

/// The budget in force now.
///
/// # Errors
/// When the admin listener does not answer.
pub async fn current(admin: Channel) -> anyhow::Result<BudgetState> {
    let answer = AdminClient::new(admin).get_budget(GetBudgetRequest {}).await;
    Ok(answer.context("reading the budget")?.into_inner())
}

impl Lease {
    /// Puts `change` in force for as long as this lease is held.
    ///
    /// # Errors
    /// When the scheduler refuses the change, or another run holds a lease.
    pub async fn take(admin: Channel, change: Budget, holder: &str) -> anyhow::Result<Self> {
        let mut admin = AdminClient::new(admin);
        let granted = admin.lease_budget(ask(Some(change), "", holder)).await;
        let refused = |status: tonic::Status| {
            anyhow::anyhow!("the scheduler refused the run's budget: {}", status.message())
        };
        let granted = granted.map_err(refused)?.into_inner();
        let renewal = tokio::spawn(renew(admin.clone(), granted.lease_id.clone(), holder.to_owned()));
        Ok(Self { id: granted.lease_id, admin, renewal, state: granted.state.unwrap_or_default() })
    }

    /// The budget in force under this lease.
    pub fn state(&self) -> &BudgetState {
        &self.state
    }

    /// Restores the budget at once.
    pub async fn release(mut self) {
        self.renewal.abort();
        let ended = self.admin.release_budget(ReleaseBudgetRequest { lease_id: self.id.clone() }).await;
        if let Err(status) = ended {
            let message = status.message();
            tracing::warn!("the budget lease was not released ({message}); it ends within {TTL:?}");
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

async fn renew(mut admin: AdminClient<Channel>, lease_id: String, holder: String) {
    let mut tick = tokio::time::interval(TTL / 3);
    tick.tick().await;
    loop {
        tick.tick().await;
        if let Err(status) = admin.lease_budget(ask(None, &lease_id, &holder)).await {
            tracing::warn!("the budget lease was not renewed: {}", status.message());
        }
    }
}

fn ask(change: Option<Budget>, lease_id: &str, holder: &str) -> LeaseBudgetRequest {
    LeaseBudgetRequest {
        change,
        ttl_ms: TTL.as_millis() as u64,
        lease_id: lease_id.to_owned(),
        holder: holder.to_owned(),
    }
}
