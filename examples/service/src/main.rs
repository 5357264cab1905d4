//! The program: `trine-example-service DIRECTORY [ADDRESS]`.
//!
//! It serves the store in DIRECTORY until SIGTERM or ctrl-c, then closes it.

use std::process::ExitCode;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use trine_example_service::{Failed, Service, serve};

const ADDRESS: &str = "127.0.0.1:8080";
const USAGE: &str = "usage: trine-example-service DIRECTORY [ADDRESS]";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (directory, address) = match arguments.as_slice() {
        [directory] => (directory, ADDRESS),
        [directory, address] => (directory, address.as_str()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(directory, address).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trine-example-service: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(directory: &str, address: &str) -> Result<(), Failed> {
    // Signals are handled from here on, so that none ends the process with the store open.
    let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = TcpListener::bind(address).await?;
    let service = Service::open(directory).await?;
    println!("listening on http://{}", listener.local_addr()?);
    serve(service, listener, either(signals)).await?;
    println!("closed {directory}");
    Ok(())
}

async fn either((mut terminate, mut interrupt): (Signal, Signal)) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
