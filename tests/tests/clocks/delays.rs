//! A delay injected at each hand-over appears in that segment, within its bound, and nowhere else, whatever the
//! clocks. All nine at once, each of another length; one at a time on one clock is in `breakdown.rs`.

use firstlight_tests::{
    bench,
    chain::{HANDOVERS, Owner, median},
    pair::Plan,
};
use serde_json::Value;

use crate::settings::{self, Setting};

/// How much each hand-over is delayed, ms.
const DELAYS_MS: [f64; 9] = [20.0, 35.0, 50.0, 65.0, 80.0, 95.0, 110.0, 125.0, 140.0];
/// How much later than asked a busy machine may wake a sleeper.
const TOLERANCE_MS: f64 = 10.0;
/// One request at a time, so that the delay of one makes no other wait.
const LOAD: &[&str] = &[
    "--no-self-check",
    "--warmup-runs",
    "0",
    "--num-requests",
    "8",
    "--submit-interval-ms",
    "900",
    "--max-new-tokens",
    "2",
    "--unique-prompts",
    "--require-closed",
];

#[tokio::test]
async fn delays_are_found_where_they_are_when_no_two_clocks_agree() {
    check(vec![settings::everything()]).await;
}

#[tokio::test]
#[ignore = "a minute and a half: make test-long"]
async fn delays_are_found_where_they_are_in_every_setting() {
    check(settings::all()).await;
}

async fn check(settings: Vec<Setting>) {
    print!("{:34}", "change of each segment's median, ms");
    println!("{}", HANDOVERS.map(|(name, _)| format!("{name:>13}")).concat());
    println!("{:34} {}", "injected", DELAYS_MS.map(|ms| format!("{ms:12.1} ")).concat());
    let mut wrong = Vec::new();
    for setting in settings {
        let without = run(&setting, false).await;
        let with = run(&setting, true).await;
        let change = |name: &str| median(&with, name) - median(&without, name);
        println!(
            "{:34} {}",
            setting.name,
            HANDOVERS.map(|(name, _)| format!("{:12.1} ", change(name))).concat()
        );
        for ((name, _), injected) in HANDOVERS.into_iter().zip(DELAYS_MS) {
            let bound = with["segments"][name]["bound_ms"].as_f64().expect("a bound");
            if (change(name) - injected).abs() > TOLERANCE_MS + bound {
                wrong.push(format!(
                    "{}: {name} changed by {:.2} ms, not {injected} (± {bound:.2})",
                    setting.name,
                    change(name)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

async fn run(setting: &Setting, delayed: bool) -> Value {
    let delays = |owner: Owner| -> Vec<String> {
        let all = HANDOVERS.into_iter().zip(DELAYS_MS);
        let own = all.filter(|((_, who), _)| delayed && *who == owner);
        own.flat_map(|((name, _), ms)| ["--inject-delay".to_owned(), format!("{name}={ms}")]).collect()
    };
    let [client, scheduler, engine] = [Owner::Client, Owner::Scheduler, Owner::Engine].map(delays);
    let plan: Plan = setting.plan.clone().scheduler(&words(&scheduler)).engine(&words(&engine));
    let pair = plan.start().await;
    bench::run(&pair, &[LOAD, setting.bench, &words(&client)].concat()).await
}

fn words(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}
