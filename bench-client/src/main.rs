//! Entry point: wiring only.

use std::process::ExitCode;

use bench_client::{
    command,
    flags::{Cli, Command},
};
use clap::Parser as _;
use firstlight_proto::serve::{
    exit::exit,
    logging::{self, LogFormat},
};

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match logging::init(LogFormat::Auto, &cli.log) {
        Ok(()) => dispatch(cli.command).await,
        Err(error) => Err(error),
    };
    exit("bench-client", done)
}

async fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Complete(flags) => command::complete::complete(flags).await?,
        Command::Run(flags) => return command::run::run(*flags).await,
        Command::Sweep(flags) => return command::sweep::sweep(*flags).await,
        Command::Diff(flags) => return Ok(command::diff::diff(&flags)),
        Command::Report(flags) => command::report::report(&flags)?,
        Command::Explain(flags) => command::explain::explain(flags).await?,
        Command::Record(flags) => command::record::record(&flags).await?,
        Command::Whatif(flags) => command::whatif::whatif(&flags).await?,
    }
    Ok(ExitCode::SUCCESS)
}
