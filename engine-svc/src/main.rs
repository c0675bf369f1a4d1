//! Entry point: wiring only.

use std::process::ExitCode;

use clap::Parser as _;
use engine_svc::{
    cli::{Cli, Serve, Task},
    load, metrics,
    service::server::Live,
};
use firstlight_proto::serve::{
    exit::exit,
    logging,
    memory::{MiMalloc, keep_freed},
    metrics as exporter,
    recorder::install,
    shutdown::Shutdown,
};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    keep_freed();
    let done = run(Cli::parse());
    exit("engine-svc", done.map(|()| ExitCode::SUCCESS))
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match cli.command {
        Some(Task::Healthcheck(check)) => runtime.block_on(check.run()),
        Some(Task::Metrics) => {
            print!("{}", exporter::listing(metrics::METRICS));
            Ok(())
        }
        None => runtime.block_on(serve(cli.serve)),
    }
}

async fn serve(flags: Serve) -> anyhow::Result<()> {
    logging::init(flags.service.log_format, &flags.service.log)?;
    let shutdown = Shutdown::on_signals(flags.drain_limit()?)?;
    let page = (!flags.service.no_telemetry).then(|| install(metrics::METRICS)).transpose()?;
    let live = Live::listen(flags.server()?, shutdown.clone()).await?;
    let mut scraped = flags.service.metrics_listen;
    if let Some(page) = page {
        scraped = exporter::serve(scraped, page, live.live_metrics(), shutdown.stop.clone()).await?;
    }

    let load = tokio::task::spawn_blocking(move || load::load(&flags));
    let backend = tokio::select! {
        backend = load => backend??,
        // Nothing runs yet that would have to finish.
        () = shutdown.drain.cancelled() => return Ok(()),
    };
    let (model, kv) = (backend.info().clone(), backend.kv());
    let ready = live.ready(backend).await?;
    tracing::info!(
        engine = ready.name(),
        model = model.name,
        architecture = model.architecture,
        dtype = model.dtype,
        weight_bytes = model.weight_bytes,
        device = model.device,
        threads = model.threads,
        context_length = model.context_length,
        kv_blocks = kv.blocks,
        kv_tokens = kv.blocks * kv.block_tokens,
        kv_bytes = kv.blocks * kv.block_bytes,
        listen = %ready.addr(),
        metrics = %scraped,
        "ready"
    );
    ready.serve().await
}
