//! Operating the scheduler. Served on a loopback listener of its own.

use std::net::SocketAddr;

use firstlight_proto::{
    error::quoted,
    v1::{self, admin_server::Admin},
};
use tonic::{Request, Response, Status};

use crate::dispatch::{Dispatcher, LeaseError};

/// The service.
pub struct AdminService {
    /// To the owner of the core.
    pub dispatcher: Dispatcher,
}

/// Refuses an address that others could reach: whoever reaches it may change every limit.
///
/// # Errors
/// Names the address.
pub fn check_loopback(addr: SocketAddr) -> anyhow::Result<()> {
    if !addr.ip().is_loopback() {
        anyhow::bail!("--admin-listen {addr}: admin RPCs listen on loopback only, such as 127.0.0.1:7072");
    }
    Ok(())
}

#[tonic::async_trait]
impl Admin for AdminService {
    async fn get_budget(
        &self,
        _: Request<v1::GetBudgetRequest>,
    ) -> Result<Response<v1::BudgetState>, Status> {
        let state = self.dispatcher.with(|dispatch| dispatch.budget_state()).await?;
        Ok(Response::new(state))
    }

    async fn set_budget(
        &self,
        request: Request<v1::SetBudgetRequest>,
    ) -> Result<Response<v1::BudgetState>, Status> {
        let change = request.into_inner().change.unwrap_or_default();
        let state = self.dispatcher.with(move |dispatch| dispatch.set_budget(&change)).await??;
        Ok(Response::new(state))
    }

    async fn lease_budget(
        &self,
        request: Request<v1::LeaseBudgetRequest>,
    ) -> Result<Response<v1::LeaseBudgetResponse>, Status> {
        let request = request.into_inner();
        let leased = self.dispatcher.with(move |dispatch| dispatch.lease_budget(request)).await?;
        Ok(Response::new(leased.map_err(status)?))
    }

    async fn release_budget(
        &self,
        request: Request<v1::ReleaseBudgetRequest>,
    ) -> Result<Response<v1::BudgetState>, Status> {
        let id = request.into_inner().lease_id;
        let released = self.dispatcher.with(move |dispatch| dispatch.release_budget(&id)).await?;
        Ok(Response::new(released.map_err(status)?))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        let id = request.into_inner().request_id;
        let asked = id.clone();
        let explained = self.dispatcher.with(move |dispatch| dispatch.explain(&asked)).await?;
        let unknown = || {
            Status::not_found(format!(
                "request {} is not in flight and not among the last ended",
                quoted(&id)
            ))
        };
        explained.map(Response::new).ok_or_else(unknown)
    }
}

fn status(error: LeaseError) -> Status {
    match error {
        LeaseError::Invalid(failure) => failure.into(),
        LeaseError::Taken { .. } => Status::failed_precondition(error.to_string()),
        LeaseError::Gone(_) => Status::not_found(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_listens_on_loopback_only() {
        for good in ["127.0.0.1:7072", "127.0.0.5:1", "[::1]:7072"] {
            assert!(check_loopback(good.parse().unwrap()).is_ok(), "{good}");
        }
        for bad in ["0.0.0.0:7072", "10.0.0.1:7072", "[::]:7072"] {
            assert!(
                check_loopback(bad.parse().unwrap()).unwrap_err().to_string().contains("loopback"),
                "{bad}"
            );
        }
    }
}
