//! The operator's side: loopback only, and overrides that end with their holder.

use firstlight_proto::v1::{BudgetState, GetBudgetRequest, admin_client::AdminClient};
use firstlight_tests::{bench, client, pair::Pair, service::refused, wait};
use tonic::{Code, transport::Endpoint};

#[tokio::test]
async fn admin_rpcs_are_not_served_to_clients() {
    let pair = Pair::sim().start().await;
    assert!(client::admin(&pair.admin).await.get_budget(GetBudgetRequest {}).await.is_ok());
    let public = Endpoint::from_shared(format!("http://{}", pair.scheduler.address)).unwrap();
    let mut public = AdminClient::new(public.connect().await.unwrap());
    let status = public.get_budget(GetBudgetRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

#[tokio::test]
async fn an_admin_listener_beyond_loopback_is_refused() {
    let said = refused("scheduler-svc", &["--engine", "127.0.0.1:1", "--admin-listen", "0.0.0.0:0"]).await;
    assert!(said.contains("--admin-listen") && said.contains("loopback"), "{said}");
}

#[tokio::test]
async fn the_budget_of_a_killed_benchmark_is_restored() {
    let pair = Pair::sim().engine(&["--sim-decode-base-us", "50000"]).start().await;
    let before = budget(&pair).await;
    let flags =
        ["--no-self-check", "--num-requests", "4", "--max-new-tokens", "2000", "--max-batch-size", "7"];
    let bench = bench::start(&pair, &flags);
    let leased = wait::until("a lease", || async {
        let state = budget(&pair).await;
        state.lease.is_some().then_some(state)
    })
    .await;
    assert_eq!(leased.budget.unwrap().max_batch_size, Some(7));
    bench.kill().await;
    let after = wait::until("the end of the lease", || async {
        let state = budget(&pair).await;
        state.lease.is_none().then_some(state)
    })
    .await;
    assert_eq!(after.budget, before.budget);
}

#[tokio::test]
async fn the_budget_of_a_finished_benchmark_is_restored_at_once() {
    let pair = Pair::sim().start().await;
    let before = budget(&pair).await;
    let results =
        bench::run(&pair, &["--num-requests", "8", "--max-new-tokens", "4", "--max-batch-size", "3"]).await;
    assert_eq!(results["run"]["budget"]["max_batch_size"], "3");
    let after = budget(&pair).await;
    assert_eq!((after.budget, after.lease), (before.budget, None));
}

async fn budget(pair: &Pair) -> BudgetState {
    client::admin(&pair.admin).await.get_budget(GetBudgetRequest {}).await.unwrap().into_inner()
}
