//! Request ids name a request everywhere.

use firstlight_proto::v1::GenerateRequest;
use firstlight_tests::{client::ids_request, pair::Pair};

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
