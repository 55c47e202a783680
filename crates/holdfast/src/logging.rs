//! Logging to standard error, as text or JSON. Secrets are never logged.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::failure::Failure;
use crate::settings::Settings;

pub fn start(settings: &Settings) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&settings.log)
        .map_err(|error| Failure::settings(format!("HOLDFAST_LOG is not a valid filter: {error}")))?;
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if settings.log_json {
        builder.json().flatten_event(true).init();
    } else {
        builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init();
    }
    Ok(())
}
