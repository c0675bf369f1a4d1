//! `bench-client complete`: streams one completion to the terminal, then tells where its TTFT went.

use std::io::{self, Write as _};

use anyhow::{Context as _, bail};
use firstlight_proto::{cause, clock::Clock};
use uuid::Uuid;

use crate::{
    flags::CompleteFlags,
    join::{Chain, join, part_names},
    observe::{
        SpanStore,
        clocks::{Peer, Prober, own_domain},
    },
    target::{
        Ask, Firstlight, Outcome, Prompt, Record,
        firstlight::{Common, Message, connect_over},
    },
};

/// Runs the command.
///
/// # Errors
/// When the server is not there or the request fails.
pub async fn complete(flags: CompleteFlags) -> anyhow::Result<()> {
    let clock = Clock::new();
    let (sampling, stop) = (flags.sampling.sampling(), flags.sampling.stop());
    let common = Common { sampling, stop, ..Common::default() };
    let (target, tls) = (&flags.server.target, flags.server.tls.dialer().context("TLS")?);
    let server = Firstlight::connect_over(target, tls.clone(), 1, clock, common).await?;
    let peer = Peer { channel: connect_over(target, tls).await?, engine: None };
    let prober = Prober::new(clock, own_domain(&clock)?, vec![peer]);
    prober.burst().await?;

    let as_ids = flags.token_ids.is_some();
    let prompt = flags.token_ids.map_or(Prompt::Text(flags.prompt.unwrap_or_default()), Prompt::Ids);
    let ask = Ask::new(prompt, flags.max_new_tokens);
    let mut record = Record::new(Uuid::now_v7().to_string(), 0, 0, clock.now());
    // Before it is sent: explain also tells of one that still waits.
    eprintln!("request {}", record.id);
    let mut out = io::stdout();
    let show = |_: &Record, message: &Message<'_>| {
        // A closed pipe ends the output, not the request.
        let _ = if as_ids {
            message.ids.iter().try_for_each(|id| write!(out, "{id} "))
        } else {
            write!(out, "{}", message.text)
        };
        let _ = out.flush();
    };
    server.generate(ask, &mut record, show).await;
    println!();
    if let Outcome::Failed { kind, message } = &record.outcome {
        bail!("{kind}: {message}");
    }
    let records = [record];
    let spans = SpanStore::default();
    let joined = join(&records, &spans, &prober.map());
    if let Some(chain) = &joined[0].chain {
        println!("\n{}", line(&records[0], chain));
    }
    Ok(())
}

/// TTFT and the parts that make it up, on one line.
fn line(record: &Record, chain: &Chain) -> String {
    let ms = |ns: i64| format!("{:.2}", ns as f64 / 1e6);
    let parts = part_names().into_iter().zip(chain.parts);
    let mut words: Vec<String> = parts
        .filter_map(|(name, part)| Some((name, part?)))
        .filter(|(name, part)| *name != "lost" || part.ns != 0)
        .map(|(name, part)| format!("{name} {}", ms(part.ns)))
        .collect();
    words.push(format!("unexplained {}", ms(chain.unexplained_ns)));
    let largest = cause::ALL.into_iter().max_by_key(|c| chain.causes[*c as usize]);
    let blamed = largest.filter(|c| chain.causes[*c as usize] > 0).map_or(String::new(), |c| {
        format!(" · waited most for {} ({} ms)", c.label(), ms(chain.causes[c as usize]))
    });
    let tpot = record.tpot_ns().map_or(String::new(), |ns| format!(" · TPOT {} ms", ms(ns)));
    let tokens = record.output_tokens();
    format!("TTFT {} ms = {}{blamed}{tpot} · {tokens} tokens", ms(chain.ttft_ns), words.join(" + "))
}
