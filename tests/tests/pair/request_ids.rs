//! Request ids name a request everywhere.

use firstlight_proto::v1::GenerateRequest;
use firstlight_tests::{bench, client::ids_request, pair::Pair, wait};

#[tokio::test]
async fn a_given_id_is_echoed_everywhere_and_a_missing_one_is_made() {
    let pair = Pair::sim().start().await;
    let client = pair.client().await;

    let given = GenerateRequest { request_id: "order-66/a".into(), ..ids_request(&[1], 4) };
    let stream = client.open(given).await.unwrap();
    assert_eq!(stream.id, "order-66/a");
    let finished = stream.rest().await.unwrap().finished.unwrap();
    assert_eq!(finished.request_id, "order-66/a");
    assert_eq!(finished.timeline.unwrap().request_id, "order-66/a");

    let stream = client.open(ids_request(&[1], 4)).await.unwrap();
    let made = stream.id.clone();
    assert_eq!(uuid::Uuid::parse_str(&made).expect("a UUID").get_version_num(), 7);
    assert_eq!(stream.rest().await.unwrap().finished.unwrap().request_id, made);
}

#[tokio::test]
async fn the_id_that_complete_prints_is_one_that_explain_knows() {
    let pair = Pair::sim().start().await;
    let addresses = ["--target", pair.front(), "--admin", &pair.admin];
    let mut complete = bench::command("complete");
    complete.args(addresses).args(["--token-ids", "1,2,3", "--max-new-tokens", "2"]);
    let completed = wait::within_patience("a completion", complete.output()).await.unwrap();
    let said = String::from_utf8(completed.stderr).unwrap();
    let id = said.lines().find_map(|line| line.strip_prefix("request ")).expect("an id");

    let mut explain = bench::command("explain");
    explain.args(addresses).arg(id);
    let explained = wait::within_patience("an explanation", explain.output()).await.unwrap();
    let told = String::from_utf8(explained.stdout).unwrap();
    assert!(told.starts_with(id), "{told}{}", String::from_utf8_lossy(&explained.stderr));
}
