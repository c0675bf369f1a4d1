//! Entry point: wiring only.

use std::process::ExitCode;

use clap::Parser as _;
use firstlight_proto::serve::{
    exit::exit,
    logging,
    memory::{MiMalloc, keep_freed},
    metrics as pages,
    recorder::install,
    shutdown::Shutdown,
};
use scheduler_svc::{
    cli::{Cli, Command, Flags, seconds},
    dispatch::Dispatch,
    metrics, server,
};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    keep_freed();
    let done = run(Cli::parse());
    exit("scheduler-svc", done.map(|()| ExitCode::SUCCESS))
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match cli.command {
        Some(Command::Healthcheck(check)) => runtime.block_on(check.run()),
        Some(Command::Metrics) => {
            print!("{}", pages::listing(metrics::ALL));
            Ok(())
        }
        None => runtime.block_on(serve(cli.serve)),
    }
}

async fn serve(flags: Flags) -> anyhow::Result<()> {
    logging::init(flags.log_format, &flags.log)?;
    let page = (!flags.no_telemetry).then(|| install(metrics::ALL)).transpose()?;
    let shutdown = Shutdown::on_signals(seconds("--drain-seconds", flags.drain_seconds)?)?;
    let metrics_listen = flags.metrics_listen;
    let mut running = server::start(flags, shutdown.clone()).await?;
    let dispatcher = running.dispatcher.clone();
    let refresh = move || {
        let dispatcher = dispatcher.clone();
        // A task that has stopped has no live values left to tell.
        async move { dispatcher.with(Dispatch::scrape).await.unwrap_or_default() }
    };
    if let Some(page) = page {
        pages::serve(metrics_listen, page, refresh, shutdown.stop).await?;
    }
    running.wait().await
}
